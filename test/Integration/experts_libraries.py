"""Experts that other libraries have quantized, against the goldens of test/Inputs/make_experts_forms.py.

  experts_libraries.py INPUTS WORKDIR

INPUTS/CASE has a checkpoint that the code of a library has written, golden.safetensors (prompt.I and logits.I, which transformers computes
in f32 with the dequantized weights) and weights.json (the SHA-256 of each dequantized matrix of an expert).
"""
import hashlib
import json
import pathlib
import shutil
import subprocess
import sys

import numpy as np

from checks import Checks, dequantized, export, full, logits, read_safetensors, run, summary_of

INPUTS, WORK = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
checks = Checks()

# What the summary says of matrices that are no floats in the file. Experts of a layer have three.
CASES = {
    "ct-qwen2_moe-w8a8": ["compressed-tensors 8-bit: 3, exact q8_0"],
    "ct-qwen3_5_moe-w4a16-g32-asym": ["compressed-tensors 4-bit: 3, exact q4_z_32"],
    "ct-qwen3_moe-mxfp4": ["compressed-tensors mxfp4: 3, exact fp4"],
    "ct-qwen3_moe-w4a16-g128": ["compressed-tensors 4-bit: 3, exact q4_g128"],
    "gptq-qwen2_moe-int8-g32": ["GPTQ 8-bit: 3, exact q8_0"],
    "gptq-qwen3_next-int4-desc_act": ["GPTQ 4-bit: 4, q8_0 0.501%", "GPTQ 4-bit: 2, exact q4_0"],
    "mlx-qwen2_moe-mxfp4": ["MLX mxfp4: 2, exact f32", "MLX mxfp4: 12, exact fp4"],
    "mlx-qwen3_5_moe-4bit": ["MLX 4-bit: 2, exact f32", "MLX 4-bit: 21, exact q4_m_32", "MLX 8-bit: 4, exact f32"],
    "mlx-qwen3_moe-8bit": ["MLX 8-bit: 1, exact f32", "MLX 8-bit: 8, q8_0 0.542%"],
    "mlx-qwen3_next-4bit": ["MLX 4-bit: 2, exact f32", "MLX 4-bit: 21, exact q4_m_32", "MLX 8-bit: 4, exact f32"],
    "bnb-qwen3_5_moe-nf4-fused": ["nf4: 6, q8_0 0.544%"],
    "bnb-qwen3_moe-nf4": ["nf4: 3, q8_0 0.546%"],
    "fp8-qwen2_moe-block32-fused": ["FP8: 3, q8_0 0.555%"],
    "fp8-qwen3_moe-block128": ["FP8: 3, q8_0 0.548%"],
}
HYBRIDS = ("qwen3_next", "qwen3_5")
# A compile takes most of the time, so that only `make test-full` compiles all.
COMPILED = ("ct-qwen3_moe-w4a16-g128", "gptq-qwen2_moe-int8-g32")
COMPILED_F32 = ("bnb-qwen3_5_moe-nf4-fused", "gptq-qwen3_next-int4-desc_act")


def digest(values):
    return hashlib.sha256((np.ascontiguousarray(values) + np.float32(0)).tobytes()).hexdigest()


def experts_of(name):
    """The digest of each expert's matrix in a case, by layer, part and number."""
    for tensor, fact in json.loads((INPUTS / name / "weights.json").read_text()).items():
        _, _, layer, _, _, number, part, _ = tensor.split(".")
        yield int(layer), part, int(number), fact["sha256"]


def check_read(name):
    """The compiler reads the values that the library dequantizes."""
    run(["reference-logits", INPUTS / name, "values", WORK / "values"])
    values = read_safetensors(WORK / "values")
    for layer, part, number, needed in experts_of(name):
        found = digest(values[f"model.layers.{layer}.mlp.experts.{part}.weight"][number])
        checks.check(found == needed, f"{name}: {part} of expert {number} of layer {layer} has other values")


def check_kept(name, lines):
    """What the summary says, and that the model has the integers: the exported experts have the values of the library. Hybrids are not
    exported."""
    model = WORK / f"{name}.qwen"
    result = subprocess.run(["qwen-opt", INPUTS / name, "-o", model, "--rotate", "off"], capture_output=True, text=True)
    checks.check(result.returncode == 0 and "unknown keys" not in result.stderr, f"{name}: {result.stderr}")
    if result.returncode != 0:
        return
    found = [line for line in summary_of(result.stderr) if not line.startswith(("F16", "BF16", "F32"))]
    checks.expect(f"{name}: the summary", found, lines)
    run(["qwen-run", "info", model])
    if any("%" in line for line in lines) or any(kind in name for kind in HYBRIDS):
        return
    tensors = {tensor.name: tensor for tensor in export(model, WORK / "model.gguf")}
    for layer, part, number, needed in experts_of(name):
        matrix = dequantized(tensors[f"blk.{layer}.ffn_{part.removesuffix('_proj')}_exps.weight"])[number]
        checks.check(digest(matrix) == needed, f"{name}: {part} of expert {number} of layer {layer} is exported with other values")


def check_f32(name):
    """The logits of a model that is compiled in f32 are those of transformers."""
    model = WORK / "f32.qwen"
    run(["qwen-opt", INPUTS / name, "-o", model, "--weights", "f32", "--kv", "f32"])
    golden = read_safetensors(INPUTS / name / "golden.safetensors")
    for i in range(2):
        expected = golden[f"logits.{i}"]
        error = np.abs(logits(model, golden[f"prompt.{i}"], WORK / "logits.npy") - expected).max() / (expected.max() - expected.min())
        checks.check(error <= 1e-5, f"{name}: logits {i} differ by {error:.1e} of their range")


def main():
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    for name, lines in CASES.items():
        check_read(name)
        if full() or name in COMPILED:
            check_kept(name, lines)
        if full() or name in COMPILED_F32:
            check_f32(name)
    checks.finish()


main()

"""Weights in the forms of other programs: the goldens of INPUTS/NAME.

  forms.py INPUTS WORKDIR PREFIX...

INPUTS/NAME has a checkpoint of transformers or of another library, golden.safetensors (prompt.I and logits.I, which transformers
computes in f32 with the dequantized weights) and weights.json (the SHA-256 of each dequantized tensor in f32, with -0 as +0).
PREFIX names the cases that a process runs.
"""
import hashlib
import json
import pathlib
import shutil
import subprocess
import sys

import numpy as np

from checks import (Checks, compile_model, dequantized, export, full, join, logits, q4_0_of, read_safetensors, run, same_bits, summary_of, weights_of,
                    write_weights)
from gguf_model import own_name

INPUTS, WORK = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
checks = Checks()

# What the summary says of each form.
CASES = {
    "gptq-qwen2-int4-g128": ["GPTQ 4-bit: 7, exact q4_g128", "F16: 2, exact f32"],
    "gptq-qwen2-int8-g128": ["GPTQ 8-bit: 7, exact q8_0", "F16: 2, exact f32"],
    "gptq-qwen3-int4-asym-v1": ["GPTQ 4-bit: 14, exact q4_z_128", "F16: 1, exact f32"],
    "gptq-qwen3-int4-asym-v1-borrow": ["GPTQ 4-bit: 14, exact q4_z_128", "F16: 1, exact f32"],
    "gptq-qwen3-int4-asym-v2": ["GPTQ 4-bit: 14, exact q4_z_32", "F16: 1, exact f32"],
    "gptq-qwen3-int4-desc_act": ["GPTQ 4-bit: 10, q8_0 0.502%", "GPTQ 4-bit: 4, exact q4_g128", "F16: 1, exact f32"],
    "gptq-qwen3-int4-dynamic": ["GPTQ 4-bit: 1, exact q4_0", "GPTQ 4-bit: 10, exact q4_g128", "GPTQ 8-bit: 1, exact q8_0", "F16: 3, exact f32"],
    "gptq-qwen3-int4-v2-labelled-v1": ["GPTQ 4-bit: 14, exact q4_g128", "F16: 1, exact f32"],
    "autoround-qwen3-asym": ["AutoRound 4-bit: 14, exact q4_z_128", "F16: 1, exact f32"],
    "autoround-qwen3-awq": ["AutoRound 4-bit: 14, exact q4_g128", "F16: 1, exact f32"],
    "autoround-qwen3-gptq": ["AutoRound 4-bit: 13, exact q4_g128", "F16: 2, exact f32"],
    "awq-qwen2-gemm-g128": ["AWQ 4-bit: 7, exact q4_z_128", "F16: 2, exact f32"],
    "awq-qwen3-gemm-g64-partial": ["AWQ 4-bit: 8, exact q4_z_64", "F16: 7, exact f32"],
    "awq-qwen3-gemv-g64": ["AWQ 4-bit: 14, exact q4_z_64", "F16: 1, exact f32"],
    "ct-qwen2-w4a16-g32-asym": ["compressed-tensors 4-bit: 7, exact q4_z_32", "BF16: 2, exact bf16"],
    "ct-qwen3-actorder": [
        "compressed-tensors 4-bit: 10, q8_0 0.5%",
        "compressed-tensors 4-bit: 4, exact q4_g128",
        "BF16: 1, exact bf16",
    ],
    "ct-qwen3-fp8": ["compressed-tensors FP8: 14, q8_0 0.547%", "BF16: 1, exact bf16"],
    "ct-qwen3-mixed": [
        "compressed-tensors 4-bit: 5, exact q4_z_64",
        "compressed-tensors 8-bit: 7, exact q8_0",
        "BF16: 3, exact bf16",
    ],
    "ct-qwen3-mxfp4": ["compressed-tensors mxfp4: 14, exact fp4", "BF16: 1, exact bf16"],
    "ct-qwen3-w4a16-g128": ["compressed-tensors 4-bit: 14, exact q4_g128", "BF16: 1, exact bf16"],
    "ct-qwen3-w8a8-int": ["compressed-tensors 8-bit: 14, exact q8_0", "BF16: 1, exact bf16"],
    "mlx-qwen2-4bit-f16": ["MLX 4-bit: 9, exact q4_m_64"],
    "mlx-qwen2-8bit": ["MLX 8-bit: 9, q8_0 0.533%"],
    "mlx-qwen3-4bit": ["MLX 4-bit: 15, exact q4_m_64"],
    "mlx-qwen3-mixed": [
        "MLX 2-bit: 2, exact q4_m_64",
        "MLX 3-bit: 2, exact q4_m_32",
        "MLX 4-bit: 6, exact q4_m_64",
        "MLX 5-bit: 2, exact q5_m_32",
        "MLX 8-bit: 2, q8_0 0.532%",
        "BF16: 1, exact bf16",
    ],
    "mlx-qwen3-mxfp4": ["MLX 8-bit: 1, q8_0 0.533%", "MLX mxfp4: 14, exact fp4"],
    "fp8-qwen2-block128-f32": ["FP8: 7, q8_0 0.551%", "BF16: 2, exact bf16"],
    "fp8-qwen3-block128": ["FP8: 13, q8_0 0.55%", "BF16: 2, exact bf16"],
    "bnb-qwen3-nf4-double": ["nf4: 14, q8_0 0.544%", "BF16: 1, exact bf16"],
}
# A compile takes most of the time, so that only `make test-full` compiles all: here one case of each format and layout.
COMPILED = ("gptq-qwen2-int8-g128", "gptq-qwen3-int4-asym-v2", "gptq-qwen3-int4-desc_act", "gptq-qwen3-int4-dynamic",
            "awq-qwen2-gemm-g128", "awq-qwen3-gemv-g64",
            "ct-qwen3-actorder", "ct-qwen3-mixed",
            "mlx-qwen3-mixed", "mlx-qwen3-mxfp4",
            "fp8-qwen3-block128",
            "bnb-qwen3-nf4-double")
COMPILED_F32 = ("gptq-qwen3-int4-desc_act", "ct-qwen3-actorder")


def in_file_order(weights, folder):
    """The weights of a model with the columns of down_proj, and the outputs that become them, in the order of the file."""
    for name, groups in read_safetensors(folder / "model.safetensors").items():
        path, _, tensor = name.partition("down_proj.")
        if tensor in ("g_idx", "weight_g_idx"):
            back = np.argsort(np.argsort(groups, kind="stable"))
            weights[path + "down_proj.weight"] = weights[path + "down_proj.weight"][:, back]
            for writer in ("gate_proj.weight", "up_proj.weight"):
                weights[path + writer] = weights[path + writer][back]
    return weights


def check_tensors(name, folder, weights):
    for tensor, facts in json.loads((folder / "weights.json").read_text()).items():
        digest = hashlib.sha256((weights[tensor] + np.float32(0)).tobytes()).hexdigest()
        checks.check(digest == facts["sha256"], f"{name}: {tensor} has other values")


def check_logits(name, folder, logits_of):
    golden = read_safetensors(folder / "golden.safetensors")
    for i in range(2):
        expected = golden[f"logits.{i}"]
        error = np.abs(logits_of(golden[f"prompt.{i}"]) - expected).max() / (expected.max() - expected.min())
        checks.check(error <= 1e-5, f"{name}: logits {i} differ by {error:.1e} of their range")


def reference(folder, weights, kv, ids):
    """The logits of the model in plain C++."""
    run(["reference-logits", folder, weights, kv, join(ids), WORK / "reference"])
    return np.fromfile(WORK / "reference", np.float32).reshape(len(ids), -1)


def check_read(name, folder):
    """What the compiler reads: the values of all tensors, and the logits of the plain C++ model with them."""
    run(["reference-logits", folder, "values", WORK / "values"])
    check_tensors(name, folder, read_safetensors(WORK / "values"))
    check_logits(name, folder, lambda ids: reference(folder, "f32", "f32", ids))


def check_f32(name, folder):
    """The same of a model that is compiled in f32."""
    model = compile_model(folder, WORK / "f32.qwen", "--weights", "f32")
    check_tensors(name, folder, in_file_order(weights_of(model), folder))
    check_logits(name, folder, lambda ids: logits(model, ids, WORK / "logits.npy"))


def check_kept(name, folder, lines):
    """The integers that are kept, and the logits of the plain C++ model with them, bit for bit."""
    model = WORK / f"{name}.qwen"
    result = subprocess.run(["qwen-opt", folder, "-o", model], capture_output=True, text=True)
    checks.check(result.returncode == 0, f"{name}: {result.stderr}")
    if result.returncode != 0:
        return
    checks.expect(f"{name}: the summary", summary_of(result.stderr), lines)
    checks.check("unknown keys" not in result.stderr, f"{name}: {result.stderr}")
    ids = list(range(1, 40, 3))
    found = logits(model, ids, WORK / "logits.npy")
    expected = reference(folder, "keep", "q8", ids)
    checks.check(np.isfinite(found).all() and same_bits(found, expected),
                 f"{name}: the logits are not those of the reference")
    check_exported(name, folder, model, lines)


def check_exported(name, folder, model, lines):
    """The tensors of a GGUF file, of which those that the model keeps have the values of the form."""
    if name in COMPILED_F32:
        return  # The columns have another order.
    tensors = {tensor.name: tensor for tensor in export(model, WORK / "model.gguf")}
    facts = json.loads((folder / "weights.json").read_text())
    checks.check(len(tensors) == len(facts), f"{name}: {len(tensors)} tensors are exported")
    equal = sum(hashlib.sha256((dequantized(tensors[own_name(tensor, False)]) + np.float32(0)).tobytes()).hexdigest() == fact["sha256"]
                for tensor, fact in facts.items())
    converted = sum(int(line.split(": ")[1].split(",")[0]) for line in lines if line.endswith("%"))
    checks.expect(f"{name}: exported tensors with the values of the form", equal, len(facts) - converted)


def check_other_files():
    """A configuration in a file of its own, with an unknown key, and a bias of zeros that the architecture does not have."""
    name, folder = "gptq-qwen2-int4-g128", WORK / "other"
    shutil.copytree(INPUTS / name, folder)
    config = json.loads((folder / "config.json").read_text())
    quantization = config.pop("quantization_config") | {"surprise": 1}
    del quantization["quant_method"]
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "quantize_config.json").write_text(json.dumps(quantization))
    data = (folder / "model.safetensors").read_bytes()
    size = int.from_bytes(data[:8], "little")
    header, data = json.loads(data[8:8 + size]), data[8 + size:]
    header["model.layers.0.mlp.up_proj.bias"] = {"dtype": "F16", "shape": [4], "data_offsets": [len(data), len(data) + 8]}
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data + bytes(8))
    result = subprocess.run(["qwen-opt", folder, "-o", WORK / "other.qwen"], capture_output=True, text=True)
    checks.expect("another file: the summary", summary_of(result.stderr), CASES[name])
    for line in ("not used, unknown keys: surprise", "not used, biases of zeros: model.layers.0.mlp.up_proj.bias"):
        checks.check(line in result.stderr, f"another file: no line {line!r} in {result.stderr}")


def check_grids():
    """Floats of quantization-aware training are the integers that were trained. The second layer lacks -8."""
    folder, original = INPUTS / "qat-qwen3-grid32", WORK / "qat.qwen"
    check_read(folder.name, folder)
    result = subprocess.run(["qwen-opt", folder, "-o", original], capture_output=True, text=True)
    checks.expect("grids: the summary", summary_of(result.stderr), ["BF16: 1, exact bf16", "BF16: 14, exact q4_0"])
    checks.check("14 matrices of floats lie on grids of q4_0" in result.stderr, f"grids: {result.stderr}")
    found, golden = q4_0_of(original), read_safetensors(folder / "golden.safetensors")
    for name, codes in golden.items():
        if name.startswith("codes/"):
            name = name.removeprefix("codes/")
            scales, own = found[name]
            # The sign of a scale is free where no code is -8.
            signs = np.where((scales < 0) != (golden[f"scales/{name}"] < 0), -1, 1)
            checks.check(np.array_equal(own * signs[..., None], codes.reshape(own.shape)), f"grids: {name} has other codes")
    run(["qwen-opt", folder, "-o", original, "--no-grids"])
    checks.check("q4_0" not in run(["qwen-run", "info", original]), "--no-grids keeps integers")


def check_few_values():
    """Matrices of zeros (blocks that were added) or of three values lie on any grid. They do not choose the formats of the others."""
    few = {"model.layers.0.self_attn.o_proj.weight": [0], "model.layers.0.mlp.down_proj.weight": [0x3D80, 0, 0xBD80]}
    rng, out = np.random.default_rng(5), WORK / "few.qwen"
    for name, lines in (("base-qwen3", None), ("qat-qwen3-grid32", ["BF16: 1, exact bf16", "BF16: 12, exact q4_0", "BF16: 2, exact q4_g128"])):
        weights = dict(read_safetensors(INPUTS / name / "model.safetensors"))
        facts = json.loads((INPUTS / name / "config.json").read_text())
        for tensor, values in few.items():
            weights[tensor] = rng.choice(np.array(values, np.uint16), weights[tensor].shape)
        write_weights(WORK / "few", weights, facts)
        result = subprocess.run(["qwen-opt", WORK / "few", "-o", out], capture_output=True, text=True)
        checks.check(result.returncode == 0, f"few values: {result.stderr}")
        if lines:
            checks.expect(f"few values in {name}", summary_of(result.stderr), lines)
        else:
            checks.check("converted to q5_k" in result.stderr and "q4_0" not in result.stderr and "grids" not in result.stderr,
                         f"few values: {result.stderr}")


def main():
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    for name, lines in CASES.items():
        if name.startswith(tuple(sys.argv[3:])):
            folder = INPUTS / name
            check_read(name, folder)
            if full() or name in COMPILED_F32:
                check_f32(name, folder)
            if full() or name in COMPILED:
                check_kept(name, folder, lines)
    if "qat" in sys.argv[3:]:
        check_grids()
        check_few_values()
    if "gptq" in sys.argv[3:]:
        check_other_files()
    checks.finish()


main()

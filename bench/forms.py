#!/usr/bin/env python3
"""Compares files with integers that someone else chose with files of qwen-opt's own encoders, in alternating runs.

  .venv/bin/python bench/forms.py WORKDIR [--model NAME] [--forms awq,gptq,...] [--rounds N] [--threads N] [--json]

For each form it makes a checkpoint with random integers and the shapes of a published model, and compiles it. It compiles
bench/make_checkpoint.py's checkpoint of the same shapes to the format that the form keeps. Each round runs both files. Prints the
seconds of each compile (median of 3), the size, and the ratios of prefill (512 tokens) and decode (64 tokens), round by round.
Above 1, the kept integers are faster. Except in MLX, which quantizes it too, the embedding becomes q8_0 on both sides.
"""
import argparse
import json
import os
import pathlib
import statistics
import sys

import numpy as np

from make_checkpoint import SHAPES, config, tensors, values, write_header
from peers import Ours, cpu_name, make_checkpoint, spread


def integers(rng, *shape):
    return "I32", rng.integers(0, 1 << 32, shape, dtype=np.uint32).view(np.int32)


def halves(rng, *shape):
    return "F16", (rng.random(shape, dtype=np.float32) * 0.01 + 0.001).astype(np.float16)


def bfloats(rng, *shape):
    return "BF16", ((rng.random(shape, dtype=np.float32) * 0.01 + 0.001).view(np.uint32) >> 16).astype(np.uint16)


def awq(rng, n, k):
    return {"qweight": integers(rng, k, n // 8), "qzeros": integers(rng, k // 128, n // 8), "scales": halves(rng, k // 128, n)}


def gptq(rng, n, k):
    # Symmetric: version 1 stores a zero point of 8 as 7.
    zeros = np.full((k // 128, n // 8), 0x77777777, np.int32)
    return {"qweight": integers(rng, k // 8, n), "qzeros": ("I32", zeros), "scales": halves(rng, k // 128, n),
            "g_idx": ("I32", (np.arange(k) // 128).astype(np.int32))}


def packed(rng, n, k):
    return {"weight_packed": integers(rng, n, k // 8), "weight_scale": bfloats(rng, n, k // 128),
            "weight_shape": ("I64", np.array([n, k]))}


def mlx(bits):
    def make(rng, n, k):
        kind, words = integers(rng, n, k * bits // 32)
        return {"weight": ("U32", words.view(np.uint32)), "scales": bfloats(rng, n, k // 64), "biases": bfloats(rng, n, k // 64)}
    return make


def fp8(rng, n, k):
    codes = rng.integers(0, 0x7F, (n, k), dtype=np.uint8) | rng.integers(0, 2, (n, k), dtype=np.uint8) << 7
    return {"weight": ("F8_E4M3", codes), "weight_scale_inv": bfloats(rng, -(-n // 128), -(-k // 128))}


def nf4(rng, n, k):
    table = np.linspace(-1, 1, 16, dtype=np.float32)
    state = {"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": [n, k]}
    return {"weight": ("U8", rng.integers(0, 256, (n * k // 2, 1), dtype=np.uint8)),
            "weight.absmax": ("F32", rng.random(n * k // 64, dtype=np.float32) * 0.1), "weight.quant_map": ("F32", table),
            "weight.quant_state.bitsandbytes__nf4": ("U8", np.frombuffer(json.dumps(state).encode(), np.uint8))}


# The tensors of a matrix, the configuration, and the format that keeps the integers, or that they are encoded in.
QUANTIZATION = "quantization_config"
FORMS = {
    "awq": (awq, QUANTIZATION, {"bits": 4, "group_size": 128, "quant_method": "awq", "version": "gemm", "zero_point": True},
            "q4_z_128"),
    "gptq": (gptq, QUANTIZATION, {"bits": 4, "group_size": 128, "quant_method": "gptq", "sym": True, "desc_act": False,
                                  "checkpoint_format": "gptq", "lm_head": False}, "q4_g128"),
    "compressed-tensors": (packed, QUANTIZATION, {
        "quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["lm_head"], "quantization_status": "compressed",
        "config_groups": {"group_0": {"targets": ["Linear"], "input_activations": None, "output_activations": None, "weights": {
            "num_bits": 4, "group_size": 128, "symmetric": True, "strategy": "group", "type": "int", "dynamic": False}}}}, "q4_g128"),
    "mlx4": (mlx(4), "quantization", {"group_size": 64, "bits": 4}, "q4_m_64"),
    "mlx8": (mlx(8), "quantization", {"group_size": 64, "bits": 8}, "q8_0"),
    "fp8": (fp8, QUANTIZATION, {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
                                "weight_block_size": [128, 128]}, "q8_0"),
    "nf4": (nf4, QUANTIZATION, {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4",
                                "bnb_4bit_use_double_quant": False, "bnb_4bit_quant_storage": "uint8",
                                "bnb_4bit_compute_dtype": "bfloat16"}, "q8_0"),
}


def make_form(form, model, out):
    """Writes a checkpoint of a form with random integers. The names of its tensors are those of the float checkpoint."""
    if (out / "config.json").exists():
        return out
    make, key, quantization, _ = FORMS[form]
    out.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(1)
    stored = []
    for name, shape in tensors(*SHAPES[model]):
        is_table = "embed_tokens" in name or "lm_head" in name
        if len(shape) == 2 and (not is_table or form.startswith("mlx")):
            stored += [(name.removesuffix("weight") + suffix, *tensor) for suffix, tensor in make(rng, *shape).items()]
        else:
            stored.append((name, "BF16", values(name, shape, rng)))
    with open(out / "model.safetensors", "wb") as file:
        write_header(file, [(name, kind, list(data.shape), data.nbytes) for name, kind, data in stored])
        for _, _, data in stored:
            data.tofile(file)
    (out / "config.json").write_text(json.dumps(config(*SHAPES[model]) | {key: quantization}, indent=2))
    return out


def prepare(form, args, floats):
    """Compiles both files. Returns the programs by name, and the seconds of the compiles of the form."""
    checkpoint = make_form(form, args.model, args.workdir / f"{args.model}.{form}")
    table = () if form.startswith("mlx") else ("--tensor-weights", "(embed_tokens|lm_head)=q8_0")
    kept = Ours(args.workdir / f"{args.model}.{form}.kept.qwen", args.threads)
    seconds = [kept.compile(checkpoint, *table) for _ in range(3)]
    own = Ours(args.workdir / f"{args.model}.{form}.own.qwen", args.threads)
    own.compile(floats, "--weights", FORMS[form][3], "--rotate", "off", *table)
    return {"kept": kept, "own": own}, seconds


def measure(form, args, floats):
    programs, seconds = prepare(form, args, floats)
    rounds = {"prefill": [], "decode": []}
    for number in range(args.rounds):
        # Each file is first in a round as often as it is last.
        figures = {name: programs[name].bench() for name in sorted(programs, reverse=number % 2 == 1)}
        for kind, ratios in rounds.items():
            ratios.append(figures["kept"][kind] / figures["own"][kind])
        if sys.stderr.isatty():
            print(f"\r{form}: round {number + 1} of {args.rounds}", end="", file=sys.stderr, flush=True)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    return {"format": FORMS[form][3], "compile_seconds": statistics.median(seconds), "bytes": programs["kept"].file.stat().st_size,
            **{f"{kind}_ratio": spread(ratios) for kind, ratios in rounds.items()}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workdir", type=pathlib.Path)
    parser.add_argument("--model", choices=sorted(SHAPES), default="qwen2.5-0.5b")
    parser.add_argument("--forms", default=",".join(FORMS))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    print(cpu_name(), file=sys.stderr)
    floats = make_checkpoint(args)
    figures = {form: measure(form, args, floats) for form in args.forms.split(",")}
    if args.json:
        print(json.dumps(figures))
        return
    print(f"{'form':20} {'format':10} {'compile':>8} {'MB':>7} {'prefill (least, greatest)':>26} {'decode':>22}")
    for form, row in figures.items():
        ratios = ["{median:.3f} ({least:.3f}, {greatest:.3f})".format(**row[f"{kind}_ratio"]) for kind in ("prefill", "decode")]
        print(f"{form:20} {row['format']:10} {row['compile_seconds']:7.1f}s {row['bytes'] / 1e6:7.1f} {ratios[0]:>26} {ratios[1]:>22}")


if __name__ == "__main__":
    main()

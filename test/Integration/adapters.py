"""Adapters (`qwen-opt --lora`): goldens of PEFT and GGUF adapters, and what becomes of a base model of integers.

  adapters.py INPUTS WORKDIR floats|integers      the base models

INPUTS/adapters/NAME has an adapter of a model in INPUTS/checkpoints and golden.safetensors: prompt.I and logits.I of the merged
model in f32, from transformers. AdaptersTest compares the merged rows.
"""
import json
import pathlib
import re
import subprocess
import sys

import numpy as np

from checks import Checks, compile_model, logits, read_safetensors

INPUTS, WORK = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
FLOATS = ("lora-qwen2-plain", "lora-qwen2-patterns", "lora-qwen2-embedding", "lora-qwen2-lora_bias", "lora-qwen3-dora", "lora-qwen3-rslora")
INTEGERS = ("lora-qwen3-on-gptq", "qalora-qwen3-paper", "qalora-qwen3-peft")
checks = Checks()


def check_logits(name):
    """The greatest difference of the logits is at most 1e-5 of their range."""
    adapter = INPUTS / "adapters" / name
    base = pathlib.Path(json.loads((adapter / "adapter_config.json").read_text())["base_model_name_or_path"]).name
    model = compile_model(INPUTS / "checkpoints" / base, WORK / f"{name}.qwen", "--weights", "f32", "--lora", adapter)
    golden = read_safetensors(adapter / "golden.safetensors")
    for number in range(2):
        expected = golden[f"logits.{number}"]
        error = np.abs(logits(model, golden[f"prompt.{number}"], WORK / "logits.npy") - expected).max() / (expected.max() - expected.min())
        print(f"{name}, case {number}: greatest difference {error:.1e} of the range")
        checks.check(error <= 1e-5, f"{name}, case {number}: {error:.1e} of the range is more than 1e-5")
    return model


def conversions(base, adapter, *options):
    """The lines about the matrices of a base model of integers with an adapter."""
    command = ["qwen-opt", INPUTS / base, "-o", WORK / "kept.qwen", "--lora", INPUTS / "adapters" / adapter, *options]
    result = subprocess.run(command, capture_output=True, text=True)
    checks.expect(f"status of {options}", result.returncode, 0)
    lines = re.findall(r"^  from (.*)$", result.stderr, re.M)
    print(*lines, sep="\n")
    return lines


def check_floats():
    models = {name: check_logits(name) for name in FLOATS}
    # The adapter of a GGUF file is the same one.
    plain = models["lora-qwen2-plain"]
    gguf = compile_model(INPUTS / "checkpoints/base-qwen2", WORK / "gguf.qwen", "--weights", "f32",
                         "--lora", f"{INPUTS / 'adapters/lora-qwen2-gguf/adapter.gguf'}=1")
    checks.check(plain.read_bytes() == gguf.read_bytes(), "the adapter of a GGUF file gives another model")


def check_integers():
    for name in INTEGERS:
        check_logits(name)
    for options in ((), ("--quantizer", "search")):
        lines = conversions("gguf/qwen3-q4_k_m/model.gguf", "lora-qwen3-rslora", *options)
        for line in lines:
            kept = "+ LoRA" not in line
            checks.check(("kept exactly" in line) == kept and ("with an error of" in line) != kept, f"{options}: {line}")
        checks.check(any("+ LoRA" in line for line in lines) and any("+ LoRA" not in line for line in lines), f"{options}: {lines}")
    # Zero points are rounded, which is told, but no integer changes.
    line = next(line for line in conversions("checkpoints/gptq-qwen3-int4-asym-v2", "qalora-qwen3-paper") if "QA-LoRA" in line)
    error = re.search(r"GPTQ 4-bit \+ QA-LoRA: 14 matrices, .* converted to q4_z_32, .*, with an error of (0\.0\d+)%", line)
    checks.check(error is not None and float(error[1]) < 0.1, line)


WORK.mkdir(parents=True, exist_ok=True)
{"floats": check_floats, "integers": check_integers}[sys.argv[3]]()
checks.finish()

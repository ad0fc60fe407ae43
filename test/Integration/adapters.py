"""Adapters (`qwen-opt --lora`): goldens of PEFT and GGUF adapters, and what becomes of a base model of integers.

  adapters.py INPUTS WORKDIR

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
NAMES = ("lora-qwen2-plain", "lora-qwen2-patterns", "lora-qwen2-embedding", "lora-qwen2-lora_bias", "lora-qwen3-dora", "lora-qwen3-rslora",
         "lora-qwen3-on-gptq")
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


def conversions(*options):
    """The lines about matrices of a GGUF file with an adapter of two of them."""
    command = ["qwen-opt", INPUTS / "gguf/qwen3-q4_k_m/model.gguf", "-o", WORK / "kept.qwen", "--lora", INPUTS / "adapters/lora-qwen3-rslora", *options]
    result = subprocess.run(command, capture_output=True, text=True)
    checks.expect(f"status of {options}", result.returncode, 0)
    return re.findall(r"^  from (.*)$", result.stderr, re.M)


def main():
    WORK.mkdir(parents=True, exist_ok=True)
    models = {name: check_logits(name) for name in NAMES}
    # The adapter of a GGUF file is the same one.
    plain = models["lora-qwen2-plain"]
    gguf = compile_model(INPUTS / "checkpoints/base-qwen2", WORK / "gguf.qwen", "--weights", "f32",
                         "--lora", f"{INPUTS / 'adapters/lora-qwen2-gguf/adapter.gguf'}=1")
    checks.check(plain.read_bytes() == gguf.read_bytes(), "the adapter of a GGUF file gives another model")
    for options in ((), ("--quantizer", "search")):
        lines = conversions(*options)
        print(*lines, sep="\n")
        for line in lines:
            kept = "+ LoRA" not in line
            checks.check(("kept exactly" in line) == kept and ("with an error of" in line) != kept, f"{options}: {line}")
        checks.check(any("+ LoRA" in line for line in lines) and any("+ LoRA" not in line for line in lines), f"{options}: {lines}")
    checks.finish()


main()

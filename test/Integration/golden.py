"""Compares a compiled checkpoint in f32 with results of Hugging Face transformers.

  golden.py CHECKPOINT GOLDEN.safetensors WORKDIR

The greatest difference of the logits is at most 1e-5 of their range with the KV cache in f32 and 1e-3 in f16, and the
greedy continuation is the same.
"""
import pathlib
import sys

import numpy as np

from checks import Checks, compile_model, join, logits, read_safetensors, run


def cases(golden):
    """(prompt, logits, greedy) of each case. A file has one case, or several with a number before each name."""
    prefixes = sorted({name.rpartition(".")[0] for name in golden})
    for prefix in prefixes:
        dot = prefix + "." if prefix else ""
        yield tuple(golden[dot + part] for part in ("prompt", "logits", "greedy"))


def main():
    checkpoint, golden_file, work = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    work.mkdir(parents=True, exist_ok=True)
    golden = read_safetensors(golden_file)
    checks = Checks()
    for kv, bound in (("f32", 1e-5), ("f16", 1e-3)):
        model = compile_model(checkpoint, work / f"{kv}.qwen", "--weights", "f32", "--kv", kv)
        for number, (prompt, expected, greedy) in enumerate(cases(golden)):
            got = logits(model, prompt, work / "logits.npy")
            checks.check(got.shape == expected.shape, f"shape is {got.shape} when {expected.shape} is needed")
            error = np.abs(got - expected).max() / (expected.max() - expected.min())
            print(f"kv {kv}, case {number}: greatest difference {error:.1e} of the range")
            checks.check(error <= bound, f"kv {kv}, case {number}: {error:.1e} of the range is more than {bound}")
            ids = run(["qwen-run", "generate", model, "--ids", join(prompt), "-n", len(greedy), "--temperature", "0",
                       "--repetition-penalty", "1", "--ignore-eos"]).replace(",", " ").split()
            checks.check([int(i) for i in ids] == greedy.tolist(), f"kv {kv}, case {number}: greedy ids are {ids}")
    checks.finish()


main()

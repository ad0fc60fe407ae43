"""Compares a checkpoint in f32 with results of Hugging Face transformers.

  golden.py CHECKPOINT GOLDEN.safetensors WORKDIR [reference]

The greatest difference of the logits is at most 1e-5 of their range with the KV cache in f32, 1e-3 in f16 and 3e-2 in q8. With
floats the greedy continuation is the same. bf16 checkpoints have the cache in f32 only, but with QWEN_TEST_FULL. In models with linear
attention transformers is off by 5e-6 itself, and the bound is 2e-5.
A bf16 checkpoint gives the same logits with bf16 weights, bit for bit. With `reference`, the logits are those of the model in
plain C++, and the cache is in f32. With rotated weights in f32, the logits are within 1e-5 of the range, too.
"""
import json
import pathlib
import sys

import numpy as np

from checks import Checks, compile_model, full, join, logits, read_safetensors, run, same_bits


def cases(golden):
    """(prompt, logits, greedy, embedding) of each case. A file has one case, or several with a number before each name."""
    prefixes = sorted({name.rpartition(".")[0] for name in golden})
    for prefix in prefixes:
        dot = prefix + "." if prefix else ""
        yield tuple(golden.get(dot + part) for part in ("prompt", "logits", "greedy", "embedding"))


class Compiled:
    """The compiled model."""

    def __init__(self, checkpoint, kv, work, weights="f32", *options):
        self.rows = work / "logits.npy"
        self.model = compile_model(checkpoint, work / f"{kv}{weights}{''.join(options)}.qwen", "--weights", weights, "--kv", kv, *options)

    def logits(self, prompt):
        return logits(self.model, prompt, self.rows)

    def greedy(self, prompt, greedy):
        ids = run(["qwen-run", "generate", self.model, "--ids", join(prompt), "-n", len(greedy), "--temperature", "0",
                   "--repetition-penalty", "1", "--ignore-eos"]).replace(",", " ").split()
        return [int(i) for i in ids]


    def check_embedding(self, prompt, expected, bound, checks):
        """The embedding, whole and cut."""
        for size in (len(expected), len(expected) // 2):
            run(["qwen-run", "embed", self.model, "--ids", join(prompt), "--dim", size, "-o", self.rows])
            cut = expected[:size] / np.linalg.norm(expected[:size])
            error = np.abs(np.load(self.rows) - cut).max()
            checks.check(error <= bound, f"{size} values of an embedding differ by {error:.1e}")


class Reference:
    """The model in plain C++."""

    def __init__(self, checkpoint, kv, work):
        self.checkpoint, self.kv, self.rows = checkpoint, kv, work / "logits"

    def logits(self, prompt):
        run(["reference-logits", self.checkpoint, "f32", self.kv, join(prompt), self.rows])
        return np.fromfile(self.rows, np.float32).reshape(len(prompt), -1)

    def greedy(self, prompt, greedy):
        """The best id at each position of the continuation."""
        return self.logits([*prompt, *greedy])[len(prompt) - 1:-1].argmax(axis=1).tolist()


def main():
    checkpoint, golden_file, work = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    work.mkdir(parents=True, exist_ok=True)
    golden = read_safetensors(golden_file)
    config = json.loads((pathlib.Path(checkpoint) / "config.json").read_text())
    exact = 2e-5 if config["architectures"][0].startswith(("Qwen3_5", "Qwen3Next")) else 1e-5
    runner = Reference if sys.argv[4:] == ["reference"] else Compiled
    bounds = {"f32": exact}
    # Each architecture has an f32 checkpoint, and the cache's kernels are the same for all.
    if runner is Compiled and (full() or not checkpoint.endswith("-bf16")):
        bounds["f16"] = 1e-3
        # Random routers have logits so near to each other that other experts may be chosen.
        if not any(kind in config["architectures"][0] for kind in ("Moe", "Next")):
            bounds["q8"] = 3e-2
    checks, models = Checks(), {}
    for kv, bound in bounds.items():
        model = models[kv] = runner(checkpoint, kv, work)
        for number, (prompt, expected, greedy, embedding) in enumerate(cases(golden)):
            # A Qwen 1 has these positions here; those before do not depend on later ones.
            context = config.get("seq_length", len(prompt) + len(greedy))
            prompt, expected, greedy = prompt[:context], expected[:context], greedy[:max(context - len(prompt), 0)]
            got = model.logits(prompt)
            checks.check(got.shape == expected.shape, f"shape is {got.shape} when {expected.shape} is needed")
            error = np.abs(got - expected).max() / (expected.max() - expected.min())
            print(f"kv {kv}, case {number}: greatest difference {error:.1e} of the range")
            checks.check(error <= bound, f"kv {kv}, case {number}: {error:.1e} of the range is more than {bound}")
            ids = model.greedy(prompt, greedy) if len(greedy) else []
            checks.check(kv == "q8" or ids == greedy.tolist(), f"kv {kv}, case {number}: greedy ids are {ids}")
            if embedding is not None:
                model.check_embedding(prompt, embedding, bound, checks)
    if runner is Compiled and checkpoint.endswith("-bf16"):
        prompt = next(cases(golden))[0][:config.get("seq_length")]
        whole = models["f32"].logits(prompt)
        half = Compiled(checkpoint, "f32", work, "bf16").logits(prompt)
        checks.check(same_bits(whole, half), "bf16 weights give other logits than f32 weights")
    if runner is Compiled:
        # The hidden values of a rotated model are those of the model, too.
        plain, rotated = models["f32"], Compiled(checkpoint, "f32", work, "f32", "--rotate", "on")
        for number, (prompt, _, _, embedding) in enumerate(cases(golden)):
            prompt = prompt[:config.get("seq_length")]
            expected = plain.logits(prompt)
            error = np.abs(rotated.logits(prompt) - expected).max() / (expected.max() - expected.min())
            print(f"rotated, case {number}: greatest difference {error:.1e} of the range")
            checks.check(error <= 1e-5, f"rotated, case {number}: {error:.1e} of the range is more than 1e-5")
            if embedding is not None:
                rotated.check_embedding(prompt, embedding, exact, checks)
    checks.finish()


if __name__ == "__main__":
    main()

"""One answer: a checkpoint's logits and sampled text are the same, bit for bit, on every target and however it is run.

  answers.py CHECKPOINT WORKDIR AARCH64_QWEN_RUN

Compiles for each target in each format; compares hashes of the logits across targets, CPUs (aarch64 ones emulated), threads,
prefill in pieces and ragged batches, and the ids that are sampled with a seed.
"""
import itertools
import pathlib
import subprocess
import sys

import numpy as np

from checks import Checks, compile_model, digest, full, join, run

CHECKPOINT, WORK, AARCH64 = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
FORMATS = [("q4_0", "f16"), ("q8_0", "f16"), ("q4_g128", "f16"), ("f32", "f32")] + ([("q4_0", "f32"), ("f32", "f16")] if full() else [])


def runners():
    """(target, name of the CPU, command) of every machine that we can be here."""
    flags = pathlib.Path("/proc/cpuinfo").read_text().split()
    yield "x86-64-v3", "host", ["qwen-run"]
    if "avx_vnni" in flags:
        yield "x86-64-v3+avxvnni", "host", ["qwen-run"]
    else:
        print("not run: AVX-VNNI, which this machine lacks")
    if "avx512_vnni" in flags:
        yield "x86-64-v4+avx512vnni", "host", ["qwen-run"]
    else:
        print("not run: AVX-512 VNNI, which this machine lacks")
    for target, cpu in (("cortex-a72", "cortex-a72"), ("cortex-a72", "neoverse-n1"), ("neoverse-n1", "neoverse-n1")):
        yield target, cpu, ["qemu-aarch64-static", "-cpu", cpu, AARCH64]
    # SVE code is one for all lengths of vectors; neoverse-n2 has i8mm besides.
    for target, length in (("armv8.2-a+sve", 32), ("neoverse-n2", 16), ("neoverse-n2", 64)):
        cpu = f"max,sve-default-vector-length={length}"
        yield target, cpu, ["qemu-aarch64-static", "-cpu", cpu, AARCH64]


def prompt(count, seed):
    return np.random.default_rng(seed).integers(2, 300, count).tolist()


# A page has 64 positions: the long one crosses a border.
LONG, MIDDLE, SHORT = prompt(80, 1), prompt(66, 2), prompt(5, 3)


def variants(emulated):
    """Ways to run the same sequence: threads, tokens in a call at most (0: all), the other sequences of the batch."""
    if full():
        return list(itertools.product((1, 2, 3), (0, 1, 3, 16), ([], [SHORT], [MIDDLE, SHORT])))
    # A fixed pairwise sample; emulation is slow and gets a part of it.
    ways = [(2, 16, [MIDDLE, SHORT]), (3, 3, []), (1, 0, [SHORT]), (1, 1, []), (2, 0, []), (3, 0, [MIDDLE, SHORT]),
            (2, 1, [SHORT]), (1, 3, [MIDDLE, SHORT]), (3, 16, [SHORT])]
    return ways[:3] if emulated else ways


def main():
    checks = Checks()
    for weights, kv in FORMATS:
        answers, samples = {}, {}
        for target, cpu, runner in runners():
            model = WORK / f"{target}-{weights}-{kv}.qwen"
            if not model.exists():
                compile_model(CHECKPOINT, model, "--target", target, "--weights", weights, "--kv", kv)
            for threads, piece, others in variants(cpu != "host"):
                out = WORK / "logits.npy"
                command = [*runner, "logits", model, "-o", out, "-t", threads, "--ids", join(LONG)]
                for other in others:
                    command += ["--ids", join(other)]
                run(command + (["--piece", piece] if piece else []))
                key = f"{target} on {cpu}, {threads} threads, pieces of {piece or 'all'}, with {len(others)} others"
                answers[key] = digest(np.load(out)[:len(LONG)])
            samples[f"{target} on {cpu}"] = run(
                [*runner, "generate", model, "--ids", join(SHORT), "-n", 16, "--seed", 7, "--temperature", "0.9", "--top-k", 50,
                 "--top-p", "0.95", "--repetition-penalty", "1.1", "--ignore-eos", "-t", 2]).strip()
        for kind, found in (("logits", answers), ("sampled ids", samples)):
            first = next(iter(found.values()))
            print(f"{weights}, kv {kv}: {kind} {first} in {len(found)} runs")
            for key, value in found.items():
                checks.check(value == first, f"{weights}, kv {kv}: {kind} of {key} are {value}, not {first}")
    checks.finish()


WORK.mkdir(parents=True, exist_ok=True)
for old in WORK.glob("*.qwen"):
    old.unlink()
main()

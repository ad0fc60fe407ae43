#!/usr/bin/env python3
"""Speed behind a long text: prefill and decode at depths, with each format of the KV cache, in alternating runs on this machine.

  .venv/bin/python bench/depth.py CHECKPOINT WORKDIR [--weights q4_0] [--kv f16 q8] [--depths 64 4096 16384 32640] [--rounds N]
                                  [--prompt N] [--batch N] [--threads N] [--target CPU] [--base BUILD] [--json]

Compiles CHECKPOINT once for each format of the cache. A run fills the cache to a depth without a prompt (`qwen-run bench --depth`),
then runs a prompt and decodes. Prints medians over the rounds in tokens/s, and what share each has of the speed at the least
depth. --base compiles and runs all with an older build, too, whose `bench` has --depth.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
KINDS = ("prefill", "decode")


def output(*command):
    return subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout


def compile_files(args, builds):
    """The program and the file of each run, by name."""
    runs = {}
    for name, build in builds.items():
        for kv in args.kv:
            file = args.workdir / f"{args.checkpoint.name}.{name}.{args.weights}.{kv}.qwen"
            output(build / "bin/qwen-opt", args.checkpoint, "-o", file, "--weights", args.weights, "--kv", kv, "--target", args.target)
            runs[kv if len(builds) == 1 else f"{name} {kv}"] = build / "bin/qwen-run", file
    return runs


def measure(args, runs):
    """Speeds [run][depth][kind], one number a round."""
    speeds = {run: {depth: {kind: [] for kind in KINDS} for depth in args.depths} for run in runs}
    for _ in range(args.rounds):
        for depth in args.depths:
            for run, (program, file) in runs.items():
                of = json.loads(output(program, "bench", file, "--json", "--depth", depth, "--prompt-tokens", args.prompt, "-n", args.count,
                                       "--repetitions", 1, "--batch", args.batch, "-t", args.threads))
                for kind in KINDS:
                    speeds[run][depth][kind].append(of[f"{kind}_tokens_per_second"]["median"])
    return speeds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", type=pathlib.Path)
    parser.add_argument("workdir", type=pathlib.Path)
    parser.add_argument("--weights", default="q4_0")
    parser.add_argument("--kv", nargs="+", default=["f16", "q8"])
    parser.add_argument("--depths", nargs="+", type=int, default=[64, 4096, 16384, 32640])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prompt", type=int, default=64)
    parser.add_argument("--count", type=int, default=16)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--target", default="native")
    parser.add_argument("--base", type=pathlib.Path)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    args.workdir.mkdir(parents=True, exist_ok=True)
    builds = {"qwen-run": ROOT / "build/host"} | ({"base": args.base} if args.base else {})
    speeds = measure(args, compile_files(args, builds))
    if args.json:
        return json.dump(speeds, sys.stdout, indent=1)
    least = min(args.depths)
    for kind in KINDS:
        for run, of in speeds.items():
            medians = {depth: statistics.median(of[depth][kind]) for depth in args.depths}
            print(f"{kind:8} {run:14}", *(f"{depth}: {speed:.1f} ({speed / medians[least]:.2f})" for depth, speed in medians.items()))


if __name__ == "__main__":
    main()

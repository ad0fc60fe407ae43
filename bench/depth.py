#!/usr/bin/env python3
"""Speed behind a long text: prefill and decode at depths, with each format of the KV cache, in alternating runs on this machine.

  .venv/bin/python bench/depth.py CHECKPOINT WORKDIR [--weights q4_0] [--kv f16 q8] [--depths 64 4096 16384 32640] [--rounds N]
                                  [--prompt N] [--batch N] [--threads N] [--target CPU] [--base BUILD] [--json]
                                  [--reuse] [--peers NAME ...] [--peer-kv f16 q8_0]

Compiles CHECKPOINT once for each format of the cache; --reuse takes the files that an earlier run left in WORKDIR. A run fills the
cache to a depth without a prompt (`qwen-run bench --depth`), then runs a prompt and decodes. Prints medians over the rounds in
tokens/s, and what share each has of the speed at the least depth. --base compiles and runs all with an older build, too, whose
`bench` has --depth. --peers runs llama.cpp and ik_llama.cpp in the same rounds, with flash attention and each type of --peer-kv for
keys and values. Their caches are filled with copies of the cells of one prompt (bench/peer_llama_cpp.py); WORKDIR/peers and
WORKDIR/ik have their environments (bench/peers.py, bench/experts.py).
"""
import argparse
import functools
import json
import pathlib
import statistics
import subprocess
import sys

import peers
from experts import ik_environment, install_ik
from peers import BENCH, ROOT

KINDS = ("prefill", "decode")
output = functools.partial(peers.output, stderr=subprocess.DEVNULL)


class Ours:
    def __init__(self, args, program, file):
        self.command = [program, "bench", file, "--json", "--prompt-tokens", args.prompt, "-n", args.count, "--repetitions", 1,
                        "--batch", args.batch, "-t", args.threads]

    def speeds(self, depth):
        of = json.loads(output(*self.command, "--depth", depth))
        return {kind: of[f"{kind}_tokens_per_second"]["median"] for kind in KINDS}


class LlamaCpp:
    def __init__(self, args, gguf, kv, python):
        self.command = lambda depth: [python, BENCH / "peer_llama_cpp.py", "depth", gguf, kv, depth, args.prompt, args.count, args.threads]

    def speeds(self, depth):
        return json.loads(output(*self.command(depth)))


class Ik:
    def __init__(self, args, gguf, kv, _):
        python = install_ik(args.workdir / "ik")
        self.command = lambda depth: [python, BENCH / "peer_ik.py", gguf, args.prompt, args.count, args.threads, depth, kv]
        self.environment = ik_environment(python.parent.parent)

    def speeds(self, depth):
        return json.loads(output(*self.command(depth), env=self.environment))


PEERS = {"llama.cpp": LlamaCpp, "ik_llama.cpp": Ik}


def prepare_peers(args):
    """The peers by name, with a file in the format of the weights."""
    if not args.peers:
        return {}
    python = peers.install(args.workdir / "peers", with_transformers=False)
    gguf = args.workdir / f"{args.checkpoint.name}.{args.weights}.gguf"
    if not gguf.exists():
        whole = args.workdir / f"{args.checkpoint.name}.f16.gguf"
        output(python, BENCH / "peer_llama_cpp.py", "convert", args.checkpoint, whole)
        output(python, BENCH / "peer_llama_cpp.py", "quantize", whole, gguf, args.weights)
        whole.unlink()
    return {f"{name} {kv}": PEERS[name](args, gguf, kv, python) for name in args.peers for kv in args.peer_kv}


def compile_files(args, builds):
    """The runs of this project, by name."""
    runs = {}
    for name, build in builds.items():
        for kv in args.kv:
            file = args.workdir / f"{args.checkpoint.name}.{name}.{args.weights}.{kv}.qwen"
            if not (args.reuse and file.exists()):
                output(build / "bin/qwen-opt", args.checkpoint, "-o", file, "--weights", args.weights, "--kv", kv, "--target", args.target)
            runs[kv if len(builds) == 1 else f"{name} {kv}"] = Ours(args, build / "bin/qwen-run", file)
    return runs


def measure(args, runs):
    """Speeds [run][depth][kind], one number a round."""
    speeds = {name: {depth: {kind: [] for kind in KINDS} for depth in args.depths} for name in runs}
    for _ in range(args.rounds):
        for depth in args.depths:
            for name, run in runs.items():
                for kind, speed in run.speeds(depth).items():
                    speeds[name][depth][kind].append(speed)
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
    parser.add_argument("--reuse", action="store_true")
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=[])
    parser.add_argument("--peer-kv", nargs="+", choices=("f16", "q8_0"), default=["q8_0"])
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    args.workdir.mkdir(parents=True, exist_ok=True)
    builds = {"qwen-run": ROOT / "build/host"} | ({"base": args.base} if args.base else {})
    speeds = measure(args, compile_files(args, builds) | prepare_peers(args))
    if args.json:
        return json.dump(speeds, sys.stdout, indent=1)
    least = min(args.depths)
    for kind in KINDS:
        for run, of in speeds.items():
            medians = {depth: statistics.median(of[depth][kind]) for depth in args.depths}
            print(f"{kind:8} {run:18}", *(f"{depth}: {speed:.1f} ({speed / medians[least]:.2f})" for depth, speed in medians.items()))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Compares the speed of compiled models with llama.cpp and Hugging Face transformers, in alternating runs on this machine.

  .venv/bin/python bench/peers.py WORKDIR [--model NAME] [--rounds N] [--threads N] [--target CPU]
                                  [--gguf | --transformers | --base BUILD] [--json]

Installs the peers into WORKDIR/peers: llama-cpp-python from its source package, so that llama.cpp is built for this CPU, and
with --transformers torch and transformers (f32 and bf16). Makes a checkpoint with random weights (bench/make_checkpoint.py),
compiles it to q4_0 and q8_0, and makes three files for llama.cpp: all matrices in q4_0, all in q8_0, and its Q4_K_M.

Each round runs every program once. Prints median, least and greatest over the rounds of prefill (512 tokens) and decode (64
tokens) in tokens/s, and of the seconds from process start to the first token after a prompt of 16 tokens (llama.cpp: from
loading the file, without the start of Python). Also prints the sizes of the files, and the ratios of qwen-run to the fastest
llama.cpp file, round by round. --target compiles for another CPU than this one (x86-64-v3: AVX2 only).

--gguf runs the same GGUF files on both sides: Q4_K_M, Q4_0, IQ4_XS and Q8_0, each llama.cpp's own mixture, compiled with their
integers. The ratios are for each file. A hybrid (--model qwen3.5-0.8b, qwen3.5-4b) needs a llama.cpp that has qwen35.

--base runs an older build of this project (the folder build/host of another clone) in place of the peers. Each round also compiles
with both builds.
"""
import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BIN = ROOT / "build/host/bin"
BENCH = ROOT / "bench"
PROMPT, DECODE, FIRST_PROMPT = 512, 64, 16
GGUF = ("q4_0", "q8_0", "q4_k_m")
MIXTURES = ("q4_k_m", "q4_0_mix", "iq4_xs_mix", "q8_0_mix")


def output(*command, **options):
    return subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE, text=True, **options).stdout


def install(folder, with_transformers):
    python = folder / "bin/python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    packages = [("llama_cpp", ["--no-binary", "llama-cpp-python", "llama-cpp-python", "gguf"])]
    if with_transformers:
        packages.append(("transformers", ["torch", "transformers"]))
    for module, arguments in packages:
        if subprocess.run([python, "-c", f"import {module}"], capture_output=True).returncode:
            subprocess.run([python, "-m", "pip", "install", "--quiet", *arguments], check=True,
                           env=os.environ | {"CMAKE_BUILD_PARALLEL_LEVEL": str(os.cpu_count())})
    return python


class Ours:
    def __init__(self, file, threads, bin=BIN):
        self.file, self.threads, self.bin = file, ["-t", str(threads)], bin

    def compile(self, source, *options):
        """Makes the file. Returns the seconds."""
        start = time.perf_counter()
        output(self.bin / "qwen-opt", source, "-o", self.file, *options, stderr=subprocess.DEVNULL)
        return time.perf_counter() - start

    def report(self):
        """What `qwen-run bench` reports of one repetition."""
        return json.loads(output(self.bin / "qwen-run", "bench", self.file, "--json", "--prompt-tokens", PROMPT, "-n", DECODE,
                                 "--repetitions", 1, *self.threads))

    def bench(self):
        result = self.report()
        return {kind: result[f"{kind}_tokens_per_second"]["median"] for kind in ("prefill", "decode")}

    def first(self):
        ids = ",".join(str((i * 7919 + 17) % 150000) for i in range(FIRST_PROMPT))
        start = time.perf_counter()
        output(self.bin / "qwen-run", "generate", self.file, "--ids", ids, "-n", 1, *self.threads)
        return time.perf_counter() - start


class OfBuild(Ours):
    """A model that a build compiles anew in each round."""
    def __init__(self, build, file, args, source, weights):
        super().__init__(file, args.threads, build / "bin")
        self.command = source, "--weights", weights, "--target", args.target

    def bench(self):
        return {"compile": self.compile(*self.command), **super().bench()}


class LlamaCpp:
    def __init__(self, python, file, threads):
        self.command, self.file, self.threads = [python, BENCH / "peer_llama_cpp.py"], file, threads

    def bench(self):
        return json.loads(output(*self.command, "bench", self.file, PROMPT, DECODE, self.threads))

    def first(self):
        return json.loads(output(*self.command, "first", self.file, FIRST_PROMPT, self.threads))["seconds"]


class Transformers:
    def __init__(self, python, checkpoint, dtype, threads):
        self.command = [python, BENCH / "peer_transformers.py", checkpoint, dtype, PROMPT, DECODE, threads]

    def bench(self):
        return json.loads(output(*self.command, stderr=subprocess.DEVNULL))


def make_checkpoint(args):
    checkpoint = args.workdir / args.model
    if not (checkpoint / "config.json").exists():
        output(sys.executable, BENCH / "make_checkpoint.py", args.model, checkpoint, "--tokenizer",
               ROOT / "test/Inputs/tokenizer/qwen2")
    return checkpoint


def prepare_builds(args):
    """The programs of this build and of the base, and their files, by name."""
    checkpoint = make_checkpoint(args)
    programs, files = {}, {}
    for weights in ("q4_0", "q8_0"):
        for build, folder in (("qwen-run", BIN.parent), ("base", args.base)):
            name = f"{build} {weights}"
            files[name] = args.workdir / f"{args.model}.{build}.{weights}.{args.target}.qwen"
            programs[name] = OfBuild(folder, files[name], args, checkpoint, weights)
    return programs, files


def prepare(args):
    """Programs and their files, by name."""
    python = install(args.workdir / "peers", args.transformers)
    checkpoint = make_checkpoint(args)
    programs, files = {}, {}

    def compile_to(name, source, out, *options):
        files[name] = args.workdir / f"{args.model}.{out}.{args.target}.qwen"
        programs[name] = Ours(files[name], args.threads)
        programs[name].compile(source, "--target", args.target, *options)

    for weights in () if args.gguf else ("q4_0", "q8_0"):
        compile_to(f"qwen-run {weights}", checkpoint, weights, "--weights", weights)
    llama = [python, BENCH / "peer_llama_cpp.py"]
    source = args.workdir / f"{args.model}.f16.gguf"
    for weights in MIXTURES if args.gguf else GGUF:
        name = f"llama.cpp {weights}"
        files[name] = args.workdir / f"{args.model}.{weights}.gguf"
        if not files[name].exists():
            if not source.exists():
                output(*llama, "convert", checkpoint, source)
            output(*llama, "quantize", source, files[name], weights)
        programs[name] = LlamaCpp(python, files[name], args.threads)
        if args.gguf:
            compile_to(f"qwen-run {weights}", files[name], f"gguf-{weights}")
    if args.transformers:
        for dtype in ("float32", "bfloat16"):
            programs[f"transformers {dtype}"] = Transformers(python, checkpoint, dtype, args.threads)
    print(f"{cpu_name()}; {output(*llama, 'system').strip()}", file=sys.stderr)
    return programs, files


def cpu_name():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def spread(values):
    return {"median": statistics.median(values), "least": min(values), "greatest": max(values)}


def measure(programs, rounds):
    """Lists of figures by program and kind, with one figure for each round."""
    figures = {name: {"prefill": [], "decode": [], "first": [], "compile": []} for name in programs}
    for number in range(1, rounds + 1):
        # Each program is first in a round as often as it is last.
        for name, program in sorted(programs.items(), reverse=number % 2 == 0):
            if sys.stderr.isatty():
                print(f"\rround {number} of {rounds}: {name:<24}", end="", file=sys.stderr, flush=True)
            for kind, value in program.bench().items():
                figures[name][kind].append(value)
            if hasattr(program, "first"):
                figures[name]["first"].append(program.first())
    if sys.stderr.isatty():
        print(file=sys.stderr)
    return figures


def ratios(figures):
    """Ratios of qwen-run to the peers, round by round; above 1, qwen-run is faster."""
    def against(kind, ours, theirs, better):
        best = [better(values) for values in zip(*(figures[name][kind] for name in theirs))]
        pairs = zip(figures[ours][kind], best)
        return spread([b / a if kind in ("first", "compile") else a / b for a, b in pairs])

    if "base q4_0" in figures:
        return {f"{kind} {weights}": against(kind, f"qwen-run {weights}", (f"base {weights}",), max)
                for weights in ("q4_0", "q8_0") for kind in ("compile", "prefill", "decode")}
    if "qwen-run q4_k_m" in figures:
        return {f"{kind} {weights}": against(kind, f"qwen-run {weights}", (f"llama.cpp {weights}",), max)
                for weights in MIXTURES for kind in ("prefill", "decode")}
    four = ("llama.cpp q4_0", "llama.cpp q4_k_m")
    result = {
        "prefill q4_0": against("prefill", "qwen-run q4_0", four, max),
        "decode q4_0": against("decode", "qwen-run q4_0", four, max),
        "prefill q8_0": against("prefill", "qwen-run q8_0", ("llama.cpp q8_0",), max),
        "decode q8_0": against("decode", "qwen-run q8_0", ("llama.cpp q8_0",), max),
        "first token q4_0": against("first", "qwen-run q4_0", four, min),
    }
    torch = [name for name in figures if name.startswith("transformers")]
    for kind in ("prefill", "decode"):
        if torch:
            result[f"{kind} q4_0, transformers"] = against(kind, "qwen-run q4_0", torch, max)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workdir", type=pathlib.Path)
    parser.add_argument("--model", default="qwen2.5-0.5b")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--target", default="native")
    others = parser.add_mutually_exclusive_group()
    others.add_argument("--gguf", action="store_true")
    others.add_argument("--transformers", action="store_true")
    others.add_argument("--base", type=lambda path: pathlib.Path(path).resolve(), metavar="BUILD")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    args.workdir = args.workdir.resolve()
    args.workdir.mkdir(parents=True, exist_ok=True)

    programs, files = prepare_builds(args) if args.base else prepare(args)
    figures = measure(programs, args.rounds)
    result = {
        "cpu": cpu_name(), "threads": args.threads, "rounds": args.rounds,
        "figures": {name: {kind: spread(values) for kind, values in kinds.items() if values} for name, kinds in figures.items()},
        "bytes": {name: file.stat().st_size for name, file in files.items()},
        "ratios": ratios(figures),
    }
    if args.json:
        print(json.dumps(result, indent=2))
        return
    print(f"{'':24}{'prefill tokens/s':>26}{'decode tokens/s':>24}{'first token, ms':>24}{'compile, s':>22}{'bytes':>12}")
    for name, kinds in result["figures"].items():
        def cell(kind, scale, digits):
            if kind not in kinds:
                return ""
            s = kinds[kind]
            return f"{s['median'] * scale:.{digits}f} ({s['least'] * scale:.{digits}f} to {s['greatest'] * scale:.{digits}f})"
        print(f"{name:24}{cell('prefill', 1, 0):>26}{cell('decode', 1, 1):>24}{cell('first', 1e3, 0):>24}"
              f"{cell('compile', 1, 2):>22}{result['bytes'].get(name, ''):>12}")
    print(f"\nratio of qwen-run to {'the base' if args.base else 'the fastest peer'} (above 1: qwen-run is faster), median (least to greatest)")
    for name, s in result["ratios"].items():
        print(f"{name:26}{s['median']:6.2f} ({s['least']:.2f} to {s['greatest']:.2f})")


if __name__ == "__main__":
    main()

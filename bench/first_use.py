#!/usr/bin/env python3
"""Measures `qwen-run MODEL`: the seconds from exec to the first byte of an answer, without and with a file in the cache.

  .venv/bin/python bench/first_use.py WORKDIR [--model NAME] [--rounds N] [--threads N] [--program FILE] [--json]

The models are GGUF files of a checkpoint with random weights (bench/make_checkpoint.py): Q4_0, Q8_0, and the mixture that llama.cpp
makes for Q4_K_M. They are compiled, exported by `qwen-opt export`, and kept in WORKDIR. The prompt has 16 tokens. All files are in
the page cache. The cache of compiled models is in WORKDIR too, so both lie on one disk. Prints median, least and greatest of the
rounds, and exits with 1 if a median is above 4 s without a file and 0.2 s with one.
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

from random_gguf import has_more_bits

ROOT = pathlib.Path(__file__).resolve().parent.parent
BIN = ROOT / "build/host/bin"
PROMPT = ",".join(str((i * 7919 + 17) % 150000) for i in range(16))
MOST = {"without": 4.0, "with": 0.2}


def more_bits(layers):
    """The layers that llama.cpp gives more bits in Q4_K_M, as a regular expression."""
    chosen = [i for i in range(layers) if has_more_bits(i, layers)]
    return rf"layers\.({'|'.join(map(str, chosen))})\."


def mixtures(config):
    """The options that give each mixture. K-quants need rows of a multiple of 256 values; others become q5_0 and q8_0, as llama.cpp does."""
    layers = config["num_hidden_layers"]
    four, six = (("q4_k", "q6_k") if config["hidden_size"] % 256 == 0 else ("q5_0", "q8_0"))
    rules = [("embed_tokens|lm_head", six), ("down_proj", "q4_k"), (more_bits(layers) + "mlp.down_proj", "q6_k"),
             (more_bits(layers) + "self_attn.v_proj", six)]
    return {"q4_0": ["--weights", "q4_0"], "q8_0": ["--weights", "q8_0"],
            "q4_k_m": ["--weights", four, *(word for pattern, name in rules for word in ("--tensor-weights", f"{pattern}={name}"))]}


def run(*command, **options):
    return subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True, **options).stdout


def make_models(workdir, name):
    """The GGUF files by the name of their mixture."""
    checkpoint = workdir / name
    if not (checkpoint / "config.json").exists():
        run(sys.executable, ROOT / "bench/make_checkpoint.py", name, checkpoint, "--tokenizer", ROOT / "test/Inputs/tokenizer/qwen2")
    models = {}
    for mixture, options in mixtures(json.loads((checkpoint / "config.json").read_text())).items():
        models[mixture] = workdir / f"{name}.first-use.{mixture}.gguf"
        if not models[mixture].exists():
            compiled = workdir / f"{name}.first-use.qwen"
            run(BIN / "qwen-opt", checkpoint, "-o", compiled, "--rotate", "off", *options)
            run(BIN / "qwen-opt", "export", compiled, "-o", models[mixture])
            compiled.unlink()
    return models


def first_byte(program, model, threads, environment):
    """The seconds from exec to the first byte of the answer."""
    start = time.perf_counter()
    process = subprocess.Popen([program, "generate", model, "--ids", PROMPT, "-n", "1", "--ignore-eos", "-t", str(threads)],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
    byte = process.stdout.read(1)
    seconds = time.perf_counter() - start
    errors = process.communicate()[1]
    if process.returncode or not byte:
        sys.exit(f"{model}: {errors.decode().strip()}")
    return seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workdir", type=pathlib.Path)
    parser.add_argument("--model", default="qwen2.5-0.5b")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--program", type=pathlib.Path, default=BIN / "qwen-run")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    workdir = args.workdir.resolve()
    workdir.mkdir(parents=True, exist_ok=True)
    models = make_models(workdir, args.model)
    cache = workdir / "first-use-cache"
    environment = os.environ | {"XDG_CACHE_HOME": str(cache)}
    figures = {mixture: {"without": [], "with": []} for mixture in models}
    for _ in range(args.rounds):
        for mixture, model in models.items():
            with open(model, "rb") as file:
                while file.read(1 << 24):
                    pass
            shutil.rmtree(cache, ignore_errors=True)
            for kind in ("without", "with"):
                figures[mixture][kind].append(first_byte(args.program, model, args.threads, environment))
    shutil.rmtree(cache, ignore_errors=True)
    result = {mixture: {kind: {"median": statistics.median(values), "least": min(values), "greatest": max(values)}
                        for kind, values in kinds.items()} for mixture, kinds in figures.items()}
    if args.json:
        print(json.dumps(result, indent=2))
    else:
        for mixture, kinds in result.items():
            print(f"{mixture:8} {models[mixture].stat().st_size:>12} bytes" + "".join(
                f"  {kind} a cached file {s['median']:.3f} s ({s['least']:.3f} to {s['greatest']:.3f})" for kind, s in kinds.items()))
    sys.exit(any(kinds[kind]["median"] > most for kinds in result.values() for kind, most in MOST.items()))


if __name__ == "__main__":
    main()

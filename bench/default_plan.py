#!/usr/bin/env python3
"""Compares the default of a checkpoint of floats with q6_k and with the mixture of llama.cpp's Q4_K_M: seconds, bytes, tokens/s.

  .venv/bin/python bench/default_plan.py CHECKPOINT WORKDIR [--rounds N] [--threads N]

CHECKPOINT is a folder of floats, such as one of bench/make_checkpoint.py: speeds do not depend on the values. Compiles it once in
each way, with the types that llama.cpp gives each matrix, and then runs `qwen-run bench` in alternating rounds (512 tokens of
prefill, 64 of decode). Prints the median, the least and the greatest of the rounds, and the ratios to Q4_K_M's mixture.
"""
import argparse
import json
import pathlib
import statistics

from peers import Ours


def mixture(config):
    """The options that give each matrix the type of Q4_K_M. Rows that are no multiple of 256 get Q5_0 for Q4_K and Q8_0 for Q6_K."""
    layers, hidden, wide = (config[key] for key in ("num_hidden_layers", "hidden_size", "intermediate_size"))

    def fitting(kind, width):
        return kind if width % 256 == 0 else {"q4_k": "q5_0", "q6_k": "q8_0"}[kind]
    more = "|".join(str(i) for i in range(layers) if i < layers // 8 or i >= 7 * layers // 8 or (i - layers // 8) % 3 == 2)
    head = "embed_tokens" if config["tie_word_embeddings"] else "lm_head"
    rules = {head: fitting("q6_k", hidden), "down_proj": fitting("q4_k", wide), rf"layers\.({more})\..*v_proj": fitting("q6_k", hidden),
             rf"layers\.({more})\..*down_proj": fitting("q6_k", wide)}
    return ["--weights", fitting("q4_k", hidden), *(word for names, kind in rules.items() for word in ("--tensor-weights", f"{names}={kind}"))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=pathlib.Path)
    parser.add_argument("workdir", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    args.workdir.mkdir(parents=True, exist_ok=True)
    ways = {"Q4_K_M": mixture(json.loads((args.checkpoint / "config.json").read_text())), "mixed": [], "q6_k": ["--weights", "q6_k"]}
    programs, seconds = {}, {}
    for name, options in ways.items():
        programs[name] = Ours(args.workdir / f"{name}.qwen", args.threads)
        seconds[name] = programs[name].compile(args.checkpoint, *options)
    rounds = [{name: program.bench() for name, program in programs.items()} for _ in range(args.rounds)]
    print("| file | compile, s | MB | prefill, tokens/s | decode, tokens/s | prefill and decode, ratio to Q4_K_M |\n|---|---|---|---|---|---|")
    for name, program in programs.items():
        speeds, ratios = [], []
        for kind in ("prefill", "decode"):
            values = [one[name][kind] for one in rounds]
            speeds.append(f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})")
            ratios.append(f"{statistics.median(one[name][kind] / one['Q4_K_M'][kind] for one in rounds):.3f}")
        print(f"| {name} | {seconds[name]:.1f} | {program.file.stat().st_size / 1e6:.1f} | {' | '.join(speeds)} | {', '.join(ratios)} |")


if __name__ == "__main__":
    main()

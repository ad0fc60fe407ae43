#!/usr/bin/env python3
"""Our files beside those of ik_llama.cpp with an importance matrix, in at most as many bytes, on several kinds of text.

  .venv/bin/python bench/real_model.py WORKDIR --dither 1
  .venv/bin/python bench/equal_bytes.py WORKDIR/smollm2-dither-1 WORKDIR/equal EVAL.txt CALIBRATION.txt [--types TYPE ...] [--short BYTES]

The peer quantizes all matrices to one type; a name that ends with "-mix" stands for the peer's mixture of types. For each file of the peer, the script compiles ours
with a budget of as many bytes, by the first --short bytes of CALIBRATION.txt. If WORKDIR has a file of an earlier budget with 96 to 100% of these bytes, the script takes that. Each program is compared with its own run in f32: on 16
windows of 512 tokens of EVAL.txt, and on 6 windows of each kind of text in calibration/text but English, which is a part of calibration.txt; the second half
of a window counts. Prints a table in Markdown: KL divergences on EVAL.txt, ours divided by the peer's, and the same for each kind. Files that are there are not made again.
"""
import argparse
import pathlib

import quality
from quality import BIN, ROOT, make

KINDS = ("code", "chat", "chinese", "mathematics")
KIND_WINDOWS = 6
TYPES = ("Q4_0", "IQ4_NL", "IQ4_XS-mix", "IQ4_NL-mix", "Q4_0-mix", "IQ4_KS-mix", "Q4_K_S-mix", "IQ4_K-mix", "Q4_K_M-mix", "Q5_K_S-mix", "IQ5_K-mix", "Q5_K_M-mix",
         "Q6_K-mix")
LEAST_PART = 0.96


class Text:
    """A text on which files are compared with their own program in f32."""

    def __init__(self, args, text, windows):
        args = argparse.Namespace(**vars(args) | {"text": text, "windows": windows})
        self.ours = quality.Ours(args)
        self.peer = quality.Peer(args, self.ours)


def our_file(args, most):
    """Our file of at most `most` bytes."""
    files = [file for file in args.workdir.glob("budget-*.qwen") if LEAST_PART * most <= file.stat().st_size <= most]
    if files:
        return max(files, key=lambda file: file.stat().st_size)
    short = args.workdir / "calibration.txt"
    short.write_bytes(args.calibration.read_bytes()[:args.short])
    budget = f"{most // 10_000 / 100:.2f}"
    file = args.workdir / f"budget-{budget}.qwen"
    return make(file, [BIN / "qwen-opt", args.folder, "-o", file, "--budget", f"{budget}MB", f"--calibrate={short}"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("folder", "workdir", "text", "calibration"):
        parser.add_argument(name, type=pathlib.Path)
    parser.add_argument("--types", nargs="+", default=TYPES)
    parser.add_argument("--short", type=int, default=130000, help="by default about 32,768 tokens")
    args = parser.parse_args()
    args.workdir.mkdir(parents=True, exist_ok=True)
    args.matrix = True
    texts = {"eval": Text(args, args.text, 16)} | {kind: Text(args, ROOT / f"calibration/text/{kind}.txt", KIND_WINDOWS) for kind in KINDS}
    print(f"| ik_llama.cpp | MB | KL | ours, MB | KL | ratio | {' | '.join(KINDS)} |\n|{'---|' * (6 + len(KINDS))}", flush=True)
    for kind in args.types:
        size = texts["eval"].peer.file(kind).stat().st_size
        file = our_file(args, size)
        found = {name: (text.peer.row(kind)["kl"], text.ours.compare(file)["kl"]) for name, text in texts.items()}
        ratios = {name: ours / peers for name, (peers, ours) in found.items()}
        peers, ours = found["eval"]
        print(f"| {kind} | {size / 1e6:.1f} | {peers:.4f} | {file.stat().st_size / 1e6:.1f} | {ours:.4f} | {ratios['eval']:.2f} | "
              + " | ".join(f"{ratios[name]:.2f}" for name in KINDS) + " |", flush=True)


if __name__ == "__main__":
    main()

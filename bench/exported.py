#!/usr/bin/env python3
"""llama.cpp (ik_llama.cpp) on exported models, beside the models themselves.

  .venv/bin/python bench/exported.py FOLDER WORKDIR TEXT [--windows N] [--formats NAME ...]

FOLDER is a Qwen2 of f32, such as bench/real_model.py writes. Compiles it in each format (rounded, not rotated) and exports it. The
exported file, compiled in f32 and exported, is a file of the same values in f32. Prints a table in Markdown of KL divergences,
over the second half of windows of 512 tokens, as bench/quality.py: from ours in f32 to llama.cpp on the exported file; from
llama.cpp on the file in f32 to the same, which is the error of its own activations; from ours in f32 to ours, that of our
activations; from ours to llama.cpp; and from ours to llama.cpp, both in f32.
"""
import argparse
import json
import pathlib
import sys

import numpy as np

from quality import BIN, PEER, WINDOW, make, output, peer_python

FORMATS = ("f32", "q8_0", "q4_0", "q4_m_32", "nl4", "q5_0", "q4_g128")


def own(file, ids, out):
    """Log-probabilities of a compiled model, in the form of peer_quality.py reference."""
    if not out.exists():
        rows = []
        for window in np.load(ids):
            logits = out.with_suffix(".logits.npy")
            output(BIN / "qwen-run", "logits", file, "--ids", ",".join(map(str, window)), "-o", logits)
            values = np.load(logits)[WINDOW // 2:-1].astype(np.float64)
            values -= values.max(1, keepdims=True)
            rows.append((values - np.log(np.exp(values).sum(1, keepdims=True))).astype(np.float32))
        np.save(out, rows)
    return out


def divergence(reference, other):
    pairs = zip(*(np.load(file, mmap_mode="r") for file in (reference, other)))
    return np.mean([(np.exp(p) * (p - q)).sum(1) for p, q in ((p.astype(np.float64), q.astype(np.float64)) for p, q in pairs)])


class Row:
    def __init__(self, args, python, ids):
        self.args, self.python, self.ids = args, python, ids

    def compile(self, source, name, weights):
        return make(self.args.workdir / f"{name}.qwen",
                    [BIN / "qwen-opt", source, "--weights", weights, "--rotate", "off", "-o", self.args.workdir / f"{name}.qwen"])

    def export(self, model):
        file = model.with_suffix(".gguf")
        return make(file, [BIN / "qwen-opt", "export", model, "-o", file])

    def peer(self, file):
        return make(file.with_suffix(".peer.npy"), [self.python, PEER, "reference", "ik_llama.cpp", file, self.ids, file.with_suffix(".peer.npy")])

    def figures(self, weights):
        model = self.compile(self.args.folder, f"exported-{weights}", weights)
        floats = self.compile(self.export(model), f"exported-{weights}-f32", "f32")
        ours, ours_f32 = (own(file, self.ids, file.with_suffix(".own.npy")) for file in (model, floats))
        theirs, theirs_f32 = (self.peer(self.export(file)) for file in (model, floats))
        return [divergence(*pair) for pair in ((ours_f32, theirs), (theirs_f32, theirs), (ours_f32, ours), (ours, theirs), (ours_f32, theirs_f32))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("folder", "workdir", "text"):
        parser.add_argument(name, type=pathlib.Path)
    parser.add_argument("--windows", type=int, default=4)
    parser.add_argument("--formats", nargs="+", default=FORMATS)
    args = parser.parse_args()
    args.workdir.mkdir(parents=True, exist_ok=True)
    row = Row(args, peer_python(args.workdir), args.workdir / "exported-ids.npy")
    text = args.text.read_bytes()[:args.windows * WINDOW * 8].decode(errors="ignore")
    model = row.compile(args.folder, "exported-f32", "f32")
    ids = json.loads(output(BIN / "qwen-run", "tokenize", model, "--json", input=text))["ids"]
    np.save(row.ids, np.array(ids[:args.windows * WINDOW], np.int32).reshape(args.windows, WINDOW))
    print("| format | ours in f32 to llama.cpp | llama.cpp's activations | our activations | ours to llama.cpp | both in f32 |\n"
          "|---|---|---|---|---|---|")
    for weights in args.formats:
        print(f"| {weights} | {' | '.join(f'{value:.3e}' for value in row.figures(weights))} |")
        sys.stdout.flush()


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""What formats, quantizers and rotations lose, beside ik_llama.cpp with an importance matrix of the same text.

  .venv/bin/python bench/real_model.py WORKDIR --dither 1
  .venv/bin/python bench/quality.py WORKDIR/smollm2-dither-1 WORKDIR EVAL.txt CALIBRATION.txt [--windows N] [--formats NAME ...]
      [--ways WAY ...] [--no-peers] [--no-matrix] [--json]

Compiles the folder in each format, in each way (a row of WAYS: options of qwen-opt), and compares its probabilities with those of
the folder in f32 (`qwen-run compare`), on windows of 512 tokens whose second half counts: the rule of llama.cpp's perplexity
tool. Files that are there are not compiled again. ik_llama.cpp (PyPI's ik-llama-cpp-python) quantizes the same weights: all matrices
in one type, and its mixtures, whose names end with "-mix"; its importance matrix is of the first 32k tokens of CALIBRATION.txt, and
--no-matrix leaves it out.
Prints a table in Markdown and writes WORKDIR/quality.svg, KL over bytes. For Qwen2 folders of f32, as real_model.py writes them.
"""
import argparse
import functools
import json
import pathlib
import subprocess
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
BIN = ROOT / "build/host/bin"
PEER = ROOT / "bench/peer_quality.py"
PEER_PACKAGES = ("ik-llama-cpp-python==0.1.5", "gguf", "numpy")
WINDOW = 512
CALIBRATION_WINDOWS = 64
FORMATS = ("q4_g128", "nl4_xs", "q4_0", "nl4", "q4_k", "q5_0", "q6_k", "q8_0")
# {text} is CALIBRATION.txt.
WAYS = {
    "rounded": ["--quantizer", "rtn", "--rotate", "off"],
    "rounded, rotated": ["--quantizer", "rtn", "--rotate", "on"],
    "search": ["--quantizer", "search", "--rotate", "off"],
    "awq": ["--quantizer", "rtn", "--awq", "--rotate", "off", "--calibrate={text}"],
    "gptq": ["--quantizer", "gptq", "--rotate", "off", "--calibrate={text}"],
    "gptq, rotated": ["--quantizer", "gptq", "--rotate", "on", "--calibrate={text}"],
    "gptq+cd, rotated": ["--quantizer", "gptq+cd", "--rotate", "on", "--calibrate={text}"],
    "gptq, rotated, embedded text": ["--quantizer", "gptq", "--rotate", "on", "--calibrate"],
}
DEFAULT_WAYS = ("rounded", "search", "awq", "gptq, rotated")
PEER_TYPES = ("Q4_0", "IQ4_NL", "Q5_0", "Q6_K", "Q8_0", "IQ4_KS-mix", "IQ4_K-mix", "IQ5_K-mix", "Q4_K_M-mix", "Q5_K_M-mix", "Q6_K-mix")


def output(*command, **options):
    return subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE, text=True, **options).stdout


def make(file, command):
    """Runs a command that makes `file`, if it is not there."""
    if not file.exists():
        print(file.name, file=sys.stderr)
        subprocess.run(list(map(str, command)), check=True, stdout=sys.stderr)
    return file


def peer_python(workdir, packages=PEER_PACKAGES):
    """The Python that has the programs of others."""
    python = workdir / "peers/bin/python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", workdir / "peers"], check=True)
        # llama.cpp is built for this machine.
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-binary", "llama-cpp-python", *packages], check=True)
    return python


def peer_file(args, program, kind):
    """The path of a file of a program in a type."""
    return args.workdir / f"{program}-{kind}{'' if args.matrix else '-no-matrix'}.gguf"


class Ours:
    def __init__(self, args):
        self.args = args
        self.f32 = make(args.workdir / "f32.qwen", [BIN / "qwen-opt", args.folder, "--weights", "f32", "-o", args.workdir / "f32.qwen"])

    def ids(self, text, windows):
        # Eight bytes for a token are enough in texts.
        part = text.read_bytes()[:windows * WINDOW * 8].decode(errors="ignore")
        ids = json.loads(output(BIN / "qwen-run", "tokenize", self.f32, "--json", input=part))["ids"]
        return np.array(ids[:windows * WINDOW], np.int32).reshape(windows, WINDOW)

    def file(self, format, way):
        file = self.args.workdir / f"{format}-{way.replace(', ', '-').replace(' ', '-')}.qwen"
        options = [option.format(text=self.args.calibration) for option in WAYS[way]]
        return make(file, [BIN / "qwen-opt", self.args.folder, "--weights", format, *options, "-o", file])

    def compare(self, file, reference=None):
        result = json.loads(output(BIN / "qwen-run", "compare", reference or self.f32, file, self.args.text, "--windows", self.args.windows, "--json"))
        return {"bytes": file.stat().st_size, "kl": result["kl"]["mean"], "top1": result["same_top"],
                "perplexities": [result[key]["mean"] for key in ("reference_perplexity", "perplexity")]}

    def row(self, format, way):
        return {"name": f"{format}, {way}", "group": way, **self.compare(self.file(format, way))}


class Peer:
    """ik_llama.cpp or llama.cpp (peer_quality.py), with an importance matrix unless `args` says no."""

    def __init__(self, args, ours, program="ik_llama.cpp"):
        self.args, self.program = args, program
        self.python = peer_python(args.workdir)
        self.ids = args.workdir / f"{args.text.stem}.npy"
        np.save(self.ids, ours.ids(args.text, args.windows))
        self.f32 = self.make("f32.gguf", "convert", args.folder)
        # The arguments of the quantization behind the type.
        self.importance = []
        if args.matrix:
            np.save(args.workdir / "calibration.npy", ours.ids(args.calibration, CALIBRATION_WINDOWS))
            self.importance.append(self.make("importance.dat", "importance", args.folder, args.workdir / "calibration.npy"))

    @functools.cached_property
    def reference(self):
        return self.make(f"reference-{self.args.text.stem}-{self.args.windows}.npy", "reference", self.program, self.f32, self.ids)

    def make(self, name, command, *inputs):
        return make(self.args.workdir / name, [self.python, PEER, command, *inputs, self.args.workdir / name])

    def file(self, kind):
        file = peer_file(self.args, self.program, kind)
        return make(file, [self.python, PEER, "quantize", self.program, self.f32, file, kind, *self.importance])

    def row(self, kind):
        result = json.loads(output(self.python, PEER, "compare", self.program, self.reference, self.file(kind), self.ids,
                                   stderr=subprocess.DEVNULL).splitlines()[-1])
        group = self.program + ("" if self.importance else ", no matrix")
        return {"name": f"{group} {kind}", "group": group, **result}


def table(rows):
    print("| file | MB | KL | perplexity | top-1 | types |\n|---|---|---|---|---|---|")
    for row in rows:
        reference, own = row["perplexities"]
        types = ", ".join(f"{count} {kind.lower()}" for kind, count in row.get("types", {}).items())
        print(f"| {row['name']} | {row['bytes'] / 1e6:.1f} | {row['kl']:.4f} | {own:.2f} ({(own / reference - 1) * 100:+.1f}%) "
              f"| {row['top1'] * 100:.1f} | {types} |")


def draw(rows, file):
    """KL over bytes, both logarithmic."""
    width, height, left, bottom = 760, 460, 60, 40
    x, y = (np.log([row[key] for row in rows]) for key in ("bytes", "kl"))
    groups = list(dict.fromkeys(row["group"] for row in rows))

    def place(value, values, size):
        return size * (0.04 + 0.86 * (value - values.min()) / max(np.ptp(values), 1e-9))
    shapes, labels = [], []
    for row, a, b in zip(rows, x, y):
        color = f"hsl({groups.index(row['group']) * 360 // len(groups)} 70% 40%)"
        px, py = left + place(a, x, width - left), height - bottom - place(b, y, height - bottom)
        label = row["name"].split(",")[0].removeprefix("ik_llama.cpp ")
        # On the left of the point where another label is in the way.
        side = -1 if any(abs(px - other) < 50 and abs(py - level) < 12 for other, level in labels) else 1
        labels.append((px + (side - 1) * 30, py))
        anchor = "start" if side > 0 else "end"
        shapes.append(f'<circle cx="{px:.0f}" cy="{py:.0f}" r="4" fill="{color}"/>'
                      f'<text x="{px + 6 * side:.0f}" y="{py + 4:.0f}" text-anchor="{anchor}" fill="{color}">{label}</text>')
    for i, group in enumerate(groups):
        shapes.append(f'<text x="{width - 190}" y="{20 + 15 * i}" fill="hsl({i * 360 // len(groups)} 70% 40%)">{group}</text>')
    for values, make_tick in ((x, lambda v, p: f'<text x="{left + p:.0f}" y="{height - 22}" text-anchor="middle">{np.exp(v) / 1e6:.0f}</text>'),
                              (y, lambda v, p: f'<text x="{left - 8}" y="{height - bottom - p + 4:.0f}" text-anchor="end">{np.exp(v):.3g}</text>')):
        size = width - left if values is x else height - bottom
        shapes += [make_tick(v, place(v, values, size)) for v in np.linspace(values.min(), values.max(), 6)]
    file.write_text(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">'
                    f'<rect width="{width}" height="{height}" fill="white"/><text x="{width // 2}" y="{height - 5}">MB</text>'
                    f'<text x="8" y="14">KL to f32</text>{"".join(shapes)}</svg>\n')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("folder", "workdir", "text", "calibration"):
        parser.add_argument(name, type=pathlib.Path)
    parser.add_argument("--windows", type=int, default=16)
    parser.add_argument("--formats", nargs="+", default=FORMATS)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=DEFAULT_WAYS)
    parser.add_argument("--peer-types", nargs="+", default=PEER_TYPES)
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--no-matrix", dest="matrix", action="store_false")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    args.workdir.mkdir(parents=True, exist_ok=True)
    ours = Ours(args)
    rows = [ours.row(format, way) for format in args.formats for way in args.ways]
    if not args.no_peers:
        peer = Peer(args, ours)
        rows += [peer.row(kind) for kind in args.peer_types]
    rows.sort(key=lambda row: row["bytes"])
    draw(rows, args.workdir / "quality.svg")
    print(json.dumps(rows, indent=1)) if args.json else table(rows)


if __name__ == "__main__":
    main()

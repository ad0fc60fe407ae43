#!/usr/bin/env python3
"""The default of a compile beside the files that most people run: bytes, KL, perplexity, speed, seconds of a compile.

  .venv/bin/python bench/real_model.py WORKDIR --dither 1
  .venv/bin/python bench/front.py WORKDIR/smollm2-dither-1 WORKDIR/front-1 EVAL.txt CALIBRATION.txt [--windows N]
      [--parts PART ...] [--only REGEX] [--rounds N] [--svg FILE] [--json]

The rows: our plans and formats without a text; the mixtures of ik_llama.cpp and llama.cpp (PyPI's packages) without and with an
importance matrix of CALIBRATION.txt, in their own programs; and the same GGUF files, compiled with their integers. The parts:
  quality  KL and perplexity on --windows windows of 512 tokens of EVAL.txt, whose second half counts (as bench/quality.py). Each
           program is compared with its own run in f32
  speed    prefill of 512 tokens and decode of 64 on two threads; each run adds --rounds alternating rounds to those that are known
A result is kept in WORKDIR/front.json as soon as it is there, so that a run that was stopped goes on; a figure of other windows is
measured again. Prints a table in Markdown, and draws KL over bytes into --svg.
"""
import argparse
import functools
import json
import pathlib
import re
import resource
import statistics
import subprocess
import sys

import quality
from peers import BENCH, BIN, DECODE, PROMPT, LlamaCpp, output
from peers import Ours as OurProgram

PARTS = ("quality", "speed")
PEER_PACKAGES = ("ik-llama-cpp-python==0.1.5", "llama-cpp-python==0.3.36", "gguf", "numpy")
FIELD = ("Q4_K_M-mix", "Q5_K_M-mix", "Q4_0-mix", "IQ4_XS-mix")
THREADS = 2
# The rules of a plan, REGEX=FORMAT/QUANTIZER; the last one that matches a matrix gives its format.
PLANS = {
    "mixed of multiples of 256": ("=nl4_xs/rtn", r"layers\.[01]\.|o_proj|down_proj|embed=q5_k/search", "k_proj|v_proj=q6_k/search"),
    "nl4_xs; o, down q5_k; v, head q6_k": ("=nl4_xs/rtn", "o_proj|down_proj=q5_k/search", "v_proj|embed=q6_k/search"),
    "nl4; down q5_0; v, head q6_k": ("=nl4/rtn", "down_proj=q5_0/search", "v_proj|embed=q6_k/search"),
    "q4_k; down q5_k; v, head q6_k": ("=q4_k/search", "down_proj=q5_k/search", "v_proj|embed=q6_k/search"),
    "q5_0; down q5_k; v, head q6_k": ("=q5_0/search", "down_proj=q5_k/search", "v_proj|embed=q6_k/search"),
    "q5_k; v, head q6_k": ("=q5_k/search", "v_proj|embed=q6_k/search"),
    "q5_k; v, down, head q6_k": ("=q5_k/search", "v_proj|down_proj|embed=q6_k/search"),
}
FORMATS = ("nl4_xs", "q4_0", "q4_k", "q5_0", "q6_k", "q8_0")
WAYS = ("rounded", "search", "rounded, rotated")
# What a text by default would bring. {short} is the beginning of CALIBRATION.txt.
CALIBRATED = {
    "mixed, --calibrate": ["--calibrate"],
    "mixed, gptq, short text": ["--calibrate={short}"],
    "mixed, awq, short text": ["--quantizer", "search", "--awq", "--rotate", "off", "--calibrate={short}"],
}
SHORT_BYTES = 4096
# The groups of the picture; the others lie close to these.
DRAWN = ("plans", "rounded", "calibrated", *(program + matrix for program in ("llama.cpp", "ik_llama.cpp") for matrix in ("", ", matrix")))


def cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


class Row:
    """A file, what makes it, and what runs it."""

    def __init__(self, name, group, file, make, measure, program):
        self.name, self.group, self.file = name, group, file
        self.make, self.measure, self.program = make, measure, program


class Model:
    """The rows of a checkpoint and their figures: {name: {"group", "bytes", "compile", "quality", "speed"}}."""

    def __init__(self, args):
        self.args = args
        self.results = args.workdir / "front.json"
        self.known = json.loads(self.results.read_text()) if self.results.exists() else {}
        self.compiler = quality.Ours(args)

    def our_row(self, name, group, options, compare=None):
        file = self.args.workdir / f"{re.sub('[^a-z0-9_]+', '-', name.lower())}.qwen"
        compare = compare or self.compiler.compare

        def make():
            subprocess.run([BIN / "qwen-opt", *options(), "-o", file], check=True, stdout=sys.stderr, stderr=subprocess.DEVNULL)
        return Row(name, group, file, make, lambda: compare(file), OurProgram(file, THREADS))

    def plan(self, rules):
        """The options of a compile by rules."""
        base, folder = self.args.workdir / "base.json", self.args.folder
        if not base.exists():
            output(BIN / "qwen-opt", folder, "--weights", "q4_0", "-o", self.args.workdir / "base.qwen", "--save-plan", base,
                   stderr=subprocess.DEVNULL)
        plan = json.loads(base.read_text())
        for matrix in plan["matrices"]:
            for rule in rules:
                names, choice = rule.rsplit("=", 1)
                if re.search(names, matrix):
                    plan["matrices"][matrix] = dict(zip(("format", "quantizer"), choice.split("/")))
        file = self.args.workdir / "plan.json"
        file.write_text(json.dumps(plan))
        return [folder, "--plan", file]

    @functools.cache
    def peer(self, program, matrix):
        quality.peer_python(self.args.workdir, PEER_PACKAGES)
        return quality.Peer(argparse.Namespace(**vars(self.args) | {"matrix": matrix}), self.compiler, program)

    def peer_rows(self, program, kind, matrix):
        """A GGUF file in its own program, and compiled."""
        file = quality.peer_file(argparse.Namespace(workdir=self.args.workdir, matrix=matrix), program, kind)
        runner = (LlamaCpp if program == "llama.cpp" else IkLlamaCpp)(self.args.workdir / "peers/bin/python", file, THREADS)
        name, suffix = f"{program} {kind.removesuffix('-mix')}", ", matrix" if matrix else ""
        yield Row(name + suffix, program + suffix, file, lambda: self.peer(program, matrix).file(kind),
                  lambda: self.peer(program, matrix).row(kind), runner)
        yield self.our_row(f"{name}{suffix}, compiled", "GGUF, compiled", lambda: [self.peer(program, matrix).file(kind)],
                           self.compare_compiled)

    def compare_compiled(self, file):
        """Compares a compiled GGUF file with the compiled GGUF file in f32: only files of one tokenizer can be compared."""
        reference = self.args.workdir / "f32-gguf.qwen"
        quality.make(reference, [BIN / "qwen-opt", self.args.workdir / "f32.gguf", "--weights", "f32", "-o", reference])
        return self.compiler.compare(file, reference)

    def rows(self):
        folder = self.args.folder
        yield self.our_row("mixed", "plans", lambda: [folder])
        for name, rules in PLANS.items():
            yield self.our_row(name, "plans", lambda rules=rules: self.plan(rules))
        for way in WAYS:
            for format in FORMATS:
                yield self.our_row(f"{format}, {way}", way, lambda format=format, way=way: [folder, "--weights", format, *quality.WAYS[way]])
        for name, options in CALIBRATED.items():
            yield self.our_row(name, "calibrated", lambda options=options: [folder, *self.with_text(options)])
        for kind in FIELD:
            for program in ("llama.cpp", "ik_llama.cpp"):
                for matrix in (False, True):
                    yield from self.peer_rows(program, kind, matrix)

    def with_text(self, options):
        short = self.args.workdir / "short.txt"
        short.write_bytes(self.args.calibration.read_bytes()[:SHORT_BYTES])
        return [option.format(short=short) for option in options]

    def keep(self, row, figures):
        self.known.setdefault(row.name, {"group": row.group}).update(figures)
        waiting = self.results.with_suffix(".new")
        waiting.write_text(json.dumps(self.known, indent=1) + "\n")
        waiting.replace(self.results)

    def make(self, row):
        if not row.file.exists():
            start = cpu_seconds()
            row.make()
            seconds = cpu_seconds() - start
            self.keep(row, {"bytes": row.file.stat().st_size} | ({"compile": seconds} if row.file.suffix == ".qwen" else {}))

    def quality(self, row):
        known = self.known.get(row.name, {}).get("quality")
        if known and known["windows"] == self.args.windows and known["text"] == self.args.text.name:
            return
        print(row.name, file=sys.stderr, flush=True)
        self.make(row)
        found = row.measure()
        self.keep(row, {"quality": {"windows": self.args.windows, "text": self.args.text.name, "kl": found["kl"],
                                    "perplexities": found["perplexities"], "top1": found["top1"]}})

    def speed(self, rows):
        for row in rows:
            self.make(row)
        for number in range(self.args.rounds):
            # Each file is first in a round as often as it is last.
            for row in rows if number % 2 else reversed(rows):
                known = self.known.get(row.name, {}).get("speed", [])
                self.keep(row, {"speed": [*known, row.program.bench()]})


class IkLlamaCpp:
    def __init__(self, python, file, threads):
        self.command = [python, BENCH / "peer_ik.py", file, PROMPT, DECODE, threads]

    def bench(self):
        return json.loads(output(*self.command, stderr=subprocess.DEVNULL))


def table(known):
    print("| file | MB | KL | perplexity | top-1 | CPU seconds | prefill, tokens/s | decode, tokens/s |\n|---|---|---|---|---|---|---|---|")
    for name, row in sorted(known.items(), key=lambda item: item[1].get("bytes", 0)):
        cells = [f"{row['bytes'] / 1e6:.2f}" if "bytes" in row else ""]
        if found := row.get("quality"):
            reference, own = found["perplexities"]
            cells += [f"{found['kl']:.4f}", f"{own:.2f} ({(own / reference - 1) * 100:+.1f}%)", f"{found['top1'] * 100:.1f}"]
        else:
            cells += [""] * 3
        cells.append(f"{row['compile']:.1f}" if "compile" in row else "")
        for kind in ("prefill", "decode"):
            values = [one[kind] for one in row.get("speed", [])]
            cells.append(f"{statistics.median(values):.0f} ({min(values):.0f} to {max(values):.0f})" if values else "")
        print(f"| {name} | {' | '.join(cells)} |")


def draw(known, file):
    points = []
    for name, row in sorted(known.items(), key=lambda item: item[1].get("bytes", 0)):
        if "quality" in row and row["group"] in DRAWN:
            label = name if row["group"] in ("plans", "calibrated") else name.split(",")[0].split(" ")[-1]
            points.append({"name": label.replace(",", ";"), "group": row["group"], "bytes": row["bytes"], "kl": row["quality"]["kl"]})
    quality.draw(points, file)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("folder", "workdir", "text", "calibration"):
        parser.add_argument(name, type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("--windows", type=int, default=16)
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=PARTS, help="to measure; none: print what is known")
    parser.add_argument("--only", type=re.compile, default=re.compile(""), metavar="REGEX", help="rows by their names")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--svg", type=pathlib.Path)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    args.workdir.mkdir(parents=True, exist_ok=True)
    model = Model(args)
    rows = [row for row in model.rows() if args.only.search(row.name)]
    if "quality" in args.parts:
        for row in rows:
            model.quality(row)
    if "speed" in args.parts:
        model.speed(rows)
    known = {name: row for name, row in model.known.items() if args.only.search(name)}
    print(json.dumps(known, indent=1)) if args.json else table(known)
    if args.svg:
        draw(known, args.svg)


if __name__ == "__main__":
    main()

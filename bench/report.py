#!/usr/bin/env python3
"""The table of a report: what each way to quantize a model costs and gains, in size, speed, memory, perplexity and tasks.

  .venv/bin/python bench/report.py FOLDER WORKDIR TEXT CALIBRATION DATA [--tasks NAME,...] [--limit N] [--files NAME ...]
      [--others NAME=FILE ...] [--parts PART ...] [--windows N] [--rounds N] [--threads N]

FOLDER is a checkpoint or has checkpoints in it. Each is compiled as the rows of FILES say, in WORKDIR/MODEL; --others
adds rows of compiled files, such as trained ones. The parts:
  quality  the KL to the model in f32 and the perplexity on windows of TEXT (`qwen-run compare`, as bench/quality.py)
  tasks    `qwen-run eval` on DATA: acc_norm where a task has it, else its first metric, with the standard error
  speed    prefill of 512 tokens, decode of 64 and the greatest memory, the median of alternating rounds (`qwen-run bench`)
Results are kept in WORKDIR/MODEL/report.json as soon as they are there, and documents of tasks in files beside it, so that a run that
was stopped goes on. A figure is measured again when its options are others. Prints Markdown and writes WORKDIR/MODEL/report.svg.
"""
import argparse
import json
import os
import pathlib
import statistics
import sys

import quality
from peers import BIN, Ours, cpu_name, output

# Each form has a format and a way of quality.WAYS. The fastest forms stand first.
FILES = {
    "q4_0, rounded": ("q4_0", "rounded"),
    "q8_0": ("q8_0", "rounded, rotated"),
    "q4_0, search": ("q4_0", "search"),
    "q4_0, awq": ("q4_0", "awq"),
    "q4_0, gptq": ("q4_0", "gptq, rotated"),
    "q4_g128, gptq": ("q4_g128", "gptq, rotated"),
    "q4_0, gptq+cd": ("q4_0", "gptq+cd, rotated"),
    "f32": None,
}
PARTS = ("quality", "tasks", "speed")


class Model:
    """The files of a checkpoint and what is known of them: {file: {part: {"options", "figures"}}}."""

    def __init__(self, args, folder):
        self.args = argparse.Namespace(**vars(args) | {"folder": folder, "workdir": args.workdir / folder.name})
        self.args.workdir.mkdir(parents=True, exist_ok=True)
        self.results = self.args.workdir / "report.json"
        self.known = json.loads(self.results.read_text()) if self.results.exists() else {}
        self.compiler = quality.Ours(self.args)

    def file(self, name):
        if name in self.args.others:
            return self.args.others[name]
        return self.compiler.file(*FILES[name]) if FILES[name] else self.compiler.f32

    def lacks(self, name, part, options):
        return self.known.get(name, {}).get(part, {}).get("options") != options

    def keep(self, name, part, options, figures):
        self.known.setdefault(name, {})[part] = {"options": options, "figures": figures}
        waiting = self.results.with_suffix(".new")
        waiting.write_text(json.dumps(self.known, indent=1) + "\n")
        waiting.replace(self.results)

    def figures(self, name, part):
        return self.known.get(name, {}).get(part, {}).get("figures", {})

    def quality(self, name):
        options = {"text": self.args.text.name, "windows": self.args.windows}
        if self.lacks(name, "quality", options):
            found = json.loads(output(BIN / "qwen-run", "compare", self.compiler.f32, self.file(name), self.args.text, "--windows",
                                      self.args.windows, "--json"))
            self.keep(name, "quality", options, {"bytes": self.file(name).stat().st_size, "kl": found["kl"]["mean"],
                                                 "perplexity": found["perplexity"]["mean"]})

    def tasks(self, name):
        options = {"tasks": self.args.tasks, "limit": self.args.limit}
        if self.lacks(name, "tasks", options):
            print(f"{self.args.folder.name}: tasks of {name}", file=sys.stderr)
            file = self.file(name)
            limit = [] if self.args.limit is None else ["--limit", self.args.limit]
            found = json.loads(output(BIN / "qwen-run", "eval", file, "--tasks", self.args.tasks, "--data", self.args.data, "--json",
                                      "--samples", file.with_suffix(".samples.jsonl"), "--threads", self.args.threads, *limit))
            self.keep(name, "tasks", options, {task: metric(found, task) for task in self.args.tasks.split(",")})

    def speed(self):
        options = {"cpu": cpu_name(), "rounds": self.args.rounds, "threads": self.args.threads}
        names = [name for name in self.args.files if self.lacks(name, "speed", options)]
        programs = {name: Ours(self.file(name), self.args.threads) for name in names}
        rounds = {name: [] for name in names}
        for number in range(self.args.rounds if names else 0):
            # Each file is first in a round as often as it is last.
            for name in names if number % 2 else reversed(names):
                rounds[name].append(programs[name].report())
        for name, reports in rounds.items():
            figures = {kind: statistics.median(report[f"{kind}_tokens_per_second"]["median"] for report in reports)
                       for kind in ("prefill", "decode")}
            self.keep(name, "speed", options, figures | {"memory": max(report["peak_rss_bytes"] for report in reports)})


def metric(found, task):
    """A task's metric: its name, its value, its standard error and the number of documents."""
    row = found["results"][task]
    names = [key.removesuffix(",none") for key in row if key.endswith(",none") and "stderr" not in key]
    name = "acc_norm" if "acc_norm" in names else names[0]
    return {"metric": name, "value": row[f"{name},none"], "stderr": row[f"{name}_stderr,none"],
            "documents": found["n-samples"].get(task, {}).get("effective")}


def columns(model):
    """Name, unit, figures by file: a value and its standard error or None."""
    def of(part, key, scale):
        return {name: (figures[key] * scale, None) for name in model.args.files if key in (figures := model.figures(name, part))}
    shown = [("size", "MB", of("quality", "bytes", 1e-6)), ("prefill", "tokens/s", of("speed", "prefill", 1)),
             ("decode", "tokens/s", of("speed", "decode", 1)), ("memory", "MB", of("speed", "memory", 1e-6)),
             ("KL", "", of("quality", "kl", 1)), ("perplexity", "", of("quality", "perplexity", 1))]
    tasks = dict.fromkeys(task for name in model.args.files for task in model.figures(name, "tasks"))
    for task in tasks:
        rows = {name: model.figures(name, "tasks")[task] for name in model.args.files if task in model.figures(name, "tasks")}
        values = {name: (100 * row["value"], 100 * row["stderr"] if isinstance(row["stderr"], float) else None)
                  if row["metric"].startswith("acc") else (row["value"], None) for name, row in rows.items()}
        first = next(iter(rows.values()))
        unit = f"% of {first['documents']}" if first["metric"].startswith("acc") else first["metric"]
        shown.append((task, unit, values))
    return [column for column in shown if column[2]]


def cell(values, name):
    if name not in values:
        return ""
    value, error = values[name]
    digits = 1 if error is not None else 4 if value < 1 else 2 if value < 100 else 0
    return f"{value:.{digits}f}" + (f" ± {error:.1f}" if error is not None else "")


def table(model):
    shown = columns(model)
    head = ["file", *(f"{name}, {unit}" if unit else name for name, unit, _ in shown)]
    rows = [head, ["---"] * len(head), *([name, *(cell(values, name) for _, _, values in shown)] for name in model.args.files)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def draw(model):
    """The table with a bar in each cell, as long as its value in its column, and a line as long as two standard errors."""
    shown, height, top, left, width, gap = columns(model), 24, 52, 110, 100, 12
    shapes = []
    for i, name in enumerate(model.args.files):
        y = top + i * height
        shapes.append(f'<text x="8" y="{y + 15}">{name}</text>')
        for j, (_, _, values) in enumerate(shown):
            if name not in values:
                continue
            x, greatest = left + j * (width + gap), max(value + (error or 0) for value, error in values.values()) or 1
            value, error = values[name]
            length = width * value / greatest
            shapes.append(f'<rect x="{x}" y="{y + 2}" width="{length:.1f}" height="{height - 6}" fill="#c5d8ec"/>'
                          f'<text x="{x + 4}" y="{y + 15}">{cell(values, name)}</text>')
            if error is not None:
                begin, end = (x + width * edge / greatest for edge in (value - error, value + error))
                shapes.append(f'<path d="M{begin:.1f} {y + 20}H{end:.1f}" stroke="black"/>')
    for j, (title, unit, _) in enumerate(shown):
        shapes.append(f'<text x="{left + j * (width + gap)}" y="32" font-weight="bold">{title}</text>'
                      f'<text x="{left + j * (width + gap)}" y="46">{unit}</text>')
    size = f"{left + len(shown) * (width + gap)} {top + len(model.args.files) * height + 8}"
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" font-family="sans-serif" font-size="11">'
            f'<rect width="100%" height="100%" fill="white"/><text x="8" y="14">{model.args.folder.name}, {cpu_name()}</text>'
            f'{"".join(shapes)}</svg>\n')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("folder", "workdir", "text", "calibration", "data"):
        parser.add_argument(name, type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("--tasks", default="arc_easy,hellaswag,piqa")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--files", nargs="*", choices=FILES, default=list(FILES))
    parser.add_argument("--others", nargs="+", type=lambda text: text.split("=", 1), default=[], metavar="NAME=FILE")
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=PARTS, help="to measure; none: print what is known")
    parser.add_argument("--windows", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    args = parser.parse_args()
    args.others = {name: pathlib.Path(file) for name, file in args.others}
    args.files += args.others
    folders = [args.folder] if (args.folder / "config.json").exists() else sorted(path.parent for path in args.folder.glob("*/config.json"))
    if not folders:
        sys.exit(f"{args.folder}: no checkpoint, and no folder of one in it")
    for folder in folders:
        model = Model(args, folder)
        for name in args.files:
            for part in ("quality", "tasks"):
                if part in args.parts:
                    getattr(model, part)(name)
        if "speed" in args.parts:
            model.speed()
        print(f"{folder.name}\n\n{table(model)}\n")
        (model.args.workdir / "report.svg").write_text(draw(model))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""What training at the engine's precision brings: KL and perplexity of files by qwen-train beside calibrated ones.

  v/bin/pip install build/packages/qwen_compiler-*.whl[train]
  v/bin/python bench/train.py WORKDIR --corpus stories.txt.xz --calibration calibration.txt [--parts weights recovery ...] [--epochs N] [--more=OPTION ...]
  v/bin/python bench/train.py WORKDIR --model FOLDER --eval EVAL.txt --corpus calibration.txt --calibration calibration.txt --parts trained --calibrated gptq

The model is models/stories, and the text to measure with its val.txt. WORKDIR gets the texts: what the corpus has without texts that share 40 characters with
a text to measure with, and the first halves of the five kinds of text of calibration/text. Files are compared with the checkpoint in f32 (`qwen-run
compare`), on 16 windows of that text and on the second halves of the five kinds. A file or a folder that is there is not made again.

Each part is a training. `weights` trains all weights of the checkpoint, in q4_0. `trained` begins with gptq's integers and trains weights and scales,
in q4_0; `small` does so in q4_g128. `scales` trains scales alone. `recovery` trains the model without the layer that `--prune
sleb:1` removes, in q8_0. All read the text of the five kinds several times, or it would be a fiftieth of their tokens.
"""
import argparse
import json
import lzma
import pathlib
import random
import resource
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BIN = ROOT / "build/host/bin"
STORIES = ROOT / "models/stories"
END = "<|endoftext|>"
SHARED = 40
# Of the corpus, in whole texts.
CHARACTERS = 6_000_000
KINDS = ("english", "chinese", "code", "chat", "mathematics")
# How often the text of the kinds is in the data.
KINDS_READ = 6
# Options of qwen-opt; {text} is the text of a calibration.
CALIBRATED = {
    "rounded": ["--quantizer", "rtn", "--rotate", "off"],
    "gptq": ["--quantizer", "gptq", "--calibrate={text}"],
    "gptq+cd": ["--quantizer", "gptq+cd", "--calibrate={text}"],
    "gptq, own text": ["--quantizer", "gptq", "--calibrate"],
}
# Format, and options of qwen-train.
PARTS = {
    "weights": ("q4_0", ["--method", "qat", "--lr", "3e-4"]),
    "trained": ("q4_0", ["--method", "lsq", "--start", "{start}"]),
    "small": ("q4_g128", ["--method", "lsq", "--start", "{start}"]),
    "scales": ("q4_0", ["--method", "scales", "--start", "{start}", "--lr", "1e-4"]),
    "recovery": ("q8_0", ["--method", "qat", "--prune", "sleb:1", "--lr", "4e-4"]),
}


def run(*command, **options):
    return subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE, text=True, **options).stdout


def write_texts(args):
    """The texts to train with and those to measure with, by kind."""
    held = {kind: args.workdir / f"{kind}.held-out.txt" for kind in KINDS}
    held["val"] = args.eval
    training = [args.workdir / name for name in ("corpus.txt", "kinds.txt")]
    if all(file.exists() for file in (*training, *held.values())):
        return training, held
    halves = {}
    for kind in KINDS:
        text = (ROOT / f"calibration/text/{kind}.txt").read_text()
        middle = text.rfind("\n", 0, len(text) // 2) + 1
        halves[kind] = text[:middle]
        held[kind].write_text(text[middle:])
    training[1].write_text(END.join(halves.values()))
    known = {text[i:i + SHARED] for text in (file.read_text() for file in held.values()) for i in range(len(text) - SHARED + 1)}
    with (lzma.open if args.corpus.suffix == ".xz" else open)(args.corpus, "rt", encoding="utf-8") as file:
        texts = file.read().split(END)
    random.Random(1).shuffle(texts)
    kept = []
    while texts and sum(map(len, kept)) < CHARACTERS:
        text = texts.pop()
        kept += [] if any(text[i:i + SHARED] in known for i in range(len(text))) else [text.strip()]
    training[0].write_text(END.join(kept))
    return training, held


def children_seconds():
    """The CPU time of all programs that ran."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def compile_file(args, folder, name, *options):
    file = args.workdir / f"{name.replace(', ', '-').replace(' ', '-')}.qwen"
    if not file.exists():
        run(BIN / "qwen-opt", folder, "-o", file, *options, stderr=subprocess.DEVNULL)
    return file


def start_file(args, format):
    """The integers of gptq without rotation, as a GGUF file."""
    file = args.workdir / f"start-{format}.gguf"
    if not file.exists():
        calibrated = compile_file(args, args.model, f"start-{format}", "--weights", format, "--quantizer", "gptq", "--rotate", "off", f"--calibrate={args.calibration}")
        run(BIN / "qwen-opt", "export", calibrated, "-o", file, stderr=subprocess.DEVNULL)
    return file


def trained(args, part, files):
    """The file of a part, and the seconds of its training, of the clock and of CPUs."""
    format, options = PARTS[part]
    folder, log = args.workdir / part, args.workdir / f"{part}.json"
    if not folder.exists():
        options = [str(start_file(args, format)) if option == "{start}" else option for option in options]
        start, before = time.time(), children_seconds()
        subprocess.run([args.python, "-m", "qwen_compiler.train", args.model, "-o", folder, "--teacher", args.model, "--format", format, *options, *args.more,
                        "--batch", str(args.batch), "--window", str(args.window), "--epochs", str(args.epochs), "--threads", str(args.threads),
                        "--data", files[0], *files[1:] * KINDS_READ], check=True)
        log.write_text(json.dumps({"seconds": time.time() - start, "cpu": children_seconds() - before}))
    return compile_file(args, folder, part), json.loads(log.read_text())


def compare(args, reference, file, held):
    """KL by kind of text, and the perplexity of val.txt before and behind."""
    found = {}
    for kind, text in held.items():
        result = json.loads(run(BIN / "qwen-run", "compare", reference, file, text, "--windows", args.windows if kind == "val" else 8, "--json"))
        found[kind] = result["kl"]["mean"]
        if kind == "val":
            found["perplexity"] = [result[key]["mean"] for key in ("reference_perplexity", "perplexity")]
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workdir", type=pathlib.Path)
    parser.add_argument("--model", type=pathlib.Path, default=STORIES)
    parser.add_argument("--eval", type=pathlib.Path, default=STORIES / "golden/val.txt")
    parser.add_argument("--corpus", type=pathlib.Path, required=True)
    parser.add_argument("--calibration", type=pathlib.Path, required=True)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--calibrated", nargs="*", choices=CALIBRATED, default=list(CALIBRATED), help="files to compare with that are not trained")
    parser.add_argument("--more", action="append", default=[], help="another option of qwen-train")
    parser.add_argument("--python", default=sys.executable, help="the Python that has qwen_compiler[train]")
    parser.add_argument("--epochs", type=float, default=0.35)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--window", type=int, default=256)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--windows", type=int, default=16)
    args = parser.parse_args()
    args.workdir.mkdir(parents=True, exist_ok=True)
    files, held = write_texts(args)
    reference = compile_file(args, args.model, "f32", "--weights", "f32")
    rows = {}
    for format in dict.fromkeys(PARTS[part][0] for part in args.parts if part != "recovery"):
        for name in args.calibrated:
            options = [option.format(text=args.calibration) for option in CALIBRATED[name]]
            rows[f"{format}, {name}"] = compile_file(args, args.model, f"{format}, {name}", "--weights", format, *options), None
    for part in args.parts:
        rows[part] = trained(args, part, files)
    if "recovery" in args.parts:
        rows["one layer less"] = compile_file(args, args.model, "pruned", "--weights", "q8_0", "--quantizer", "rtn", "--rotate", "off", "--prune", "sleb:1",
                                              f"--calibrate={files[0]}"), None
    print(f"| file | MB | seconds, CPU seconds | perplexity | KL | {' | '.join(KINDS)} |\n|{'---|' * (5 + len(KINDS))}")
    for name, (file, seconds) in rows.items():
        found = compare(args, reference, file, held)
        print(f"| {name} | {file.stat().st_size / 1e6:.2f} | {', '.join(f'{each:.0f}' for each in seconds.values()) if seconds else ''} | {found['perplexity'][1]:.2f} | {found['val']:.4f} | "
              + " | ".join(f"{found[kind]:.4f}" for kind in KINDS) + " |", flush=True)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Speed of answers with drafts, for texts that repeat themselves and for others, against plain decoding in the same runs.

  .venv/bin/python bench/speculate.py WORKDIR --checkpoint FOLDER [--weights q8_0 q4_0] [--batch 1 4] [--texts NAME ...] [--drafts 1,3,7]
                                      [--repetitions N] [--threads N] [--json] [--mtp | --prune LAYERS] [--draft-vocabulary N]
  .venv/bin/python bench/speculate.py --count MODEL

Compiles the checkpoint in each format, unless WORKDIR has the file, and replays the texts of bench/texts (`qwen-run bench --replay`): the answer of a text
takes the place of drawn tokens, so that any weights will do. Prints, of each text and number of sequences, the speed with as many drafts
as DraftPace chooses over the speed without, and the bound: the greatest tau / c(k + 1) of the fixed numbers of drafts in --drafts, where tau
are the tokens a step with k drafts and c the time of a step of as many rows over that of a step without drafts, medians of the same runs.
--prune compiles the checkpoint without some layers as draft model, whose time is a part of c, and --mtp its draft head; --draft-vocabulary gives their
head so many rows. --acceptance makes each draft right with a chance.
The text "wrong" is made here: lookup finds drafts in it all the time, and none is right.
--count prints the share of the tokens of each answer that lie in runs of 8 which stand earlier in the prompt or the answer.
"""
import argparse
import functools
import json
import pathlib
import subprocess
import sys

import peers
from peers import BIN, ROOT

TEXTS = sorted((ROOT / "bench/texts").glob("*.json"))
RUN = 8
output = functools.partial(peers.output, stderr=subprocess.DEVNULL)


def copied_share(prompt, answer):
    """The share of an answer's tokens in runs of RUN tokens that stand earlier."""
    ids = prompt + answer
    seen, copied = set(), set()
    for end in range(RUN, len(ids) + 1):
        run = tuple(ids[end - RUN:end])
        if run in seen:
            copied.update(range(end - RUN, end))
        seen.add(run)
    return sum(place >= len(prompt) for place in copied) / len(answer)


def count(model):
    for path in TEXTS:
        text = json.loads(path.read_text())
        ids = [list(map(int, output(BIN / "qwen-run", "tokenize", model, input=text[part]).replace(",", " ").split())) for part in ("prompt", "answer")]
        print(f"{path.stem:8} {len(ids[0]):4} and {len(ids[1]):4} tokens, {100 * copied_share(*ids):3.0f}% copied")


def wrong_text():
    """Ids that make lookup wrong: no id is the one that follows the most recent place of the longest end of the text before it."""
    ids = [(7 * i * i + 3 * i) % 40 + 100 for i in range(60)]
    for _ in range(300):
        best, following = 0, None
        for end in range(1, len(ids)):
            length = 0
            while length < end and ids[end - 1 - length] == ids[-1 - length]:
                length += 1
            if length and length >= best:
                best, following = length, ids[end]
        ids.append(next(i for i in range(100, 140) if i != following and i != ids[-1] and (i + len(ids)) % 3))
    return {"prompt": ids[:60], "answer": ids[60:]}


def measure(args, file, drafts, texts, batch):
    chance = [] if args.acceptance is None else ["--acceptance", args.acceptance]
    of = json.loads(output(BIN / "qwen-run", "bench", file, *(option for text in texts for option in ("--replay", text)), "--speculate", drafts, "--batch", batch, *chance,
                           "--drafts", f"0,{args.drafts}", "--repetitions", args.repetitions, "-t", args.threads, "--json"))
    plain, paying, *fixed = of["runs"]
    seconds = {each["rows"]: each["median_seconds"] for each in of["step_seconds"] if each["steps"] >= 2}
    bounds = [1]
    for each in fixed:
        rows = batch * (each["drafts"] + 1)
        if rows in seconds:
            bounds.append(each["tokens_per_step"] / batch / (seconds[rows] / seconds[batch]))
    gain = paying["tokens_per_second"] / plain["tokens_per_second"]
    return {"gain": gain, "later_gain": paying["later_tokens_per_second"] / (plain["later_tokens_per_second"] or 1), "bound": max(bounds),
            "plain": plain["tokens_per_second"], "tokens_per_step": paying["tokens_per_step"] / batch, "accepted": paying["accepted"],
            "costs": {rows: seconds[rows] / seconds[batch] for rows in sorted(seconds)}}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("workdir", type=pathlib.Path, nargs="?")
    parser.add_argument("--checkpoint", type=pathlib.Path)
    parser.add_argument("--weights", nargs="+", default=["q8_0", "q4_0"])
    parser.add_argument("--batch", nargs="+", type=int, default=[1, 4])
    parser.add_argument("--texts", nargs="+", default=[path.stem for path in TEXTS] + ["wrong"])
    parser.add_argument("--drafts", default="1,3,7")
    parser.add_argument("--repetitions", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prune")
    parser.add_argument("--mtp", action="store_true")
    parser.add_argument("--draft-vocabulary")
    parser.add_argument("--acceptance", type=float)
    parser.add_argument("--count", type=pathlib.Path)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if args.count:
        return count(args.count)
    if not args.workdir or not args.checkpoint:
        parser.error("WORKDIR and --checkpoint are needed")
    args.workdir.mkdir(parents=True, exist_ok=True)
    wrong = args.workdir / "wrong.json"
    wrong.write_text(json.dumps(wrong_text()))
    results = []
    for weights in args.weights:
        rows = ["--draft-vocabulary", args.draft_vocabulary] if args.draft_vocabulary else []
        head = rows if args.mtp else ["--no-mtp"]
        small = ["--prune", args.prune, *rows] if args.prune else []
        name = f"{args.checkpoint.name}.{weights}"
        file = args.workdir / ".".join([name, *head, "qwen"])
        drafts = args.workdir / ".".join([name, *small, "qwen"]) if small else "mtp" if args.mtp else "lookup"
        for model, options in ((file, head), (drafts, small)):
            if isinstance(model, pathlib.Path) and not model.exists():
                output(BIN / "qwen-opt", args.checkpoint, "-o", model, "--weights", weights, "--target", "native", *options)
        for batch in args.batch:
            for name in args.texts:
                of = measure(args, file, drafts, [wrong if name == "wrong" else ROOT / f"bench/texts/{name}.json"], batch)
                results.append({"weights": weights, "batch": batch, "text": name, **of})
                if not args.json:
                    print(f"{weights} {batch} {name:8} {of['gain']:.2f} ({of['later_gain']:.2f} after 50 tokens) of {of['bound']:.2f}, "
                          f"{of['tokens_per_step']:.2f} tokens a step, {100 * of['accepted']:.0f}% accepted; plain {of['plain']:.1f}/s; c " +
                          " ".join(f"{rows}: {cost:.2f}" for rows, cost in of["costs"].items()), flush=True)
    if args.json:
        json.dump(results, sys.stdout, indent=1)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""`qwen-run eval` against lm-eval over `qwen-run serve`: the same log-likelihoods, and the documents a second.

  python3 -m venv build/lm-eval && build/lm-eval/bin/pip install 'lm-eval[api]==0.4.13' transformers
  build/lm-eval/bin/python bench/tasks.py MODEL TOKENIZER [--data DIR] [--tasks NAME,...] [--limit N] [--check | --rounds N] [--json]

MODEL is a compiled model, TOKENIZER the folder of its tokenizer, which lm-eval reads by itself. DIR has data as other programs keep
them (shared/data/eval); without it, the data are those of test/Inputs/tasks.

--check compares each log-likelihood and is_greedy, with the server's prefix cache and without it, and with the Python package, which PYTHONPATH has. Else each round runs both programs
on the same documents: eval from the start of its process, lm-eval from the start of its evaluation, without bootstrapped errors,
when the server and Python are up. Prints the median, least and greatest ratio of eval to lm-eval; above 1, eval is faster.
"""
import argparse
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TOKENIZERS_PARALLELISM="false", TQDM_DISABLE="1", LMEVAL_LOG_LEVEL="ERROR")

import lm_eval  # noqa: E402
from lm_eval.tasks import TaskManager  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "test/Integration"))
import lm_eval_data  # noqa: E402
from server import Server  # noqa: E402
from task_cases import CASES  # noqa: E402

BIN = ROOT / "build/host/bin"
os.environ["PATH"] = f"{BIN}{os.pathsep}{os.environ['PATH']}"
CONCURRENT, BATCH = 16, 4


def by_http(args, manager, server):
    """lm-eval's results."""
    name = json.loads(server.send("GET", "/v1/models")[2])["data"][0]["id"]
    tokenizer = {"tokenizer_backend": "remote"} if args.remote else {"tokenizer": str(args.tokenizer), "tokenizer_backend": "huggingface"}
    return lm_eval.simple_evaluate(
        model="local-completions", tasks=args.tasks, limit=args.limit, batch_size=BATCH, bootstrap_iters=0, task_manager=manager,
        model_args={"base_url": server.address + "/v1/completions", "model": name, "max_length": args.length,
                    "num_concurrent": CONCURRENT, **tokenizer})


def by_python(args, manager):
    """lm-eval's results with the Python package, whose model reads as many tokens as eval's."""
    import qwen_compiler.lm_eval  # noqa: F401  It adds the model.
    return lm_eval.simple_evaluate(model="qwen_compiler", tasks=args.tasks, limit=args.limit, bootstrap_iters=0, task_manager=manager,
                                   model_args={"pretrained": str(args.model), "max_length": args.length - 2})


def by_eval(args, samples):
    """The documents of eval's samples. lm-eval keeps one token of the longest text free for an answer, and one more."""
    limit = [] if args.limit is None else ["--limit", str(args.limit)]
    subprocess.run(["qwen-run", "eval", args.model, "--tasks", ",".join(args.tasks), "--data", args.data, "--samples", samples, "--json",
                    "--max-length", str(args.length - 2), *limit], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return [json.loads(line) for line in samples.read_text().splitlines()[1:]]


def check(args, manager, folder):
    """The number of log-likelihoods that differ."""
    mine = {(row["task"], row["doc_id"]): row["requests"] for row in by_eval(args, folder / "samples.jsonl")}
    wrong = count = greatest = 0
    for way in ("HTTP", "HTTP --no-prefix-cache", "Python"):
        if way == "Python":
            samples = by_python(args, manager)["samples"]
        else:
            server = Server(args.model, *way.split()[1:])
            try:
                samples = by_http(args, manager, server)["samples"]
            finally:
                server.stop()
        left = set(mine)
        for task, rows in samples.items():
            for row in rows:
                requests = mine[task, row["doc_id"]]
                left.remove((task, row["doc_id"]))
                answers = [response[0] for response in row["resps"]]
                if isinstance(answers[0], float):
                    # Windows of a page, whose sum lm-eval gives.
                    pairs = [(answers[0], None, sum(r["loglikelihood"] for r in requests), None)]
                else:
                    pairs = [(*answer, r["loglikelihood"], r["is_greedy"]) for answer, r in zip(answers, requests, strict=True)]
                count += len(pairs)
                greatest = max(greatest, *(abs(theirs / ours - 1) for theirs, _, ours, _ in pairs if ours))
                for theirs, their_greedy, ours, greedy in pairs:
                    # Over HTTP, lm-eval adds up printed float32 numbers. In Python, the package gives the sum that eval gives.
                    if not (theirs == ours if way == "Python" else math.isclose(theirs, ours, rel_tol=1e-6, abs_tol=1e-5)) or their_greedy != greedy:
                        wrong += 1
                        print(f"{task} {row['doc_id']} {way}: lm-eval has {theirs} {their_greedy}, eval {ours} {greedy}")
        wrong += len(left)
        if left:
            print(f"{way} lacks {list(left)[:3]}")
    print(f"{count} log-likelihoods, {wrong} differ; the greatest relative difference is {greatest:.1e}")
    return wrong


def seconds(run):
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def rounds(args, manager, folder):
    figures = {"eval": [], "lm-eval": []}
    documents = 0
    for number in range(args.rounds):
        def own():
            nonlocal documents
            documents = len(by_eval(args, folder / f"samples-{number}.jsonl"))

        def other():
            by_http(args, manager, server)
        # Each program is first in a round as often as it is last.
        for name in sorted(figures, reverse=number % 2 == 1):
            if name == "eval":
                figures[name].append(seconds(own))
            else:
                server = Server(args.model)
                try:
                    figures[name].append(seconds(other))
                finally:
                    server.stop()
        print(f"round {number + 1}: eval {figures['eval'][-1]:.2f} s, lm-eval {figures['lm-eval'][-1]:.2f} s", file=sys.stderr)
    return {"documents": documents,
            "documents_per_second": {name: documents / statistics.median(values) for name, values in figures.items()},
            "ratios": [b / a for a, b in zip(figures["eval"], figures["lm-eval"])]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("tokenizer", type=pathlib.Path)
    parser.add_argument("--data", type=pathlib.Path)
    parser.add_argument("--tasks", type=lambda text: text.split(","))
    parser.add_argument("--limit", type=int)
    parser.add_argument("--length", type=int, default=1024, help="the longest text of the model, in tokens")
    parser.add_argument("--remote", action="store_true", help="let the server tokenize for lm-eval, which it does up to its longest text")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    lm_eval_data.use(args.data or ROOT / "test/Inputs/tasks", args.data is not None)
    args.tasks = args.tasks or (["arc_easy", "hellaswag", "piqa"] if args.data else CASES[0][3])
    args.data = args.data or ROOT / "test/Inputs/tasks"
    manager = TaskManager()
    with tempfile.TemporaryDirectory() as temporary:
        if args.check:
            sys.exit(1 if check(args, manager, pathlib.Path(temporary)) else 0)
        found = rounds(args, manager, pathlib.Path(temporary))
    if args.json:
        print(json.dumps(found))
        return
    speeds = found["documents_per_second"]
    print(f"{found['documents']} documents; a second: eval {speeds['eval']:.1f}, lm-eval {speeds['lm-eval']:.1f}; ratio "
          f"{statistics.median(found['ratios']):.2f} ({min(found['ratios']):.2f} to {max(found['ratios']):.2f})")


if __name__ == "__main__":
    main()

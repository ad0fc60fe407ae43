"""`qwen-run eval` has the requests of lm-eval, token for token, and its results: those of test/Inputs/tasks.json, made by make_tasks.py.

  tasks.py STORIES INPUTS SHARED WORKDIR

STORIES is the compiled model. Where SHARED, the folder of evaluation data, is missing, only the tasks of test/Inputs/tasks are
checked. To see lm-eval's requests of a case that differs: test/Inputs/make_tasks.py SHARED CASE.
"""
import json
import math
import pathlib
import shutil
import sys

import numpy as np

from checks import Checks, compile_model, logits, run, write_checkpoint
from task_cases import CASES, MODELS, all_subjects, fingerprint, score

STORIES, INPUTS, SHARED, WORK = (pathlib.Path(a).resolve() for a in sys.argv[1:])
shutil.rmtree(WORK, ignore_errors=True)
WORK.mkdir(parents=True)
GOLDEN = json.loads((INPUTS / "tasks.json").read_text())
checks = Checks()


def qwen2():
    """A model whose weights don't matter, with the tokenizer of Qwen2."""
    tokenizer, length = MODELS["qwen2"]
    folder = WORK / "qwen2"
    write_checkpoint(folder, ("qwen2", 32, 1, 1, 1, 32, 32, 151936, True), np.random.default_rng(1), max_position_embeddings=length)
    for file in (INPUTS.parents[1] / tokenizer).iterdir():
        shutil.copy(file, folder)
    return compile_model(folder, WORK / "qwen2.qwen")


def evaluate(model, folder, samples, tasks, shots, limit, *options):
    command = ["qwen-run", "eval", model, "--tasks", ",".join(tasks), "--data", folder, "--samples", samples, *options]
    for option, value in (("--num-fewshot", shots), ("--limit", limit)):
        command += [] if value is None else [option, value]
    return run(command)


def read_samples(path):
    """The rows of a file of samples behind the first: {task: [row of each document]}."""
    rows = {}
    for line in path.read_text().splitlines()[1:]:
        row = json.loads(line)
        rows.setdefault(row["task"], {})[row["doc_id"]] = row
    return {task: [documents[i] for i in sorted(documents)] for task, documents in rows.items()}


def requests_of(documents):
    return [[(request["context"], request["continuation"]) for request in row["requests"]] for row in documents]


def with_scores(samples, rows):
    """A file of samples with the log-likelihoods that lm-eval got when the golden was made."""
    out = samples.with_suffix(".scores.jsonl")
    with out.open("w") as file:
        file.write(samples.read_text().splitlines()[0] + "\n")
        for task, documents in rows.items():
            for i, row in enumerate(documents):
                scores = [score(r["context"], r["continuation"]) for r in row["requests"]]
                requests = [r | {"loglikelihood": value, "is_greedy": greedy} for r, (value, greedy) in zip(row["requests"], scores)]
                file.write(json.dumps({"task": task, "doc_id": i, "requests": requests}) + "\n")
    return out


def same(found, expected):
    """Whether two results are equal, numbers to 1e-12."""
    if isinstance(expected, dict):
        return isinstance(found, dict) and found.keys() == expected.keys() and all(same(found[key], expected[key]) for key in expected)
    if isinstance(expected, float):
        return isinstance(found, (int, float)) and math.isclose(found, expected, rel_tol=1e-12, abs_tol=1e-15)
    return found == expected


def check_case(name, model, folder, case):
    expected = GOLDEN["cases"][name]
    samples = WORK / f"{name}.jsonl"
    evaluate(model, folder, samples, *case, "--dry-run")
    rows = read_samples(samples)
    checks.check(rows.keys() == expected["requests"].keys(), f"{name}: tasks {rows.keys() ^ expected['requests'].keys()}")
    for task, documents in rows.items():
        checks.expect(f"{name}: {task}", fingerprint(requests_of(documents)), expected["requests"].get(task))
    results = json.loads(evaluate(model, folder, with_scores(samples, rows), *case, "--json"))
    for part in ("results", "groups", "n-shot", "higher_is_better", "n-samples"):
        for task, row in expected[part].items():
            found = results.get(part, {}).get(task)
            checks.check(same(found, row), f"{name}: {part} of {task}: {found} is not {row}")


def check_scores(folder):
    """The log-likelihoods are those of the logits, also of a run that goes on where another one stopped."""
    tasks, samples, parts = ["arc_easy", "lambada_openai"], WORK / "whole.jsonl", WORK / "parts.jsonl"
    whole = json.loads(evaluate(STORIES, folder, samples, tasks, None, 6, "--json"))
    evaluate(STORIES, folder, parts, tasks, None, 2)
    # A run that was stopped in the middle of a line.
    parts.write_text(parts.read_text() + samples.read_text().splitlines()[-1][:40])
    checks.expect("a run in two parts", json.loads(evaluate(STORIES, folder, parts, tasks, None, 6, "--json")), whole)
    rows = read_samples(samples)
    checks.expect("its samples", read_samples(parts), rows)
    for row in [row for documents in rows.values() for row in documents][::3]:
        for request in row["requests"]:
            ids, start = request["context"] + request["continuation"], len(request["context"])
            found = logits(STORIES, ids, WORK / "logits.npy")[start - 1:-1].astype(np.float64)
            picked = found[np.arange(len(found)), ids[start:]]
            most = found.max(axis=1)
            expected = float(np.sum(picked - most - np.log(np.exp(found - most[:, None]).sum(axis=1))))
            where = f"{row['task']} {row['doc_id']}"
            checks.check(math.isclose(request["loglikelihood"], expected, rel_tol=1e-5, abs_tol=1e-5),
                         f"{where}: {request['loglikelihood']} is not {expected}")
            checks.expect(where, request["is_greedy"], bool((picked == most).all()))


folders = {"own": INPUTS / "tasks", "all": all_subjects(INPUTS / "tasks", GOLDEN["subjects"], WORK / "all"), "shared": SHARED / "data/eval"}
models = {"stories": STORIES}
for name, data, model, *case in CASES:
    if not folders[data].exists():
        print(f"{name}: not checked, because {folders[data]} is missing")
        continue
    if model not in models:
        models[model] = qwen2()
    check_case(name, models[model], folders[data], case)
check_scores(folders["own"])
checks.finish()

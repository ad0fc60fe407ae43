"""The cases that `qwen-run eval` and lm-eval must agree on, for tasks.py (without lm-eval) and test/Inputs/make_tasks.py (with it).

A case is (name, folder of data, model, tasks, examples in the context or None, documents of a task or None). `own` is
test/Inputs/tasks, whose sentences were written for these tests, as the published files have them; `all` has every subject of MMLU
and CMMLU, made of their rows; `shared` is the folder of evaluation data.
"""
import csv
import hashlib
import json
import shutil

SUBJECTS = ["mmlu_conceptual_physics", "mmlu_nutrition", "cmmlu_elementary_mathematics", "cmmlu_chinese_food_culture"]
CHOICES = ["arc_easy", "arc_challenge", "hellaswag", "piqa"]
CASES = [
    ("own", "own", "stories", [*CHOICES, "winogrande", "lambada_openai", "wikitext", *SUBJECTS], None, None),
    ("own, 3 examples", "own", "stories", [*CHOICES, "winogrande", "lambada_openai", *SUBJECTS], 3, None),
    ("all subjects", "all", "stories", ["mmlu", "cmmlu"], 5, 3),
    ("shared", "shared", "qwen2", [*CHOICES, "lambada_openai", "ceval-valid"], None, 200),
    ("shared, 5 examples", "shared", "qwen2", ["lambada_openai", "ceval-valid"], 5, 200),
    ("wikitext", "shared", "qwen2", ["wikitext"], None, None),
]
# The folder of each model's tokenizer in the repository, and its longest text.
MODELS = {"stories": ("models/stories", 1024), "qwen2": ("test/Inputs/tokenizer/qwen2", 2048)}


def all_subjects(inputs, subjects, out):
    """A folder with 2 to 4 rows for each subject {"mmlu": [...], "cmmlu": [...]}, taken from the two subjects of `inputs`."""
    shutil.rmtree(out, ignore_errors=True)
    for benchmark, names in subjects.items():
        suffix, head = ("_", 0) if benchmark == "mmlu" else ("", 1)
        for split in ("dev", "test"):
            sources = []
            for path in sorted((inputs / benchmark / split).iterdir()):
                with path.open(encoding="utf-8", newline="") as file:
                    sources.append(list(csv.reader(file)))
            (out / benchmark / split).mkdir(parents=True)
            for i, name in enumerate(names):
                rows = sources[i % 2]
                count = 2 + i % 3 if split == "test" else 5
                first = i % (len(rows) - head - count + 1) + head
                with (out / benchmark / split / f"{name}{suffix and suffix + split}.csv").open("w", encoding="utf-8", newline="") as file:
                    csv.writer(file, lineterminator="\n").writerows(rows[:head] + rows[first:first + count])
    return out


def score(context, continuation):
    """A log-likelihood and whether it is greedy, made of a request's tokens; two requests may have the same."""
    digest = hashlib.sha256(json.dumps([context, continuation]).encode()).digest()
    return -(1 + digest[0] % 64) / 8 * len(continuation), digest[1] % 2 == 0


def fingerprint(documents):
    """What must be equal of a task's requests: [[(context, continuation), ...] of each document]."""
    text = "".join(json.dumps(requests, separators=(",", ":")) + "\n" for requests in documents)
    return f"{len(documents)} documents, {sum(map(len, documents))} requests, {hashlib.sha256(text.encode()).hexdigest()}"

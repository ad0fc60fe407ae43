#!/usr/bin/env python3
"""Records the requests and results of lm-eval that `qwen-run eval` must have: test/Inputs/tasks.json.

  python3 -m venv build/lm-eval && build/lm-eval/bin/pip install 'lm-eval[api]==0.4.13' transformers
  build/lm-eval/bin/python test/Inputs/make_tasks.py SHARED [CASE]

SHARED is the folder that has data/eval. lm-eval runs with its own descriptions of the tasks; its data come from files
(bench/lm_eval_data.py) and its log-likelihoods are made of the tokens (task_cases.score). With CASE it writes nothing, and prints
the requests of that case, one document a line.
"""
import json
import os
import pathlib
import sys
import tempfile

os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TOKENIZERS_PARALLELISM="false", TQDM_DISABLE="1")

import lm_eval  # noqa: E402
from lm_eval import utils  # noqa: E402
from lm_eval.api.model import TemplateLM  # noqa: E402
from lm_eval.tasks import TaskManager  # noqa: E402
from transformers import AutoTokenizer  # noqa: E402

INPUTS = pathlib.Path(__file__).resolve().parent
sys.path += [str(INPUTS.parent / "Integration"), str(INPUTS.parents[1] / "bench")]
import lm_eval_data  # noqa: E402
from task_cases import CASES, MODELS, all_subjects, fingerprint, score  # noqa: E402


class Recorder(TemplateLM):
    """Keeps requests as tokens, cut as lm-eval's `hf` model cuts them, and invents their scores."""

    def __init__(self, tokenizer, max_length):
        super().__init__()
        self.tokenizer = AutoTokenizer.from_pretrained(INPUTS.parents[1] / tokenizer)
        self.max_length, self.documents = max_length, {}

    @property
    def eot_token_id(self):
        return self.tokenizer.eos_token_id

    @property
    def prefix_token_id(self):
        return self.eot_token_id if self.tokenizer.bos_token_id is None else self.tokenizer.bos_token_id

    def tok_encode(self, string, add_special_tokens=None, **_):
        return self.tokenizer.encode(string)

    def scores(self, instance, requests):
        self.documents.setdefault(instance.task_name, {}).setdefault(instance.doc_id, []).extend(requests)
        return [score(*request) for request in requests]

    def _loglikelihood_tokens(self, requests, **_):
        return [((context + rest)[-(self.max_length + 1):][:-len(rest)], rest) for _, context, rest in requests]

    def loglikelihood(self, requests, disable_tqdm=False):
        return [self.scores(instance, [tokens])[0] for instance, tokens in zip(requests, super().loglikelihood(requests, True), strict=True)]

    def loglikelihood_rolling(self, requests, disable_tqdm=False):
        return [sum(value for value, _ in self.scores(instance, [utils.make_disjoint_window(window) for window in
                utils.get_rolling_token_windows(self.tok_encode(instance.args[0]), self.prefix_token_id, self.max_length, 1)]))
                for instance in requests]

    def generate_until(self, requests, disable_tqdm=False):
        raise NotImplementedError


def record(manager, folder, shared, model, tasks, shots, limit):
    """What is kept of a case, and the requests of each task's documents."""
    lm_eval_data.use(folder, shared)
    recorder = Recorder(*MODELS[model])
    found = lm_eval.simple_evaluate(model=recorder, tasks=tasks, num_fewshot=shots, limit=limit, task_manager=manager)
    requests = {task: [documents[i] for i in sorted(documents)] for task, documents in recorder.documents.items()}
    shown = [task for task in found["results"] if task in tasks or task in found.get("groups", {})]
    kept = {"requests": {task: fingerprint(documents) for task, documents in requests.items()},
            "groups": found.get("groups", {})}
    for part in ("results", "n-shot", "higher_is_better", "n-samples"):
        kept[part] = {task: found[part][task] for task in shown if task in found[part]}
    return kept, requests


def subjects():
    """The names of the subjects of MMLU and CMMLU."""
    folder = pathlib.Path(lm_eval.__file__).parent / "tasks"
    return {key: sorted(path.stem.removeprefix(f"{key}_") for path in folder.glob(f"{key}/{inner}{key}_*.yaml"))
            for key, inner in (("mmlu", "default/"), ("cmmlu", ""))}


def text(value, depth, indent=""):
    """JSON whose objects are on lines of their own down to a depth."""
    if depth < 0 or not isinstance(value, dict):
        return json.dumps(value)
    items = ",\n".join(f"{indent} {json.dumps(key)}: {text(item, depth - 1, indent + ' ')}" for key, item in value.items())
    return f"{{\n{items}\n{indent}}}"


def main():
    golden = {"subjects": subjects(), "cases": {}}
    with tempfile.TemporaryDirectory() as temporary:
        folders = {"own": INPUTS / "tasks", "shared": pathlib.Path(sys.argv[1]) / "data/eval",
                   "all": all_subjects(INPUTS / "tasks", golden["subjects"], pathlib.Path(temporary))}
        manager = TaskManager()
        for name, data, *case in CASES:
            if len(sys.argv) > 2 and name != sys.argv[2]:
                continue
            golden["cases"][name], requests = record(manager, folders[data], data == "shared", *case)
            if len(sys.argv) > 2:
                for task, documents in requests.items():
                    for document in documents:
                        print(task, json.dumps(document))
    if len(sys.argv) == 2:
        (INPUTS / "tasks.json").write_text(text(golden, 3) + "\n")


main()

"""lm-eval scores a model through qwen-run serve as `qwen-run logits` does. Not a part of `make test`: the packages are large.

  python3 -m venv build/lm-eval && build/lm-eval/bin/pip install 'lm-eval[api]==0.4.13'
  PATH=$PWD/build/host/bin:$PATH build/lm-eval/bin/python test/Integration/lm_eval_scores.py MODEL DATA [LIMIT]

DATA has arc_easy.jsonl and piqa.jsonl (query, choices, gold) and lambada_openai.jsonl (context, continuation). For LIMIT documents of
each task, and with the prefix cache and without, lm-eval's requests, log-likelihoods and is_greedy must be those that the logits give.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

import lm_eval  # noqa: E402
import numpy as np  # noqa: E402
from lm_eval.tasks import TaskManager  # noqa: E402
from server import Server  # noqa: E402

MODEL, DATA = (pathlib.Path(a).resolve() for a in sys.argv[1:3])
LIMIT = int(sys.argv[3]) if len(sys.argv) > 3 else 40

CHOICES = """task: own_{name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{text}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: gold
metric_list: [{{metric: acc}}, {{metric: acc_norm}}]
"""
LAMBADA = """task: own_lambada
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: loglikelihood
doc_to_text: "{{{{context}}}}"
doc_to_target: " {{{{continuation}}}}"
target_delimiter: ""
metric_list: [{{metric: perplexity}}, {{metric: acc}}]
"""


def tasks(folder):
    """Local descriptions of the tasks; returns their names."""
    for name, text in (("arc_easy", r"{{query}}\nAnswer:"), ("piqa", r"{{query}}Answer:")):
        (folder / f"{name}.yaml").write_text(CHOICES.format(name=name, data=DATA / f"{name}.jsonl", text=text))
    (folder / "lambada.yaml").write_text(LAMBADA.format(data=DATA / "lambada_openai.jsonl"))
    return ["own_arc_easy", "own_piqa", "own_lambada"]


def tokens_of(text):
    return json.loads(subprocess.run(["qwen-run", "tokenize", MODEL, "--json"], input=text, text=True, capture_output=True,
                                     check=True).stdout)["ids"] if text else []


def scores(pairs, folder):
    """The log-likelihood and is_greedy of each (context, continuation), from the logits of all."""
    rows = []
    for context, continuation in pairs:
        spaces = len(context) - len(context.rstrip())
        if spaces:
            context, continuation = context[:-spaces], context[-spaces:] + continuation
        start, ids = len(tokens_of(context)), tokens_of(context + continuation)
        subprocess.run(["qwen-run", "logits", MODEL, "--ids", ",".join(map(str, ids)), "-o", folder / "logits.npy"], check=True)
        logits = np.load(folder / "logits.npy")
        most = logits.max(axis=1).astype(np.float64)
        sums = most + np.log(np.exp(logits - most[:, None], dtype=np.float64).sum(axis=1))
        at = np.arange(start - 1, len(ids) - 1)
        picked = logits[at, ids[start:]]
        rows.append((float(np.sum((picked - sums[at]).astype(np.float32), dtype=np.float64)), bool((picked == logits[at].max(axis=1)).all())))
    return rows


def evaluate(folder, names, *options):
    """What lm-eval sent and got: {task: [((context, continuation), log-likelihood, is_greedy)]}."""
    server = Server(MODEL, *options)
    try:
        result = lm_eval.simple_evaluate(
            model="local-completions", tasks=names, limit=LIMIT, batch_size=8, log_samples=True, bootstrap_iters=0,
            task_manager=TaskManager(include_path=str(folder), include_defaults=False),
            model_args={"base_url": server.address + "/v1/completions", "model": "stories", "tokenizer_backend": "remote", "max_length": 1024,
                        "num_concurrent": 8})
    finally:
        server.stop()
    print({name: {k: v for k, v in result["results"][name].items() if "stderr" not in k} for name in names})
    return {name: [(tuple(arguments), *answer[0]) for sample in sorted(result["samples"][name], key=lambda s: s["doc_id"])
                   for arguments, answer in zip(sample["arguments"], sample["resps"])] for name in names}


with tempfile.TemporaryDirectory() as temporary:
    folder = pathlib.Path(temporary)
    names = tasks(folder)
    cached, alone = evaluate(folder, names), evaluate(folder, names, "--no-prefix-cache")
    wrong = 0 if cached == alone else sys.exit("the prefix cache changes a score")
    for name in names:
        expected = scores([pair for pair, *_ in cached[name]], folder)
        for (pair, score, greedy), (sum_, is_greedy) in zip(cached[name], expected):
            # lm-eval adds up numbers as printed, which are those of float32.
            if abs(score - sum_) > 1e-9 * abs(sum_) or greedy != is_greedy:
                wrong += 1
                print(f"{name} {pair}: {score} {greedy} is not {sum_} {is_greedy}")
        print(f"{name}: {len(expected)} requests, as the logits give")
    sys.exit(1 if wrong else 0)

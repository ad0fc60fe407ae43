"""Compares beam searches with those of transformers, with weights and KV cache in f32; and beams over each format of the cache
with the same tokens in one call.

  beams.py RECORD SOURCE WORKDIR MODEL...

RECORD is test/Inputs/beams/beams.json; make_beams.py beside it says what it has. At least 80% of the searches are compared. The models
have a tokenizer, and among them all formats of the cache.
"""
import json
import pathlib
import re
import sys

import numpy as np

from checks import Checks, compile_model, kv_formats, logits, run

# Beams part in a page, and fill it.
PROMPT = "The king" + " and the queen" * 35


def check_branches(model):
    """Returns the format of the cache."""
    prompt = json.loads(run(["qwen-run", "tokenize", model, "--json", "-p", PROMPT]))["ids"]
    search = ["--num-beams", 4, "--num-beam-groups", 2, "--diversity-penalty", 0.5, "--num-return-sequences", 3]
    answers = json.loads(run(["qwen-run", "generate", model, "-p", PROMPT, "-n", 40, "--json", *search]))["answers"]
    checks.check(len({tuple(answer["ids"]) for answer in answers}) == 3, f"{model.name}: answers are the same")
    for answer in answers:
        rows = logits(model, [*prompt, *answer["ids"]], work / "rows.npy")[len(prompt) - 1:-1].astype(np.float64)
        rows -= rows.max(axis=1, keepdims=True)
        expected = (rows - np.log(np.exp(rows).sum(axis=1, keepdims=True)))[np.arange(len(rows)), answer["ids"]]
        error = np.abs(expected - answer["logprobs"]).max()
        checks.check(error <= 1e-6, f"{model.name}: logprobs of a beam differ by {error:.1e}")
    (cache,) = json.loads(run(["qwen-run", "info", model, "--json"]))["programs"][0]["caches"]
    return cache["format"]


record, source, work = (pathlib.Path(argument) for argument in sys.argv[1:4])
work.mkdir(parents=True, exist_ok=True)
checks, cases, compared = Checks(), json.loads(record.read_text()), 0
for facts in cases["models"]:
    checkpoint = facts["checkpoint"]
    model = compile_model(source / checkpoint, work / f"{pathlib.Path(checkpoint).name}.qwen", "--weights", "f32", "--kv", "f32")
    output = run(["beam-answers", model, record, checkpoint])
    print(output, end="")
    compared += int(re.search(r"(\d+) searches compared, 0 differ", output)[1])
checks.check(compared >= 0.8 * len(cases["cases"]), f"only {compared} of {len(cases['cases'])} searches are compared")
formats = {check_branches(pathlib.Path(model)) for model in sys.argv[4:]}
checks.check(formats == set(kv_formats()), f"the models have {formats}, not all formats of the cache")
checks.finish()

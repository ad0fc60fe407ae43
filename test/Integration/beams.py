"""Compares beam searches with those of transformers, with weights and KV cache in f32.

  beams.py RECORD SOURCE WORKDIR

RECORD is test/Inputs/beams/beams.json; make_beams.py beside it says what it has. At least 80% of the searches are compared.
"""
import json
import pathlib
import re
import sys

from checks import Checks, compile_model, run

record, source, work = (pathlib.Path(argument) for argument in sys.argv[1:])
work.mkdir(parents=True, exist_ok=True)
checks, cases, compared = Checks(), json.loads(record.read_text()), 0
for facts in cases["models"]:
    checkpoint = facts["checkpoint"]
    model = compile_model(source / checkpoint, work / f"{pathlib.Path(checkpoint).name}.qwen", "--weights", "f32", "--kv", "f32")
    output = run(["beam-answers", model, record, checkpoint])
    print(output, end="")
    compared += int(re.search(r"(\d+) searches compared, 0 differ", output)[1])
checks.check(compared >= 0.8 * len(cases["cases"]), f"only {compared} of {len(cases['cases'])} searches are compared")
checks.finish()

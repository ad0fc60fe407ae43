"""Rows and grammars of the Python package against the commands and the server, and the package without NumPy.

  python_rows.py MODEL TASKS FOLDER
"""
import asyncio
import json
import pathlib
import re
import subprocess
import sys

import numpy as np
import qwen_compiler
from checks import Checks, join, run
from qwen_compiler import SamplingParams
from server import Server

MODEL, TASKS, FOLDER = (pathlib.Path(a).resolve() for a in sys.argv[1:4])
TEXT = "The king was old. He had a red ball and a big dog.\n" * 30
SCHEMA = {"type": "object", "properties": {"name": {"enum": ["Tom", "Lily"]}, "age": {"type": "integer", "maximum": 99}}, "required": ["name", "age"],
          "additionalProperties": False}
WITHOUT_NUMPY = """
import sys
sys.modules["numpy"] = None
import qwen_compiler
from qwen_compiler import SamplingParams

def ban(tokens, logits):
    logits[banned] = -float("inf")

with qwen_compiler.load(sys.argv[1]) as model:
    rows = model.logits([1, 2, 3])
    banned = model.generate("The king", SamplingParams(temperature=0))[0].token_ids[0]
    answer = model.generate("The king", SamplingParams(temperature=0, logits_processors=[ban]))[0]
    print(rows.shape, banned in answer.token_ids, rows[2, 5] == rows.tolist()[2][5], len(model.embed("The king")[0:1].tolist()[0]))
    sys.stdout.flush()
    sys.stdout.buffer.write(bytes(rows))
"""
checks = Checks()
FOLDER.mkdir(parents=True, exist_ok=True)
model = qwen_compiler.load(MODEL)

ids = model.tokenize(TEXT)[:200]
run(["qwen-run", "logits", MODEL, "--ids", join(ids), "-o", FOLDER / "logits.npy"])
checks.check(model.logits(ids).tobytes() == np.load(FOLDER / "logits.npy").tobytes(), "logits differ from those of the command")
(FOLDER / "lines.txt").write_text("The king\nA cat sat on the mat.\n" * 40)
for options, more in (([], {}), (["--dim", "32", "--instruction", "Find it"], {"dim": 32, "instruction": "Find it"})):
    run(["qwen-run", "embed", MODEL, *options, "-o", FOLDER / "vectors.npy", FOLDER / "lines.txt"])
    vectors = model.embed((FOLDER / "lines.txt").read_text().splitlines(), **more)
    checks.check(vectors.tobytes() == np.load(FOLDER / "vectors.npy").tobytes(), f"embeddings differ from those of the command: {more}")
    awaited = asyncio.run(model.aembed((FOLDER / "lines.txt").read_text().splitlines(), **more))
    checks.check(awaited.tobytes() == vectors.tobytes(), f"embeddings in asyncio differ: {more}")
(FOLDER / "text.txt").write_text(TEXT)
for options in ({}, {"window": 64, "stride": 16}):
    words = [f"--{name}={value}" for name, value in options.items()]
    expected = json.loads(run(["qwen-run", "perplexity", MODEL, FOLDER / "text.txt", "--json", *words]))["perplexity"]
    checks.expect(f"perplexity {options}", model.perplexity(TEXT, **options), expected)

run(["qwen-run", "eval", MODEL, "--tasks", "arc_easy,hellaswag", "--data", TASKS, "--samples", FOLDER / "samples.jsonl"])
requests = [each for line in (FOLDER / "samples.jsonl").read_text().splitlines()[1:] for each in json.loads(line)["requests"]]
scores = model.loglikelihoods([(each["context"], each["continuation"]) for each in requests])
checks.expect("log-likelihoods", scores, [(each["loglikelihood"], each["is_greedy"]) for each in requests])
checks.check(len(requests) > 20, "few log-likelihoods")

server = Server(MODEL)
for wanted in ({"choice": ["a \"b\"", "done", "\u6771"]}, {"regex": "[a-f]{3,5}-[0-9]+!"}, {"json": SCHEMA}, {"grammar": 'start: "yes" | "no"'}):
    ours = model.generate("The king", [SamplingParams(seed=2, max_tokens=60, structured_outputs=wanted, n=2)])[0]
    theirs = server.post("/v1/completions", prompt="The king", seed=2, max_tokens=60, structured_outputs=wanted, n=2)["choices"]
    checks.expect(f"answers with {wanted}", [each.text for each in ours.outputs], [each["text"] for each in theirs])
checks.check(re.fullmatch("[a-f]{3}-[0-9]{2}!", model.generate("The", SamplingParams(max_tokens=60, structured_outputs={"regex": "[a-f]{3}-[0-9]{2}!"}))[0].text),
             "an answer does not keep to a regular expression")
message = [{"role": "user", "content": [{"type": "text", "text": "Who is "}, {"type": "text", "text": "old?"}]}]
form = {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA}}
ours = model.chat(message, SamplingParams(seed=3, max_tokens=40), response_format=form)
theirs = server.post("/v1/chat/completions", messages=message, seed=3, max_tokens=40, response_format=form)["choices"][0]
checks.expect("a chat with a schema", (ours.text, ours.finish_reason), (theirs["message"]["content"], theirs["finish_reason"]))
checks.expect("what it has", sorted(json.loads(ours.text)), ["age", "name"])
for seed in range(3):
    ours = model.chat(message, SamplingParams(seed=seed, max_tokens=30, stop=["."], logprobs=1))
    theirs = server.post("/v1/chat/completions", messages=message, seed=seed, max_tokens=30, stop=["."])["choices"][0]
    checks.expect("a chat", (ours.text, ours.finish_reason), (theirs["message"]["content"], theirs["finish_reason"]))
    parts = "".join(part.text for part in model.chat(message, SamplingParams(seed=seed, max_tokens=30, stop=["."]), stream=True))
    checks.expect("a chat in parts", parts, ours.text)
server.stop()
for wanted in ({"regex": "("}, {"colour": "red"}, {"regex": "a", "choice": ["b"]}):
    try:
        model.generate("The", SamplingParams(structured_outputs=wanted))
        checks.check(False, f"{wanted} is no error")
    except qwen_compiler.Error:
        pass
for i in range(40):
    model.generate("The", SamplingParams(max_tokens=2, structured_outputs={"regex": f"a{i}b*"}))
checks.check(len(model._handle.grammars) <= 33, f"{len(model._handle.grammars)} grammars are kept")
model.close()

done = subprocess.run([sys.executable, "-c", WITHOUT_NUMPY, MODEL], capture_output=True)
line, _, rest = done.stdout.partition(b"\n")
run(["qwen-run", "logits", MODEL, "--ids", "1,2,3", "-o", FOLDER / "logits.npy"])
expected = np.load(FOLDER / "logits.npy")
checks.expect("without NumPy", line.decode(), f"{expected.shape} False True 256")
checks.check(rest == expected.tobytes(), f"logits without NumPy differ {done.stderr}")
checks.finish()

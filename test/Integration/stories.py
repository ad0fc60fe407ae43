"""The trained model of models/stories: perplexity, tokenizer, chat format.

  stories.py MODEL_FOLDER F32 Q4_0 WORKDIR      F32 and Q4_0 are MODEL_FOLDER, compiled
"""
import json
import pathlib
import sys

import numpy as np

from checks import Checks, logits, read_safetensors, run

FOLDER, f32, q4_0, WORK = (pathlib.Path(a) for a in sys.argv[1:])
WORK.mkdir(parents=True, exist_ok=True)
checks = Checks()
golden = json.loads((FOLDER / "golden" / "golden.json").read_text())
tensors = read_safetensors(FOLDER / "golden" / "golden.safetensors")
# Perplexities of the same model, fake-quantized in PyTorch. bench/fakequant.py writes the file.
fake = json.loads((pathlib.Path(__file__).parent / "fakequant.json").read_text())


def measure(model, text, window, stride):
    return json.loads(run(["qwen-run", "perplexity", model, text, "--window", window, "--stride", stride, "--json"]))


def perplexity(model):
    result = measure(model, FOLDER / "golden" / "val.txt", golden["perplexity"]["window"], golden["perplexity"]["stride"])
    checks.check(result["tokens_scored"] == golden["perplexity"]["tokens_scored"],
                 f"{result['tokens_scored']} tokens scored")
    return result["perplexity"]


def near(name, value, expected, bound):
    print(f"{name}: {value:.4f}, {(value / expected - 1) * 100:+.4f}% of {expected:.4f}")
    checks.check(abs(value / expected - 1) <= bound, f"{name} is {value}, more than {bound * 100}% from {expected}")


f32_perplexity, q4_0_perplexity = perplexity(f32), perplexity(q4_0)
near("f32 against transformers", f32_perplexity, golden["perplexity"]["value"], 1e-5)
near("q4_0 against torch's fake quantization", q4_0_perplexity, fake["q4_0"], 1e-3)
near("q4_0 against f32", q4_0_perplexity, f32_perplexity, 0.06)

# The definition: each token is scored once, in the first window that contains it and a token before it.
text = WORK / "text"
text.write_text("Once upon a time there was a king.")
ids = json.loads(run(["qwen-run", "tokenize", f32, "-p", text.read_text(), "--json"]))["ids"]
rows = {begin: logits(f32, ids[begin:begin + 4], WORK / "rows.npy").astype(float) for begin in range(len(ids))}
for window, stride, scored in ((4, 1, len(ids) - 1), (4, 3, len(ids) - 1), (4, 4, len(ids) - 1 - (len(ids) - 1) // 4)):
    losses = {}
    for begin in range(0, len(ids), stride):
        for label in range(begin + 1, min(begin + window, len(ids))):
            row = rows[begin][label - 1 - begin]
            losses.setdefault(label, np.log(np.exp(row - row.max()).sum()) + row.max() - row[ids[label]])
    result = measure(f32, text, window, stride)
    checks.check(result["tokens_scored"] == len(losses) == scored, f"stride {stride} scores {result['tokens_scored']} of {len(ids)}")
    near(f"stride {stride}", result["perplexity"], np.exp(np.mean(list(losses.values()))), 1e-9)

for number, case in enumerate(golden["cases"]):
    if "prompt" in case:
        ids = json.loads(run(["qwen-run", "tokenize", q4_0, "-p", case["prompt"], "--json"]))["ids"]
        checks.check(ids == tensors[f"{number}.prompt"].tolist(), f"ids of case {number} are {ids}")
        text = run(["qwen-run", "generate", f32, "-p", case["prompt"], "-n", 64, "--temperature", "0",
                    "--repetition-penalty", "1", "--ignore-eos"])
        checks.check(text.removesuffix("\n") == case["text"], f"greedy text of case {number} is {text!r}")
checks.finish()

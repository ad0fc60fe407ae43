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

# Comparison: the figures that NumPy has of the logits of windows, each of which runs alone.
def compare(reference, model, *options):
    return json.loads(run(["qwen-run", "compare", reference, model, text, *options, "--json"]))


def log_probabilities(model, begin, window):
    rows = logits(model, ids[begin:begin + window], WORK / "rows.npy").astype(float)
    most = rows.max(axis=1, keepdims=True)
    return rows - most - np.log(np.exp(rows - most).sum(axis=1, keepdims=True))


text.write_text("Once upon a time there was a king. He had a small dog, and the dog was red.")
ids = json.loads(run(["qwen-run", "tokenize", f32, "-p", text.read_text(), "--json"]))["ids"]
for window, skip, options in ((8, 4, ()), (7, 2, ("--skip", 2)), (8, 0, ("--skip", 0, "--windows", 1))):
    windows = 1 if "--windows" in options else len(ids) // window
    divergences, losses, same = [], {f32: [], q4_0: []}, []
    for begin in range(0, windows * window, window):
        p, q = (log_probabilities(model, begin, window)[skip:-1] for model in (f32, q4_0))
        divergences.extend((np.exp(p) * (p - q)).sum(axis=1))
        same.extend(p.argmax(axis=1) == q.argmax(axis=1))
        for model, rows in ((f32, p), (q4_0, q)):
            losses[model].extend(-rows[i, ids[begin + skip + 1 + i]] for i in range(len(rows)))
    result = compare(f32, q4_0, "--window", window, *options)
    checks.check(result["tokens_scored"] == windows * (window - 1 - skip), f"{result['tokens_scored']} tokens are compared")
    checks.check(result["same_top"] == np.mean(same), f"the first tokens agree in {result['same_top']} of the rows, not {np.mean(same)}")
    near("KL divergence", result["kl"]["mean"], np.mean(divergences), 1e-9)
    near("its error", result["kl"]["standard_error"], np.std(divergences, ddof=1) / np.sqrt(len(divergences)), 1e-9)
    for quantile in result["kl_quantiles"]:
        near(f"quantile {quantile['share']}", quantile["kl"], np.quantile(divergences, quantile["share"]), 1e-9)
    for key, model in (("reference_perplexity", f32), ("perplexity", q4_0)):
        near(key, result[key]["mean"], np.exp(np.mean(losses[model])), 1e-9)
        near(f"error of {key}", result[key]["standard_error"],
             np.exp(np.mean(losses[model])) * np.std(losses[model], ddof=1) / np.sqrt(len(losses[model])), 1e-9)
result = compare(q4_0, q4_0, "--window", 8)
checks.check(result["kl"]["mean"] == 0 and result["same_top"] == 1, f"a model compared with itself: {result}")

for number, case in enumerate(golden["cases"]):
    if "prompt" in case:
        ids = json.loads(run(["qwen-run", "tokenize", q4_0, "-p", case["prompt"], "--json"]))["ids"]
        checks.check(ids == tensors[f"{number}.prompt"].tolist(), f"ids of case {number} are {ids}")
        text = run(["qwen-run", "generate", f32, "-p", case["prompt"], "-n", 64, "--temperature", "0",
                    "--repetition-penalty", "1", "--ignore-eos"])
        checks.check(text.removesuffix("\n") == case["text"], f"greedy text of case {number} is {text!r}")
checks.finish()

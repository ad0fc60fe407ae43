"""Drafts of a smaller model (--speculate FILE): the answers of plain decoding, and models that cannot draft.

  draft_model.py STORIES MODEL WORKDIR
"""
import json
import pathlib
import shutil
import subprocess
import sys

from checks import Checks, compile_model, run

STORIES, MODEL, WORK = (pathlib.Path(a) for a in sys.argv[1:])
WORK.mkdir(parents=True, exist_ok=True)
checks = Checks()
PROMPT = "Once upon a time, there was a little"
KEPT = 150  # tokens of the trimmed head


def generate(*options):
    return run(["qwen-run", "generate", MODEL, "-p", PROMPT, "-n", "150", "--ignore-eos", *options])


def ids_of(text):
    return [int(each) for each in text.replace(",", " ").split()]


def accepted(drafts, text, *options):
    """The share of drafts that a text confirms, with one in each step."""
    figures = json.loads(run(["qwen-run", "bench", MODEL, "--replay", text, "--speculate", drafts, "--drafts", "1", "--repetitions", "1", "--json", *options]))
    return figures["runs"][1]["accepted"]


pruned = compile_model(STORIES, WORK / "pruned.qwen", "--prune", "layers:2-5")
trimmed = compile_model(STORIES, WORK / "trimmed.qwen", "--draft-vocabulary", str(KEPT))
greedy = generate("--speculate", "off", "--temperature", "0")
for drafts in (MODEL, pruned, trimmed):
    checks.expect(f"a greedy answer with drafts of {drafts.name}", generate("--speculate", drafts, "--temperature", "0"), greedy)
    for seed in ("1", "2"):
        sampled = ("--temperature", "1", "--repetition-penalty", "1.1", "--seed", seed)
        checks.expect(f"a sampled answer with drafts of {drafts.name}", generate("--speculate", drafts, *sampled), generate("--speculate", "off", *sampled))
prompt = run(["qwen-run", "tokenize", MODEL, "-p", PROMPT])


def answered(name, *options):
    """The ids of an answer, and a text that replays it."""
    ids = ids_of(run(["qwen-run", "generate", MODEL, "--ids", ",".join(map(str, ids_of(prompt))), "-n", "150", "--ignore-eos",
                      "--repetition-penalty", "1", *options]))
    replay = WORK / f"{name}.json"
    replay.write_text(json.dumps({"prompt": ids_of(prompt), "answer": ids}))
    return ids, replay


# Lookup drafts where the greedy answer repeats itself, which the sampled one seldom does.
ids, replay = answered("greedy", "--temperature", "0")
checks.expect("drafts of the model itself", accepted(MODEL, replay), 1)
share = accepted(pruned, answered("sampled", "--temperature", "1", "--seed", "1")[1])
checks.check(0.05 < share < 0.6, f"two of six layers give {share} of the tokens")
print(f"two of six layers: {share:.2f}")

# Drafts that are right by chance, whatever their ids.
replay_of_zeros = WORK / "zeros.json"
replay_of_zeros.write_text(json.dumps({"prompt": [0] * 9, "answer": [0] * 60}))
for chance in (0, 1):
    checks.expect(f"drafts of token 0 with a chance of {chance}", accepted("lookup", replay_of_zeros, "--acceptance", str(chance)), chance)

# A model with the most frequent tokens only is right where the answer has one of them; lookup knows others.
facts = json.loads(run(["qwen-run", "info", trimmed, "--json"]))
tokens = set(facts["programs"][0]["model"]["tokens"])
checks.expect("the tokens of a trimmed head", (len(tokens), facts["model"]["output"], facts["programs"][0]["outputs"][0]["width"]), (KEPT, "drafts", KEPT))
at, right, steps = 1, 0, 0
while at < len(ids) - 1:
    hit = ids[at] in tokens
    steps, right, at = steps + 1, right + hit, at + 1 + hit
share = accepted(trimmed, replay)
checks.check(0.3 < right / steps < 0.95 and share > right / steps - 0.01, f"{KEPT} of 4096 tokens are right for {share} of the drafts, not {right / steps}")
print(f"{KEPT} of 4096 tokens: {share:.2f}, without lookup {right / steps:.2f}")
failed = subprocess.run(["qwen-run", "generate", trimmed, "-p", PROMPT], capture_output=True, text=True)
checks.expect("an answer of a trimmed model", (failed.returncode, failed.stderr),
              (1, f"qwen-run: {trimmed} has logits of {KEPT} tokens only: it drafts for other models (--speculate); "
                  "compile it without --draft-vocabulary for all logits\n"))
for options, message in ((("--draft-vocabulary", "9999"), "--draft-vocabulary has 9999 tokens when the model has 4096"),
                         (("--draft-vocabulary", "9", "--draft-text", WORK / "none"), "none")):
    failed = subprocess.run(["qwen-opt", STORIES, "-o", WORK / "none.qwen", *options], capture_output=True, text=True)
    checks.check(failed.returncode == 1 and message in failed.stderr and not (WORK / "none.qwen").exists(), f"{options}: {failed.stderr}")

# Two tokens have each other's ids.
other = WORK / "other"
shutil.rmtree(other, ignore_errors=True)
shutil.copytree(STORIES, other, ignore=shutil.ignore_patterns("golden"))
tokenizer = json.loads((other / "tokenizer.json").read_text())
vocab = tokenizer["model"]["vocab"]
one, two = (next(token for token, at in vocab.items() if at == id) for id in (700, 701))
vocab[one], vocab[two] = 701, 700
(other / "tokenizer.json").write_text(json.dumps(tokenizer))
wrong = compile_model(other, WORK / "other.qwen")
failed = subprocess.run(["qwen-run", "generate", MODEL, "-p", PROMPT, "--speculate", wrong], capture_output=True, text=True)
text = [token.replace("\u0120", " ") for token in (one, two)]
checks.expect("a model with another tokenizer", (failed.returncode, failed.stderr),
              (1, f'qwen-run: {wrong} cannot draft for {MODEL}: its token 700 is "{text[1]}", not "{text[0]}"\n'))
checks.finish()

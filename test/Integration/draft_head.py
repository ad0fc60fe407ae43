"""The draft heads of hybrids: of folders and of GGUF files, and answers with their drafts.

  draft_head.py INPUTS WORKDIR

A GGUF file gives the weights of the folder that it was made of. The model has the logits of a file without the head, and answers with drafts
are the same as answers without.
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys

import gguf

from checks import Checks, compile_model, image_parts, join, logits, run, same_bits
from gguf_convert import convert

INPUTS, WORK = pathlib.Path(sys.argv[1]) / "checkpoints", pathlib.Path(sys.argv[2])
PROMPT = [7 * i * i % 300 for i in range(40)]
checks = Checks()


def head_of(model):
    """The parts of the image that only the head reads, by the names of their weights."""
    return {tuple(segment["name"] for segment in part["segments"]): data
            for part, data in image_parts(model) if part["name"].startswith("mtp.")}


def same_head(one, other):
    """Whether two heads have the same bytes, but for routers: they keep the type that they have in the checkpoint."""
    return one.keys() == other.keys() and all(one[names] == other[names] for names in one if "gate.weight" not in names[0])


def check_gguf(name):
    folder, file = INPUTS / name, WORK / f"{name}.gguf"
    convert(folder, file, lambda _: gguf.GGMLQuantizationType.F32)
    expected, found = (compile_model(checkpoint, WORK / f"{name}.{kind}.qwen", "--weights", "q8_0", "--rotate", "off")
                       for checkpoint, kind in ((folder, "folder"), (file, "file")))
    checks.check(same_head(head_of(expected), head_of(found)), f"{name}: a GGUF file has another draft head")
    facts = json.loads(run(["qwen-run", "info", expected, "--json"]))
    size = sum(len(data) for data in head_of(expected).values())
    checks.check(facts["bytes"]["draft_head"] == size > 0, f"{name}: the head has {facts['bytes']['draft_head']} bytes, not {size}")
    checks.check([program["name"] for program in facts["programs"]] == ["forward", "mtp"], f"{name}: no program of the head")
    return expected


def answer(model, *options):
    result = subprocess.run(["qwen-run", "generate", model, "--ids", join(PROMPT), "-n", "60", "--ignore-eos", *options], capture_output=True,
                            text=True, check=True)
    return result.stdout, result.stderr


def check_answer(name, model, *sampling):
    plain, _ = answer(model, "--speculate", "off", *sampling)
    for drafts in ("mtp", "auto"):
        checks.check(answer(model, "--speculate", drafts, *sampling)[0] == plain, f"{name}, {sampling}: {drafts} changes an answer")


def check_little_memory(model):
    """With little memory, states to step back to have none, and one line says so."""
    too_little = subprocess.run(["qwen-run", "generate", model, "--ids", "1", "--max-memory", "1"], capture_output=True, text=True)
    least, = re.findall("needs at least ([0-9]+) bytes", too_little.stderr)
    # The pages of the text, but not of the context.
    least = str(int(least) + 12 * json.loads(run(["qwen-run", "info", model, "--json"]))["kv"]["page_bytes"])
    states, = re.findall("and ([0-9]+) more while it can step back", run(["qwen-run", "info", model]))
    text, told = answer(model, "--max-memory", least)
    checks.check(f"{model} gets no drafts: the states that a sequence steps back to take {states} bytes, and 4 times as many must be free beside the KV "
                 f"cache of one text when --max-memory allows {least} bytes; allow more memory, or choose --speculate off\n" in told and told.count("drafts") == 1,
                 f"with little memory, drafts are not told: {told}")
    checks.check(answer(model) == (text, ""), "little memory changes an answer")
    checks.check("drafts" not in answer(model, "--max-memory", least, "--speculate", "off")[1], "a model without drafts lacks memory for them")


def check_logits(name, model, without):
    found, expected = (logits(each, PROMPT, WORK / "logits.npy") for each in (model, without))
    checks.check(same_bits(found, expected), f"{name}: the head changes logits")
    checks.check("gets no drafts: it has no draft head; compile a checkpoint that has one, without --no-mtp" in answer(without, "--speculate", "mtp")[1],
                 f"{name}: a file without a head does not say so")


shutil.rmtree(WORK, ignore_errors=True)
WORK.mkdir(parents=True)
for name in ("qwen3_5-bf16", "qwen3_5-moe-bf16"):
    check_answer(name, check_gguf(name), "--temperature", "0.8", "--seed", "3", "--repetition-penalty", "1.2")
check_logits("qwen3_5-bf16", WORK / "qwen3_5-bf16.folder.qwen", compile_model(INPUTS / "qwen3_5-bf16", WORK / "without.qwen", "--no-mtp", "--weights", "q8_0", "--rotate", "off"))
none = compile_model(INPUTS / "qwen3_5-bf16", WORK / "none.qwen", "--step-back", "0")
for drafts in ("mtp", "auto"):
    checks.check(answer(none, "--speculate", drafts)[1].count("gets no drafts: its fixed state cannot step back; compile it without --step-back 0\n") == 1,
                 f"a file that cannot step back does not say so with {drafts}")
check_little_memory(WORK / "qwen3_5-bf16.folder.qwen")
checks.check("drafts" not in answer(none, "--speculate", "off")[1], "a file that cannot step back says so without drafts")
# With rotations, and a prompt longer than the rows that are kept.
rotated = compile_model(INPUTS / "qwen3_5-bf16", WORK / "rotated.qwen", "--weights", "q8_0", "--rotate", "on")
checks.check(answer(rotated, "--speculate", "mtp") == answer(rotated, "--speculate", "off"), "drafts change an answer of a rotated model")
# A head of a third of the tokens.
trimmed = compile_model(INPUTS / "qwen3_5-bf16", WORK / "trimmed.qwen", "--weights", "q8_0", "--rotate", "on", "--draft-vocabulary", "100")
checks.check(answer(trimmed, "--speculate", "mtp")[0] == answer(rotated, "--speculate", "off")[0], "a trimmed head changes an answer")
facts = json.loads(run(["qwen-run", "info", trimmed, "--json"]))
checks.check(facts["programs"][1]["model"]["tokens"] == list(range(100)) and "tokens" not in facts["programs"][0]["model"], "a trimmed head has other tokens")
checks.finish()

"""info on a checkpoint tells the sizes that its compile gives, and what the files say.

  info.py MODEL_FOLDER INPUTS WORKDIR      MODEL_FOLDER is models/stories
"""
import json
import pathlib
import re
import sys

from checks import Checks, run, weight_formats

STORIES, INPUTS, WORK = (pathlib.Path(a) for a in sys.argv[1:])
CHECKPOINTS = INPUTS / "checkpoints"
GBPS = 34
MIXTURES = ["mix-q4_0", "mix-iq4_xs", "mix-iq4_nl", "mix-q4_k_s", "mix-q4_k_m", "mix-q5_0", "mix-q5_k_s", "mix-q5_k_m", "mix-q6_k"]
checks = Checks()
expect = checks.expect


def info(checkpoint, *options):
    return json.loads(run(["qwen-opt", "info", checkpoint, "--json", "--gbps", GBPS, *options]))


def read_by_token(manifest):
    return sum(t["bytes"] for t in manifest["tensors"] if manifest["programs"][0]["model"]["tied"] or not t["name"].startswith("model.embed_tokens."))


def same_as_compiled(checkpoint, weights=None):
    """The sizes of the default, or of a row of the formats, are those of the file."""
    facts = info(checkpoint)
    options = ["--weights", weights, "--rotate", "off"] if weights else []
    file = WORK / "model.qwen"
    run(["qwen-opt", checkpoint, "-o", file, *options])
    manifest = json.loads(run(["qwen-run", "info", file, "--json"]))
    row = next(row for row in facts["formats"] if row["format"] == weights) if weights else facts["compiled"]
    name = f"{checkpoint.name} {weights}"
    expect(f"{name}: weights", row["weight_bytes"], manifest["bytes"]["weights"])
    expect(f"{name}: a token", row["token_bytes"], read_by_token(manifest))
    if weights:
        return
    expect(f"{name}: caches", facts["compiled"]["kv_bytes_a_token"], manifest["kv"]["token_bytes"])
    expect(f"{name}: arena", facts["compiled"]["arena_bytes"], manifest["programs"][0]["arena_bytes"])
    expect(f"{name}: the model", (facts["context"], facts["architecture"]), (manifest["model"]["context"], manifest["programs"][0]["model"]["architecture"]))
    expect(f"{name}: the shape", facts["shape"], {key: manifest["programs"][0]["model"][key] for key in facts["shape"]})
    text = run(["qwen-run", "info", file])
    model = manifest["programs"][0]["model"]
    for line in (f"program    forward, {model['architecture']}", f"layers     {model['layers']} of hidden size {model['hidden_size']}"):
        checks.check(re.search(f"^{line}", text, re.MULTILINE), f"{name}: {line} is not in {text}")
    bytes_of_token = facts["compiled"]["token_bytes"] + facts["compiled"]["kv_bytes_a_token"] + 2 * facts["compiled"]["state_bytes_a_sequence"]
    checks.check(abs(facts["compiled"]["tokens_per_second"] * bytes_of_token / (GBPS * 1e9) - 1) < 1e-9, f"{name}: {facts['compiled']}")


same_as_compiled(CHECKPOINTS / "qwen3-untied-f32", "q8_0")
same_as_compiled(CHECKPOINTS / "qwen3-tied-bf16", "mixed")
same_as_compiled(CHECKPOINTS / "gptq-qwen2-int4-g128")
same_as_compiled(CHECKPOINTS / "qwen3_5-text-f32")
same_as_compiled(INPUTS / "gguf" / "qwen3-q4_k_m" / "model.gguf")

facts = info(STORIES)
expect("parameters", facts["parameters"], 6164480)
expect("forms", facts["stored"], [{"form": "BF16", "tensors": 68, "bytes": 2 * facts["parameters"]}])
expect("special tokens", facts["tokenizer"]["eos_token"], {"id": 4095, "text": "<|im_end|>"})
expect("the template", (facts["chat_template"]["bytes"], facts["chat_template"]["error"]), (207, None))
expect("without a tokenizer", info(CHECKPOINTS / "qwen2-tied-f32")["tokenizer"], None)
expect("YaRN", info(CHECKPOINTS / "qwen3-yarn-f32")["rope_scaling"]["factor"], 2.5)
expect("formats", [row["format"] for row in facts["formats"]], ["mixed", *MIXTURES, *weight_formats()])
expect("losses", {row["format"]: row["measured_kl"] for row in facts["formats"] if row["format"] in ("mixed", "q6_k", "q4_z_32")},
       {"mixed": 0.053, "q6_k": 0.0318, "q4_z_32": None})

# The text; qwen-run asks the compiler, also by PATH, and measures.
text = run(["qwen-opt", "info", STORIES, "--gbps", GBPS])
for line in ("parameters  6,164,480", "output      logits", "stored      BF16: 68 tensors, 11.8 MiB", r"memory      34\.0 GB/s", r"q4_0 +3\.3 MiB.* 0\.5319$", r"q4_z_32 .*\d$"):
    checks.check(re.search(f"^{line}", text, re.MULTILINE), f"{line} is not in {text}")
asked = json.loads(run(["qwen-run", "info", STORIES, "--json"]))
checks.check(asked["machine"]["threads"] >= 1 and asked["machine"]["bytes_per_second"] > 1e8, f"{asked['machine']}")
expect("by qwen-run", asked["compiled"]["weight_bytes"], facts["compiled"]["weight_bytes"])

# DoctorTest has the checks of doctor.
findings = {row["check"]: row for row in json.loads(run(["qwen-run", "doctor", "--json"]))}
checks.check("GB/s" in findings["bandwidth"]["found"] and {"kernels", "quota", "governor"} < set(findings), f"{findings}")
checks.finish()

"""qwen-opt export: GGUF files of models whose integers our encoders chose. forms.py and gguf_files.py export kept integers.

  export.py STORIES Q4_0 INPUTS WORKDIR      Q4_0 is the folder STORIES, compiled in q4_0
"""
import json
import pathlib
import shutil
import sys

import gguf
import numpy as np

from checks import Checks, compile_model, dequantized, export, logits, read_safetensors, run, same_bits, write_checkpoint
from gguf_model import own_name

STORIES, Q4_0, INPUTS, WORK = (pathlib.Path(a) for a in sys.argv[1:])
TYPES = gguf.GGMLQuantizationType
checks = Checks()
IDS = list(range(1, 40, 3))


def same_logits(what, one, other):
    found, expected = (logits(model, IDS, WORK / "logits.npy") for model in (one, other))
    checks.check(same_bits(found, expected), f"{what}: the exported file has other logits")


def values_of(array):
    return (array.astype(np.uint32) << 16).view(np.float32) if array.dtype == np.uint16 else array


def check_stories():
    """Blocks are those of the gguf package, for any target. The file, compiled, is the same model with the same tokenizer."""
    tensors = {tensor.name: tensor for tensor in export(Q4_0, WORK / "stories.gguf")}
    floats = {own_name(name, False): values_of(array) for name, array in read_safetensors(STORIES / "model.safetensors").items()}
    checks.expect("stories: the tensors", sorted(tensors), sorted(floats))
    for name, array in floats.items():
        expected = gguf.quants.quantize(array, TYPES.Q4_0) if array.ndim == 2 else array
        checks.check(np.array_equal(tensors[name].data, expected), f"stories: {name} has other blocks")

    again = compile_model(WORK / "stories.gguf", WORK / "again.qwen")
    same_logits("stories", Q4_0, again)
    facts = [json.loads(run(["qwen-run", "info", model, "--json"])) for model in (Q4_0, again)]
    for key in ("model", "generation"):
        for fact, value in facts[0][key].items():
            checks.expect(f"stories: {key}.{fact}", facts[1][key].get(fact), value)
    models = [of["programs"][0]["model"] for of in facts]
    for fact, value in models[0].items():
        checks.expect(f"stories: {fact} of the program's model", models[1].get(fact), value)
    text = (STORIES / "golden/val.txt").read_bytes()[:20000] + "<|im_start|>caf\u00e9 \u4f60\u597d".encode()
    ids = [run(["qwen-run", "tokenize", model, "--json", "-p", text.decode(errors="ignore")]) for model in (Q4_0, again)]
    checks.check(ids[0] == ids[1], "stories: the exported tokenizer gives other ids")
    template = json.loads((STORIES / "tokenizer_config.json").read_text())["chat_template"]
    checks.check(template.encode() in again.read_bytes(), "stories: the chat template is another")

    arm = compile_model(STORIES, WORK / "stories.qwen", "--target", "armv8.2-a+dotprod")
    export(arm, WORK / "arm.gguf")
    checks.check((WORK / "arm.gguf").read_bytes() == (WORK / "stories.gguf").read_bytes(), "the target changes the exported file")


def check_formats():
    """Formats of ggml's blocks give the same logits once more. Scales of longer blocks are repeated."""
    formats = {"q_proj": ("q4_g128", TYPES.Q4_0), "k_proj": ("q4_m_64", TYPES.Q4_1), "v_proj": ("q4_m_128", TYPES.Q4_1)}
    rng = np.random.default_rng(1)
    shape = ("qwen2", 256, 2, 4, 2, 64, 256, 64, False)
    weights, _ = write_checkpoint(WORK / "mixed", shape, rng)
    rules = [word for module, (format, _) in formats.items() for word in ("--tensor-weights", f"{module}={format}")]
    model = compile_model(WORK / "mixed", WORK / "mixed.qwen", "--weights", "q6_k", *rules)
    tensors = {tensor.name: tensor for tensor in export(model, WORK / "mixed.gguf")}
    checks.expect("formats: the tensors", sorted(tensors), sorted(own_name(name, False) for name in weights))
    for name, array in weights.items():
        found = tensors[own_name(name, False)]
        _, kind = next((value for module, value in formats.items() if module in name), (None, TYPES.Q6_K))
        checks.expect(f"formats: type of {name}", found.tensor_type, kind if array.ndim == 2 else TYPES.F32)
        if "q_proj.weight" in name:
            scales = found.data.reshape(-1, 4, 18)[..., :2]
            checks.check((scales == scales[:, :1]).all() and scales.any(), f"formats: {name} has another scale in a block of 128")
        error = np.square(dequantized(found) - values_of(array)).sum() / np.square(values_of(array)).sum()
        checks.check(error < 0.02, f"formats: {name} has an error of {error}")


def check_yarn():
    """Floats, a scaled rotary embedding, and no tokenizer."""
    checkpoint = INPUTS / "checkpoints/qwen2-yarn-bf16"
    model = compile_model(checkpoint, WORK / "yarn.qwen", "--weights", "bf16")
    tensors = {tensor.name: tensor for tensor in export(model, WORK / "yarn.gguf")}
    for name, array in read_safetensors(checkpoint / "model.safetensors").items():
        checks.check(np.array_equal(dequantized(tensors[own_name(name, False)]), values_of(array)), f"YaRN: {name} has other values")
    again = compile_model(WORK / "yarn.gguf", WORK / "again.qwen", "--weights", "bf16")
    same_logits("YaRN", model, again)


shutil.rmtree(WORK, ignore_errors=True)
WORK.mkdir(parents=True)
check_stories()
check_formats()
check_yarn()
checks.finish()

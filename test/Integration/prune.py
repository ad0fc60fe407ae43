"""Pruned layers: those that bench/prune.py chooses by PyTorch (INPUTS/prune.json), and the bits of a checkpoint without them.

  prune.py STORIES INPUTS WORKDIR
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys

import gguf
import numpy as np

from checks import Checks, compile_model, full, logits, read_safetensors, run, same_bits, write_weights
from gguf_convert import write_gguf

STORIES, INPUTS, WORK = (pathlib.Path(a) for a in sys.argv[1:])
WORK.mkdir(parents=True, exist_ok=True)
checks = Checks()
IDS = [5, 17, 300, 4, 250, 9, 9, 31, 2]


def without(folder, removed, out):
    """A checkpoint without some layers, with new numbers for those behind them."""
    facts = json.loads((folder / "config.json").read_text())
    config = facts.get("text_config", facts)
    kept = [i for i in range(config["num_hidden_layers"]) if i not in removed]
    config["num_hidden_layers"] = len(kept)
    if "layer_types" in config:
        config["layer_types"] = [config["layer_types"][i] for i in kept]
    weights = {}
    for name, values in read_safetensors(folder / "model.safetensors").items():
        layer = re.search(r"\.layers\.(\d+)\.", name)
        if not layer:
            weights[name] = values
        elif int(layer[1]) in kept:
            weights[name.replace(layer[0], f".layers.{kept.index(int(layer[1]))}.")] = values
    write_weights(out, weights, facts)
    return out


def check_same_logits(found, expected, message):
    one, other = (logits(model, IDS, WORK / "logits.npy") for model in (found, expected))
    checks.check(same_bits(one, other), message)


def copy_tokenizer(folder):
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(STORIES / file, folder)


def check_bits(folder, removed, *options):
    listed = ",".join(map(str, removed))
    pruned = compile_model(folder, WORK / "pruned.qwen", "--prune", f"layers:{listed}", *options)
    smaller = compile_model(without(folder, removed, WORK / "smaller"), WORK / "smaller.qwen", *options)
    check_same_logits(pruned, smaller, f"{folder.name} without {listed} gives other bits")
    manifest = json.loads(run(["qwen-run", "info", pruned, "--json"]))
    checks.check(manifest["pruning"] == {"method": "layers", "layers": removed}, f"the manifest has {manifest.get('pruning')}")
    expected = json.loads(run(["qwen-run", "info", smaller, "--json"]))
    checks.check(manifest["programs"][0]["model"] == expected["programs"][0]["model"], "the manifest counts the layers that stay")
    checks.check("pruning" not in expected, "the smaller checkpoint is not pruned")


check_bits(STORIES, [1, 3, 4])
check_bits(STORIES, [0], "--weights", "f32")
checks.check("pruning    layers 0 removed (layers)" in run(["qwen-run", "info", WORK / "pruned.qwen"]), "info tells the layers")

golden = json.loads((INPUTS / "prune.json").read_text())
for method, expected in golden.items():
    result = subprocess.run(["qwen-opt", STORIES, "-o", WORK / "chosen.qwen", "--weights", "q4_0", "--quantizer", "rtn", "--prune", method,
                             f"--calibrate={STORIES / 'golden' / 'val.txt'}"], capture_output=True, text=True)
    layers = [int(i) for i in re.search(r"layers ([\d, ]+) removed", result.stderr)[1].split(", ")]
    scores = [float(i) for i in re.search(r"scores (.*)", result.stderr)[1].split()]
    checks.check(layers == expected["layers"], f"{method} removes {layers}, not {expected['layers']}")
    checks.check(np.allclose(scores, expected["scores"], rtol=0, atol=1e-4), f"{method} has the scores {scores}, not {expected['scores']}")
    manifest = json.loads(run(["qwen-run", "info", WORK / "chosen.qwen", "--json"]))
    checks.check(manifest["pruning"] == {"method": method.split(":")[0], "layers": layers}, f"the manifest has {manifest['pruning']}")


def check_experts():
    """A layer with experts, listed and chosen by a method. A larger vocabulary makes the checkpoint read the text of stories."""
    folder, vocabulary = INPUTS / "checkpoints/qwen3-moe-f32", json.loads((STORIES / "config.json").read_text())["vocab_size"]
    check_bits(folder, [0], "--weights", "f32")
    weights = read_safetensors(folder / "model.safetensors")
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        weights[name] = np.resize(weights[name], (vocabulary, weights[name].shape[1]))
    larger = WORK / "experts"
    write_weights(larger, weights, json.loads((folder / "config.json").read_text()) | {"vocab_size": vocabulary})
    copy_tokenizer(larger)
    for method in ("shortgpt:1", "sleb:1"):
        chosen = compile_model(larger, WORK / "chosen.qwen", "--prune", method)
        layer, = json.loads(run(["qwen-run", "info", chosen, "--json"]))["pruning"]["layers"]
        listed = compile_model(larger, WORK / "listed.qwen", "--prune", f"layers:{layer}")
        check_same_logits(chosen, listed, f"{method} of layers with experts, {layer} removed, gives other bits")


check_experts()


def fused_file():
    """A GGUF file of two layers whose q, k and v share a tensor."""
    layer = {"attn_qkv.weight": (192, 64), "attn_qkv.bias": (192,), "attn_output.weight": (64, 64), "attn_norm.weight": (64,), "ffn_norm.weight": (64,),
             "ffn_gate.weight": (96, 64), "ffn_up.weight": (96, 64), "ffn_down.weight": (64, 96)}
    shapes = {"token_embd.weight": (96, 64), "output_norm.weight": (64,)} | {f"blk.{i}.{name}": shape for i in range(2) for name, shape in layer.items()}
    keys = {"block_count": 2, "context_length": 64, "embedding_length": 64, "feed_forward_length": 96, "attention.head_count": 2,
            "attention.head_count_kv": 2, "attention.layer_norm_rms_epsilon": 1e-6, "rope.freq_base": 1e6}
    float_type = gguf.GGMLQuantizationType.F32
    write_gguf(WORK / "fused.gguf", "qwen2", keys, [(name, np.ones(shape, np.float32), float_type) for name, shape in shapes.items()])
    return WORK / "fused.gguf"


def biased_folder():
    """A checkpoint of integers with the biases of zeros that GPTQ's writers add."""
    folder = INPUTS / "checkpoints/autoround-qwen3-gptq"
    weights = dict(read_safetensors(folder / "model.safetensors"))
    weights |= {f"model.layers.{i}.mlp.up_proj.bias": np.zeros(4, np.float16) for i in range(2)}
    write_weights(WORK / "biased", weights, json.loads((folder / "config.json").read_text()))
    return WORK / "biased"


def check_divided():
    """No tensor counts as unknown: none that q, k and v of a layer share, and none of no effect."""
    for checkpoint, removed in ((INPUTS / "checkpoints/qwen1-bf16", 1), (INPUTS / "checkpoints/qwen1-old-keys-f16", 0),
                                (INPUTS / "checkpoints/qwen3-next-bf16", 3), (fused_file(), 0), (biased_folder(), 0)):
        result = subprocess.run(["qwen-opt", checkpoint, "--emit=graph", "--prune", f"layers:{removed}"], capture_output=True, text=True)
        checks.check(result.returncode == 0, f"{checkpoint.name} without layer {removed}: {result.stderr}")


check_divided()


def check_calibrated():
    """A text chooses the integers of the pruned model."""
    smaller = without(STORIES, [2], WORK / "smaller")
    copy_tokenizer(smaller)
    options = ("--weights", "q4_0", f"--calibrate={STORIES / 'golden' / 'val.txt'}")
    run(["qwen-opt", STORIES, "-o", WORK / "pruned.qwen", "--prune", "layers:2", *options])
    run(["qwen-opt", smaller, "-o", WORK / "smaller.qwen", *options])
    check_same_logits(WORK / "pruned.qwen", WORK / "smaller.qwen", "a calibrated pruned model has other bits")


if full():
    check_calibrated()
checks.finish()

"""Quantizers where a few channels are much larger than others, as in real models: variants of models/stories with the same function.

  outliers.py MODEL_FOLDER F32 Q4_0 TEXT WORKDIR      F32 and Q4_0 are MODEL_FOLDER, compiled; Q4_0 is rounded

The first has larger channels behind norms, in up_proj and v, which awq scales back. The second has its residual stream in
principal axes, most of whose variance the first ones have; a rotation spreads it. awq reads the text of qwen-opt; gptq, which takes
longer, reads the start of TEXT.
"""
import json
import pathlib
import shutil
import sys

import numpy as np

from checks import Checks, compile_model, read_safetensors, run, write_weights

FOLDER, f32, q4_0, TEXT, WORK = (pathlib.Path(a) for a in sys.argv[1:])
CONFIG = json.loads((FOLDER / "config.json").read_text())
HEADS, GROUPS, SIZE = (CONFIG[key] for key in ("num_attention_heads", "num_key_value_heads", "head_dim"))
checks = Checks()


def floats():
    return {name: (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
            for name, bits in read_safetensors(FOLDER / "model.safetensors").items()}


def write(name, weights, **facts):
    write_weights(WORK / name, {key: value.astype(np.float32) for key, value in weights.items()}, CONFIG | facts)
    for file in FOLDER.glob("*token*.json"):
        shutil.copy(file, WORK / name)
    return WORK / name


def with_large_channels():
    """A sixteenth of the channels is 8 to 64 times as large, and their readers' columns are as much smaller."""
    weights, rng = floats(), np.random.default_rng(1)

    def factors(count):
        return np.where(rng.random(count) < 1 / 16, 2 ** rng.uniform(3, 6, count), 1)

    def scale(makers, readers, c, columns):
        for name in makers:
            weights[name] = (weights[name].T * c).T
        for name in readers:
            weights[name] = weights[name] / columns
    for i in range(CONFIG["num_hidden_layers"]):
        attention, mlp = f"model.layers.{i}.self_attn.", f"model.layers.{i}.mlp."
        for norm, readers in (("input_layernorm", [attention + f"{p}_proj.weight" for p in "qkv"]),
                              ("post_attention_layernorm", [mlp + f"{p}_proj.weight" for p in ("gate", "up")])):
            c = factors(CONFIG["hidden_size"])
            scale([f"model.layers.{i}.{norm}.weight"], readers, c, c)
        c = factors(CONFIG["intermediate_size"])
        scale([mlp + "up_proj.weight"], [mlp + "down_proj.weight"], c, c)
        c = factors(GROUPS * SIZE)
        columns = np.repeat(c.reshape(GROUPS, SIZE), HEADS // GROUPS, axis=0).ravel()
        scale([attention + "v_proj.weight"], [attention + "o_proj.weight"], c, columns)
    return write("large-channels", weights)


def in_principal_axes():
    """Norms are folded into their readers, and the stream is turned to the principal axes of the embedding."""
    weights = floats()
    embedding = weights["model.embed_tokens.weight"]
    axes = np.linalg.eigh(embedding.T @ embedding)[1]
    weights["lm_head.weight"] = embedding * weights["model.norm.weight"] @ axes
    weights["model.embed_tokens.weight"] = embedding @ axes
    for name, value in list(weights.items()):
        if name.endswith("_proj.weight"):
            layer, module = name.split(".")[2], name.split(".")[-2]
            if module in ("o_proj", "down_proj"):
                weights[name] = axes.T @ value
            else:
                norm = "post_attention_layernorm" if module in ("gate_proj", "up_proj") else "input_layernorm"
                weights[name] = value * weights[f"model.layers.{layer}.{norm}.weight"] @ axes
    for name, value in weights.items():
        if name.endswith(("layernorm.weight", "model.norm.weight")):
            weights[name] = np.ones_like(value)
    return write("principal-axes", weights, tie_word_embeddings=False)


def divergence(model):
    result = json.loads(run(["qwen-run", "compare", f32, model, FOLDER / "golden" / "val.txt", "--window", 256, "--windows", 6, "--json"]))
    print(f"{result['kl']['mean']:.4f} {model.name}")
    return result["kl"]["mean"]


def compiled(name, folder, *options):
    return divergence(compile_model(folder, WORK / f"{name}.qwen", *options))


WORK.mkdir(parents=True, exist_ok=True)
short = WORK / "short.txt"
short.write_text(TEXT.read_text()[:26000])
GPTQ = ("--quantizer", "gptq", f"--calibrate={short}")
large, turned = with_large_channels(), in_principal_axes()
checks.check(compiled("large-f32", large, "--weights", "f32") < 1e-8, "the variant with large channels is another model")
checks.check(compiled("turned-f32", turned, "--weights", "f32") < 1e-8, "the variant in principal axes is another model")
plain = divergence(q4_0)
rounded = compiled("large-rtn", large)
scaled = compiled("large-awq", large, "--calibrate", "--awq")
checks.check(rounded >= 3 * plain, f"rounded, large channels have a KL of {rounded} when plain ones have {plain}")
checks.check(scaled <= 1.25 * plain, f"by awq, large channels have a KL of {scaled} when plain ones have {plain}")
info = json.loads(run(["qwen-run", "info", WORK / "large-awq.qwen", "--json"]))["quantization"]
checks.check(info["awq"] and info["quantizer"] == "rtn" and 30000 < info["tokens"] <= 32768, f"the manifest has {info}")
plain = compiled("plain-gptq", FOLDER, *GPTQ)
rotated = compiled("turned-gptq", turned, *GPTQ, "--rotate", "on")
compiled("turned-rtn", turned)
checks.check(rotated <= 1.2 * plain, f"rotated, principal axes have a KL of {rotated} when plain stories have {plain}")
checks.finish()

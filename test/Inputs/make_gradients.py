#!/usr/bin/env python3
"""Records gradients of a tiny checkpoint, by jax.grad.

  python3 -m venv v && v/bin/pip install jax numpy
  v/bin/python test/Inputs/make_gradients.py test/Inputs/checkpoints/NAME

Writes test/Inputs/gradients/NAME.safetensors for a Qwen2 or Qwen3 model in f32: two windows of ids and the tokens behind them, i64
[2, 12], and for each product of the first layer, by the name of its weight, the gradient of the sum of all log-likelihoods by the
product's result, f32 [24, outputs]. The model is written here from its definition, so that nothing but the formulas is shared.
"""
import json
import pathlib
import struct
import sys

import jax
import jax.numpy as jnp
import numpy as np

WINDOWS, WINDOW = 2, 12


def read_safetensors(path):
    data = path.read_bytes()
    size, = struct.unpack("<Q", data[:8])
    tensors = {}
    for name, entry in json.loads(data[8:8 + size]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            tensors[name] = np.frombuffer(data[8 + size + begin:8 + size + end], np.float32).reshape(entry["shape"])
    return tensors


def write_safetensors(path, tensors):
    kinds = {np.dtype(np.float32): "F32", np.dtype(np.int64): "I64"}
    header, offset = {}, 0
    for name, value in tensors.items():
        header[name] = {"dtype": kinds[value.dtype], "shape": list(value.shape), "data_offsets": [offset, offset + value.nbytes]}
        offset += value.nbytes
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(value.tobytes() for value in tensors.values()))


class Model:
    def __init__(self, folder):
        self.config = json.loads((folder / "config.json").read_text())
        self.weights = read_safetensors(folder / "model.safetensors")
        self.heads, self.kv_heads = self.config["num_attention_heads"], self.config["num_key_value_heads"]
        self.head_dim = self.config.get("head_dim") or self.config["hidden_size"] // self.heads
        self.theta = self.config.get("rope_theta") or self.config["rope_parameters"]["rope_theta"]

    def norm(self, x, name):
        return x / jnp.sqrt(jnp.mean(x * x, -1, keepdims=True) + self.config["rms_norm_eps"]) * self.weights[name]

    def product(self, x, name, added):
        y = x @ self.weights[name + ".weight"].T + self.weights.get(name + ".bias", 0)
        return y + added.get(name + ".weight", 0)

    def rotated(self, x):
        half = self.head_dim // 2
        angles = jnp.arange(x.shape[0])[:, None] / self.theta ** (jnp.arange(half) / half)
        cos, sin = jnp.cos(angles)[:, None], jnp.sin(angles)[:, None]
        a, b = x[..., :half], x[..., half:]
        return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

    def heads_of(self, x, name, added, part, count):
        y = self.product(x, f"{name}.{part}_proj", added).reshape(len(x), count, self.head_dim)
        if f"{name}.{part}_norm.weight" in self.weights:
            y = self.norm(y, f"{name}.{part}_norm.weight")
        return y

    def attention(self, x, name, added):
        q = self.rotated(self.heads_of(x, name, added, "q", self.heads))
        k = self.rotated(self.heads_of(x, name, added, "k", self.kv_heads))
        v = self.product(x, f"{name}.v_proj", added).reshape(len(x), self.kv_heads, self.head_dim)
        k, v = (jnp.repeat(part, self.heads // self.kv_heads, 1) for part in (k, v))
        scores = jnp.einsum("ihd,jhd->hij", q, k) / np.sqrt(self.head_dim)
        scores = jnp.where(np.tril(np.ones((len(x), len(x)), bool)), scores, -jnp.inf)
        result = jnp.einsum("hij,jhd->ihd", jax.nn.softmax(scores, -1), v).reshape(len(x), -1)
        return self.product(result, f"{name}.o_proj", added)

    def log_likelihood(self, added, ids, targets):
        x = jnp.asarray(self.weights["model.embed_tokens.weight"])[ids]
        for layer in range(self.config["num_hidden_layers"]):
            name = f"model.layers.{layer}"
            x = x + self.attention(self.norm(x, f"{name}.input_layernorm.weight"), f"{name}.self_attn", added)
            y = self.norm(x, f"{name}.post_attention_layernorm.weight")
            gate, up = (self.product(y, f"{name}.mlp.{part}_proj", added) for part in ("gate", "up"))
            x = x + self.product(jax.nn.silu(gate) * up, f"{name}.mlp.down_proj", added)
        head = self.weights.get("lm_head.weight", self.weights["model.embed_tokens.weight"])
        logits = self.norm(x, "model.norm.weight") @ head.T
        return jnp.take_along_axis(jax.nn.log_softmax(logits, -1), targets[:, None], -1).sum()


def main():
    jax.config.update("jax_enable_x64", True)
    folder = pathlib.Path(sys.argv[1])
    model = Model(folder)
    random = np.random.default_rng(1)
    ids, targets = random.integers(5, model.config["vocab_size"], (2, WINDOWS, WINDOW))
    names = [name for name in model.weights if name.startswith("model.layers.0.") and name.endswith("_proj.weight")]
    result = {"ids": ids, "targets": targets}
    windows = []
    for window in range(WINDOWS):
        zeros = {name: jnp.zeros((WINDOW, len(model.weights[name]))) for name in names}
        windows.append(jax.grad(model.log_likelihood)(zeros, ids[window], targets[window]))
    for name in names:
        result[name] = np.concatenate([each[name] for each in windows]).astype(np.float32)
    write_safetensors(pathlib.Path(__file__).with_name("gradients") / f"{folder.name}.safetensors", result)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Records gradients of a tiny checkpoint, by jax.grad.

  python3 -m venv v && v/bin/pip install jax numpy
  v/bin/python test/Inputs/make_gradients.py test/Inputs/checkpoints/NAME

Writes test/Inputs/gradients/NAME.safetensors for a Qwen2, Qwen3, Qwen3-MoE, Qwen3.5 or Qwen3.5-MoE model: two windows of ids and the
tokens behind them, i64 [2, 12], and for each product of the first layer, and of the first attention, by the compiler's name of its
weight, the gradient of the sum of all log-likelihoods by the product's result, f32 [24, outputs]. Outputs of experts come one expert
after another; experts that a token did not choose have zeros. The model is written here from its definition, so that nothing but the
formulas is shared. Its logits must be those of golden.safetensors.
"""
import json
import pathlib
import struct
import sys

import jax
import jax.numpy as jnp
import numpy as np

WINDOWS, WINDOW = 2, 12


def values(kind, data):
    if kind == "BF16":
        return (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32)
    return np.frombuffer(data, {"F32": np.float32, "I64": np.int64}[kind])


def read_safetensors(path):
    data = path.read_bytes()
    size, = struct.unpack("<Q", data[:8])
    return {name: values(entry["dtype"], data[8 + size:][slice(*entry["data_offsets"])]).reshape(entry["shape"])
            for name, entry in json.loads(data[8:8 + size]).items() if name != "__metadata__"}


def write_safetensors(path, tensors):
    kinds = {np.dtype(np.float32): "F32", np.dtype(np.int64): "I64"}
    header, offset = {}, 0
    for name, value in tensors.items():
        header[name] = {"dtype": kinds[value.dtype], "shape": list(value.shape), "data_offsets": [offset, offset + value.nbytes]}
        offset += value.nbytes
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(value.tobytes() for value in tensors.values()))


def by_compiler_names(weights, config):
    """A matrix for all experts, gates of attention apart from queries, and names below "model."."""
    result = {}
    for name, value in weights.items():
        if name.startswith("model.visual.") or name.startswith("mtp."):
            continue
        name = name.replace("model.language_model.", "model.")
        if name.endswith("mlp.experts.gate_up_proj"):
            for part, half in zip(("gate", "up"), np.split(value, 2, 1)):
                result[name.replace("gate_up_proj", f"{part}_proj.weight")] = half
        elif name.endswith("mlp.experts.down_proj"):
            result[name + ".weight"] = value
        elif name.endswith("self_attn.q_proj.weight") and config.get("attn_output_gate"):
            heads = value.reshape(config["num_attention_heads"], 2, -1, value.shape[1])
            result[name] = heads[:, 0].reshape(-1, value.shape[1])
            result[name.replace(".weight", ".gate.weight")] = heads[:, 1].reshape(-1, value.shape[1])
        elif ".mlp.experts." in name:
            before, after = name.split(".mlp.experts.")
            expert, after = after.split(".", 1)
            result.setdefault(f"{before}.mlp.experts.{after}", {})[int(expert)] = value
        else:
            result[name] = value
    return {name: np.stack([value[i] for i in range(len(value))]) if isinstance(value, dict) else value
            for name, value in result.items()}


class Model:
    def __init__(self, folder):
        config = json.loads((folder / "config.json").read_text())
        self.config = config.get("text_config", config)
        weights = {}
        for path in sorted(folder.glob("model*.safetensors")):
            weights |= read_safetensors(path)
        self.weights = by_compiler_names(weights, self.config)
        self.heads, self.kv_heads = self.config["num_attention_heads"], self.config["num_key_value_heads"]
        self.head_dim = self.config.get("head_dim") or self.config["hidden_size"] // self.heads
        self.theta = self.config.get("rope_theta") or self.config["rope_parameters"]["rope_theta"]
        self.rotated_dim = int(self.head_dim * self.config.get("partial_rotary_factor", 1))
        # What the weights of norms are offsets from.
        self.norm_base = 1 if "layer_types" in self.config and "linear_num_key_heads" in self.config else 0

    def linear_layer(self, layer):
        return f"model.layers.{layer}.linear_attn.A_log" in self.weights

    def norm(self, x, name, base=None):
        weight = (self.norm_base if base is None else base) + self.weights[name]
        return x / jnp.sqrt(jnp.mean(x * x, -1, keepdims=True) + self.config["rms_norm_eps"]) * weight

    def product(self, x, name, added):
        y = x @ self.weights[name + ".weight"].T + self.weights.get(name + ".bias", 0)
        return y + added.get(name + ".weight", 0)

    def rotated(self, x):
        half = self.rotated_dim // 2
        angles = jnp.arange(x.shape[0])[:, None] / self.theta ** (jnp.arange(half) / half)
        cos, sin = jnp.cos(angles)[:, None], jnp.sin(angles)[:, None]
        a, b = x[..., :half], x[..., half:2 * half]
        return jnp.concatenate([a * cos - b * sin, b * cos + a * sin, x[..., 2 * half:]], -1)

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
        if f"{name}.q_proj.gate.weight" in self.weights:
            result = result * jax.nn.sigmoid(self.product(x, f"{name}.q_proj.gate", added))
        return self.product(result, f"{name}.o_proj", added)

    def linear_attention(self, x, name, added):
        qkv, z, b, a = (self.product(x, f"{name}.in_proj_{part}", added) for part in ("qkv", "z", "b", "a"))
        taps = self.weights[f"{name}.conv1d.weight"][:, 0].T
        padded = jnp.pad(qkv, ((len(taps) - 1, 0), (0, 0)))
        qkv = jax.nn.silu(sum(padded[j:j + len(x)] * tap for j, tap in enumerate(taps)))
        keys, size = self.config["linear_num_key_heads"], self.config["linear_key_head_dim"]
        count = self.config["linear_num_value_heads"]
        q, k, v = jnp.split(qkv, [keys * size, 2 * keys * size], 1)
        q, k = (jnp.repeat(part.reshape(len(x), keys, size), count // keys, 1) for part in (q, k))
        q, k = (part / jnp.sqrt(jnp.sum(part * part, -1, keepdims=True) + 1e-6) for part in (q, k))
        q, v = q / np.sqrt(size), v.reshape(len(x), count, -1)
        decay = jnp.exp(-jnp.exp(self.weights[f"{name}.A_log"]) * jax.nn.softplus(a + self.weights[f"{name}.dt_bias"]))
        beta = jax.nn.sigmoid(b)
        state, results = jnp.zeros((count, size, v.shape[-1])), []
        for token in range(len(x)):
            state = decay[token][:, None, None] * state
            change = beta[token][:, None] * (v[token] - jnp.einsum("hi,hij->hj", k[token], state))
            state = state + k[token][:, :, None] * change[:, None]
            results.append(jnp.einsum("hi,hij->hj", q[token], state))
        result = self.norm(jnp.stack(results), f"{name}.norm.weight", 0).reshape(len(x), -1)
        return self.product(jax.nn.silu(z) * result, f"{name}.out_proj", added)

    def mlp(self, x, name, added):
        gate, up = (self.product(x, f"{name}.{part}_proj", added) for part in ("gate", "up"))
        return self.product(jax.nn.silu(gate) * up, f"{name}.down_proj", added)

    def experts(self, x, name, added):
        """All experts of all tokens: those that are not chosen weigh nothing."""
        p = jax.nn.softmax(self.product(x, f"{name}.gate", added), -1)
        chosen = jax.lax.top_k(p, self.config["num_experts_per_tok"])[1]
        p = p * jax.nn.one_hot(chosen, p.shape[1]).sum(1)
        if self.config.get("norm_topk_prob", True):
            p = p / p.sum(-1, keepdims=True)

        def products(rows, part):
            weight = f"{name}.experts.{part}_proj.weight"
            return jnp.einsum("tek,eok->teo", rows, self.weights[weight]) + added.get(weight, jnp.zeros(())).reshape(
                *((len(x), p.shape[1], -1) if weight in added else ()))
        rows = jnp.repeat(x[:, None], p.shape[1], 1)
        y = products(jax.nn.silu(products(rows, "gate")) * products(rows, "up"), "down")
        y = jnp.einsum("te,teo->to", p, y)
        if f"{name}.shared_expert_gate.weight" in self.weights:
            gate = jax.nn.sigmoid(self.product(x, f"{name}.shared_expert_gate", added))
            y = y + gate * self.mlp(x, f"{name}.shared_expert", added)
        return y

    def logits(self, added, ids):
        x = jnp.asarray(self.weights["model.embed_tokens.weight"])[ids]
        for layer in range(self.config["num_hidden_layers"]):
            name = f"model.layers.{layer}"
            y = self.norm(x, f"{name}.input_layernorm.weight")
            x = x + (self.linear_attention(y, f"{name}.linear_attn", added) if self.linear_layer(layer)
                     else self.attention(y, f"{name}.self_attn", added))
            y = self.norm(x, f"{name}.post_attention_layernorm.weight")
            x = x + (self.experts if f"{name}.mlp.gate.weight" in self.weights else self.mlp)(y, f"{name}.mlp", added)
        head = self.weights.get("lm_head.weight", self.weights["model.embed_tokens.weight"])
        return self.norm(x, "model.norm.weight") @ head.T

    def log_likelihood(self, added, ids, targets):
        return jnp.take_along_axis(jax.nn.log_softmax(self.logits(added, ids), -1), targets[:, None], -1).sum()

    def recorded(self):
        """Names of the recorded products."""
        attention = next(layer for layer in range(self.config["num_hidden_layers"]) if not self.linear_layer(layer))
        return [name for name, weight in self.weights.items()
                if name.startswith(("model.layers.0.", f"model.layers.{attention}.self_attn.")) and weight.ndim > 1 and "conv1d" not in name]


def check_logits(model, folder):
    golden = read_safetensors(folder / "golden.safetensors")
    prefix = "0." if "0.prompt" in golden else ""
    prompt = golden[prefix + "prompt"][:WINDOW]
    found, want = model.logits({}, prompt), golden[prefix + "logits"][:WINDOW]
    error = np.abs(found - want).max() / np.abs(want).max()
    assert error < 1e-4, f"the logits differ by {error}"


def main():
    jax.config.update("jax_enable_x64", True)
    folder = pathlib.Path(sys.argv[1])
    model = Model(folder)
    check_logits(model, folder)
    random = np.random.default_rng(1)
    ids, targets = random.integers(5, model.config["vocab_size"], (2, WINDOWS, WINDOW))
    names = model.recorded()
    result = {"ids": ids, "targets": targets}
    windows = []
    for window in range(WINDOWS):
        zeros = {name: jnp.zeros((WINDOW, model.weights[name].size // model.weights[name].shape[-1])) for name in names}
        windows.append(jax.grad(model.log_likelihood)(zeros, ids[window], targets[window]))
    for name in names:
        result[name] = np.concatenate([each[name] for each in windows]).astype(np.float32)
    write_safetensors(pathlib.Path(__file__).with_name("gradients") / f"{folder.name}.safetensors", result)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""The layers that ShortGPT and SLEB remove, by plain PyTorch, in the form of qwen-opt's report.

  python bench/prune.py CHECKPOINT IDS.json [--count N] [--check TEXT]

CHECKPOINT is a folder of a Qwen2 or Qwen3 in one safetensors file. IDS.json is what `qwen-run tokenize MODEL --json` prints for a text:
the first 2,048 ids are run, in windows of 512. Prints a JSON object: for each method, the layers that go and the scores. --check
compiles the checkpoint with `qwen-opt --prune` too, with the text of these ids, and compares layers and scores. Needs torch.
"""
import argparse
import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from make_checkpoint import read_header

TOKENS, WINDOW = 2048, 512
BIN = pathlib.Path(__file__).resolve().parent.parent / "build/host/bin"


def read(folder):
    """The tensors of a checkpoint in f32."""
    file = folder / "model.safetensors"
    header, base = read_header(file)
    data = np.memmap(file, np.uint8, "r")
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        raw = data[base + begin:base + end]
        if entry["dtype"] == "BF16":
            values = (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
        else:
            values = raw.view({"F32": np.float32, "F16": np.float16}[entry["dtype"]]).astype(np.float32)
        tensors[name] = torch.from_numpy(values.reshape(entry["shape"]).copy())
    return tensors


class Model:
    def __init__(self, folder):
        self.config = json.loads((folder / "config.json").read_text())
        self.tensors = read(folder)
        self.layers = self.config["num_hidden_layers"]
        self.heads, self.kv_heads = self.config["num_attention_heads"], self.config["num_key_value_heads"]
        self.dim = self.config.get("head_dim") or self.config["hidden_size"] // self.heads

    def norm(self, name, x):
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.config["rms_norm_eps"])
        return x * scale * self.tensors[name]

    def linear(self, name, x):
        y = x @ self.tensors[name + ".weight"].T
        return y + self.tensors[name + ".bias"] if name + ".bias" in self.tensors else y

    def heads_of(self, path, x, heads, rotation):
        y = self.linear(path + "_proj", x).view(*x.shape[:2], heads, self.dim)
        if path + "_norm.weight" in self.tensors:
            y = self.norm(path + "_norm.weight", y)
        y = y.transpose(1, 2)
        if rotation is None:
            return y
        cos, sin = rotation
        first, second = y.chunk(2, -1)
        return y * cos + torch.cat((-second, first), -1) * sin

    def layer(self, number, x):
        """[windows][tokens][hidden] to the same behind a layer."""
        path = f"model.layers.{number}."
        theta = self.config.get("rope_theta") or self.config["rope_parameters"]["rope_theta"]
        frequencies = theta ** (-torch.arange(0, self.dim, 2, dtype=torch.float64) / self.dim)
        angles = torch.outer(torch.arange(x.shape[1], dtype=torch.float64), frequencies)
        angles = torch.cat((angles, angles), -1)
        rotation = angles.cos().float(), angles.sin().float()
        h = self.norm(path + "input_layernorm.weight", x)
        q = self.heads_of(path + "self_attn.q", h, self.heads, rotation)
        k = self.heads_of(path + "self_attn.k", h, self.kv_heads, rotation)
        v = self.heads_of(path + "self_attn.v", h, self.kv_heads, None)
        k, v = (each.repeat_interleave(self.heads // self.kv_heads, 1) for each in (k, v))
        scores = q @ k.transpose(-1, -2) / math.sqrt(self.dim)
        scores = scores.masked_fill(torch.triu(torch.ones(x.shape[1], x.shape[1], dtype=torch.bool), 1), -math.inf)
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
        x = x + self.linear(path + "self_attn.o_proj", mixed)
        h = self.norm(path + "post_attention_layernorm.weight", x)
        gate = torch.nn.functional.silu(self.linear(path + "mlp.gate_proj", h))
        return x + self.linear(path + "mlp.down_proj", gate * self.linear(path + "mlp.up_proj", h))

    def loss(self, x, ids):
        head = self.tensors.get("lm_head.weight", self.tensors["model.embed_tokens.weight"])
        x, total = self.norm("model.norm.weight", x), 0.0
        for row, window in zip(x, ids):
            logits = row[:-1] @ head.T
            total += torch.nn.functional.cross_entropy(logits.double(), window[1:], reduction="sum").item()
        return total / (ids.numel() - len(ids))


def run(model, x, first, removed):
    for layer in range(first, model.layers):
        if layer not in removed:
            x = model.layer(layer, x)
    return x


def shortgpt(model, ids, count):
    x, scores = model.tensors["model.embed_tokens.weight"][ids], []
    for layer in range(model.layers):
        y = model.layer(layer, x)
        scores.append(1 - torch.nn.functional.cosine_similarity(x.double(), y.double(), -1).mean().item())
        x = y
    return {"layers": sorted(sorted(range(model.layers), key=lambda i: (scores[i], i))[:count]), "scores": scores}


def sleb(model, ids, count):
    removed, scores = [], []
    while len(removed) < count:
        x, losses = model.tensors["model.embed_tokens.weight"][ids], {}
        for layer in range(model.layers):
            if layer not in removed:
                losses[layer] = model.loss(run(model, x, layer + 1, removed), ids)
                x = model.layer(layer, x)
        best = min(losses, key=lambda i: (losses[i], i))
        removed.append(best)
        scores.append(losses[best])
    return {"layers": sorted(removed), "scores": scores}


def of_qwen_opt(checkpoint, method, count, text):
    """What qwen-opt reports."""
    with tempfile.TemporaryDirectory() as folder:
        out = subprocess.run([BIN / "qwen-opt", checkpoint, "-o", pathlib.Path(folder) / "pruned.qwen", "--weights", "q4_0",
                              "--quantizer", "rtn", f"--calibrate={text}", "--prune", f"{method}:{count}"],
                             check=True, capture_output=True, text=True).stderr
    layers = [int(i) for i in re.search(r"layers ([\d, ]+) removed", out)[1].split(", ")]
    return {"layers": layers, "scores": [float(i) for i in re.search(r"scores (.*)", out)[1].split()]}


@torch.no_grad()
def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=pathlib.Path)
    parser.add_argument("ids", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=2)
    parser.add_argument("--check", type=pathlib.Path, metavar="TEXT", help="the text of these ids: compare with qwen-opt")
    args = parser.parse_args()
    model = Model(args.checkpoint)
    ids = torch.tensor(json.loads(args.ids.read_text())["ids"][:TOKENS]).view(-1, WINDOW)
    result, worst = {}, 0.0
    for name, method in (("shortgpt", shortgpt), ("sleb", sleb)):
        for count in range(1, args.count + 1):
            found = result[f"{name}:{count}"] = method(model, ids, count)
            if args.check:
                ours = of_qwen_opt(args.checkpoint, name, count, args.check)
                if ours["layers"] != found["layers"]:
                    sys.exit(f"{name}:{count}: qwen-opt removes {ours['layers']}, PyTorch {found['layers']}")
                worst = max(worst, *(abs(a - b) for a, b in zip(ours["scores"], found["scores"])))
    print(json.dumps(result, indent=1))
    if args.check:
        print(f"qwen-opt removes the same layers; scores differ by at most {worst:.6f}", file=sys.stderr)


if __name__ == "__main__":
    main()

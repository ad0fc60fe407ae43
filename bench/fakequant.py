#!/usr/bin/env python3
"""Measures the cost of quantization: the perplexity of a checkpoint in PyTorch, in f32 and fake-quantized.

  python3 -m venv v && v/bin/pip install torch transformers numpy
  v/bin/python bench/fakequant.py CHECKPOINT TEXT [--window 512] [--tokens N]

Weights: every matrix is in q4_0, including the embedding and a tied head. Activations: the input of every matrix is in int8
blocks along K. Both follow docs/numerics.md, computed in f32; PyTorch computes the sums. Windows do not overlap, and the
first token of each is not scored.
"""
import argparse
import math

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def q4_0(w):
    """Weights after encoding to q4_0 and dequantizing."""
    x = w.detach().to(torch.float32).numpy().reshape(-1, 32)
    largest = np.take_along_axis(x, np.abs(x).argmax(1)[:, None], 1)
    d = largest / np.float32(-8)
    with np.errstate(divide="ignore"):
        inverse = np.where(d == 0, np.float32(0), np.float32(1) / d)
    q = np.clip(np.trunc(x * inverse + np.float32(8.5)), 0, 15) - 8
    decoded = q.astype(np.float32) * d.astype(np.float16).astype(np.float32)
    return torch.from_numpy(decoded.reshape(w.shape))


def int8(x, block):
    """Activations after quantization in blocks of `block` values; the last block of a token may be shorter."""
    k = x.shape[-1]
    padded = torch.nn.functional.pad(x, (0, -k % block))
    blocks = padded.reshape(*x.shape[:-1], -1, block)
    amax = blocks.abs().amax(-1, keepdim=True)
    zero = amax < 2.0**-100
    scale = torch.where(zero, 0.0, 127 / torch.where(zero, 1.0, amax))
    d = torch.where(zero, 0.0, amax / 127)
    q = torch.clamp(torch.round(blocks * scale), -127, 127)
    return (q * d).reshape(padded.shape)[..., :k]


def load(path, quantize_weights, activation_block):
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    if quantize_weights:
        done = set()
        for module in model.modules():
            if isinstance(module, (torch.nn.Linear, torch.nn.Embedding)) and module.weight.data_ptr() not in done:
                done.add(module.weight.data_ptr())
                module.weight.data.copy_(q4_0(module.weight))
    if activation_block:
        for module in model.modules():
            if isinstance(module, torch.nn.Linear):
                module.register_forward_pre_hook(lambda _, args: (int8(args[0], activation_block),))
    return model


def perplexity(model, ids, window):
    total, count = 0.0, 0
    with torch.no_grad():
        for begin in range(0, len(ids), window):
            part = ids[begin : begin + window]
            if len(part) < 2:
                continue
            logits = model(part[None], use_cache=False).logits[0, :-1].double()
            total += torch.nn.functional.cross_entropy(logits, part[1:], reduction="sum").item()
            count += len(part) - 1
    return math.exp(total / count), count


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("checkpoint")
    parser.add_argument("text")
    parser.add_argument("--window", type=int, default=512)
    parser.add_argument("--tokens", type=int, help="score only the first TOKENS tokens of the text")
    args = parser.parse_args()

    tokenizer = AutoTokenizer.from_pretrained(args.checkpoint)
    with open(args.text, encoding="utf-8") as file:
        ids = tokenizer(file.read(), add_special_tokens=False, return_tensors="pt").input_ids[0]
    ids = ids[: args.tokens]

    base = None
    print("| weights | activations | perplexity | against f32 |\n|---|---|---|---|")
    for weights in ("f32", "q4_0"):
        for block in (None, 128, 32):
            model = load(args.checkpoint, weights == "q4_0", block)
            value, count = perplexity(model, ids, args.window)
            base = base or value
            name = f"int8, blocks of {block}" if block else "f32"
            print(f"| {weights} | {name} | {value:.4f} | {100 * (value / base - 1):+.2f}% |", flush=True)
    print(f"{count} tokens scored, windows of {args.window}")


if __name__ == "__main__":
    main()

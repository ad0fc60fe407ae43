#!/usr/bin/env python3
"""Makes a tiny random checkpoint and what Hugging Face transformers computes with it.

  python3 -m venv v && v/bin/pip install torch transformers
  v/bin/python test/Inputs/make_golden.py CONFIG.json OUT [--dtype bfloat16] [--seed 1]

CONFIG.json has model_type and the sizes, as a config.json. OUT gets the checkpoint and golden.safetensors, which
test/Integration/golden.py reads: prompt i64 [48], logits f32 [48, V] at every position, computed in f32, and greedy
i64 [16], the greedy continuation. Weights are drawn again until no greedy choice is a near tie.
"""
import argparse
import json
import pathlib

import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

PROMPT, GREEDY, LEAST_MARGIN = 48, 16, 2e-3


def draw(model, dtype):
    """Random weights that `dtype` holds exactly and that keep activations of order 1."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            value = torch.randn_like(weight)
            if "norm" in name:
                value = 1 + 0.2 * value
            elif name.endswith("bias"):
                value *= 0.3
            elif "embed" in name or "lm_head" in name:
                value *= 0.5
            else:
                value *= 1.2 / weight.shape[-1] ** 0.5
            weight.copy_(value.to(dtype))


def greedy_path(model, prompt):
    """Logits of the prompt, the greedy continuation, and the least distance of a choice from the next best."""
    ids, margins = prompt.tolist(), []
    with torch.no_grad():
        logits = last = model(prompt[None]).logits[0]
        for _ in range(GREEDY):
            best = last[-1].topk(2)
            margins.append(((best.values[0] - best.values[1]) / (last[-1].max() - last[-1].min())).item())
            ids.append(best.indices[0].item())
            last = model(torch.tensor([ids])).logits[0]
    return logits, ids[len(prompt):], min(margins)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float16", "float32"])
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    dtype = getattr(torch, args.dtype)
    keys = json.loads(args.config.read_text())
    config = AutoConfig.for_model(keys.pop("model_type"), bos_token_id=0, eos_token_id=1, **keys)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    margin = 0
    while margin < LEAST_MARGIN:
        draw(model, dtype)
        prompt = torch.randint(2, config.vocab_size, (PROMPT,))
        logits, greedy, margin = greedy_path(model, prompt)
    model.to(dtype).save_pretrained(args.out)
    save_file({"prompt": prompt, "logits": logits.contiguous(), "greedy": torch.tensor(greedy)},
              args.out / "golden.safetensors")


if __name__ == "__main__":
    main()

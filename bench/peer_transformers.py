#!/usr/bin/env python3
"""Hugging Face transformers for bench/peers.py, which runs this script in an environment that has it.

  peer_transformers.py CHECKPOINT DTYPE PROMPT COUNT THREADS       one JSON object on stdout
"""
import json
import sys
import time

import torch
from transformers import AutoModelForCausalLM


def main():
    folder, dtype, *numbers = sys.argv[1:]
    prompt, count, threads = map(int, numbers)
    torch.set_num_threads(threads)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()
    ids = torch.tensor([[(i * 7919 + 17) % 150000 for i in range(prompt + count)]])
    with torch.inference_mode():
        # The first repetition warms caches and is not counted.
        for _ in range(2):
            start = time.perf_counter()
            cache = model(ids[:, :prompt], use_cache=True, logits_to_keep=1).past_key_values
            prefilled = time.perf_counter()
            for i in range(prompt, prompt + count):
                cache = model(ids[:, i:i + 1], past_key_values=cache, use_cache=True).past_key_values
            end = time.perf_counter()
    print(json.dumps({"prefill": prompt / (prefilled - start), "decode": count / (end - prefilled)}))


if __name__ == "__main__":
    main()

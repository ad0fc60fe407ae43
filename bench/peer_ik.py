#!/usr/bin/env python3
"""ik_llama.cpp for bench/experts.py, which runs this script in an environment with ik-llama-cpp-python.

  peer_ik.py GGUF PROMPT COUNT THREADS     tokens/s of a prompt and of the tokens after it, one JSON object on stdout

Weights are repacked while they are loaded, ik_llama.cpp's fastest way to run them.
"""
import json
import sys
import time

from ik_llama_cpp import _ctypes_api as ll


def decode(context, batch, ids, first):
    batch.n_tokens = len(ids)
    for i, token in enumerate(ids):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = token, first + i, 1, 0, i == len(ids) - 1
    if ll.llama_decode(context, batch):
        sys.exit("ik_llama.cpp cannot run the batch")


def main():
    file, (prompt, count, threads) = sys.argv[1], map(int, sys.argv[2:])
    ll.llama_backend_init()
    params = ll.llama_model_default_params()
    params.repack_tensors, params.use_mmap = True, False
    model = ll.llama_model_load_from_file(file.encode(), params)
    if not model:
        sys.exit(f"ik_llama.cpp cannot load {file}")
    options = ll.llama_context_default_params()
    options.n_ctx, options.n_batch, options.n_ubatch = prompt + count, prompt, prompt
    options.n_threads = options.n_threads_batch = threads
    options.flash_attn = True
    # Experts' gate, up and activation in one step, as its README recommends for models with experts.
    options.fused_moe_up_gate = True
    context = ll.llama_init_from_model(model, options)
    batch = ll.llama_batch_init(prompt, 0, 1)
    vocabulary = ll.llama_vocab_n_tokens(ll.llama_model_get_vocab(model))
    ids = [(i * 7919 + 17) % min(150000, vocabulary) for i in range(prompt + count)]
    # The first repetition warms caches and is not counted.
    for _ in range(2):
        ll.llama_kv_cache_clear(context)
        start = time.perf_counter()
        decode(context, batch, ids[:prompt], 0)
        prefilled = time.perf_counter()
        for position in range(prompt, prompt + count):
            decode(context, batch, [ids[position]], position)
        end = time.perf_counter()
    print(json.dumps({"prefill": prompt / (prefilled - start), "decode": count / (end - prefilled)}))


main()

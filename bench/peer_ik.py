#!/usr/bin/env python3
"""ik_llama.cpp for bench/experts.py and bench/depth.py, which run this script in an environment with ik-llama-cpp-python.

  peer_ik.py GGUF PROMPT COUNT THREADS [DEPTH KV]     tokens/s of a prompt and of the tokens after it, one JSON object on stdout; behind
                                                      DEPTH positions, with keys and values in KV: f16 or q8_0

Weights are repacked while they are loaded, ik_llama.cpp's fastest way to run them.
"""
import ctypes
import json
import sys
import time

from ik_llama_cpp import _ctypes_api as ll


KV_TYPES = {"f16": 1, "q8_0": 8}  # ggml_type
# Functions of the library that the package does not declare, and what they return.
LIBRARY = {"llama_state_seq_get_size": ctypes.c_size_t, "llama_state_seq_get_data": ctypes.c_size_t, "llama_state_seq_set_data": ctypes.c_size_t,
           "llama_kv_cache_seq_add": None, "llama_kv_cache_seq_cp": None, "llama_kv_cache_seq_rm": ctypes.c_bool,
           "llama_kv_cache_seq_pos_max": ctypes.c_int32}


def call(name, context, *arguments):
    function = getattr(ll._lib, name)
    function.restype = LIBRARY[name]
    return function(ctypes.c_void_p(context), *arguments)


def fill(context, batch, ids, depth):
    """Gives the sequence `depth` positions, as peer_llama_cpp.py does."""
    position = ctypes.c_int32
    decode(context, batch, ids, 0)
    # The last argument of functions of a state is flags.
    size = call("llama_state_seq_get_size", context, position(0), 0)
    state = (ctypes.c_uint8 * size)()
    call("llama_state_seq_get_data", context, state, ctypes.c_size_t(size), position(0), 0)
    for first in range(len(ids), depth, len(ids)):
        if not call("llama_state_seq_set_data", context, state, ctypes.c_size_t(size), position(1), 0):
            sys.exit("ik_llama.cpp cannot copy the cells of a sequence")
        call("llama_kv_cache_seq_add", context, *map(position, (1, -1, -1, first)))
        call("llama_kv_cache_seq_cp", context, *map(position, (1, 0, -1, -1)))
        call("llama_kv_cache_seq_rm", context, *map(position, (1, -1, -1)))


def decode(context, batch, ids, first):
    batch.n_tokens = len(ids)
    for i, token in enumerate(ids):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = token, first + i, 1, 0, i == len(ids) - 1
    if ll.llama_decode(context, batch):
        sys.exit("ik_llama.cpp cannot run the batch")


def main():
    file, (prompt, count, threads), behind = sys.argv[1], map(int, sys.argv[2:5]), sys.argv[5:]
    depth = int(behind[0]) if behind else 0
    part = min(depth, 512)
    ll.llama_backend_init()
    params = ll.llama_model_default_params()
    params.repack_tensors, params.use_mmap = True, False
    model = ll.llama_model_load_from_file(file.encode(), params)
    if not model:
        sys.exit(f"ik_llama.cpp cannot load {file}")
    options = ll.llama_context_default_params()
    most = max(prompt, part)
    options.n_ctx, options.n_batch, options.n_ubatch = depth + part + prompt + count, most, most
    if depth:
        options.n_seq_max = 2
        options.type_k = options.type_v = KV_TYPES[behind[1]]
    options.n_threads = options.n_threads_batch = threads
    options.flash_attn = True
    # Experts' gate, up and activation in one step, as its README recommends for models with experts.
    options.fused_moe_up_gate = True
    context = ll.llama_init_from_model(model, options)
    batch = ll.llama_batch_init(most, 0, 1)
    vocabulary = ll.llama_vocab_n_tokens(ll.llama_model_get_vocab(model))
    ids = [(i * 7919 + 17) % min(150000, vocabulary) for i in range(max(prompt + count, part))]
    if depth:
        fill(context, batch, ids[:part], depth)
    # The first repetition warms caches and is not counted.
    for _ in range(2):
        if depth:
            call("llama_kv_cache_seq_rm", context, *map(ctypes.c_int32, (0, depth, -1)))
        else:
            ll.llama_kv_cache_clear(context)
        start = time.perf_counter()
        decode(context, batch, ids[:prompt], depth)
        prefilled = time.perf_counter()
        for i in range(prompt, prompt + count):
            decode(context, batch, [ids[i]], depth + i)
        end = time.perf_counter()
    if call("llama_kv_cache_seq_pos_max", context, ctypes.c_int32(0)) != depth + prompt + count - 1:
        sys.exit("ik_llama.cpp has another number of positions")
    print(json.dumps({"prefill": prompt / (prefilled - start), "decode": count / (end - prefilled)}))


main()

#!/usr/bin/env python3
"""llama.cpp for bench/peers.py, which runs this script in an environment with llama-cpp-python and gguf.

  peer_llama_cpp.py convert CHECKPOINT OUT_F16.gguf       a checkpoint of bench/make_checkpoint.py
  peer_llama_cpp.py quantize F16.gguf OUT.gguf FORMAT     q4_0, q8_0 (all matrices); q4_k_m, q4_0_mix, iq4_xs_mix, q8_0_mix (llama.cpp's own
                                                          mixtures, as published files have them)
  peer_llama_cpp.py bench GGUF PROMPT COUNT THREADS       one JSON object on stdout
  peer_llama_cpp.py first GGUF PROMPT THREADS             seconds from loading to the first token
  peer_llama_cpp.py depth GGUF KV DEPTH PROMPT COUNT THREADS
                                                          the same as bench behind DEPTH positions, with keys and values in KV: f16 or q8_0

Times begin after the library is loaded, so they exclude the start of Python.
"""
import ctypes
import json
import pathlib
import sys
import time

import llama_cpp as ll
import numpy as np

from gguf_sizes import add_sizes
from gguf_tokenizer import add_tokenizer
from hybrid_gguf import hybrid_keys, interleaved
from make_checkpoint import read_header

# ggml_type and llama_ftype of ggml.h and llama.h
FORMATS = {"q4_0": (2, 2), "q8_0": (8, 7), "q4_k_m": (None, 15), "q4_0_mix": (None, 2), "iq4_xs_mix": (None, 30), "q8_0_mix": (None, 7)}


@ll.llama_log_callback
def be_quiet(level, text, user_data):
    if level == 4:  # GGML_LOG_LEVEL_ERROR
        sys.stderr.write(text.decode(errors="replace"))


def read_checkpoint(folder):
    """Names and f32 values of the tensors, one at a time."""
    for file in sorted(folder.glob("*.safetensors")):
        header, data = read_header(file)
        for name, tensor in header.items():
            begin, end = tensor["data_offsets"]
            bits = np.fromfile(file, np.uint16, (end - begin) // 2, offset=data + begin)
            yield name, (bits.astype(np.uint32) << 16).view(np.float32).reshape(tensor["shape"])


def of_hybrid(name, values, config):
    """Name and values of a hybrid's tensor as llama.cpp's converter makes them."""
    member = name.rpartition("linear_attn.")[2]
    if member == name:
        return name, values + 1 if name.endswith("norm.weight") else values
    if member == "norm.weight":
        return name, values
    return name.replace("dt_bias", "dt_proj.bias"), interleaved(member, -np.exp(values) if member == "A_log" else values, config)


def add_hybrid_keys(writer, config):
    keys = hybrid_keys(config)
    for key, value in keys.items():
        writer.add_uint32(f"qwen35.{key}", value)
    # The three position axes, which are equal in texts, take the frequencies in turn.
    pairs = keys["rope.dimension_count"] // 2
    writer.add_rope_dimension_sections([(pairs + 2 - axis) // 3 for axis in range(3)] + [0])
    writer.add_full_attention_interval(config["layer_types"].index("full_attention") + 1)


def convert(folder, out):
    import gguf
    config = json.loads((folder / "config.json").read_text())
    kind = config["model_type"]
    arch = {"qwen2": gguf.MODEL_ARCH.QWEN2, "qwen3": gguf.MODEL_ARCH.QWEN3, "qwen3_5_text": gguf.MODEL_ARCH.QWEN35}[kind]
    is_hybrid = arch == gguf.MODEL_ARCH.QWEN35
    writer = gguf.GGUFWriter(out, gguf.MODEL_ARCH_NAMES[arch])
    add_sizes(writer, config)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    if "head_dim" in config:
        writer.add_key_length(config["head_dim"])
        writer.add_value_length(config["head_dim"])
    if is_hybrid:
        add_hybrid_keys(writer, config)

    add_tokenizer(writer, folder, config)
    names = gguf.get_tensor_name_map(arch, config["num_hidden_layers"])
    for name, values in read_checkpoint(folder):
        if is_hybrid:
            name, values = of_hybrid(name, values, config)
        new = names.get_name(name, try_suffixes=(".weight", ".bias"))
        is_matrix = values.ndim == 2 and "conv1d" not in name
        writer.add_tensor(new, values.astype(np.float16) if is_matrix else values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def quantize(source, out, name):
    tensor_type, file_type = FORMATS[name]
    params = ll.llama_model_quantize_default_params()
    params.ftype = file_type
    if tensor_type is not None:
        params.pure = True
        params.token_embedding_type = tensor_type
        params.output_tensor_type = tensor_type
    if ll.llama_model_quantize(source.encode(), out.encode(), ctypes.byref(params)):
        sys.exit(f"llama.cpp cannot quantize {source} to {name}")


class Model:
    def __init__(self, file, tokens, threads, **options):
        self.model = ll.llama_model_load_from_file(file.encode(), ll.llama_model_default_params())
        if not self.model:
            sys.exit(f"llama.cpp cannot load {file}")
        params = ll.llama_context_default_params()
        params.n_ctx = tokens
        params.n_batch = params.n_ubatch = 512
        params.n_threads = params.n_threads_batch = threads
        params.no_perf = True
        for name, value in options.items():
            setattr(params, name, value)
        self.context = ll.llama_init_from_model(self.model, params)
        self.vocabulary = ll.llama_vocab_n_tokens(ll.llama_model_get_vocab(self.model))

    def decode(self, ids):
        """Runs `ids`, at most 512 at a time. The logits are those of the last one."""
        for first in range(0, len(ids), 512):
            part = (ll.llama_token * len(ids[first:first + 512]))(*ids[first:first + 512])
            if ll.llama_decode(self.context, ll.llama_batch_get_one(part, len(part))):
                sys.exit("llama.cpp cannot decode")
        ll.llama_synchronize(self.context)

    def ids(self, count):
        return [(i * 7919 + 17) % min(150000, self.vocabulary) for i in range(count)]

    def best(self):
        return int(np.argmax(np.ctypeslib.as_array(ll.llama_get_logits_ith(self.context, -1), (self.vocabulary,))))

    def clear(self):
        ll.llama_memory_clear(ll.llama_get_memory(self.context), False)


def speeds(model, prompt, count, clear):
    """Tokens/s of a prompt and of the tokens behind it, in JSON. clear() removes what an earlier repetition left."""
    ids = model.ids(prompt + count)
    # The first repetition warms caches and is not counted. Behind other positions, it moves their keys, too.
    for _ in range(2):
        clear()
        start = time.perf_counter()
        model.decode(ids[:prompt])
        prefilled = time.perf_counter()
        for token in ids[prompt:]:
            model.decode([token])
        end = time.perf_counter()
    return json.dumps({"prefill": prompt / (prefilled - start), "decode": count / (end - prefilled)})


def bench(file, prompt, count, threads):
    model = Model(file, prompt + count, threads)
    print(speeds(model, prompt, count, model.clear))


KV_TYPES = {"f16": 1, "q8_0": 8}  # ggml_type
FLASH_ATTN_ENABLED = 1


def fill(model, depth):
    """Gives the sequence `depth` positions or up to 511 more for a prompt of 512: its cells are copied to a second sequence, move behind
    those of the first, and join them."""
    part = min(depth, 512)
    model.decode(model.ids(part))
    context, memory = model.context, ll.llama_get_memory(model.context)
    size = ll.llama_state_seq_get_size(context, 0)
    state = (ctypes.c_uint8 * size)()
    ll.llama_state_seq_get_data(context, state, size, 0)
    for first in range(part, depth, part):
        if not ll.llama_state_seq_set_data(context, state, size, 1):
            sys.exit("llama.cpp cannot copy the cells of a sequence")
        ll.llama_memory_seq_add(memory, 1, -1, -1, first)
        ll.llama_memory_seq_cp(memory, 1, 0, -1, -1)
        ll.llama_memory_seq_rm(memory, 1, -1, -1)


def depth(file, kv, filled, prompt, count, threads):
    """Runs a prompt, then tokens one by one, behind `filled` positions."""
    model = Model(file, filled + 512 + prompt + count, threads, n_seq_max=2, kv_unified=True, flash_attn_type=FLASH_ATTN_ENABLED,
                  type_k=KV_TYPES[kv], type_v=KV_TYPES[kv])
    fill(model, filled)
    memory = ll.llama_get_memory(model.context)
    found = speeds(model, prompt, count, lambda: ll.llama_memory_seq_rm(memory, 0, filled, -1))
    if ll.llama_memory_seq_pos_max(memory, 0) != filled + prompt + count - 1:
        sys.exit("llama.cpp has another number of positions")
    print(found)


def first(file, prompt, threads):
    start = time.perf_counter()
    model = Model(file, 512, threads)
    model.decode(model.ids(prompt))
    model.best()
    print(json.dumps({"seconds": time.perf_counter() - start}))


def main():
    command, *arguments = sys.argv[1:]
    ll.llama_log_set(be_quiet, None)
    ll.llama_backend_init()
    if command == "convert":
        convert(pathlib.Path(arguments[0]), arguments[1])
    elif command == "quantize":
        quantize(*arguments)
    elif command == "bench":
        bench(arguments[0], *map(int, arguments[1:]))
    elif command == "depth":
        depth(*arguments[:2], *map(int, arguments[2:]))
    elif command == "first":
        first(arguments[0], *map(int, arguments[1:]))
    elif command == "system":
        print(ll.llama_print_system_info().decode().strip())


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""ik_llama.cpp and llama.cpp for bench/quality.py and bench/front.py, which run this script in an environment with gguf and with
ik-llama-cpp-python, llama-cpp-python or both.

  peer_quality.py convert FOLDER OUT.gguf                   a folder of a Qwen2 or Qwen3, in f32
  peer_quality.py importance FOLDER IDS.npy OUT             mean squares of the inputs of each product, as llama-imatrix writes them
  peer_quality.py quantize PROGRAM IN.gguf OUT.gguf TYPE [MATRIX]
                                                            all matrices in TYPE, or its mixture where TYPE ends with "-mix"
  peer_quality.py reference PROGRAM GGUF IDS.npy OUT.npy    log-probabilities behind the second half of each window, f16 would lose bits: f32
  peer_quality.py compare PROGRAM REFERENCE.npy GGUF IDS.npy
                                                            one JSON object: KL, top-1 agreement, perplexities, types of the matrices

PROGRAM is ik_llama.cpp or llama.cpp. IDS.npy has a window of token ids in each row. The mean squares come from NumPy, so they
need no program of llama.cpp.
"""
import collections
import ctypes
import json
import pathlib
import struct
import subprocess
import sys

import numpy as np

from gguf_sizes import add_sizes
from gguf_tokenizer import add_tokenizer
from make_checkpoint import read_header


def read_safetensors(file):
    """Tensors of F32 or BF16 by their names, in f32."""
    header, data = read_header(file)

    def values(tensor):
        is_f32 = tensor["dtype"] == "F32"
        numbers = np.fromfile(file, np.float32 if is_f32 else np.uint16, np.prod(tensor["shape"]), offset=data + tensor["data_offsets"][0])
        return (numbers if is_f32 else (numbers.astype(np.uint32) << 16).view(np.float32)).reshape(tensor["shape"])
    return {name: values(tensor) for name, tensor in header.items()}


def convert(folder, out):
    import gguf
    config = json.loads((folder / "config.json").read_text())
    arch = {"qwen2": gguf.MODEL_ARCH.QWEN2, "qwen3": gguf.MODEL_ARCH.QWEN3}[config["model_type"]]
    writer = gguf.GGUFWriter(out, gguf.MODEL_ARCH_NAMES[arch])
    add_sizes(writer, config)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    if "head_dim" in config:
        writer.add_key_length(config["head_dim"])
        writer.add_value_length(config["head_dim"])
    add_tokenizer(writer, folder, config)
    names = gguf.get_tensor_name_map(arch, config["num_hidden_layers"])
    for name, values in read_safetensors(folder / "model.safetensors").items():
        writer.add_tensor(names.get_name(name, try_suffixes=(".weight", ".bias")), values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class Qwen:
    """A Qwen2 or Qwen3 in NumPy. `squares` has the sums of squares of the inputs of each product, by the name of llama.cpp."""

    def __init__(self, folder):
        self.config = json.loads((folder / "config.json").read_text())
        self.weights = read_safetensors(folder / "model.safetensors")
        self.squares, self.tokens = collections.defaultdict(float), 0

    def linear(self, x, module, *names):
        for name in names:
            self.squares[name] += np.square(x, dtype=np.float64).sum(0)
        y = x @ self.weights[f"{module}.weight"].T
        return y + self.weights.get(f"{module}.bias", 0)

    def norm(self, x, name):
        return x / np.sqrt(np.square(x).mean(-1, keepdims=True) + self.config["rms_norm_eps"]) * self.weights[f"{name}.weight"]

    def attention(self, x, layer, cos, sin):
        heads, groups = self.config["num_attention_heads"], self.config["num_key_value_heads"]
        module = f"model.layers.{layer}.self_attn"
        q, k, v = (self.linear(x, f"{module}.{kind}_proj", f"blk.{layer}.attn_{kind}.weight").reshape(len(x), n, -1).swapaxes(0, 1)
                   for kind, n in (("q", heads), ("k", groups), ("v", groups)))
        if f"{module}.q_norm.weight" in self.weights:
            q, k = self.norm(q, f"{module}.q_norm"), self.norm(k, f"{module}.k_norm")

        def rotated(y):
            a, b = np.split(y, 2, -1)
            return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)
        k, v = np.repeat(rotated(k), heads // groups, 0), np.repeat(v, heads // groups, 0)
        # A number of Python, unlike one of NumPy, leaves the rows in f32.
        scores = rotated(q) @ k.swapaxes(1, 2) / q.shape[-1] ** 0.5
        scores += np.triu(np.full((len(x), len(x)), -np.inf, np.float32), 1)
        p = np.exp(scores - scores.max(-1, keepdims=True))
        o = (p / p.sum(-1, keepdims=True)) @ v
        return self.linear(o.swapaxes(0, 1).reshape(len(x), -1), f"{module}.o_proj", f"blk.{layer}.attn_output.weight")

    def run(self, ids):
        size = self.config.get("head_dim", self.config["hidden_size"] // self.config["num_attention_heads"])
        angles = np.outer(np.arange(len(ids)), self.config["rope_theta"] ** (-np.arange(0, size, 2) / size)).astype(np.float32)
        x = self.weights["model.embed_tokens.weight"][ids]
        for layer in range(self.config["num_hidden_layers"]):
            prefix, block = f"model.layers.{layer}", f"blk.{layer}"
            x = x + self.attention(self.norm(x, f"{prefix}.input_layernorm"), layer, np.cos(angles), np.sin(angles))
            normed = self.norm(x, f"{prefix}.post_attention_layernorm")
            gate = self.linear(normed, f"{prefix}.mlp.gate_proj", f"{block}.ffn_gate.weight")
            up = self.linear(normed, f"{prefix}.mlp.up_proj", f"{block}.ffn_up.weight")
            x = x + self.linear(gate / (1 + np.exp(-gate)) * up, f"{prefix}.mlp.down_proj", f"{block}.ffn_down.weight")
        self.tokens += len(ids)


def importance(folder, ids, out):
    model, windows = Qwen(folder), np.load(ids)
    for window in windows:
        model.run(window)
    with open(out, "wb") as file:
        file.write(struct.pack("<i", len(model.squares)))
        for name, sums in model.squares.items():
            # The reader divides the values by the number of calls.
            values = (sums / model.tokens * len(windows)).astype("<f4")
            file.write(struct.pack(f"<i{len(name)}sii", len(name), name.encode(), len(windows), len(values)) + values.tobytes())


def read_importance(file):
    """The mean squares by the name of the matrix."""
    data = pathlib.Path(file).read_bytes()
    count, at = struct.unpack_from("<i", data)[0], 4
    squares = {}
    for _ in range(count):
        length, = struct.unpack_from("<i", data, at)
        name = data[at + 4:at + 4 + length]
        calls, size = struct.unpack_from("<ii", data, at + 4 + length)
        at += 12 + length
        squares[name] = np.frombuffer(data, "<f4", size, at) / np.float32(calls)
        at += 4 * size
    return squares


class IkLlamaCpp:
    def __init__(self):
        from ik_llama_cpp import _ctypes_api
        self.api = _ctypes_api

    def quantize(self, source, out, kind, is_mixture, matrix):
        import ik_llama_cpp
        tool = pathlib.Path(ik_llama_cpp.__file__).parent / "bin/llama-quantize"
        pure = [] if is_mixture else ["--pure", "--token-embedding-type", kind.lower()]
        importance = ["--imatrix", matrix] if matrix else []
        subprocess.run([tool, *importance, *pure, source, out, kind, "2"], check=True, stdout=sys.stderr)

    def clear(self, context):
        self.api.llama_kv_cache_clear(context)


class LlamaCpp:
    def __init__(self):
        import llama_cpp
        self.api = llama_cpp

    def quantize(self, source, out, kind, is_mixture, matrix):
        params = self.api.llama_model_quantize_default_params()
        params.ftype = getattr(self.api, f"LLAMA_FTYPE_MOSTLY_{kind}")
        params.nthread = 2
        if not is_mixture:
            params.pure = True
            params.token_embedding_type = params.output_tensor_type = getattr(self.api, f"GGML_TYPE_{kind}")
        if matrix:
            # The entry without a name ends the list.
            rows = [*read_importance(matrix).items(), (None, np.zeros(0, np.float32))]
            params.imatrix = (self.api.llama_model_imatrix_data * len(rows))(
                *((name, values.ctypes.data_as(ctypes.POINTER(ctypes.c_float)), len(values)) for name, values in rows))
        if self.api.llama_model_quantize(source.encode(), out.encode(), ctypes.byref(params)):
            sys.exit(f"llama.cpp cannot quantize {source} to {kind}")

    def clear(self, context):
        self.api.llama_memory_clear(self.api.llama_get_memory(context), False)


PROGRAMS = {"ik_llama.cpp": IkLlamaCpp, "llama.cpp": LlamaCpp}


def quantize(program, source, out, kind, matrix=None):
    PROGRAMS[program]().quantize(source, out, kind.removesuffix("-mix"), kind.endswith("-mix"), matrix)


def log_probabilities(program, file, ids):
    """Yields, for each window, its ids and those behind its second half but the last token."""
    own = PROGRAMS[program]()
    ll = own.api
    ll.llama_backend_init()
    model = ll.llama_model_load_from_file(str(file).encode(), ll.llama_model_default_params())
    if not model:
        sys.exit(f"{program} cannot load {file}")
    options = ll.llama_context_default_params()
    options.n_ctx = options.n_batch = options.n_ubatch = ids.shape[1]
    options.n_threads = options.n_threads_batch = 2
    context = ll.llama_init_from_model(model, options)
    count = ll.llama_vocab_n_tokens(ll.llama_model_get_vocab(model))
    batch = ll.llama_batch_init(ids.shape[1], 0, 1)
    for window in ids:
        own.clear(context)
        batch.n_tokens = len(window)
        for i, token in enumerate(window):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0] = int(token), i, 1, 0
            batch.logits[i] = i >= len(window) // 2
        if ll.llama_decode(context, batch):
            sys.exit(f"{program} cannot run {file}")
        rows = [np.ctypeslib.as_array(ctypes.cast(ll.llama_get_logits_ith(context, i), ctypes.POINTER(ctypes.c_float)), (count,))
                for i in range(len(window) // 2, len(window) - 1)]
        logits = np.array(rows, np.float64)
        logits -= logits.max(1, keepdims=True)
        yield window, logits - np.log(np.exp(logits).sum(1, keepdims=True))


def reference(program, file, ids, out):
    np.save(out, np.array([p for _, p in log_probabilities(program, file, np.load(ids))], np.float32))


def compare(program, reference_file, file, ids):
    import gguf
    divergences, agreements, losses = [], [], [[], []]
    for p, (window, q) in zip(np.load(reference_file, mmap_mode="r"), log_probabilities(program, file, np.load(ids))):
        p = p.astype(np.float64)
        divergences.extend((np.exp(p) * (p - q)).sum(1))
        agreements.extend(p.argmax(1) == q.argmax(1))
        targets = window[len(window) // 2 + 1:]
        for loss, x in zip(losses, (p, q)):
            loss.extend(-x[np.arange(len(targets)), targets])
    types = collections.Counter(t.tensor_type.name if hasattr(t.tensor_type, "name") else str(t.tensor_type)
                                for t in gguf_tensors(file, gguf) if len(t.shape) > 1)
    print(json.dumps({"kl": np.mean(divergences), "top1": np.mean(agreements), "perplexities": [np.exp(np.mean(x)) for x in losses],
                      "bytes": pathlib.Path(file).stat().st_size, "types": dict(types)}))


def gguf_tensors(file, gguf):
    """Types that only ik_llama.cpp has are unknown to the package."""
    try:
        return gguf.GGUFReader(file).tensors
    except (KeyError, ValueError):
        return []


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    paths = [pathlib.Path(a) if pathlib.Path(a).is_dir() else a for a in arguments]
    {"convert": convert, "importance": importance, "quantize": quantize, "reference": reference, "compare": compare}[command](*paths)

#!/usr/bin/env python3
"""Makes a checkpoint with random weights and the shapes of a published model.

  .venv/bin/python bench/make_checkpoint.py qwen2.5-0.5b OUT [--tokenizer DIR] [--seed N] [--layers N] [--mtp] [--zeros]

Weights are bf16, drawn so that activations stay of order 1. Tensors have the names of the published checkpoints. If one file
would exceed 2 GB, there are shards of at most 2 GB and an index. --tokenizer copies vocab.json, merges.txt and the
tokenizer's configs. --zeros makes sparse files of zeros, which take no disk space. Needs only NumPy, and memory for less than
two tensors.
"""
import argparse
import json
import pathlib
import shutil

import numpy as np

# hidden, layers, heads, KV heads, head_dim, ffn, vocabulary, tied (the models' config.json); of hybrids also key heads,
# their values, value heads and their values, or None; with experts their number, those of a token and their width. A hybrid with
# experts has a shared one, as wide as its ffn.
SHAPES = {
    "qwen2.5-0.5b": ("qwen2", 896, 24, 14, 2, 64, 4864, 151936, True),
    "qwen2.5-1.5b": ("qwen2", 1536, 28, 12, 2, 128, 8960, 151936, True),
    "qwen2.5-7b": ("qwen2", 3584, 28, 28, 4, 128, 18944, 152064, False),
    "qwen3-0.6b": ("qwen3", 1024, 28, 16, 8, 128, 3072, 151936, True),
    "qwen3-4b": ("qwen3", 2560, 36, 32, 8, 128, 9728, 151936, True),
    "qwen3.5-0.8b": ("qwen3_5", 1024, 24, 8, 2, 256, 3584, 248320, True, (16, 128, 16, 128)),
    "qwen3.5-4b": ("qwen3_5", 2560, 32, 16, 4, 256, 9216, 248320, True, (16, 128, 32, 128)),
    "qwen3-30b-a3b": ("qwen3_moe", 2048, 48, 32, 4, 128, 6144, 151936, False, None, (128, 8, 768)),
    "qwen3.5-35b-a3b": ("qwen3_5_moe", 2048, 40, 16, 2, 256, 512, 248320, False, (16, 128, 32, 128), (256, 8, 512)),
}
SHARD_BYTES = 2_000_000_000


def is_linear(layer, linear):
    """Whether a layer of a hybrid has linear attention."""
    return linear is not None and layer % 4 != 3


def layer_tensors(p, has_linear, kind, hidden, heads, kv_heads, head_dim, ffn, linear, experts):
    """Names and shapes of the tensors of a layer, whose names begin with `p`."""
    yield p + "input_layernorm.weight", (hidden,)
    if has_linear:
        yield from linear_attention(p + "linear_attn.", hidden, *linear)
    else:
        for name, rows in (("q", heads * (1 if linear is None else 2)), ("k", kv_heads), ("v", kv_heads)):
            yield p + f"self_attn.{name}_proj.weight", (rows * head_dim, hidden)
            if kind == "qwen2":
                yield p + f"self_attn.{name}_proj.bias", (rows * head_dim,)
            elif name != "v":
                yield p + f"self_attn.{name}_norm.weight", (head_dim,)
        yield p + "self_attn.o_proj.weight", (hidden, heads * head_dim)
    yield p + "post_attention_layernorm.weight", (hidden,)
    mlps = [("mlp.", ffn)]
    if experts:
        yield p + "mlp.gate.weight", (experts[0], hidden)
        mlps = [("mlp.shared_expert.", ffn)] if linear else [(f"mlp.experts.{e}.", experts[2]) for e in range(experts[0])]
    if experts and linear:
        yield p + "mlp.experts.gate_up_proj", (experts[0], 2 * experts[2], hidden)
        yield p + "mlp.experts.down_proj", (experts[0], hidden, experts[2])
        yield p + "mlp.shared_expert_gate.weight", (1, hidden)
    for mlp, width in mlps:
        yield p + mlp + "gate_proj.weight", (width, hidden)
        yield p + mlp + "up_proj.weight", (width, hidden)
        yield p + mlp + "down_proj.weight", (hidden, width)


def tensors(kind, hidden, layers, heads, kv_heads, head_dim, ffn, vocab, tied, linear=None, experts=None, mtp=False):
    """Names and shapes of the tensors, in the order of the files."""
    of = (kind, hidden, heads, kv_heads, head_dim, ffn, linear, experts)
    yield "model.embed_tokens.weight", (vocab, hidden)
    for i in range(layers):
        yield from layer_tensors(f"model.layers.{i}.", is_linear(i, linear), *of)
    if mtp:
        yield "mtp.fc.weight", (hidden, 2 * hidden)
        for name in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"):
            yield f"mtp.{name}.weight", (hidden,)
        yield from layer_tensors("mtp.layers.0.", False, *of)
    yield "model.norm.weight", (hidden,)
    if not tied:
        yield "lm_head.weight", (vocab, hidden)


def linear_attention(p, hidden, key_heads, key_dim, value_heads, value_dim):
    channels = 2 * key_heads * key_dim + value_heads * value_dim
    yield p + "in_proj_qkv.weight", (channels, hidden)
    yield p + "in_proj_z.weight", (value_heads * value_dim, hidden)
    yield p + "in_proj_a.weight", (value_heads, hidden)
    yield p + "in_proj_b.weight", (value_heads, hidden)
    yield p + "conv1d.weight", (channels, 1, 4)
    yield p + "A_log", (value_heads,)
    yield p + "dt_bias", (value_heads,)
    yield p + "norm.weight", (value_dim,)
    yield p + "out_proj.weight", (hidden, value_heads * value_dim)


def values(name, shape, rng):
    """Random bf16 bits."""
    x = rng.standard_normal(shape, dtype=np.float32)
    if "norm" in name:
        x = 1 + 0.1 * x
    elif name.endswith("bias"):
        x *= 0.1
    else:
        x *= 0.02 if "embed" in name or "lm_head" in name else shape[-1] ** -0.5
    bits = x.view(np.uint32)
    bits += 0x7FFF + (bits >> 16 & 1)
    return (bits >> 16).astype(np.uint16)


def read_header(file):
    """The tensors of a safetensors file by name, and the place of the first byte of their data."""
    with open(file, "rb") as f:
        size = int.from_bytes(f.read(8), "little")
        header = json.loads(f.read(size))
    header.pop("__metadata__", None)
    return header, 8 + size


def write_header(out, tensors, metadata=None):
    """The header of a safetensors file. `tensors` are names, dtypes, shapes and sizes in bytes, in the order of the data.
    Returns the bytes of all data."""
    header, offset = {"__metadata__": metadata} if metadata else {}, 0
    for name, dtype, shape, bytes_ in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + bytes_]}
        offset += bytes_
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    out.write(len(text).to_bytes(8, "little") + text)
    return offset


ARCHITECTURES = {"qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM", "qwen3_5": "Qwen3_5ForCausalLM",
                 "qwen3_moe": "Qwen3MoeForCausalLM", "qwen3_5_moe": "Qwen3_5MoeForCausalLM"}


def config(kind, hidden, layers, heads, kv_heads, head_dim, ffn, vocab, tied, linear=None, experts=None):
    result = {
        "architectures": [ARCHITECTURES[kind]],
        "model_type": kind, "hidden_act": "silu", "hidden_size": hidden, "intermediate_size": ffn,
        "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv_heads,
        "max_position_embeddings": 32768 if kind == "qwen2" else 40960, "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0, "rope_scaling": None, "sliding_window": None, "use_sliding_window": False,
        "tie_word_embeddings": tied, "torch_dtype": "bfloat16", "vocab_size": vocab,
        "bos_token_id": 151643, "eos_token_id": 151645,
    }
    if kind != "qwen2":
        result.update(head_dim=head_dim, attention_bias=False)
    if linear is not None:
        keys = ("linear_num_key_heads", "linear_key_head_dim", "linear_num_value_heads", "linear_value_head_dim")
        types = ["linear_attention" if is_linear(i, linear) else "full_attention" for i in range(layers)]
        result.update(zip(keys, linear), model_type=f"{kind}_text", layer_types=types, linear_conv_kernel_dim=4,
                      partial_rotary_factor=0.25, rope_theta=10000000.0, max_position_embeddings=262144)
    if experts is not None:
        result.update(zip(("num_experts", "num_experts_per_tok", "moe_intermediate_size"), experts), norm_topk_prob=True)
    if linear is not None and experts is not None:
        result["shared_expert_intermediate_size"] = ffn
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=sorted(SHAPES))
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--tokenizer", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--layers", type=int, help="fewer layers than the model has")
    parser.add_argument("--mtp", action="store_true", help="with a draft head")
    parser.add_argument("--zeros", action="store_true", help="all weights are zeros")
    args = parser.parse_args()

    shape = list(SHAPES[args.model])
    if args.layers:
        shape[2] = args.layers
    args.out.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(args.seed)

    shards, size = [[]], 0
    for name, dims in tensors(*shape, mtp=args.mtp):
        bytes_ = 2 * int(np.prod(dims))
        if shards[-1] and size + bytes_ > SHARD_BYTES:
            shards.append([])
            size = 0
        shards[-1].append((name, dims, bytes_))
        size += bytes_

    index = {}
    for number, shard in enumerate(shards, 1):
        file = "model.safetensors" if len(shards) == 1 else f"model-{number:05}-of-{len(shards):05}.safetensors"
        index.update((name, file) for name, _, _ in shard)
        with open(args.out / file, "wb") as out:
            size = write_header(out, [(name, "BF16", dims, bytes_) for name, dims, bytes_ in shard])
            if args.zeros:
                out.truncate(out.tell() + size)
                continue
            for name, dims, _ in shard:
                values(name, dims, rng).tofile(out)
    if len(shards) > 1:
        total = sum(bytes_ for shard in shards for _, _, bytes_ in shard)
        (args.out / "model.safetensors.index.json").write_text(
            json.dumps({"metadata": {"total_size": total}, "weight_map": index}))

    (args.out / "config.json").write_text(json.dumps(config(*shape), indent=2))
    (args.out / "generation_config.json").write_text(json.dumps({
        "do_sample": True, "temperature": 0.7, "top_p": 0.8, "top_k": 20, "repetition_penalty": 1.1,
        "bos_token_id": 151643, "pad_token_id": 151643, "eos_token_id": [151645, 151643]}))
    if args.tokenizer:
        for name in ("vocab.json", "merges.txt", "tokenizer_config.json", "added_tokens.json", "special_tokens_map.json"):
            if (args.tokenizer / name).exists():
                shutil.copy(args.tokenizer / name, args.out / name)


if __name__ == "__main__":
    main()

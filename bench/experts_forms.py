#!/usr/bin/env python3
"""Compares the speed of experts in the forms of other libraries with the same integers from a GGUF file, in alternating runs.

  .venv/bin/python bench/experts_forms.py WORKDIR [--layers N] [--experts N] [--rounds N] [--threads N] [--prepare]

Writes folders and GGUF files of random integers, with experts of Qwen3-30B-A3B's width, a small attention and a small vocabulary,
and compiles them. Compares the logits of both files of a format bit for bit. Prints a row of a table for each form: the format, and
in tokens/s the best prefill (512 tokens) of the folder and of the GGUF file, and the best decode (64 tokens) of both. --prepare only
writes and compiles.
"""
import argparse
import json
import pathlib
import shutil
import sys

import gguf
import numpy as np

from make_checkpoint import values, write_header
from peers import Ours, output

TYPES = gguf.GGMLQuantizationType
HIDDEN, WIDTH, HEADS, HEAD, VOCAB, ACTIVE = 2048, 768, 4, 128, 1024, 8
PARTS = {"gate": (WIDTH, HIDDEN), "up": (WIDTH, HIDDEN), "down": (HIDDEN, WIDTH)}


def nibbles(codes):
    """Blocks of 32 codes of 4 bits in the order of ggml: value i beside value i + 16."""
    low, high = np.split(codes.reshape(*codes.shape[:-1], -1, 32), 2, axis=-1)
    return low | high << 4


def pairs(codes):
    """Two codes of 4 bits a byte, in their order."""
    return codes[..., ::2] | codes[..., 1::2] << 4


def scale_of(codes, group, value, dtype):
    return np.full((*codes.shape[:-1], codes.shape[-1] // group), value, dtype)


def block_bytes(value, *shape):
    """An f16 in each block."""
    return np.broadcast_to(np.array([value], np.float16).view(np.uint8), (*shape, 2))


def ggml_blocks(kind, codes, scale):
    blocks = (*codes.shape[:-1], codes.shape[-1] // 32)
    if kind == TYPES.Q8_0:
        data = codes.view(np.uint8).reshape(*blocks, 32)
    else:
        data = nibbles(codes)
    head = {TYPES.Q8_0: [block_bytes(scale, *blocks)], TYPES.Q4_0: [block_bytes(scale, *blocks)],
            TYPES.Q4_1: [block_bytes(scale, *blocks), block_bytes(-7.5 * scale, *blocks)],
            TYPES.MXFP4: [np.full((*blocks, 1), 127 + round(np.log2(scale)), np.uint8)]}[kind]
    return np.concatenate([*head, data], -1).reshape(*codes.shape[:-1], -1)


def compressed(codes, scale, group, has_zeros=False):
    tensors = {"weight_packed": ("I32", pairs(codes).view(np.int32)), "weight_scale": ("F16", scale_of(codes, group, scale, np.float16)),
               "weight_shape": ("I64", np.array(codes.shape, np.int64))}
    if has_zeros:
        tensors["weight_zero_point"] = ("I32", np.full((codes.shape[0] // 8, codes.shape[1] // group), 0x77777777, np.int32))
    return tensors


def integers(codes, scale, _):
    return {"weight": ("I8", codes), "weight_scale": ("F16", np.full((codes.shape[0], 1), scale, np.float16))}


def microscaled(codes, scale, _):
    return {"weight_packed": ("U8", pairs(codes)), "weight_scale": ("U8", scale_of(codes, 32, 127 + round(np.log2(scale)), np.uint8))}


def mlx(codes, scale, group):
    return {"weight": ("U32", pairs(codes).view(np.uint32)), "scales": ("F16", scale_of(codes, group, scale, np.float16)),
            "biases": ("F16", scale_of(codes, group, -7.5 * scale, np.float16))}


def asymmetric(codes, scale, group):
    return compressed(codes, scale, group, has_zeros=True)


def scheme(format_, strategy, bits, **more):
    return {"quant_method": "compressed-tensors", "format": format_, "config_groups": {"group_0": {
        "targets": ["Linear"], "weights": {"num_bits": bits, "type": "int", "symmetric": True, "strategy": strategy} | more}}}


# For each form: its format, the type of ggml with the same integers if there is one, the scale, the columns that share one, what makes
# its tensors, and the configuration.
FORMS = {
    "compressed-tensors w4a16, 32": ("q4_0", TYPES.Q4_0, 2**-8, 32, compressed, scheme("pack-quantized", "group", 4, group_size=32)),
    "compressed-tensors w4a16, 128": ("q4_g128", None, 2**-8, 128, compressed, scheme("pack-quantized", "group", 4, group_size=128)),
    "compressed-tensors w4a16 asymmetric, 128": ("q4_z_128", None, 2**-8, 128, asymmetric,
                                                 scheme("pack-quantized", "group", 4, group_size=128, symmetric=False)),
    "MLX 4 bits, 32": ("q4_m_32", TYPES.Q4_1, 2**-8, 32, mlx, {"bits": 4, "group_size": 32}),
    "MLX 4 bits, 64": ("q4_m_64", None, 2**-8, 64, mlx, {"bits": 4, "group_size": 64}),
    "compressed-tensors MXFP4": ("fp4", TYPES.MXFP4, 2**-8, 32, microscaled, scheme("mxfp4-pack-quantized", "group", 4, group_size=32, type="float")),
    "compressed-tensors int8": ("q8_0", TYPES.Q8_0, 2**-12, 0, integers, scheme("int-quantized", "channel", 8)),
}


def codes_of(rng, format_, shape):
    """Random codes around a mean of 0: else all tokens get one direction in common, and choose the same experts."""
    if format_ == "q8_0":
        return rng.integers(-127, 128, shape, np.int8)
    # The zero point is 8 without one in the file, and 7 with one.
    first, last = {"q4_0": (1, 15), "q4_g128": (1, 15), "q4_z_128": (0, 14)}.get(format_, (0, 15))
    return rng.integers(first, last + 1, shape, np.uint8)


def dense_tensors(layers, experts):
    """Names in both files, and the bits of bf16."""
    rng = np.random.default_rng(1)
    shapes = {("model.embed_tokens", "token_embd"): (VOCAB, HIDDEN), ("model.norm", "output_norm"): (HIDDEN,)}
    for layer in range(layers):
        for name, own, shape in (("input_layernorm", "attn_norm", (HIDDEN,)), ("post_attention_layernorm", "ffn_norm", (HIDDEN,)),
                                 ("self_attn.q_proj", "attn_q", (HEADS * HEAD, HIDDEN)), ("self_attn.k_proj", "attn_k", (HEAD, HIDDEN)),
                                 ("self_attn.v_proj", "attn_v", (HEAD, HIDDEN)), ("self_attn.o_proj", "attn_output", (HIDDEN, HEADS * HEAD)),
                                 ("self_attn.q_norm", "attn_q_norm", (HEAD,)), ("self_attn.k_norm", "attn_k_norm", (HEAD,)),
                                 ("mlp.gate", "ffn_gate_inp", (experts, HIDDEN))):
            shapes[f"model.layers.{layer}.{name}", f"blk.{layer}.{own}"] = shape
    return {names: values(names[0], shape, rng) for names, shape in shapes.items()}


def matrices(args, format_):
    """The codes of all experts, a matrix of each layer at a time."""
    rng = np.random.default_rng(2)
    for layer in range(args.layers):
        for part, shape in PARTS.items():
            yield layer, part, codes_of(rng, format_, (args.experts, *shape))


def write_folder(folder, args, form):
    format_, _, scale, group, tensors_of, quantization = FORMS[form]
    is_mlx = tensors_of is mlx
    all_ = {f"{names[0]}.weight": ("BF16", bits) for names, bits in dense_tensors(args.layers, args.experts).items()}
    for layer, part, codes in matrices(args, format_):
        path = f"model.layers.{layer}.mlp."
        if is_mlx:
            all_ |= {f"{path}switch_mlp.{part}_proj.{kind}": tensor for kind, tensor in mlx(codes, scale, group).items()}
        else:
            for i, matrix in enumerate(codes):
                all_ |= {f"{path}experts.{i}.{part}_proj.{kind}": tensor for kind, tensor in tensors_of(matrix, scale, group).items()}
    folder.mkdir()
    with open(folder / "model.safetensors", "wb") as file:
        write_header(file, [(name, dtype, data.shape, data.nbytes) for name, (dtype, data) in all_.items()])
        for _, data in all_.values():
            data.tofile(file)
    config = {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_act": "silu", "hidden_size": HIDDEN,
              "intermediate_size": WIDTH, "num_hidden_layers": args.layers, "num_attention_heads": HEADS, "num_key_value_heads": 1,
              "head_dim": HEAD, "attention_bias": False, "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
              "tie_word_embeddings": True, "vocab_size": VOCAB, "num_experts": args.experts, "num_experts_per_tok": ACTIVE,
              "moe_intermediate_size": WIDTH, "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [], "bos_token_id": 0,
              "eos_token_id": 1, "quantization" if is_mlx else "quantization_config": quantization}
    (folder / "config.json").write_text(json.dumps(config))


def write_file(path, args, form):
    format_, kind, scale = FORMS[form][:3]
    writer = gguf.GGUFWriter(path, "qwen3moe")
    writer.add_type("model")
    writer.add_tokenizer_model("no_vocab")
    keys = {"block_count": args.layers, "context_length": 4096, "embedding_length": HIDDEN, "attention.head_count": HEADS,
            "attention.head_count_kv": 1, "attention.key_length": HEAD, "attention.value_length": HEAD, "rope.freq_base": 1e6,
            "attention.layer_norm_rms_epsilon": 1e-6, "expert_count": args.experts, "expert_used_count": ACTIVE,
            "expert_feed_forward_length": WIDTH, "vocab_size": VOCAB}
    for key, value in keys.items():
        add = writer.add_float32 if isinstance(value, float) else writer.add_uint32
        add(f"qwen3moe.{key}", value)
    for names, bits in dense_tensors(args.layers, args.experts).items():
        if bits.ndim == 1:
            writer.add_tensor(names[1] + ".weight", (bits.astype(np.uint32) << 16).view(np.float32))
        else:
            writer.add_tensor(names[1] + ".weight", bits.view(np.uint8), raw_dtype=TYPES.BF16)
    for layer, part, codes in matrices(args, format_):
        writer.add_tensor(f"blk.{layer}.ffn_{part}_exps.weight", ggml_blocks(kind, codes, scale), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def prepare(args):
    """Compiled models by form and source. Both of a form have the same logits."""
    programs = {}
    for form, (format_, kind, *_) in FORMS.items():
        for source, write in (("folder", write_folder), ("gguf", write_file)):
            if source == "gguf" and kind is None:
                continue
            path = args.workdir / f"{format_}.{source}"
            program = Ours(path.with_suffix(f".{source}.qwen"), args.threads)
            if not program.file.exists():
                write(path, args, form)
                program.compile(path, "--rotate", "off")
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()
            programs[form, source] = program
        if kind is not None:
            logits = []
            for source in ("folder", "gguf"):
                file = args.workdir / "logits.npy"
                output(program.bin / "qwen-run", "logits", programs[form, source].file, "--ids", "1,2,3,4,5,6,7,8", "-o", file)
                logits.append(np.load(file))
            print(f"{form}: {'the bits of' if np.array_equal(*logits) else 'OTHER BITS THAN'} {kind.name} from GGUF", file=sys.stderr)
    return programs


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workdir", type=pathlib.Path)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--experts", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prepare", action="store_true")
    args = parser.parse_args()
    args.workdir.mkdir(parents=True, exist_ok=True)
    programs = prepare(args)
    if args.prepare:
        return
    rounds = [{key: program.bench() for key, program in programs.items()} for _ in range(args.rounds)]

    def best(form, source, kind):
        return f"{max(each[form, source][kind] for each in rounds):.0f}" if (form, source) in programs else "-"

    for form, (format_, *_) in FORMS.items():
        cells = [best(form, source, kind) for kind in ("prefill", "decode") for source in ("folder", "gguf")]
        print(f"| {form} | `{format_}` | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()

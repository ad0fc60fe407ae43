"""Writes GGUF files of random integers with the shapes of published models with experts, and of dense models of what a token uses of them.

Both qwen-opt and ik_llama.cpp read them, so that both programs have the same integers. A file is written tensor by tensor.
"""
import gguf
import numpy as np

TYPES = gguf.GGMLQuantizationType

HIDDEN = 2048
COMMON = {"embedding_length": HIDDEN, "context_length": 32768, "attention.layer_norm_rms_epsilon": 1e-6}
MODEL_30B = COMMON | {"vocab_size": 151936, "attention.head_count": 32, "attention.head_count_kv": 4, "attention.key_length": 128,
                      "attention.value_length": 128, "rope.freq_base": 1e6}
MODEL_35B = COMMON | {"vocab_size": 248320, "attention.head_count": 16, "attention.head_count_kv": 2, "attention.key_length": 256,
                      "attention.value_length": 256, "rope.freq_base": 1e7, "rope.dimension_count": 64,
                      "rope.dimension_sections": [11, 11, 10, 0], "ssm.conv_kernel": 4, "ssm.state_size": 128, "ssm.group_count": 16,
                      "ssm.time_step_rank": 32, "ssm.inner_size": 4096, "full_attention_interval": 4}
# Architecture and keys. The MLP of a dense model is as wide as the experts of a token.
MODELS = {
    "30b-a3b": ("qwen3moe", MODEL_30B | {"expert_count": 128, "expert_used_count": 8, "expert_feed_forward_length": 768}),
    "30b-a3b-dense": ("qwen3", MODEL_30B | {"feed_forward_length": 8 * 768}),
    "35b-a3b": ("qwen35moe", MODEL_35B | {"expert_count": 256, "expert_used_count": 8, "expert_feed_forward_length": 512,
                                          "expert_shared_feed_forward_length": 512}),
    "35b-a3b-dense": ("qwen35", MODEL_35B | {"feed_forward_length": 9 * 512}),
}
# For each type, the place of each scale in a block, and the standard deviation of the random integers that it multiplies.
SCALES = {TYPES.Q4_0: {0: 4.6}, TYPES.Q4_K: {0: 300, 2: 40}, TYPES.Q6_K: {208: 1400}}


def has_more_bits(layer, layers):
    """Whether llama.cpp gives a layer more bits in Q4_K_M."""
    return layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2


def mixture(weights, layers):
    """The type of a matrix by its name."""
    def kind(name):
        if weights == "q4_0":
            return TYPES.Q4_0
        if name in ("token_embd", "output"):
            return TYPES.Q6_K
        _, layer, member = name.split(".")
        return TYPES.Q6_K if member in ("attn_v", "ffn_down", "ffn_down_exps") and has_more_bits(int(layer), layers) else TYPES.Q4_K
    return kind


def attention(keys, is_hybrid):
    heads, kv_heads, size = (keys["attention." + key] for key in ("head_count", "head_count_kv", "key_length"))
    return {"attn_q": (heads * size * (2 if is_hybrid else 1), HIDDEN), "attn_k": (kv_heads * size, HIDDEN), "attn_v": (kv_heads * size, HIDDEN),
            "attn_q_norm": (size,), "attn_k_norm": (size,), "attn_output": (HIDDEN, heads * size)}


def linear_attention(keys):
    inner, heads = keys["ssm.inner_size"], keys["ssm.time_step_rank"]
    channels = inner + 2 * keys["ssm.group_count"] * keys["ssm.state_size"]
    return {"attn_qkv": (channels, HIDDEN), "attn_gate": (inner, HIDDEN), "ssm_alpha": (heads, HIDDEN), "ssm_beta": (heads, HIDDEN),
            "ssm_conv1d": (channels, 4), "ssm_a": (heads,), "ssm_dt": (heads,), "ssm_norm": (keys["ssm.state_size"],),
            "ssm_out": (HIDDEN, inner)}


def feed_forward(keys):
    if "expert_count" not in keys:
        width = keys["feed_forward_length"]
        return {"ffn_gate": (width, HIDDEN), "ffn_up": (width, HIDDEN), "ffn_down": (HIDDEN, width)}
    count, width = keys["expert_count"], keys["expert_feed_forward_length"]
    shapes = {"ffn_gate_inp": (count, HIDDEN), "ffn_gate_exps": (count, width, HIDDEN), "ffn_up_exps": (count, width, HIDDEN),
              "ffn_down_exps": (count, HIDDEN, width)}
    if shared := keys.get("expert_shared_feed_forward_length"):
        shapes |= {"ffn_gate_inp_shexp": (HIDDEN,), "ffn_gate_shexp": (shared, HIDDEN), "ffn_up_shexp": (shared, HIDDEN),
                   "ffn_down_shexp": (HIDDEN, shared)}
    return shapes


def shapes(keys, layers):
    """The tensors by name, without what follows the last dot."""
    is_hybrid = "ssm.inner_size" in keys
    words = (keys["vocab_size"], HIDDEN)
    result = {"token_embd": words}
    for layer in range(layers):
        mixer = linear_attention(keys) if is_hybrid and layer % 4 != 3 else attention(keys, is_hybrid)
        norms = {"attn_norm": (HIDDEN,), "post_attention_norm" if is_hybrid else "ffn_norm": (HIDDEN,)}
        result |= {f"blk.{layer}.{name}": shape for name, shape in (norms | mixer | feed_forward(keys)).items()}
    return result | {"output_norm": (HIDDEN,), "output": words}


def floats(rng, name, shape):
    if name.endswith("norm"):
        return 1 + 0.1 * rng.standard_normal(shape, np.float32)
    values = rng.standard_normal(shape, np.float32) * np.float32(shape[-1] ** -0.5)
    return -np.abs(values) if name.endswith("ssm_a") else values


def blocks(rng, kind, shape, deviation):
    """Random integers with scales that give weights about this deviation, and a mean of 0: else all tokens get one direction in common, and
    choose the same experts."""
    values, size = gguf.GGML_QUANT_SIZES[kind]
    data = rng.integers(0, 256, (np.prod(shape, dtype=np.int64) // values, size), dtype=np.uint8)
    if kind == TYPES.Q4_0:
        # Two integers a byte, from -7 to 7.
        data = np.where(data & 15, data, data | 8)
        data = np.where(data >> 4, data, data | 128)
    for place, integers in SCALES[kind].items():
        data[:, place:place + 2] = np.frombuffer(np.float16(deviation / integers).tobytes(), np.uint8)
    return data.reshape(*shape[:-1], -1)


def write(path, model, layers, weights):
    """Writes a file of `layers` layers of a model of MODELS in q4_0, or in llama.cpp's mixture q4_k_m."""
    architecture, keys = MODELS[model]
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_type("model")
    writer.add_tokenizer_model("no_vocab")
    for key, value in (keys | {"block_count": layers}).items():
        add = {float: writer.add_float32, int: writer.add_uint32, list: writer.add_array}[type(value)]
        add(f"{architecture}.{key}", value)
    kind_of, tensors = mixture(weights, layers), []
    for name, shape in shapes(keys, layers).items():
        is_exact = len(shape) == 1 or name.endswith(("ffn_gate_inp", "ssm_conv1d"))
        kind = TYPES.F32 if is_exact else kind_of(name)
        ending = "" if name.endswith("ssm_a") else ".bias" if name.endswith("ssm_dt") else ".weight"
        stored = shape if is_exact else gguf.quant_shape_to_byte_shape(shape, kind)
        dtype = np.dtype(np.float32 if is_exact else np.uint8)
        writer.add_tensor_info(name + ending, stored, dtype, int(np.prod(stored, dtype=np.int64)) * dtype.itemsize, raw_dtype=kind)
        tensors.append((name, shape, kind))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    rng = np.random.default_rng(1)
    for name, shape, kind in tensors:
        # Embeddings as large as what layers add to them, so that tokens of one text choose experts of their own.
        deviation = 1 if name == "token_embd" else shape[-1] ** -0.5
        writer.write_tensor_data(floats(rng, name, shape) if kind == TYPES.F32 else blocks(rng, kind, shape, deviation))
    writer.close()

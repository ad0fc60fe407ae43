"""Names of tensors and keys of GGUF files, from those of a Hugging Face folder, and random blocks."""
import gguf
import numpy as np

from hybrid_gguf import hybrid_keys

MODULES = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "linear_attn.in_proj_qkv": "attn_qkv",
    "linear_attn.in_proj_z": "attn_gate", "linear_attn.in_proj_a": "ssm_alpha", "linear_attn.in_proj_b": "ssm_beta",
    "linear_attn.A_log": "ssm_a", "linear_attn.dt_bias": "ssm_dt.bias", "linear_attn.conv1d": "ssm_conv1d",
    "linear_attn.norm": "ssm_norm", "linear_attn.out_proj": "ssm_out",
}


def own_name(name, is_hybrid):
    prefix = ""
    if name.startswith("model.layers."):
        _, _, layer, name = name.split(".", 3)
        prefix = f"blk.{layer}."
    if name in MODULES:
        return prefix + MODULES[name]
    module, _, kind = name.rpartition(".")
    if is_hybrid and module == "post_attention_layernorm":
        return f"{prefix}post_attention_norm.{kind}"
    return f"{prefix}{MODULES[module]}.{kind}"


def keys_of(config):
    name = {"Qwen2ForCausalLM": "qwen2", "Qwen3ForCausalLM": "qwen3", "Qwen3_5ForCausalLM": "qwen35"}[config["architectures"][0]]
    theta = config.get("rope_theta") or config["rope_parameters"]["rope_theta"]
    keys = {"block_count": config["num_hidden_layers"], "context_length": config["max_position_embeddings"],
            "embedding_length": config["hidden_size"], "feed_forward_length": config["intermediate_size"],
            "attention.head_count": config["num_attention_heads"],
            "attention.head_count_kv": config["num_key_value_heads"], "rope.freq_base": theta,
            "attention.layer_norm_rms_epsilon": config["rms_norm_eps"]}
    if "head_dim" in config:
        keys["attention.key_length"] = config["head_dim"]
    if scaling := config.get("rope_scaling"):
        keys |= {"rope.scaling.type": scaling["type"], "rope.scaling.factor": scaling["factor"],
                 "rope.scaling.original_context_length": scaling["original_max_position_embeddings"]}
    if name == "qwen35":
        keys |= {"block_count": keys["block_count"] + 1, "nextn_predict_layers": 1} | hybrid_keys(config)
    return {"general.architecture": name} | {f"{name}.{key}": value for key, value in keys.items()} | {
        "tokenizer.ggml.bos_token_id": config["bos_token_id"], "tokenizer.ggml.eos_token_id": config["eos_token_id"]}


def random_blocks(rng, kind, shape):
    """Random bytes with small scales and minimums: the blocks of each row."""
    types = gguf.GGMLQuantizationType
    values, size = gguf.GGML_QUANT_SIZES[kind]
    data = rng.integers(0, 256, (np.prod(shape) // values, size), dtype=np.uint8)
    if kind == types.MXFP4:
        data[:, 0] = rng.integers(115, 120, len(data))
        return data.reshape(*shape[:-1], -1)
    places = {types.Q2_K: (80, 82), types.Q3_K: (108,), types.Q6_K: (208,), types.Q4_K: (0, 2), types.Q5_K: (0, 2), types.Q5_1: (0, 2)}
    for place in places.get(kind, (0,)):
        scales = rng.uniform(1, 3, len(data)) * (2e-5 if values == 256 else 5e-4)
        data[:, place:place + 2] = scales.astype("<f2").view(np.uint8).reshape(-1, 2)
    return data.reshape(*shape[:-1], -1)

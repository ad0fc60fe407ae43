"""Writes a folder of floats as a GGUF file, as llama.cpp's converter does, with the names and keys of the gguf package."""
import json
import re

import gguf
import numpy as np

from checks import read_safetensors
from hybrid_gguf import hybrid_keys, interleaved

ARCHITECTURES = {"Qwen2MoeForCausalLM": "QWEN2MOE", "Qwen3MoeForCausalLM": "QWEN3MOE", "Qwen3VLMoeForConditionalGeneration": "QWEN3VLMOE",
                 "Qwen3_5ForConditionalGeneration": "QWEN35", "Qwen3_5MoeForConditionalGeneration": "QWEN35MOE",
                 "Qwen3NextForCausalLM": "QWEN3NEXT",
                 "Qwen2_5_VLForConditionalGeneration": "QWEN2VL", "Qwen3VLForConditionalGeneration": "QWEN3VL"}
# What a draft head has besides a layer. The package has no names for it yet.
DRAFT = {"fc": "eh_proj", "pre_fc_norm_embedding": "enorm", "pre_fc_norm_hidden": "hnorm", "norm": "shared_head_norm"}
# These are F32 in any file.
EXACT = ("ffn_gate_inp.weight", "ffn_gate_inp_shexp.weight", "ssm_conv1d.weight", "_norm.weight")


def read_config(folder):
    """The text model's configuration."""
    config = json.loads((folder / "config.json").read_text())
    return config | config.get("text_config", {})


def read_folder(folder, layers):
    """The tensors of the text model in f32 by name, those of experts stacked. A draft head is layer `layers`."""
    result, experts = {}, {}
    for path in sorted(folder.glob("model*.safetensors")):
        for name, values in read_safetensors(path).items():
            if "visual." in name:
                continue
            values = (values.astype(np.uint32) << 16).view(np.float32) if values.dtype == np.uint16 else values.astype(np.float32)
            name = re.sub(r"^mtp\.layers\.0\.", f"model.layers.{layers}.", name.replace("model.language_model.", "model."))
            if name.startswith("mtp."):
                _, module, kind = name.split(".")
                name = f"blk.{layers}.nextn.{DRAFT[module]}.{kind}"
            if found := re.fullmatch(r"(.*\.mlp\.experts)\.(\d+)\.(\w+\.weight)", name):
                experts.setdefault(f"{found[1]}.{found[3]}", {})[int(found[2])] = values
            else:
                result[name] = values
    return result | {name: np.stack([values for _, values in sorted(some.items())]) for name, some in experts.items()}


def divide_joined(values, config):
    """q, k and v, and z, of in_proj_qkvz: the rows of each key head are its q, k, v and z."""
    keys, dim = config["linear_num_key_heads"], config["linear_key_head_dim"]
    width = config["linear_num_value_heads"] // keys * config["linear_value_head_dim"]
    parts = np.split(values.reshape(keys, -1, values.shape[-1]), np.cumsum([dim, dim, width]), axis=1)
    q, k, v, z = (part.reshape(-1, values.shape[-1]) for part in parts)
    return np.concatenate([q, k, v]), z


def convert_linear(name, values, config, is_tiled, is_joined):
    """The tensors of a hybrid that the file has in place of one, by name in the folder."""
    path, _, member = name.rpartition("linear_attn.")
    if name.endswith("norm.weight") and member != "norm.weight":
        return {name: values + np.float32(1)}
    if member == "A_log":
        values = -np.exp(values)
    if not path or member == "norm.weight":
        return {name: values}
    if member == "in_proj_qkvz.weight" and not is_joined:
        qkv, z = divide_joined(values, config)
        return {path + "linear_attn.in_proj_qkv.weight": qkv, path + "linear_attn.in_proj_z.weight": z}
    values = interleaved(member, values, config) if is_tiled else values[:, 0] if member == "conv1d.weight" else values
    return {name.replace(".dt_bias", ".dt_proj.bias"): values}


def convert_experts(name, values, is_turned, is_fused):
    """The same of experts in one tensor."""
    path = name.rpartition(".")[0]
    if name.endswith("experts.down_proj"):
        return {name + ".weight": values.swapaxes(1, 2) if is_turned else values}
    if name.endswith("experts.gate_up_proj"):
        both = values.swapaxes(1, 2) if is_turned else values
        gate, up = np.split(both, 2, axis=1)
        return {name + ".weight": both} if is_fused else {path + ".gate_proj.weight": gate, path + ".up_proj.weight": up}
    return {name: values}


def keys_of(config, blocks, drafts):
    """The keys behind the architecture."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    keys = {"block_count": blocks, "context_length": config["max_position_embeddings"], "embedding_length": config["hidden_size"],
            "attention.head_count": config["num_attention_heads"], "attention.head_count_kv": config["num_key_value_heads"],
            "attention.layer_norm_rms_epsilon": config["rms_norm_eps"], "rope.freq_base": float(rope.get("rope_theta") or config["rope_theta"])}
    for key, name in (("feed_forward_length", "intermediate_size"), ("attention.key_length", "head_dim"), ("attention.value_length", "head_dim"),
                      ("expert_count", "num_local_experts"), ("expert_count", "num_experts"), ("expert_used_count", "num_experts_per_tok"),
                      ("expert_feed_forward_length", "moe_intermediate_size"),
                      ("expert_shared_feed_forward_length", "shared_expert_intermediate_size")):
        if name in config:
            keys[key] = config[name]
    if "linear_num_key_heads" in config:
        keys |= hybrid_keys(config) | {"full_attention_interval": config["full_attention_interval"]}
    if sections := rope.get("mrope_section"):
        keys["rope.dimension_sections"] = [*sections, 0]
    return keys | ({"nextn_predict_layers": drafts} if drafts else {})


def write_gguf(path, architecture, keys, tensors):
    """`tensors` are (name, values or blocks, type)."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_type("model")
    for key, value in keys.items():
        key = key if key.startswith("tokenizer.") else f"{architecture}.{key}"
        add = {float: writer.add_float32, int: writer.add_uint32, list: writer.add_array}[type(value)]
        add(key, value)
    for name, data, kind in tensors:
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def as_ollama(keys, tensors, config):
    """What Ollama's files of hybrids have otherwise: heads of each layer, a name, and tensors of vision and of a draft head."""
    kinds = [*config["layer_types"], *["full_attention"] * (keys["block_count"] - len(config["layer_types"]))]
    heads = [0 if kind == "linear_attention" else keys["attention.head_count_kv"] for kind in kinds]
    more = [(name, np.ones((1, 32), np.float32), gguf.GGMLQuantizationType.F32) for name in ("v.blk.0.attn_q.weight", "mtp.fc.weight")]
    tensors = [(name.replace("ssm_dt.bias", "ssm_dt"), values, kind) for name, values, kind in tensors]
    return keys | {"attention.head_count_kv": heads, "image_token_id": 3, "rope.mrope_section": [3, 3, 2]}, tensors + more


def convert(folder, path, kind_of, is_fused=False, is_joined=False, is_squeezed=False, is_ollama=False):
    """`kind_of` gives the type of a matrix by its name in the file. Experts may have gate and up in one tensor; of older converters are
    joined projections of linear attention, and a router of a shared expert without its axis of size 1."""
    types, config = gguf.GGMLQuantizationType, read_config(folder)
    model = getattr(gguf.MODEL_ARCH, ARCHITECTURES[config["architectures"][0]])
    layers, is_hybrid = config["num_hidden_layers"], "linear_num_key_heads" in config
    weights = read_folder(folder, layers)
    drafts = int(any(".nextn." in name for name in weights))
    names = gguf.get_tensor_name_map(model, layers + drafts)
    tensors = []
    for folder_name, folder_values in weights.items():
        some = convert_experts(folder_name, folder_values, model == gguf.MODEL_ARCH.QWEN3VLMOE, is_fused)
        if is_hybrid:
            some = {name: values for one, before in some.items()
                    for name, values in convert_linear(one, before, config, model in (gguf.MODEL_ARCH.QWEN35, gguf.MODEL_ARCH.QWEN35MOE), is_joined).items()}
        for name, values in some.items():
            own = name if ".nextn." in name else names.get_name(name, try_suffixes=(".weight", ".bias"))
            values = values[0] if is_squeezed and own.endswith("inp_shexp.weight") else values
            kind = types.F32 if values.ndim == 1 or own.endswith(EXACT) else kind_of(own)
            tensors.append((own, gguf.quants.quantize(np.ascontiguousarray(values), kind), kind))
    keys = keys_of(config, layers + drafts, drafts)
    for token in ("bos", "eos"):
        keys[f"tokenizer.ggml.{token}_token_id"] = config[f"{token}_token_id"]
    if is_ollama:
        keys, tensors = as_ollama(keys, tensors, config)
    write_gguf(path, gguf.MODEL_ARCH_NAMES[model], keys, tensors)

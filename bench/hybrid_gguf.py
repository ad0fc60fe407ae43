"""How llama.cpp's converter writes the linear attention of Qwen3.5 to a GGUF file of architecture qwen35. Needs only NumPy."""
import numpy as np


def hybrid_keys(config):
    """The numbers that only a hybrid has, by their keys behind the architecture."""
    heads = config["linear_num_value_heads"]
    return {"rope.dimension_count": int(config["head_dim"] * config["partial_rotary_factor"]),
            "ssm.conv_kernel": config["linear_conv_kernel_dim"], "ssm.state_size": config["linear_key_head_dim"],
            "ssm.group_count": config["linear_num_key_heads"], "ssm.time_step_rank": heads,
            "ssm.inner_size": config["linear_value_head_dim"] * heads}


def interleaved(member, values, config):
    """The values of a module's tensor, such as out_proj.weight, in the file's order: the first value head of each key head, then
    the second of each. The convolution loses its axis of size 1."""
    keys, heads = config["linear_num_key_heads"], config["linear_num_value_heads"]
    first = 2 * keys * config["linear_key_head_dim"] if member.startswith(("in_proj_qkv", "conv1d")) else 0
    axis = 1 if member == "out_proj.weight" else 0
    if member == "conv1d.weight":
        values = values[:, 0]
    moved = np.moveaxis(values, axis, 0)
    after = moved[first:].reshape(keys, heads // keys, -1, *moved.shape[1:]).swapaxes(0, 1).reshape(-1, *moved.shape[1:])
    return np.ascontiguousarray(np.moveaxis(np.concatenate([moved[:first], after]), 0, axis))

"""The experts of a Qwen3-VL-MoE in both layouts, as published and as transformers 5 writes them, and as those of a Qwen3-MoE.

  experts_layout.py WORKDIR

All three have the same logits, bit for bit, also where one of the two matrices of an expert is square.
"""
import pathlib
import sys

import numpy as np

from checks import Checks, compile_model, logits, same_bits, write_weights

WORK = pathlib.Path(sys.argv[1])
VOCAB, HIDDEN, HEADS, HEAD, EXPERTS, LAYERS = 96, 64, 2, 32, 3, 2


def dense_weights(rng):
    """All but the experts."""
    def normal(*shape):
        return (rng.standard_normal(shape) / shape[-1] ** 0.5).astype(np.float32)

    result = {"embed_tokens.weight": normal(VOCAB, HIDDEN), "norm.weight": np.ones(HIDDEN, np.float32)}
    for layer in range(LAYERS):
        path = f"layers.{layer}."
        for name in ("input_layernorm", "post_attention_layernorm"):
            result[f"{path}{name}.weight"] = np.ones(HIDDEN, np.float32)
        for name in ("q_norm", "k_norm"):
            result[f"{path}self_attn.{name}.weight"] = np.ones(HEAD, np.float32)
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            result[f"{path}self_attn.{name}.weight"] = normal(HIDDEN, HIDDEN)
        result[f"{path}mlp.gate.weight"] = normal(EXPERTS, HIDDEN)
    return result


def experts_of(width, rng):
    """gate_up [E, 2I, H] and down [E, H, I] of a layer."""
    return (rng.standard_normal((EXPERTS, 2 * width, HIDDEN)).astype(np.float32) / HIDDEN**0.5,
            rng.standard_normal((EXPERTS, HIDDEN, width)).astype(np.float32) / width**0.5)


def write(folder, dense, experts, width, layout):
    """A checkpoint whose experts have a `layout`: "apart", "published" or "saved"."""
    text = {"vocab_size": VOCAB, "hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": HEADS,
            "head_dim": HEAD, "intermediate_size": 96, "moe_intermediate_size": width, "num_experts": EXPERTS, "num_experts_per_tok": 2,
            "norm_topk_prob": True, "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "rope_theta": 1e6}
    facts = {"tie_word_embeddings": True}
    facts |= {"architectures": ["Qwen3MoeForCausalLM"], **text} if layout == "apart" else {
        "architectures": ["Qwen3VLMoeForConditionalGeneration"], "text_config": text}
    prefix = "model." if layout == "apart" else "model.language_model."
    weights = {prefix + name: value for name, value in dense.items()}
    for layer, (gate_up, down) in enumerate(experts):
        path = f"{prefix}layers.{layer}.mlp.experts."
        if layout == "apart":
            for i in range(EXPERTS):
                weights |= {f"{path}{i}.gate_proj.weight": gate_up[i, :width], f"{path}{i}.up_proj.weight": gate_up[i, width:],
                            f"{path}{i}.down_proj.weight": down[i]}
        else:
            turn = np.ascontiguousarray if layout == "saved" else lambda value: np.ascontiguousarray(value.transpose(0, 2, 1))
            weights |= {f"{path}gate_up_proj": turn(gate_up), f"{path}down_proj": turn(down)}
    write_weights(folder, weights, facts)
    return folder


def main():
    checks, rng = Checks(), np.random.default_rng(1)
    for width in (HIDDEN // 2, HIDDEN, 96):
        dense, experts = dense_weights(rng), [experts_of(width, rng) for _ in range(LAYERS)]
        found = {}
        for layout in ("apart", "published", "saved"):
            checkpoint = write(WORK / f"{layout}{width}", dense, experts, width, layout)
            model = compile_model(checkpoint, checkpoint / "model.qwen", "--weights", "f32", "--kv", "f32")
            found[layout] = logits(model, range(16), WORK / "logits.npy")
        for layout, rows in found.items():
            checks.check(same_bits(rows, found["apart"]), f"experts of width {width}, {layout}, give other logits")
    checks.finish()


if __name__ == "__main__":
    main()

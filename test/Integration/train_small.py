"""Small models of transformers with random weights, for the tests of training."""
import subprocess
import sys

import torch
import transformers

SIZES = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 256,
         "head_dim": 32, "max_position_embeddings": 128, "bos_token_id": 0, "eos_token_id": 1}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32}
HYBRID = {"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 32, "linear_value_head_dim": 32, "linear_conv_kernel_dim": 4,
          "layer_types": ["linear_attention", "full_attention"]}
# Class of transformers, and what differs: biases, a tied head, experts, linear attention.
MODELS = {
    "biases": ("Qwen2ForCausalLM", {"tie_word_embeddings": False}),
    "tied": ("Qwen3ForCausalLM", {"tie_word_embeddings": True}),
    "experts": ("Qwen3MoeForCausalLM", EXPERTS | {"norm_topk_prob": True}),
    "shared expert": ("Qwen2MoeForCausalLM", EXPERTS),
    "hybrid": ("Qwen3_5ForCausalLM", HYBRID | {"tie_word_embeddings": True}),
    "hybrid with experts": ("Qwen3NextForCausalLM", HYBRID | EXPERTS | {"norm_topk_prob": True}),
}


def small(name, **facts):
    """A model with random weights."""
    kind, more = MODELS[name]
    torch.manual_seed(1)
    made = getattr(transformers, kind)
    model = made(made.config_class(**SIZES | more | facts))
    with torch.no_grad():
        for each in model.parameters():
            each.add_(torch.randn_like(each) * 0.05)
    return model


def compiled(folder, *options):
    """The compiled file of a folder, and what qwen-opt says of it."""
    file = folder.with_suffix(".qwen")
    done = subprocess.run(["qwen-opt", folder, "-o", file, "--kv", "f32", *options], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"qwen-opt {folder}: {done.stderr}")
    return file, done.stderr

"""GGUF files of models with experts and of the text of models with vision, against transformers and against plain C++.

  gguf_experts.py INPUTS WORKDIR
"""
import pathlib
import shutil
import sys

import gguf
import numpy as np

from checks import Checks, compile_model, join, logits, read_safetensors, run, same_bits
from gguf_convert import convert, write_gguf
from gguf_exported import check_exported
from gguf_model import random_blocks
from golden import Compiled, cases

INPUTS, WORK = pathlib.Path(sys.argv[1]) / "checkpoints", pathlib.Path(sys.argv[2])
TYPES = gguf.GGMLQuantizationType
IDS = list(range(1, 40, 3))
checks = Checks()


def check_golden(name, kind, bound, **layout):
    """A file of floats has the logits and the continuation of transformers. `bound` is that of the folder. Returns the file and the
    compiled model."""
    file = WORK / f"{name}.gguf"
    convert(INPUTS / name, file, lambda _: kind, **layout)
    model = Compiled(file, "f32", WORK)
    for number, (prompt, expected, greedy, _) in enumerate(cases(read_safetensors(INPUTS / name / "golden.safetensors"))):
        error = np.abs(model.logits(prompt) - expected).max() / (expected.max() - expected.min())
        checks.check(error <= bound, f"{name}, {layout}, case {number}: {error:.1e} of the range is more than {bound}")
        ids = model.greedy(prompt, greedy)
        checks.check(ids == greedy.tolist(), f"{name}, {layout}, case {number}: greedy ids are {ids}")
    return file, model.model


def check_kept(name):
    """A file of several types keeps its integers."""
    file = WORK / f"{name}.gguf"
    convert(INPUTS / name, file, lambda own: TYPES.Q8_0 if "ffn_down_exps" in own else TYPES.Q4_0)
    check_exported(checks, WORK, file, compile_model(file, WORK / "kept.qwen"))


SIZES = {"block_count": 2, "context_length": 256, "embedding_length": 512, "attention.head_count": 8, "attention.head_count_kv": 2,
         "attention.key_length": 64, "attention.value_length": 64, "attention.layer_norm_rms_epsilon": 1e-6, "rope.freq_base": 1e6,
         "expert_count": 5, "expert_used_count": 2, "expert_feed_forward_length": 256, "expert_shared_feed_forward_length": 768,
         "rope.dimension_count": 16, "ssm.conv_kernel": 4, "ssm.state_size": 32, "ssm.group_count": 2, "ssm.time_step_rank": 8,
         "ssm.inner_size": 256}


def random_shapes():
    """The tensors of a Qwen3-Next of a layer with linear attention and one without."""
    shapes = {"token_embd": (40, 512), "output_norm": (512,)}
    experts = {"attn_norm": (512,), "post_attention_norm": (512,), "ffn_gate_inp": (5, 512), "ffn_gate_exps": (5, 256, 512),
               "ffn_up_exps": (5, 256, 512), "ffn_down_exps": (5, 512, 256), "ffn_gate_inp_shexp": (1, 512), "ffn_gate_shexp": (768, 512),
               "ffn_up_shexp": (768, 512), "ffn_down_shexp": (512, 768)}
    attention = ({"attn_qkv": (384, 512), "attn_gate": (256, 512), "ssm_ba": (16, 512), "ssm_conv1d": (384, 4), "ssm_a": (8,), "ssm_dt": (8,),
                  "ssm_norm": (32,), "ssm_out": (512, 256)},
                 {"attn_q": (1024, 512), "attn_k": (128, 512), "attn_v": (128, 512), "attn_output": (512, 512), "attn_q_norm": (64,),
                  "attn_k_norm": (64,)})
    for layer, some in enumerate(attention):
        shapes |= {f"blk.{layer}.{name}": shape for name, shape in (experts | some).items()}
    return shapes


def check_random():
    """A model of random blocks in rows of 256, 512 and 768 has the logits of plain C++, bit for bit. Gate and up of layer 0 differ."""
    rng, tensors = np.random.default_rng(3), []
    for name, shape in random_shapes().items():
        if len(shape) == 1 or name.endswith(("ffn_gate_inp", "inp_shexp", "ssm_conv1d")):
            values = 0.1 * rng.standard_normal(shape, np.float32)
            values = -np.abs(values) if name.endswith("ssm_a") else values
            ending = "" if name.endswith("ssm_a") else ".bias" if name.endswith("ssm_dt") else ".weight"
            tensors.append((name + ending, values, TYPES.F32))
        else:
            kind = TYPES.Q6_K if name.endswith(("0.ffn_gate_exps", "down_exps", "attn_v", "ssm_ba")) else TYPES.Q4_K
            tensors.append((name + ".weight", random_blocks(rng, kind, shape), kind))
    file = WORK / "random.gguf"
    write_gguf(file, "qwen3next", SIZES, tensors)
    found = logits(compile_model(file, WORK / "random.qwen"), IDS, WORK / "logits.npy")
    run(["reference-logits", file, "keep", "q8", join(IDS), WORK / "reference"])
    expected = np.fromfile(WORK / "reference", np.float32).reshape(len(IDS), -1)
    checks.check(np.isfinite(found).all() and found.any() and same_bits(found, expected),
                 "random blocks: the logits are not those of the reference")


shutil.rmtree(WORK, ignore_errors=True)
WORK.mkdir(parents=True)
check_exported(checks, WORK, *check_golden("qwen2-moe-bf16", TYPES.F32, 1e-5))
check_golden("qwen3-moe-bf16", TYPES.BF16, 1e-5)
check_golden("qwen3-vl-moe-bf16", TYPES.BF16, 1e-5)
check_golden("qwen3_5-moe-bf16", TYPES.BF16, 2e-5, is_fused=True)
check_golden("qwen3_5-moe-bf16", TYPES.F32, 2e-5, is_ollama=True)
check_golden("qwen2_5-vl-bf16", TYPES.BF16, 1e-5)
check_golden("qwen3-vl-bf16", TYPES.BF16, 1e-5)
check_golden("qwen3-next-bf16", TYPES.F32, 2e-5, is_squeezed=True)
check_kept("qwen3-moe-f32")
check_random()
checks.finish()

#!/usr/bin/env python3
"""Makes tiny random checkpoints with experts in the forms of other libraries, quantized by the code of these libraries.

  python3 -m venv v && v/bin/pip install torch transformers accelerate compressed-tensors mlx mlx-cpu mlx-lm bitsandbytes
  v/bin/pip download --no-deps --only-binary :all: auto-gptq==0.7.1 && unzip auto_gptq-*.whl -d auto-gptq
  v/bin/python test/Inputs/make_experts_forms.py test/Inputs/experts auto-gptq [CASE...]

auto-gptq chooses and packs the integers of GPTQ; only its files are needed, for its last release does not run with today's transformers.
OUT/CASE gets the checkpoint, golden.safetensors (prompt.I i64 [T] and logits.I f32 [T, V], which transformers computes in f32 with the
dequantized weights) and weights.json (the SHA-256 of each dequantized matrix of experts as f32, row-major, with -0 as +0, by the name
that one file for each expert would have: model.layers.L.mlp.experts.E.PART.weight).
"""
import argparse
import enum
import hashlib
import importlib
import json
import pathlib
import re
import shutil
import sys
import types

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, BitsAndBytesConfig, FineGrainedFP8Config

VOCAB, EXPERTS, ACTIVE, LENGTHS = 64, 4, 2, (12, 5)
PARTS = ("gate_proj", "up_proj", "down_proj")
COMMON = dict(vocab_size=VOCAB, hidden_size=64, num_attention_heads=2, num_key_value_heads=1, head_dim=32, num_experts=EXPERTS,
              num_experts_per_tok=ACTIVE, moe_intermediate_size=32, max_position_embeddings=256, rms_norm_eps=1e-6,
              tie_word_embeddings=True, bos_token_id=0, eos_token_id=1)
HYBRID = dict(num_hidden_layers=2, layer_types=["linear_attention", "full_attention"], full_attention_interval=2, linear_num_key_heads=1,
              linear_key_head_dim=32, linear_num_value_heads=2, linear_value_head_dim=32, linear_conv_kernel_dim=4,
              shared_expert_intermediate_size=32)
ROPE = dict(rope_type="default", rope_theta=10000.0)
QUARTER = dict(ROPE, partial_rotary_factor=0.25)
# For each model_type of a text model: the configuration, the architecture, and the prefix of its published tensors.
MODELS = {
    "qwen2_moe": (dict(num_hidden_layers=1, shared_expert_intermediate_size=32, norm_topk_prob=False, decoder_sparse_step=1,
                       intermediate_size=64, tie_word_embeddings=False, rope_parameters=ROPE), "Qwen2MoeForCausalLM", "model."),
    "qwen3_moe": (dict(num_hidden_layers=1, norm_topk_prob=True, decoder_sparse_step=1, intermediate_size=64, mlp_only_layers=[],
                       rope_parameters=ROPE), "Qwen3MoeForCausalLM", "model."),
    "qwen3_next": (dict(HYBRID, norm_topk_prob=True, decoder_sparse_step=1, intermediate_size=64, mlp_only_layers=[],
                        rope_parameters=QUARTER), "Qwen3NextForCausalLM", "model."),
    "qwen3_5_moe_text": (dict(HYBRID, rope_parameters=dict(QUARTER, mrope_interleaved=True, mrope_section=[2, 1, 1])),
                         "Qwen3_5MoeForConditionalGeneration", "model.language_model."),
}


class Base:
    """A random model in bf16: its configuration, and its tensors by the names of a file for each expert."""

    def __init__(self, kind, seed, **sizes):
        own, self.architecture, self.prefix = MODELS[kind]
        facts = COMMON | own | sizes
        if kind == "qwen2_moe":
            facts.pop("head_dim")
        torch.manual_seed(seed)
        self.model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **facts), attn_implementation="eager").float().eval()
        with torch.no_grad():
            for name, weight in self.model.named_parameters():
                weight.copy_(drawn(name, weight).to(torch.bfloat16))
        self.kind, self.config = kind, {"architectures": [self.architecture], "model_type": kind, **facts, **facts["rope_parameters"]}
        del self.config["rope_parameters"], self.config["rope_type"]
        if kind == "qwen3_5_moe_text":
            self.config = {"architectures": [self.architecture], "model_type": "qwen3_5_moe", "tie_word_embeddings": True,
                           "text_config": {"model_type": kind, **facts}}
        self.tied = facts["tie_word_embeddings"]
        state = {name: value for name, value in self.model.state_dict().items() if name != "lm_head.weight" or not self.tied}
        self.tensors = {name: value.to(torch.bfloat16) for name, value in apart(state).items()}

    def own_name(self, name):
        """The name of a tensor in a published file."""
        return name.replace("model.", self.prefix, 1)

    def linears(self):
        """The modules of experts."""
        return [name.removesuffix(".weight") for name in self.tensors if re.search(r"\.experts\.\d+\.", name)]

    def logits(self, tensors, ids):
        """The logits of the model with other tensors, in f32."""
        state = {name: value.float() for name, value in together(tensors).items()}
        if self.tied:
            state["lm_head.weight"] = state["model.embed_tokens.weight"]
        self.model.load_state_dict(state, strict=True)
        with torch.no_grad():
            return self.model(ids[None]).logits[0].clone()


def drawn(name, weight):
    value = torch.randn_like(weight)
    if name.endswith("A_log"):
        return value.abs()
    if "norm" in name:
        # The norms of hybrids are around 0, but not that of linear attention.
        return weight.mean() + 0.2 * value
    if name.endswith(("bias", "dt_bias")):
        return 0.3 * value
    return value * (0.5 if "embed" in name else 1.2 / weight.shape[-1] ** 0.5)


def apart(state):
    """Tensors with one for each matrix of each expert."""
    result = {}
    for name, value in state.items():
        path, _, last = name.rpartition(".")
        for i, matrix in enumerate(value if path.endswith(".experts") else ()):
            if last == "gate_up_proj":
                result[f"{path}.{i}.gate_proj.weight"], result[f"{path}.{i}.up_proj.weight"] = (half.contiguous() for half in matrix.chunk(2))
            else:
                result[f"{path}.{i}.down_proj.weight"] = matrix.contiguous()
        if not path.endswith(".experts"):
            result[name] = value
    return result


def together(tensors):
    """The tensors of transformers: gate and up of all experts in one."""
    result = {name: value for name, value in tensors.items() if ".experts." not in name}
    for path in sorted({name.split(".experts.")[0] + ".experts." for name in tensors if ".experts." in name}):
        gate, up, down = ([tensors[f"{path}{i}.{part}.weight"] for i in range(EXPERTS)] for part in PARTS)
        result[path + "gate_up_proj"] = torch.stack([torch.cat(pair) for pair in zip(gate, up)])
        result[path + "down_proj"] = torch.stack(down)
    return result


class Tree(torch.nn.Module):
    """Modules with the names of a published file, so that libraries find a Linear for each expert."""


def tree_of(tensors):
    root = Tree()
    for name, value in tensors.items():
        *path, last = name.split(".")
        is_linear = last == "weight" and value.ndim == 2 and "embed" not in name
        module = root
        for part in path[:-1] if is_linear else path:
            if not hasattr(module, part):
                module.add_module(part, Tree())
            module = getattr(module, part)
        if is_linear:
            linear = torch.nn.Linear(value.shape[1], value.shape[0], bias=False, dtype=value.dtype)
            linear.weight = torch.nn.Parameter(value, requires_grad=False)
            module.add_module(path[-1], linear)
        else:
            module.register_parameter(last, torch.nn.Parameter(value, requires_grad=False))
    return root


# ------------------------------------------------------------------------------------------------- the libraries
# Each function returns the tensors of the file and quantization_config, and the dequantized tensors by the names of Base.

def compressed_tensors(base, ignore, **weights):
    """Separate experts, as llm-compressor writes them: scales of the least and the greatest value, then the library's quantizing and packing."""
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.compressors.base import compress_module
    from compressed_tensors.compressors.model_compressors.model_compressor import ModelCompressor
    from compressed_tensors.quantization import (QuantizationArgs, QuantizationConfig, QuantizationScheme, QuantizationStatus,
                                                 apply_quantization_config)
    from compressed_tensors.quantization.utils import calculate_qparams

    tree = tree_of({base.own_name(name): value for name, value in base.tensors.items()})
    scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**weights))
    apply_quantization_config(tree, QuantizationConfig(config_groups={"group_0": scheme}, ignore=ignore))
    dense = dict(base.tensors)
    for name in base.linears():
        module = tree.get_submodule(base.own_name(name + ".weight").removesuffix(".weight"))
        if not hasattr(module, "quantization_scheme"):
            continue
        args = module.quantization_scheme.weights
        groups = module.weight.float().unflatten(1, (-1, args.group_size or module.weight.shape[1]))
        lows, highs = groups.amin(-1), groups.amax(-1)
        scale, zero = calculate_qparams(lows, highs, args)
        module.weight_scale.data.copy_(scale)
        if hasattr(module, "weight_zero_point"):
            module.weight_zero_point.data.copy_(zero)
        compress_module(module)
        own = {key: value.float() if value.dtype == torch.bfloat16 else value for key, value in module.state_dict().items()}
        compressor = BaseCompressor.get_value_from_registry(module.quantization_scheme.format)
        dense[name + ".weight"] = compressor.decompress(own, module.quantization_scheme)["weight"].float()
    compressor = ModelCompressor.from_pretrained_model(tree)
    compressor.quantization_config.quantization_status = QuantizationStatus.COMPRESSED
    return tree.state_dict(), compressor.update_config, dense


def auto_gptq(base, bits, group, order):
    """The quantizer and the packing of auto-gptq, for random inputs."""
    quantization = importlib.import_module("auto_gptq.quantization.gptq")
    linear = importlib.import_module("auto_gptq.nn_modules.qlinear.qlinear_cuda")
    tensors, dense = {base.own_name(name): value.half() for name, value in base.tensors.items()}, dict(base.tensors)
    for name in dense:
        dense[name] = dense[name].half()
    for name in base.linears():
        weight = tensors.pop(base.own_name(name + ".weight")).float()
        module = torch.nn.Linear(*reversed(weight.shape), bias=False)
        module.weight.data = weight.clone()
        solver = quantization.GPTQ(module)
        solver.quantizer.configure(bits, perchannel=True, sym=True, mse=False)
        spread = torch.linspace(0.2, 3, weight.shape[1])[torch.randperm(weight.shape[1])]
        inputs = torch.randn(256, weight.shape[1]) * spread
        solver.add_batch(inputs, module(inputs))
        scale, zero, groups = solver.fasterquant(percdamp=0.01, group_size=group, actorder=order, static_groups=False)
        packed = linear.QuantLinear(bits, group, weight.shape[1], weight.shape[0], False, weight_dtype=torch.float16)
        packed.pack(module.half(), scale, zero, groups)
        for key in ("qweight", "qzeros", "scales", "g_idx"):
            tensors[f"{base.own_name(name + '.weight').removesuffix('weight')}{key}"] = getattr(packed, key)
        # The library's own product with the rows of the identity, in f32.
        packed.scales = packed.scales.float()
        packed.autogptq_cuda_available = False
        dense[name + ".weight"] = packed(torch.eye(weight.shape[1])).T.contiguous()
    quantized = {"quant_method": "gptq", "bits": bits, "group_size": group, "sym": True, "desc_act": order, "static_groups": False,
                 "true_sequential": True, "damp_percent": 0.01, "checkpoint_format": "gptq", "pack_dtype": "int32",
                 "dynamic": {"-:.*attn.*": {}, "-:.*shared_expert.*": {}, "-:.*mlp\\.gate$": {}}}
    return tensors, quantized, dense


def mlx(base, folder, mode="affine", **settings):
    """MLX's conversion of a folder of floats: it writes the checkpoint itself. All matrices have integers."""
    import mlx.core as mx
    import numpy as np
    from mlx_lm import utils

    floats = folder.with_name(folder.name + "-floats")
    shutil.rmtree(floats, ignore_errors=True)
    # MLX reads the experts of a Qwen3.5 in the layout of transformers 5, and others apart.
    tensors = together(base.tensors) if base.kind == "qwen3_5_moe_text" else base.tensors
    write(floats, {base.own_name(name): value for name, value in tensors.items()}, base.config)
    model, config = utils.load_model(floats)
    model, config = utils.quantize_model(model, config, settings.get("group_size"), settings.get("bits"), mode=mode)
    utils.save_model(folder, model)
    utils.save_config(config, folder / "config.json")
    (folder / "model.safetensors.index.json").unlink()
    shutil.rmtree(floats)
    held, dense = mx.load(str(folder / "model.safetensors")), {}

    def array(value):
        return torch.from_numpy(np.array(value.astype(mx.float32)))

    for name, value in held.items():
        if name.endswith((".scales", ".biases")):
            continue
        module, own = name.removesuffix(".weight"), name.removeprefix("language_model.")
        if f"{module}.scales" in held:
            facts = {"mode": mode} | {"group_size": 64, "bits": 4} | config["quantization"]
            facts |= config["quantization"].get(module) or {}
            scales, biases = held[f"{module}.scales"], held.get(f"{module}.biases")
            if biases is not None:
                scales, biases = scales.astype(mx.float32), biases.astype(mx.float32)
            value = mx.dequantize(value, scales, biases, facts["group_size"], facts["bits"], mode=facts["mode"])
        value = array(value)
        if ".switch_mlp." in own:
            for i, matrix in enumerate(value):
                dense[own.replace(".switch_mlp.", f".experts.{i}.")] = matrix.contiguous()
        elif own.endswith("conv1d.weight"):
            dense[own] = value.transpose(1, 2).contiguous()
        else:
            # MLX has added 1 to the norms of hybrids, except that of linear attention.
            is_shifted = own.endswith("norm.weight") and "linear_attn" not in own and base.kind in ("qwen3_next", "qwen3_5_moe_text")
            dense[own] = value - 1 if is_shifted else value
    return dense


def bitsandbytes(base, fused, double):
    """nf4: a Linear of bitsandbytes for each expert, as transformers 4 has saved it, or its parameters of all experts."""
    import bitsandbytes as bnb
    from bitsandbytes.nn.parametrize import replace_parameter_4bit

    dense = dict(base.tensors)
    tensors = together(base.tensors) if fused else base.tensors
    tree = tree_of({base.own_name(name): value for name, value in tensors.items()})
    if fused:
        for name in tensors:
            path, _, last = name.rpartition(".")
            if path.endswith(".experts"):
                replace_parameter_4bit(tree.get_submodule(base.own_name(path)), last, compress_statistics=double, quant_type="nf4")
        state = tree.state_dict()
        values = {}
        for name in tensors:
            if ".experts." in name:
                path, _, last = base.own_name(name).rpartition(".")
                parameter = tree.get_submodule(path).parametrizations[last]
                values[name] = dequantized_4bit(bnb, parameter.original, parameter[0].quant_state)
        dense |= apart(values)
    else:
        for name in base.linears():
            path, _, last = base.own_name(name).rpartition(".")
            parent = tree.get_submodule(path)
            old = getattr(parent, last)
            new = bnb.nn.Linear4bit(old.in_features, old.out_features, bias=False, compress_statistics=double, quant_type="nf4")
            new.weight = bnb.nn.Params4bit(old.weight.data, requires_grad=False, compress_statistics=double, quant_type="nf4", module=new)
            setattr(parent, last, new.to("cpu"))
            dense[name + ".weight"] = dequantized_4bit(bnb, new.weight.data, new.weight.quant_state)
        state = tree.state_dict()
    quantized = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=double,
                                   llm_int8_skip_modules=["self_attn", "linear_attn", "gate", "shared_expert"]).to_dict()
    return state, quantized, dense


def dequantized_4bit(bnb, data, state):
    state.dtype = torch.float32
    return bnb.functional.dequantize_4bit(data, state).contiguous()


def fine_grained_fp8(base, fused, block):
    """transformers' own FP8 in blocks: matrices of each expert, as Qwen publishes them, or of all, as transformers 5 saves them."""
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize, Fp8Quantize

    config = FineGrainedFP8Config(weight_block_size=(block, block), modules_to_not_convert=["self_attn", "linear_attn", "shared_expert", "gate"])
    quantizer = types.SimpleNamespace(quantization_config=config)
    tensors, values = {}, {}
    for name, value in (together(base.tensors) if fused else base.tensors).items():
        own = base.own_name(name)
        if ".experts." not in name:
            tensors[own] = value
            continue
        made = Fp8Quantize(quantizer).convert({own: value})
        tensors |= made
        scale, = (tensor for key, tensor in made.items() if key != own)
        values[name] = Fp8Dequantize(quantizer)._dequantize_one(made[own], scale, output_dtype=torch.float32)
    dense = base.tensors | (apart(values) if fused else values)
    return tensors, config.to_dict(), dense


# ------------------------------------------------------------------------------------------------- the cases
def plain(value):
    """A configuration with texts in the place of enumerations and types."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, enum.Enum):
        return value.value
    return value if value is None or isinstance(value, (bool, int, float)) else str(value).removeprefix("torch.")


def write(folder, tensors, config):
    folder.mkdir(parents=True)
    save_file({name: value.contiguous().clone() for name, value in tensors.items()}, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def golden(folder, base, dense):
    held = {}
    for i, length in enumerate(LENGTHS):
        ids = torch.randint(2, VOCAB, (length,))
        held |= {f"prompt.{i}": ids, f"logits.{i}": base.logits(dense, ids)}
    save_file(held, folder / "golden.safetensors")
    facts = {}
    for name in sorted(dense):
        if ".experts." in name:
            value = dense[name].float().contiguous() + 0.0
            facts[name] = {"shape": list(value.shape), "sha256": hashlib.sha256(value.numpy().tobytes()).hexdigest()}
    (folder / "weights.json").write_text(json.dumps(facts, indent=2) + "\n")


ATTENTION = ["lm_head", "re:.*self_attn.*", "re:.*linear_attn.*", "re:.*mlp[.]gate$", "re:.*shared_expert.*"]
# bitsandbytes on a CPU dequantizes only rows of whole blocks of 64 rightly.
ROWS = dict(moe_intermediate_size=64)
LARGER = dict(hidden_size=128, moe_intermediate_size=128)
# The kind of model, its sizes, and what writes it.
CASES = {
    "ct-qwen3_moe-w4a16-g128": ("qwen3_moe", LARGER, compressed_tensors,
                                dict(ignore=ATTENTION, num_bits=4, type="int", symmetric=True, strategy="group", group_size=128)),
    "ct-qwen3_5_moe-w4a16-g32-asym": ("qwen3_5_moe_text", {}, compressed_tensors,
                                      dict(ignore=[*ATTENTION, "re:.*layers[.]0[.].*"], num_bits=4, type="int", symmetric=False,
                                           strategy="group", group_size=32)),
    "ct-qwen2_moe-w8a8": ("qwen2_moe", {}, compressed_tensors,
                          dict(ignore=ATTENTION, num_bits=8, type="int", symmetric=True, strategy="channel")),
    "ct-qwen3_moe-mxfp4": ("qwen3_moe", {}, compressed_tensors,
                           dict(ignore=ATTENTION, num_bits=4, type="float", symmetric=True, strategy="group", group_size=32,
                                scale_dtype=torch.uint8, zp_dtype=torch.uint8)),
    "gptq-qwen3_next-int4-desc_act": ("qwen3_next", {}, auto_gptq, dict(bits=4, group=32, order=True)),
    "gptq-qwen2_moe-int8-g32": ("qwen2_moe", {}, auto_gptq, dict(bits=8, group=32, order=False)),
    "mlx-qwen3_next-4bit": ("qwen3_next", {}, mlx, dict(bits=4, group_size=32)),
    "mlx-qwen3_5_moe-4bit": ("qwen3_5_moe_text", {}, mlx, dict(bits=4, group_size=32)),
    "mlx-qwen3_moe-8bit": ("qwen3_moe", {}, mlx, dict(bits=8, group_size=32)),
    "mlx-qwen2_moe-mxfp4": ("qwen2_moe", {}, mlx, dict(mode="mxfp4")),
    "bnb-qwen3_moe-nf4": ("qwen3_moe", ROWS, bitsandbytes, dict(fused=False, double=True)),
    "bnb-qwen3_5_moe-nf4-fused": ("qwen3_5_moe_text", ROWS, bitsandbytes, dict(fused=True, double=False)),
    "fp8-qwen3_moe-block128": ("qwen3_moe", LARGER, fine_grained_fp8, dict(fused=False, block=128)),
    "fp8-qwen2_moe-block32-fused": ("qwen2_moe", {}, fine_grained_fp8, dict(fused=True, block=32)),
}


def make(folder, number):
    kind, sizes, library, settings = CASES[folder.name]
    shutil.rmtree(folder, ignore_errors=True)
    base = Base(kind, number, **sizes)
    if library is mlx:
        dense = mlx(base, folder, **settings)
    else:
        tensors, quantized, dense = library(base, **settings)
        write(folder, tensors, base.config if callable(quantized) else base.config | {"quantization_config": plain(quantized)})
        if callable(quantized):
            quantized(folder)
    golden(folder, base, dense)
    size = sum(file.stat().st_size for file in folder.iterdir())
    print(f"{folder.name}: {size / 1e3:.0f} kB, {len(load_file(folder / 'model.safetensors'))} tensors")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("auto_gptq", type=pathlib.Path, help="the folder of the unpacked wheel")
    parser.add_argument("cases", nargs="*", help="the names of cases; without any, all")
    args = parser.parse_args()
    # auto-gptq waits for a GPU, even for matrices elsewhere.
    torch.cuda.synchronize = lambda: None
    # Only the parts of auto-gptq that quantize and pack: its __init__ needs an older transformers.
    for name in ("auto_gptq", "auto_gptq.quantization", "auto_gptq.nn_modules", "auto_gptq.nn_modules.qlinear"):
        package = types.ModuleType(name)
        package.__path__ = [str(args.auto_gptq / name.replace(".", "/"))]
        sys.modules[name] = package
    for number, name in enumerate(CASES):
        if not args.cases or name in args.cases:
            make(args.out / name, number)


if __name__ == "__main__":
    main()

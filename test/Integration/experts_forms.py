"""Experts whose weights have the forms of other programs: the goldens of dense models, whose networks become experts.

  experts_forms.py INPUTS WORKDIR

INPUTS/NAME has a checkpoint of another library, golden.safetensors (prompt.I and logits.I, which transformers computes with the dequantized weights)
and weights.json (the SHA-256 of each dequantized tensor), as for forms.py. Here each network becomes the experts of its layer. If all experts
of a layer are its own network, the model with experts has the logits of the dense one, because the weights of a token's experts have the sum 1.
If they are the networks of different layers, the order of experts shows.
"""
import hashlib
import json
import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np

from checks import Checks, dequantized, export, full, logits, read_safetensors, run, same_bits

INPUTS, WORK = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
EXPERTS, ACTIVE = 3, 2
NETWORK = ("gate_proj", "up_proj", "down_proj")
ARCHITECTURES = {"qwen2": "Qwen2MoeForCausalLM", "qwen3": "Qwen3MoeForCausalLM"}
checks = Checks()

# The layout of the experts in each case, and whether the compiled model has their values.
CASES = {
    "gptq-qwen2-int4-g128": ("apart", True),
    "gptq-qwen3-int4-desc_act": ("apart", False),
    "autoround-qwen3-asym": ("apart", True),
    "awq-qwen2-gemm-g128": ("apart", True),
    "ct-qwen2-w4a16-g32-asym": ("apart", True),
    "ct-qwen3-w8a8-int": ("apart", True),
    "ct-qwen3-mxfp4": ("apart", True),
    "fp8-qwen3-block128": ("apart", False),
    "mlx-qwen3-4bit": ("switch", True),
    "mlx-qwen2-8bit": ("switch", False),
    "mlx-qwen3-mxfp4": ("switch", True),
    "bnb-qwen3-nf4-double": ("apart", False),
}
# A compile takes most of the time, so that only `make test-full` compiles all.
COMPILED = ("awq-qwen2-gemm-g128", "mlx-qwen3-4bit")
COMPILED_F32 = ("gptq-qwen3-int4-desc_act", "fp8-qwen3-block128")


class Tensor:
    """The bytes of a tensor in a file of safetensors."""

    def __init__(self, dtype, shape, data):
        self.dtype, self.shape, self.data = dtype, list(shape), data


def read_tensors(path):
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header, data = json.loads(data[8:8 + size]), data[8 + size:]
    header.pop("__metadata__", None)
    return {name: Tensor(fact["dtype"], fact["shape"], data[slice(*fact["data_offsets"])]) for name, fact in header.items()}


def write_tensors(path, tensors):
    header, at = {}, 0
    for name, tensor in tensors.items():
        header[name] = {"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [at, at + len(tensor.data)]}
        at += len(tensor.data)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(tensor.data for tensor in tensors.values()))


def stacked(tensors):
    """Tensors of one shape as one."""
    first = tensors[0]
    return Tensor(first.dtype, [len(tensors), *first.shape], b"".join(tensor.data for tensor in tensors))


def floats(values):
    return Tensor("F32", values.shape, values.astype(np.float32).tobytes())


def with_experts(tensors, config, layout, network_of):
    """The tensors of a model with experts: expert i of layer l has the network of layer network_of(l, i) of `tensors`."""
    rng, hidden, width = np.random.default_rng(3), config["hidden_size"], config["intermediate_size"]
    result = {name: tensor for name, tensor in tensors.items() if ".mlp." not in name}
    for layer in range(config["num_hidden_layers"]):
        path = f"model.layers.{layer}.mlp."
        result[path + "gate.weight"] = floats(rng.standard_normal((EXPERTS, hidden)))
        if config["model_type"] == "qwen2":
            for name, shape in (("gate_proj", (width, hidden)), ("up_proj", (width, hidden)), ("down_proj", (hidden, width))):
                result[f"{path}shared_expert.{name}.weight"] = floats(np.zeros(shape))
            result[path + "shared_expert_gate.weight"] = floats(np.zeros((1, hidden)))
        for i in range(EXPERTS):
            own = f"model.layers.{network_of(layer, i)}.mlp."
            result |= {f"{path}experts.{i}.{name.removeprefix(own)}": tensor for name, tensor in tensors.items() if name.startswith(own)}
    return result if layout == "apart" else LAYOUTS[layout](result, config)


def of_experts(tensors, layer):
    """The tensors of all experts of a layer, by the names behind the number of the expert."""
    path = f"model.layers.{layer}.mlp.experts."
    first = [name.removeprefix(path + "0.") for name in tensors if name.startswith(path + "0.")]
    return {name: [tensors[f"{path}{i}.{name}"] for i in range(EXPERTS)] for name in first}


def switched(tensors, config):
    """MLX's layout: a tensor for each part of all experts."""
    result = {name: tensor for name, tensor in tensors.items() if ".experts." not in name}
    for layer in range(config["num_hidden_layers"]):
        result |= {f"model.layers.{layer}.mlp.switch_mlp.{name}": stacked(parts) for name, parts in of_experts(tensors, layer).items()}
    return result


def joined(tensors, config):
    """FP8 as transformers 5 saves it: gate and up of all experts in one tensor, and their scales in another."""
    result = {name: tensor for name, tensor in tensors.items() if ".experts." not in name}
    for layer in range(config["num_hidden_layers"]):
        path, parts = f"model.layers.{layer}.mlp.experts.", of_experts(tensors, layer)
        for kind, ending in (("weight", ""), ("weight_scale_inv", "_scale_inv")):
            both = zip(parts[f"gate_proj.{kind}"], parts[f"up_proj.{kind}"])
            result[f"{path}gate_up_proj{ending}"] = stacked(
                [Tensor(gate.dtype, [2 * gate.shape[0], gate.shape[1]], gate.data + up.data) for gate, up in both])
            result[f"{path}down_proj{ending}"] = stacked(parts[f"down_proj.{kind}"])
    return result


LAYOUTS = {"switch": switched, "joined": joined}


def write_model(name, layout, network_of):
    """A checkpoint with the experts of a case; returns its folder."""
    folder = WORK / f"{name}-{layout}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    dense = json.loads((INPUTS / name / "config.json").read_text())
    kind = dense["model_type"]
    config = dense | {"architectures": [ARCHITECTURES[kind]], "model_type": kind + "_moe", "num_experts": EXPERTS, "num_experts_per_tok": ACTIVE,
                      "moe_intermediate_size": dense["intermediate_size"], "norm_topk_prob": True, "mlp_only_layers": [], "decoder_sparse_step": 1}
    if kind == "qwen2":
        # A GGUF file of a Qwen2-MoE cannot say that weights are divided by their sum. With all experts, the sum is 1.
        config |= {"shared_expert_intermediate_size": dense["intermediate_size"], "norm_topk_prob": False, "num_experts_per_tok": EXPERTS}
    (folder / "config.json").write_text(json.dumps(config))
    write_tensors(folder / "model.safetensors", with_experts(read_tensors(INPUTS / name / "model.safetensors"), dense, layout, network_of))
    return folder, dense


def digest(values):
    return hashlib.sha256((np.ascontiguousarray(values) + np.float32(0)).tobytes()).hexdigest()


def check_values(name, layout):
    """Each expert has the values of its own network."""
    def network_of(layer, i):
        # The second layer of the case of FP8 has floats, which a tensor of all experts cannot have beside FP8.
        return 0 if layout == "joined" else (layer + i) % config["num_hidden_layers"]

    config = json.loads((INPUTS / name / "config.json").read_text())
    folder, _ = write_model(name, layout, network_of)
    facts = json.loads((INPUTS / name / "weights.json").read_text())
    run(["reference-logits", folder, "values", WORK / "values"])
    values = read_safetensors(WORK / "values")
    for layer in range(config["num_hidden_layers"]):
        for part in NETWORK:
            for i, matrix in enumerate(values[f"model.layers.{layer}.mlp.experts.{part}.weight"]):
                needed = facts[f"model.layers.{network_of(layer, i)}.mlp.{part}.weight"]["sha256"]
                checks.check(digest(matrix) == needed, f"{name}, {layout}: {part} of expert {i} of layer {layer} has other values")


def check_kept(name, layout):
    """The compiled model has the integers: the exported experts have the values of the form."""
    folder, config = write_model(name, layout, lambda layer, i: layer)
    run(["qwen-opt", folder, "-o", WORK / "kept.qwen"])
    tensors = {tensor.name: tensor for tensor in export(WORK / "kept.qwen", WORK / "kept.gguf")}
    facts = json.loads((INPUTS / name / "weights.json").read_text())
    for layer in range(config["num_hidden_layers"]):
        for part in NETWORK:
            needed = facts[f"model.layers.{layer}.mlp.{part}.weight"]["sha256"]
            for i, matrix in enumerate(dequantized(tensors[f"blk.{layer}.ffn_{part.removesuffix('_proj')}_exps.weight"])):
                checks.check(digest(matrix) == needed, f"{name}, {layout}: {part} of expert {i} of layer {layer} is exported with other values")


def check_logits(name, layout):
    """The logits of the dense model, which transformers computed."""
    folder, _ = write_model(name, layout, lambda layer, i: layer)
    run(["qwen-opt", folder, "-o", WORK / "f32.qwen", "--weights", "f32", "--kv", "f32"])
    golden = read_safetensors(INPUTS / name / "golden.safetensors")
    for i in range(2):
        expected = golden[f"logits.{i}"]
        error = np.abs(logits(WORK / "f32.qwen", golden[f"prompt.{i}"], WORK / "logits.npy") - expected).max() / (expected.max() - expected.min())
        checks.check(error <= 1e-5, f"{name}, {layout}: logits {i} differ by {error:.1e} of their range")


def mlx_matrix(values, bits):
    """MLX's tensors of matrices [..., outputs, K], by the ends of their names, and the values that they hold. Groups of 32 have integers in words."""
    groups = values.reshape(*values.shape[:-1], -1, 32)
    low = groups.min(-1)
    scale = ((groups.max(-1) - low) / (2**bits - 1)).astype(np.float16)
    bias = low.astype(np.float16)
    codes = np.rint((groups - bias[..., None].astype(np.float32)) / np.maximum(scale, 1e-4)[..., None].astype(np.float32)).clip(0, 2**bits - 1)
    held = codes.astype(np.float32) * scale[..., None].astype(np.float32) + bias[..., None].astype(np.float32)
    places = codes.astype(np.uint32).reshape(*values.shape[:-1], -1, 32 // bits)
    words = (places << (bits * np.arange(32 // bits, dtype=np.uint32))).sum(-1, dtype=np.uint32)
    return {"weight": Tensor("U32", words.shape, words.tobytes()), "scales": Tensor("F16", scale.shape, scale.tobytes()),
            "biases": Tensor("F16", bias.shape, bias.tobytes())}, held.reshape(values.shape)


def plain(tensor):
    """The values of a tensor in bf16 or f32."""
    if tensor.dtype == "F32":
        return np.frombuffer(tensor.data, np.float32).reshape(tensor.shape)
    return (np.frombuffer(tensor.data, np.uint16).astype(np.uint32) << 16).view(np.float32).reshape(tensor.shape)


def as_mlx(tensors, config):
    """A hybrid as MLX writes it, with its config.json, and the same values as a folder of floats."""
    mlx, same, quantization = {}, {}, {"group_size": 32, "bits": 4}
    for name, tensor in tensors.items():
        values = plain(tensor)
        own = name.replace("model.language_model.", "language_model.model.")
        if name.endswith("conv1d.weight"):
            mlx[own] = floats(values.transpose(0, 2, 1))
        elif name.endswith("norm.weight") and "linear_attn" not in name:
            mlx[own] = floats(values + np.float32(1))
        elif values.ndim == 1:
            mlx[own] = floats(values)
        else:
            # The router and the gate of the shared expert have 8 bits.
            module = own.removesuffix(".weight")
            bits = 8 if module.endswith("gate") else 4
            if bits == 8:
                quantization[module] = {"group_size": 32, "bits": 8}
            parts, values = mlx_matrix(values, bits)
            mlx |= {f"{module}.{kind}": part for kind, part in parts.items()}
        same[name] = floats(values)
    return mlx, config | {"quantization": quantization}, same


def mlx_experts(tensors):
    """A folder with the experts as MLX writes them: a tensor for gate, up and down of all experts."""
    result, apart = {}, {}
    for name, tensor in tensors.items():
        path, _, rest = name.partition(".mlp.experts.")
        values = plain(tensor)
        if not rest:
            result[name] = tensor
        elif rest == "gate_up_proj":
            gate, up = np.split(values, 2, axis=1)
            result |= {f"{path}.mlp.switch_mlp.gate_proj.weight": floats(gate), f"{path}.mlp.switch_mlp.up_proj.weight": floats(up)}
        elif rest == "down_proj":
            result[f"{path}.mlp.switch_mlp.down_proj.weight"] = tensor
        else:
            i, part = rest.split(".", 1)
            apart.setdefault(f"{path}.mlp.switch_mlp.{part}", {})[int(i)] = values
    return result | {name: floats(np.stack([parts[i] for i in sorted(parts)])) for name, parts in apart.items()}


def check_mlx_hybrid(name):
    """MLX has changed norms and convolutions of a hybrid: the compiled model has the bits of the same values in a folder of floats."""
    folder, tensors = INPUTS / name, {}
    for path in folder.glob("model*.safetensors"):
        tensors |= {name: tensor for name, tensor in read_tensors(path).items() if not name.startswith("mtp.") and "visual" not in name}
    mlx, config, same = as_mlx(mlx_experts(tensors), json.loads((folder / "config.json").read_text()))
    found = {}
    for kind, weights, facts in (("mlx", mlx, config), ("floats", same, json.loads((folder / "config.json").read_text()))):
        out = WORK / f"{name}-{kind}"
        out.mkdir()
        (out / "config.json").write_text(json.dumps(facts))
        write_tensors(out / "model.safetensors", weights)
        run(["qwen-opt", out, "-o", WORK / "hybrid.qwen", "--weights", "f32", "--kv", "f32"])
        found[kind] = logits(WORK / "hybrid.qwen", range(1, 40, 3), WORK / "logits.npy")
    checks.check(same_bits(found["mlx"], found["floats"]), f"{name}: MLX gives other logits than the same floats")


def check_orders():
    """Each expert of act-order has an order of columns of its own: gate and up of the expert follow its down, which keeps its integers."""
    name = "gptq-qwen3-int4-desc_act"
    folder, _ = write_model(name, "apart", lambda layer, i: (layer + i) % 2)
    result = subprocess.run(["qwen-opt", folder, "-o", WORK / "orders.qwen"], capture_output=True, text=True)
    kept = re.findall(r"from GPTQ 4-bit: (\d+) matrices, .*, kept exactly in q4_g128", result.stderr)
    checks.expect(f"{name}: matrices that keep their integers", kept, ["4"])


def main():
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    check_values("fp8-qwen3-block128", "joined")
    for name, (layout, is_kept) in CASES.items():
        # The experts of act-order have columns in the order of their integers.
        if "desc_act" not in name:
            check_values(name, layout)
        if is_kept and (full() or name in COMPILED):
            check_kept(name, layout)
        if full() or name in COMPILED_F32:
            check_logits(name, layout)
    check_orders()
    check_mlx_hybrid("qwen3_5-moe-bf16")
    if full():
        check_mlx_hybrid("qwen3-next-bf16")
    checks.finish()


main()

"""GGUF files: the goldens of test/Inputs/gguf, and checkpoints as a folder and as a file.

  gguf_files.py INPUTS WORKDIR

INPUTS/gguf/NAME has the first file of a model, golden.safetensors (prompt.I and logits.I, which transformers computes in f32
with the dequantized weights) and weights.json (the SHA-256 of each dequantized tensor in f32, with -0 as +0). All models have
the tokenizer of INPUTS/gguf/tokenizer.
"""
import hashlib
import json
import pathlib
import shutil
import struct
import subprocess
import sys

import gguf
import numpy as np

from checks import Checks, compile_model, config as config_of, join, logits, read_safetensors, run, same_bits, tensors as tensors_of, weights_of, write_weights, write_checkpoint
from gguf_exported import check_exported
from gguf_model import keys_of, own_name, random_blocks
from hybrid_gguf import interleaved

INPUTS, WORK = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
checks = Checks()

# Goldens


def check_tokenizer(model):
    for line in (INPUTS / "gguf/tokenizer/cases.jsonl").read_text().splitlines():
        case = json.loads(line)
        output = subprocess.run(["qwen-run", "tokenize", model, "--json"], input=case["text"].encode(),
                                capture_output=True, check=True).stdout
        ids = json.loads(output)["ids"]
        checks.check(ids == case["ids"], f"ids of {case['text']!r} are {ids}")
    chat = json.loads((INPUTS / "gguf/tokenizer/chat.json").read_text())
    checks.check(chat["template"].encode() in model.read_bytes(), "the chat template is another")
    generation = json.loads(run(["qwen-run", "info", model, "--json"]))["generation"]
    wanted = {"do_sample": True, "temperature": 0.7, "top_k": 20, "top_p": 0.8, "eos_token_id": chat["stop"]}
    for key, value in wanted.items():
        checks.check(generation[key] == value, f"{key} is {generation[key]}")


def check_logits(name, model, bound):
    """`bound` is the greatest difference, as a share of the range of the logits."""
    golden = read_safetensors(INPUTS / "gguf" / name / "golden.safetensors")
    for i in range(2):
        expected = golden[f"logits.{i}"]
        found = logits(model, golden[f"prompt.{i}"], WORK / "logits.npy")
        error = np.abs(found - expected).max() / (expected.max() - expected.min())
        checks.check(error <= bound, f"{name}: logits {i} differ by {error:.1e} of their range")


def check_golden(name):
    folder = INPUTS / "gguf" / name
    file = sorted(folder.glob("*.gguf"))[0]
    model = compile_model(file, WORK / f"{name}.qwen", "--weights", "f32")
    check_logits(name, model, 1e-5)
    weights = weights_of(model)
    for tensor, facts in json.loads((folder / "weights.json").read_text()).items():
        digest = hashlib.sha256((weights[tensor] + np.float32(0)).tobytes()).hexdigest()
        checks.check(digest == facts["sha256"], f"{name}: {tensor} has other values")


def check_kept(name, kept):
    """`kept` are the lines of the summary about types, with the formats of the checkpoint."""
    file = sorted((INPUTS / "gguf" / name).glob("*.gguf"))[0]
    model = WORK / f"{name}.qwen"
    result = subprocess.run(["qwen-opt", file, "-o", model], capture_output=True, text=True, check=True)
    lines = [line.strip() for line in result.stderr.splitlines() if line.startswith("  from ")]
    checks.check(lines == kept, f"{name}: the types became {lines}")
    # The activations are quantized.
    check_logits(name, model, 2e-2)
    check_tokenizer(model)
    check_reference(file, model)
    check_exported(checks, WORK, file, model, model)


def check_reference(file, model, weights="keep"):
    """The logits of a file compiled with `weights` are those of the plain C++ model, bit for bit."""
    ids = list(range(1, 40, 3))
    found = logits(model, ids, WORK / "logits.npy")
    run(["reference-logits", file, weights, "q8", join(ids), WORK / "reference"])
    expected = np.fromfile(WORK / "reference", np.float32).reshape(len(ids), -1)
    checks.check(np.isfinite(found).all() and same_bits(found, expected),
                 f"{file.name}: the logits are not those of the reference")


# A folder and a file of the same model


def write_value(value):
    if isinstance(value, str):
        return struct.pack("<IQ", 8, len(value)) + value.encode()
    return struct.pack("<If", 6, value) if isinstance(value, float) else struct.pack("<II", 4, value)


def write_gguf(path, keys, tensors):
    """`tensors` are (name, gguf.GGMLQuantizationType, shape, bytes)."""
    text = lambda s: struct.pack("<Q", len(s)) + s.encode()
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys))
    head += b"".join(text(key) + write_value(value) for key, value in keys.items())
    data = b""
    for name, kind, shape, raw in tensors:
        head += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), int(kind), len(data))
        data += raw + bytes(-len(raw) % 32)
    path.write_bytes(head + bytes(-len(head) % 32) + data)


def encode(raw, dtype, shape, kind):
    """The bytes of a tensor in `kind`; None keeps its own type."""
    types = gguf.GGMLQuantizationType
    own = {"F32": types.F32, "F16": types.F16, "BF16": types.BF16}[dtype]
    if kind is None:
        return own, raw
    values = {types.F32: lambda: np.frombuffer(raw, "<f4"), types.F16: lambda: np.frombuffer(raw, "<f2"),
              types.BF16: lambda: (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32)}[own]()
    values = values.astype(np.float32).reshape(shape)
    return kind, np.ascontiguousarray(gguf.quants.quantize(values, kind)).tobytes()


def convert(name, raw, facts, config, rates):
    """The bytes and facts of a tensor of a hybrid, changed as llama.cpp's converter does. `rates` has exp(A_log) by name."""
    dtype, shape = facts["dtype"], facts["shape"]
    values = np.frombuffer(raw, {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}[dtype]).reshape(shape)
    member = name.rpartition("linear_attn.")[2]
    if name.endswith("norm.weight") and member != "norm.weight" or name.endswith((".A_log", ".conv1d.weight")):
        values = (values.astype(np.uint32) << 16).view(np.float32) if dtype == "BF16" else values.astype(np.float32)
        dtype = "F32"
    if member == "A_log":
        values = -rates[name]
    if member not in ("norm.weight", name):
        values = interleaved(member, values, config)
    elif member == name and name.endswith("norm.weight"):
        values = values + np.float32(1)
    return values.tobytes(), {"dtype": dtype, "shape": list(values.shape)}


def check_twins(name, kind, *options):
    """The folder, compiled with `options`, is the same file as a GGUF file whose matrices have type `kind`. A hybrid with several
    value heads for each of several key heads has only almost the same logits: its products add in the file's order of heads."""
    folder = WORK / name if (WORK / name).is_dir() else INPUTS / "checkpoints" / name
    config = json.loads((folder / "config.json").read_text())
    is_hybrid = "linear_num_key_heads" in config
    rates = weights_of(compile_model(folder, WORK / "folder.qwen", "--weights", "f32")) if is_hybrid else {}
    raw = (folder / "model.safetensors").read_bytes()
    size = int.from_bytes(raw[:8], "little")
    tensors = []
    for tensor, facts in json.loads(raw[8:8 + size]).items():
        if tensor == "__metadata__":
            continue
        begin, end = (8 + size + at for at in facts["data_offsets"])
        data = raw[begin:end]
        if is_hybrid:
            data, facts = convert(tensor, data, facts, config, rates)
        shape = facts["shape"]
        is_vector = len(shape) != 2 or "conv1d" in tensor
        is_exact = "in_proj_a" in tensor or "in_proj_b" in tensor
        own, data = encode(data, facts["dtype"], shape,
                           gguf.GGMLQuantizationType.F32 if is_vector else None if is_exact else kind)
        tensors.append((own_name(tensor, is_hybrid), own, shape, data))
    file = WORK / f"{name}.gguf"
    write_gguf(file, keys_of(config), tensors)
    # Floats of a file, like those of a folder, in q4_0.
    weights = () if kind else ("--weights", "q4_0")
    if is_hybrid and 1 < config["linear_num_key_heads"] < config["linear_num_value_heads"]:
        expected, found = (logits(compile_model(checkpoint, WORK / "model.qwen", "--weights", "f32"), range(1, 40, 3),
                                  WORK / "logits.npy") for checkpoint in (folder, file))
        error = np.abs(found - expected).max() / (expected.max() - expected.min())
        checks.check(error <= (5e-2 if kind else 1e-5), f"{name}: logits of a file in {kind} differ by {error:.1e} of their range")
    else:
        expected = compile_model(folder, WORK / "folder.qwen", *options)
        found = compile_model(file, WORK / "file.qwen", *weights)
        checks.check(expected.read_bytes() == found.read_bytes(), f"{name}: a file in {kind} gives another model")
        if kind:
            check_exported(checks, WORK, file, found)
    if is_hybrid or config.get("rope_scaling"):
        check_reference(file, compile_model(file, WORK / "file.qwen", *weights), "keep" if kind else "q4_0")


def check_random_blocks(shape):
    """A model with a matrix of each type of integers that the goldens lack."""
    types = gguf.GGMLQuantizationType
    kinds = [types.Q5_1, types.Q5_K, types.IQ4_XS, types.IQ4_NL, types.Q3_K, types.Q2_K, types.MXFP4, types.Q6_K]
    is_hybrid, rng = len(shape) > 9, np.random.default_rng(3)
    tensors, matrices = [], 0
    for name, dims in tensors_of(*shape):
        if len(dims) == 2 and not name.endswith(("in_proj_a.weight", "in_proj_b.weight")):
            kind, matrices = kinds[matrices % len(kinds)], matrices + 1
            tensors.append((own_name(name, is_hybrid), kind, dims, random_blocks(rng, kind, dims).tobytes()))
        else:
            dims = [size for size in dims if size > 1]
            values = np.full(dims, 0.1, "<f4") * (-1 if name.endswith("A_log") else 1)
            tensors.append((own_name(name, is_hybrid), types.F32, dims, values.tobytes()))
    checks.check(matrices >= len(kinds), "a type has no matrix")
    file = WORK / "random.gguf"
    write_gguf(file, keys_of(config_of(*shape) | {"bos_token_id": 0, "eos_token_id": 1}), tensors)
    model = compile_model(file, WORK / "random.qwen")
    check_reference(file, model)
    if not is_hybrid:
        check_exported(checks, WORK, file, model)


shutil.rmtree(WORK, ignore_errors=True)
WORK.mkdir(parents=True)
for model in ("qwen2-fused_qkv", "qwen3-split", "qwen3-q4_k_m"):
    check_golden(model)
check_kept("qwen3-q4_k_m", [
    "from Q5_0: 2 matrices, 44.0 KiB, kept exactly in q5_0, 44.0 KiB",
    "from Q4_K: 10 matrices, 243.0 KiB, kept exactly in q4_k, 243.0 KiB",
    "from Q6_K: 3 matrices, 131.2 KiB, kept exactly in q6_k, 131.2 KiB",
])
check_random_blocks(("qwen3", 256, 1, 4, 2, 64, 256, 64, True))
check_random_blocks(("qwen3_5", 256, 4, 4, 2, 64, 256, 64, True, (2, 32, 4, 64)))
for model in ("qwen2-yarn-bf16", "qwen3_5-text-f32"):
    shutil.copytree(INPUTS / "checkpoints" / model, WORK / model, ignore=shutil.ignore_patterns("generation_config.json"))
    check_twins(model, None)
write_checkpoint(WORK / "hybrid", ("qwen3_5", 64, 4, 2, 1, 64, 64, 96, True, (2, 32, 6, 64)), np.random.default_rng(1))
check_twins("hybrid", None)
check_twins("hybrid", gguf.GGMLQuantizationType.Q8_0, "--weights", "q8_0")
check_twins("qwen2-tied-f32", None)
check_twins("qwen2-mha-f16", None)
check_twins("qwen3-tied-bf16", None)
check_twins("qwen3-tied-bf16", gguf.GGMLQuantizationType.Q4_0, "--weights", "q4_0")
check_twins("qwen2-tied-f32", gguf.GGMLQuantizationType.Q8_0, "--weights", "q8_0")
check_twins("qwen3-tied-bf16", gguf.GGMLQuantizationType.Q4_1, "--weights", "q4_m_32")
# The tensors say whether a model is tied, whatever the folder's configuration says.
untied = write_checkpoint(WORK / "untied", ("qwen3", 64, 1, 2, 1, 32, 64, 96, False), np.random.default_rng(2), tie_word_embeddings=True)
check_twins("untied", None)
untied[0]["lm_head.weight"] = untied[0]["model.embed_tokens.weight"]
for is_tied in (False, True):
    write_weights(WORK / "same", untied[0], untied[1] | {"tie_word_embeddings": is_tied})
    check_twins("same", None)
checks.finish()

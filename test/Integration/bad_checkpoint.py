"""Every kind of bad checkpoint stops qwen-opt with one clear line and leaves no file.

  bad_checkpoint.py CHECKPOINT HYBRID WORKDIR      both checkpoints are small ones in a single file
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys

from checks import Checks

SOURCE, HYBRID, WORK = map(pathlib.Path, sys.argv[1:4])
checks = Checks()


def attempt(name, folder, *needles, options=()):
    """Compiles `folder`; expects failure with one line that contains all needles."""
    out_folder = WORK / "out"
    shutil.rmtree(out_folder, ignore_errors=True)
    out_folder.mkdir()
    result = subprocess.run(["qwen-opt", folder, "-o", out_folder / "model.qwen", *options],
                            capture_output=True, text=True, timeout=60)
    lines = result.stderr.splitlines()
    checks.check(result.returncode == 1, f"{name}: exit code is {result.returncode}: {result.stderr}")
    checks.check(len(lines) == 1, f"{name}: {len(lines)} lines: {result.stderr}")
    checks.check(lines and lines[0].startswith("qwen-opt: "), f"{name}: {lines}")
    for needle in needles:
        checks.check(needle in result.stderr, f"{name}: '{needle}' is not in: {result.stderr}")
    checks.check(not result.stdout, f"{name}: stdout has {result.stdout!r}")
    checks.check(not list(out_folder.iterdir()), f"{name}: left {list(out_folder.iterdir())}")


def copy(source=SOURCE):
    folder = WORK / "bad"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source, folder)
    return folder


def with_config(name, change, *needles, file="config.json", source=SOURCE):
    """`change` edits the JSON in place, or returns text to write instead."""
    folder = copy(source)
    config = json.loads((folder / file).read_text())
    text = change(config)
    (folder / file).write_text(text if isinstance(text, str) else json.dumps(config))
    attempt(name, folder, *needles)


def with_header(name, change, *needles, source=SOURCE):
    """Edits the JSON header of model.safetensors; the data stay."""
    folder = copy(source)
    path = folder / "model.safetensors"
    raw = path.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:8 + size])
    change(header)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + raw[8 + size:])
    attempt(name, folder, *needles)


def with_nan(name, tensor, *needles):
    """A hybrid whose f32 tensor begins with a NaN."""
    path = copy(HYBRID) / "model.safetensors"
    raw = bytearray(path.read_bytes())
    size = int.from_bytes(raw[:8], "little")
    begin = 8 + size + json.loads(raw[8:8 + size])[tensor]["data_offsets"][0]
    raw[begin:begin + 4] = b"\0\0\xc0\x7f"
    path.write_bytes(raw)
    attempt(name, path.parent, *needles, tensor)


def with_bytes(name, change, *needles):
    folder = copy()
    path = folder / "model.safetensors"
    path.write_bytes(change(path.read_bytes()))
    attempt(name, folder, *needles)


def main():
    attempt("missing folder", WORK / "nothing-here", "nothing-here")
    (WORK / "a-file").write_text("x")
    attempt("a file for a folder", WORK / "a-file", "a-file")
    for missing in ("config.json", "model.safetensors"):
        folder = copy()
        (folder / missing).unlink()
        attempt(f"without {missing}", folder, missing)

    for key in ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size",
                "rms_norm_eps", "architectures"):
        with_config(f"without {key}", lambda c: c.pop(key) and None, "config.json", key)
    for key in ("hidden_size", "num_hidden_layers", "vocab_size"):
        for value in ("many", 1.5, -1, 0, 2 ** 40, None, [1]):
            with_config(f"{key} = {value}", lambda c: c.update({key: value}), "config.json", key)
    with_config("not json", lambda c: "{", "config.json")
    with_config("json of another kind", lambda c: "[1]", "config.json")
    with_config("hidden that disagrees", lambda c: c.update(hidden_size=c["hidden_size"] * 2))
    with_config("heads that do not divide", lambda c: c.update(num_key_value_heads=c["num_attention_heads"] + 1),
                "num_key_value_heads")
    with_config("other architecture", lambda c: c.update(architectures=["LlamaForCausalLM"]), "LlamaForCausalLM",
                "Qwen2ForCausalLM", "Qwen3ForCausalLM")
    with_config("mixture of experts", lambda c: c.update(architectures=["Qwen3MoeForCausalLM"]), "Qwen3MoeForCausalLM")
    with_config("other activation", lambda c: c.update(hidden_act="gelu"), "gelu", "silu")
    with_config("rope scaling", lambda c: c.update(rope_scaling={"rope_type": "linear", "factor": 4.0}), "rope_scaling")
    with_config("rope type", lambda c: c.update(rope_parameters={"rope_type": "longrope", "rope_theta": 1e6}), "longrope")
    with_config("sliding window", lambda c: c.update(use_sliding_window=True), "use_sliding_window")
    with_config("sliding layers", lambda c: c.update(layer_types=["sliding_attention"] * c["num_hidden_layers"]),
                "sliding_attention")
    with_config("partial rotation", lambda c: c.update(partial_rotary_factor=0.5), "partial_rotary_factor")
    for key, value, *needles in (
            ("layer_types", ["linear_attention"], "layer_types", "5"),
            ("layer_types", ["mamba"] * 5, "mamba", "linear_attention"),
            ("linear_conv_kernel_dim", 3, "linear_conv_kernel_dim", "4"),
            ("linear_num_value_heads", 4, "model.layers.0.linear_attn.in_proj_qkv.weight", "[224, 64]", "[256, 64]"),
            ("linear_num_key_heads", 2, "linear_num_value_heads", "multiple"),
            ("rope_parameters", {"rope_theta": 1e5, "partial_rotary_factor": 0.2}, "partial_rotary_factor", "0.2"),
            ("rope_parameters", {"rope_theta": 1e5, "partial_rotary_factor": 0.28125}, "partial_rotary_factor", "multiple of 8"),
            ("attn_output_gate", False, "attn_output_gate"),
            ("architectures", ["Qwen3_5ForConditionalGeneration"], "text_config"),
            ("architectures", ["Qwen3_5MoeForCausalLM"], "Qwen3_5MoeForCausalLM", "Qwen3_5ForCausalLM")):
        with_config(f"hybrid with {key} = {value}", lambda c: c.update({key: value}), *needles, source=HYBRID)
    for rope, *needles in (
            ({"type": "yarn", "factor": 0.0}, "factor", "0"), ({"type": "yarn", "factor": -4.0}, "factor", "-4.0"),
            ({"type": "yarn"}, "has no rope_scaling.factor"), ({"type": "yarn", "factor": "4"}, "factor", "number"),
            ({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 0}, "original_max_position_embeddings", "0"),
            ({"type": "yarn", "factor": 4.0, "beta_slow": 0.0}, "beta_slow"), ({"type": "yarn", "factor": 4.0, "mscale": 1.0}, "mscale"),
            ({"type": "yarn", "factor": 4.0, "attention_factor": 0.0}, "attention_factor"),
            ({"type": "yarn", "factor": 4.0, "truncate": False}, "truncate")):
        with_config(f"rope_scaling = {rope}", lambda c: c.update(rope_scaling=rope), *needles)
    name = "model.layers.0.linear_attn.conv1d.weight"
    with_header("a convolution of two taps", lambda h: h[name].update(shape=[h[name]["shape"][0], 1, 2], dtype="F64"),
                name, "1, 2]", "1, 4]", source=HYBRID)
    for tensor in ("A_log", "dt_bias", "conv1d.weight"):
        with_nan(f"NaN in {tensor}", f"model.layers.0.linear_attn.{tensor}")
    for key in ("quantization_config", "compression_config"):
        with_config(key, lambda c: c.update({key: {"quant_method": "gptq"}}), key)
    with_config("generation config", lambda c: c.update(temperature="hot"), "generation_config.json", "temperature",
                file="generation_config.json")

    with_config("bias that Qwen3 lacks", lambda c: c.update(architectures=["Qwen3ForCausalLM"], head_dim=16,
                                                            attention_bias=True), "attention_bias")
    with_config("K of broken groups", lambda c: c.update(intermediate_size=80), "mlp.down_proj.weight", "80", "32")
    for name, text in (("tokenizer.json", "{"), ("tokenizer.json", "[]"), ("vocab.json", "{\"a\": 0"),
                       ("merges.txt", "a b c\n")):
        folder = copy()
        (folder / "vocab.json").write_text(json.dumps({"a": 0, "b": 1}))
        (folder / "merges.txt").write_text("")
        (folder / name).write_text(text)
        attempt(f"{name} {text!r}", folder, name)

    with_bytes("header too long", lambda b: (2 ** 62).to_bytes(8, "little") + b[8:], "model.safetensors", "header")
    with_bytes("header not json", lambda b: b[:8] + b"x" * 16 + b[24:], "model.safetensors", "JSON")
    with_bytes("truncated data", lambda b: b[:-10], "model.safetensors")
    with_bytes("truncated header", lambda b: b[:20], "model.safetensors")
    with_bytes("empty", lambda b: b"", "model.safetensors")
    name = "model.norm.weight"
    with_header("missing tensor", lambda h: h.update(other=h.pop(name)), name)
    with_header("offsets out of range", lambda h: h[name].update(data_offsets=[2 ** 40, 2 ** 40 + 8]), name)
    with_header("offsets that do not match", lambda h: h[name].update(
        data_offsets=[h[name]["data_offsets"][0], h[name]["data_offsets"][1] - 2]), name)
    with_header("overlap", lambda h: h[name].update(data_offsets=[h[name]["data_offsets"][0] - 4, h[name]["data_offsets"][1] - 4]),
                "overlap")
    with_header("other shape", lambda h: h[name].update(shape=[1] + h[name]["shape"]), name)
    with_header("other dtype", lambda h: h[name].update(dtype="I32"), name, "I32")
    with_header("huge shape", lambda h: h[name].update(shape=[2 ** 40, 2 ** 40]), name)

    attempt("unknown target", SOURCE, "quantum9000", options=["--target", "quantum9000"])
    attempt("too old a target", SOURCE, "avx2", options=["--target", "x86-64-v2"])
    attempt("context too long", SOURCE, "1000000", options=["--context", "1000000"])
    if os.geteuid() != 0:
        folder = copy()
        (folder / "config.json").chmod(0)
        attempt("unreadable file", folder, "config.json")
    checks.finish()


WORK.mkdir(parents=True, exist_ok=True)
main()

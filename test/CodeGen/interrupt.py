"""Signals during a compile: interrupt.py FOLDER.

Makes a checkpoint with an embedding of 1 GB (zeros that take no disk), and
stops its compilation while the file is written.
"""

import json
import pathlib
import signal
import struct
import subprocess
import sys
import time

K, VOCAB = 1024, 250000


def make_checkpoint(folder):
    folder.mkdir()
    config = {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",
        "hidden_act": "silu", "vocab_size": VOCAB, "hidden_size": K,
        "num_hidden_layers": 1, "num_attention_heads": 2,
        "num_key_value_heads": 1, "head_dim": 32, "intermediate_size": 64,
        "max_position_embeddings": 128, "rope_theta": 10000.0,
        "rms_norm_eps": 1e-6, "tie_word_embeddings": True,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    layer = "model.layers.0."
    shapes = {
        "model.embed_tokens.weight": [VOCAB, K], "model.norm.weight": [K],
        layer + "input_layernorm.weight": [K],
        layer + "post_attention_layernorm.weight": [K],
        layer + "self_attn.q_proj.weight": [64, K],
        layer + "self_attn.k_proj.weight": [32, K],
        layer + "self_attn.v_proj.weight": [32, K],
        layer + "self_attn.o_proj.weight": [K, 64],
        layer + "self_attn.q_norm.weight": [32],
        layer + "self_attn.k_norm.weight": [32],
        layer + "mlp.gate_proj.weight": [64, K],
        layer + "mlp.up_proj.weight": [64, K],
        layer + "mlp.down_proj.weight": [K, 64],
    }  # fmt: skip
    header, end = {}, 0
    for name, shape in shapes.items():
        size = 4
        for dimension in shape:
            size *= dimension
        header[name] = {"dtype": "F32", "shape": shape,
                        "data_offsets": [end, end + size]}  # fmt: skip
        end += size
    text = json.dumps(header).encode()
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)


def stop(folder, number):
    """The files besides the checkpoint after signal `number`."""
    output = folder / "out" / "model.qwen"
    output.parent.mkdir()
    process = subprocess.Popen(
        ["qwen-opt", str(folder / "big"), "--weights", "f32",
         "--target", "x86-64-v3", "-o", str(output)],
        # A script's background process ignores SIGINT by default.
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL)
        if number != signal.SIGKILL else None,
    )  # fmt: skip
    while not any(output.parent.iterdir()):
        assert process.poll() is None, "it ended before it wrote a file"
        time.sleep(0.001)
    process.send_signal(number)
    assert process.wait() == -number, process.returncode
    names = [path.name for path in output.parent.iterdir()]
    for name in names:
        (output.parent / name).unlink()
    output.parent.rmdir()
    return names


folder = pathlib.Path(sys.argv[1])
make_checkpoint(folder / "big")
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    assert stop(folder, number) == [], number
left = stop(folder, signal.SIGKILL)
assert left and "model.qwen" not in left, left
print("ok")

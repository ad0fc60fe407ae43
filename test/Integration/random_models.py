"""Compares the logits of compiled models of random shapes with those of the plain C++ reference, bit for bit.

  random_models.py WORKDIR AARCH64_QWEN_RUN [COUNT [FIRST_SEED]]

Every seed gives a checkpoint, formats and a way to run them. Half of the seeds draw a format for each matrix, every fourth
one is a hybrid, every fourth one has experts, and every eighth one is a Qwen 1, whose reference is the same model as a Qwen2. Every fourth one also runs on an
emulated machine. Every other one is rotated as well, in f32, and close to the reference. A failure names its seed.
"""
import math
import pathlib
import re
import sys

import numpy as np

from checks import Checks, compile_model, full, join, kv_formats, logits, run, same_bits, tensors, weight_formats, write_weights, write_checkpoint

WORK, AARCH64 = pathlib.Path(sys.argv[1]), sys.argv[2]
COUNT = int(sys.argv[3]) if len(sys.argv) > 3 else 200 if full() else 8
FIRST = int(sys.argv[4]) if len(sys.argv) > 4 else 0
MACHINES = [("cortex-a72", "cortex-a72"), ("neoverse-n1", "neoverse-n1")]
MACHINES += [(target, f"max,sve-default-vector-length={length}") for target in ("armv8.2-a+sve", "neoverse-n2")
             for length in (16, 32, 64, 256)]


def random_hybrid(rng):
    """The shape of a hybrid, as random_shape's, with the heads of linear attention."""
    kv_heads, key_heads = (int(n) for n in rng.integers(1, 4, 2))
    linear = (key_heads, 32 * int(rng.integers(1, 5)), key_heads * int(rng.integers(1, 4)), 32 * int(rng.integers(1, 4)))
    return ("qwen3_5", 32 * int(rng.integers(1, 9)), int(rng.integers(1, 6)), kv_heads * int(rng.integers(1, 4)), kv_heads,
            32 * int(rng.integers(1, 5)), 32 * int(rng.integers(1, 9)), int(rng.integers(2, 300)), bool(rng.integers(2)), linear)


def random_shape(rng):
    """(kind, hidden, layers, heads, KV heads, head_dim, ffn, vocabulary, tied)."""
    kind = str(rng.choice(["qwen2", "qwen3"]))
    head_dim = 8 * int(rng.integers(2, 33))
    step = 32 // math.gcd(32, head_dim)
    heads = step * int(rng.integers(1, max(1, 512 // (step * head_dim)) + 1))
    kv_heads = int(rng.choice([n for n in range(1, heads + 1) if heads % n == 0]))
    hidden = heads * head_dim if kind == "qwen2" else 32 * int(rng.integers(1, 17))
    return (kind, hidden, int(rng.integers(1, 4)), heads, kv_heads, head_dim, 32 * int(rng.integers(1, 25)),
            int(rng.integers(2, 700)), bool(rng.integers(2)))


def random_experts(rng):
    """The shape of a model with experts: any number, of which a token takes one, all or some."""
    kind, hidden, *rest = random_shape(rng)
    if kind == "qwen2":
        hidden = 32 * int(rng.integers(1, 17))
    count = int(rng.integers(1, 24))
    active = int(rng.choice([1, count, rng.integers(1, count + 1)]))
    return ("qwen3_moe", hidden, *rest, None, (count, active, 32 * int(rng.integers(1, 10))))


# The parts of a Qwen 1's modules, by the names of Qwen2.
QWEN1 = {"model.embed_tokens": "transformer.wte", "model.norm": "transformer.ln_f", "input_layernorm": "ln_1",
         "post_attention_layernorm": "ln_2", "self_attn.q_proj": "attn.c_attn", "self_attn.k_proj": "attn.c_attn",
         "self_attn.v_proj": "attn.c_attn", "self_attn.o_proj": "attn.c_proj", "mlp.up_proj": "mlp.w1", "mlp.gate_proj": "mlp.w2",
         "mlp.down_proj": "mlp.c_proj"}


def write_qwen1(folder, weights, facts):
    """The Qwen2 of `weights` and `facts` as a Qwen 1."""
    own = {}
    for name, bits in weights.items():
        for module, other in QWEN1.items():
            name = name.replace(module + ".", other + ".")
        own.setdefault(name.replace("model.layers.", "transformer.h."), []).append(bits)
    config = {key: facts[key] for key in ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size",
                                          "tie_word_embeddings", "max_position_embeddings")}
    write_weights(folder, {name: np.concatenate(parts) for name, parts in own.items()}, config | {
        "architectures": ["QWenLMHeadModel"], "model_type": "qwen", "kv_channels": facts["head_dim"], "no_bias": True,
        "intermediate_size": 2 * facts["intermediate_size"], "layer_norm_epsilon": facts["rms_norm_eps"],
        "rotary_emb_base": facts["rope_theta"], "use_dynamic_ntk": False, "use_logn_attn": False})


def compare(checks, what, checkpoint, reference, ids, weights, mix, kv, machine, *options):
    """`reference` is the checkpoint of the reference. `mix` has the formats of matrices by name, `machine` a target and the
    emulated CPU; None is this machine."""
    target, runner = ("native", ("qwen-run",)) if machine is None else \
        (machine[0], ("qemu-aarch64-static", "-cpu", machine[1], AARCH64))
    rules = [part for name, format in mix.items() for part in ("--tensor-weights", f"^{re.escape(name)}$={format}")]
    model = compile_model(checkpoint, WORK / "model.qwen", "--target", target, "--weights", weights, *rules, "--kv", kv)
    found = logits(model, ids, WORK / "logits.npy", *options, runner=runner)
    run(["reference-logits", reference, weights, kv, join(ids), WORK / "reference", *(f"{n}={f}" for n, f in mix.items())])
    expected = np.fromfile(WORK / "reference", np.float32).reshape(len(ids), -1)
    same = found.shape == expected.shape and same_bits(found, expected)
    checks.check(same and np.isfinite(found).all() and found.any(), f"{what}, {weights}, {mix}, kv {kv}, {machine or 'here'}, {options}")


def compare_rotated(checks, what, checkpoint, reference, ids, bound):
    """The logits of a rotated model are those of the model but for the rounding of f32. With random weights, the states of the
    gated delta rule make it larger."""
    model = compile_model(checkpoint, WORK / "model.qwen", "--weights", "f32", "--rotate", "on")
    found = logits(model, ids, WORK / "logits.npy")
    run(["reference-logits", reference, "f32", "f32", join(ids), WORK / "reference"])
    expected = np.fromfile(WORK / "reference", np.float32).reshape(len(ids), -1)
    error = np.abs(found - expected).max() / (expected.max() - expected.min())
    checks.check(error <= bound, f"{what}, rotated: {error:.1e} of the range is more than {bound}")


def random_model(checks, seed):
    rng = np.random.default_rng(seed)
    shape = random_hybrid(rng) if seed % 4 == 1 else random_experts(rng) if seed % 4 == 3 else random_shape(rng)
    context = int(2 ** rng.uniform(0, 15))
    more = {"max_position_embeddings": context, "rope_theta": float(rng.choice([1e4, 1e6, 5e6])),
            "rms_norm_eps": float(rng.choice([1e-5, 1e-6]))}
    if shape[0] == "qwen3_moe":
        more["norm_topk_prob"] = bool(rng.integers(2))
    is_qwen1 = seed % 8 == 2
    if is_qwen1:
        kind, hidden, layers, heads, kv_heads, *rest = shape
        shape = ("qwen2", heads * rest[0], layers, heads, heads, *rest)
    elif seed % 3 == 0:
        yarn = {"type": "yarn", "factor": float(rng.choice([1.5, 4])), "original_max_position_embeddings": context}
        # The older keys, and all of transformers 5.
        more |= {"rope_scaling": yarn} if seed % 2 else {"rope_parameters": yarn | {
            "rope_theta": more["rope_theta"], "rope_type": yarn.pop("type"), "beta_fast": 16.0, "beta_slow": 2.0, "attention_factor": 1.25}}
    checkpoint = WORK / "checkpoint"
    facts = write_checkpoint(checkpoint, shape, rng, **more)
    if is_qwen1:
        checkpoint = WORK / "qwen1"
        write_qwen1(checkpoint, *facts)
    ids = rng.integers(0, shape[7], rng.integers(1, min(context, 150) + 1)).tolist()
    options = ["-t", int(rng.integers(1, 5))]
    if piece := int(rng.choice([0, 1, 3, 16, 50])):
        options += ["--piece", piece]
    weights, kv = str(rng.choice(weight_formats())), str(rng.choice(kv_formats()))
    what = f"seed {seed}: {shape}, {more}, {len(ids)} tokens"
    machines = [None] + [MACHINES[int(rng.integers(len(MACHINES)))]] * (seed % 4 == 0)
    matrices = [name for name, dims in tensors(*shape) if len(dims) == 2] if seed % 4 in (0, 1) else []
    mix = {name: str(rng.choice(weight_formats())) for name in matrices}
    if seed % 2:
        compare_rotated(checks, what, checkpoint, WORK / "checkpoint", ids, 1e-4 if shape[0] == "qwen3_5" else 1e-5)
    for machine in machines:
        compare(checks, what, checkpoint, WORK / "checkpoint", ids, weights, mix, kv, machine, *options)


def long_context(checks):
    """Fills the context of 32768, or a part of it."""
    rng = np.random.default_rng(0)
    shape = ("qwen3", 32, 1, 2, 1, 16, 32, 10, True)
    write_checkpoint(WORK / "checkpoint", shape, rng, max_position_embeddings=32768)
    ids = rng.integers(0, 10, 32768 if full() else 2500).tolist()
    compare(checks, f"{len(ids)} tokens", WORK / "checkpoint", WORK / "checkpoint", ids, "q8_0", {}, "f16", None, "-t", 2)


checks = Checks()
WORK.mkdir(parents=True, exist_ok=True)
for seed in range(FIRST, FIRST + COUNT):
    random_model(checks, seed)
if len(sys.argv) <= 3:
    long_context(checks)
checks.finish()

"""The errors of qwen-opt (errors.py checks them; docs/testing.md says how to add one)."""
import functools
import json
import pathlib
import struct

from checks import run
from errors_files import (ABSENT, HYBRID, MOE, QWEN2, QWEN3, Row, added, artifact, content, edited, flipped, full_disk, linked, number, quantized, renamed, split_gguf,
                          tensor, unreadable, written)

COMPILE = "qwen-opt bad -o out/model.qwen"
GPTQ, UP = "gptq-qwen2-int4-g128", "model.layers.0.mlp.up_proj."
ARCHITECTURES = ("supported are Qwen2ForCausalLM (Qwen2, Qwen2.5), Qwen3ForCausalLM, Qwen3_5ForCausalLM, "
                 "Qwen3_5ForConditionalGeneration (the text of Qwen3.5), Qwen2_5_VLForConditionalGeneration (the text of Qwen2.5-VL), "
                 "Qwen3VLForConditionalGeneration (the text of Qwen3-VL), QWenLMHeadModel (Qwen 1), Qwen2MoeForCausalLM, "
                 "Qwen3MoeForCausalLM, Qwen3VLMoeForConditionalGeneration (the text of Qwen3-VL-MoE), Qwen3_5MoeForCausalLM, "
                 "Qwen3_5MoeForConditionalGeneration (the text of Qwen3.5-MoE) and Qwen3NextForCausalLM")
EMIT = "qwen-opt bad --emit=graph"
ADAPT, PEFT = "qwen-opt base-qwen2 --lora bad -o out/model.qwen", "lora-qwen2-plain"


def count(key, limit):
    """Values that a count cannot have."""
    for value, shown in (("many", '"many"'), (1.5, "1.5"), (-1, "-1"), (0, "0"), (2 ** 40, "1099511627776"), (None, "null"), ([1], "an array")):
        yield Row(f"{key} is {shown}", edited(**{key: value}), COMPILE, 3,
                  f"qwen-opt: bad/config.json: {key} is {shown} when an integer from 1 to {limit} is needed")


def yarn(name, message, **values):
    return Row(f"YaRN {name}", edited(rope_scaling={"type": "yarn", **values}), COMPILE, 3, message)


def tokenizer(name, message, **files):
    return Row(name, added(**{"vocab_json": '{"a": 0, "b": 1}', "merges_txt": "", **files}), COMPILE, 3, message)


def input_of(output, name=None):
    """The error of an output that is an input, by another name."""
    found = f"the input '{name}'" if name else "an input"
    return f"qwen-opt: cannot write '{output}': it is {found}; name another file"


PLAN = f"qwen-opt {QWEN2} -o out/model.qwen --plan bad"


@functools.cache
def saved_plan():
    """The plan of a model in q4_0."""
    run(["qwen-opt", QWEN2, "-o", "out/planned", "--weights", "q4_0", "--save-plan", "out/plan"])
    text = pathlib.Path("out/plan").read_text()
    for name in ("planned", "plan"):
        pathlib.Path("out", name).unlink()
    return text


def plan(name, message, edit, options=""):
    """`edit` changes the plan, or makes a text of its text."""
    def make():
        if isinstance(edit, bytes):
            return written("bad", edit)()
        values = json.loads(saved_plan())
        edit(values)
        return written("bad", json.dumps(values))()
    return Row(f"a plan {name}", make, f"{PLAN} {options}".strip(), 3, f"qwen-opt: {message}")


def importance(name, width):
    """An importance matrix of one row."""
    return struct.pack(f"<2i{len(name)}s2i", 1, len(name), name.encode(), 2, width) + struct.pack("<f", 1) * width


NAMES = [chr(c) for c in [*range(33, 127), *range(161, 173), *range(174, 324)]]
VOCABULARY = json.dumps({name: id for id, name in enumerate(NAMES + [2 * name for name in NAMES[:99]])})
POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{64 * '0'}\nsize 7\n"

ROWS = [
    # The checkpoint as a file or folder.
    Row("a missing folder", None, "qwen-opt nothing -o out/model.qwen", 3,
        "qwen-opt: nothing does not exist: a Hugging Face folder or a GGUF file is needed"),
    Row("a file that is no checkpoint", written("bad", "x"), COMPILE, 3,
        'qwen-opt: bad is neither a folder nor a GGUF file: it begins with "x" when "GGUF" is needed'),
    Row("no config", added(config_json=ABSENT), COMPILE, 3,
        "qwen-opt: bad has no config.json: the folder of a Hugging Face checkpoint is needed"),
    Row("no weights", added(model_safetensors=ABSENT), COMPILE, 3,
        "qwen-opt: bad has neither model.safetensors nor model.safetensors.index.json"),
    *(Row(f"only {name}", added(model_safetensors=ABSENT, **{name: "x"}), COMPILE, 3,
          f'qwen-opt: bad has neither model.safetensors nor model.safetensors.index.json; it has "{name}", {way_out}')
      for name, way_out in (
          ("model-00002-of-00003.safetensors", "a part of the weights: the index, which names the tensors of each part, is needed, too"),
          ("consolidated.safetensors", "under another name: rename it to model.safetensors"),
          ("adapter_model.safetensors", "an adapter: compile its base model with --lora FOLDER"),
          ("model.gguf", "a GGUF file: name that instead of the folder"),
          ("pytorch_model-00001-of-00002.bin", "a file of PyTorch: save the model as safetensors"))),
    Row("experts of MLX in a matrix", renamed("model.layers.0.mlp.experts.0.gate_proj.weight", "model.layers.0.mlp.switch_mlp.gate_proj.weight", MOE), COMPILE, 3,
        'qwen-opt: bad/model.safetensors: tensor "model.layers.0.mlp.switch_mlp.gate_proj.weight" has shape [64, 64] when [8, 64, 64] is '
        "needed"),
    Row("an unreadable file", unreadable, COMPILE, 1,
        "qwen-opt: cannot read bad/config.json: Permission denied"),
    Row("a link that leads nowhere", linked("generation_config.json", "../../blobs/1"), COMPILE, 3,
        'qwen-opt: cannot read bad/generation_config.json: it is a symbolic link to "../../blobs/1", where there is nothing; '
        "download the file again, or copy the checkpoint with the files that its links lead to (cp -L)"),
    Row("a pointer of Git LFS", added(model_safetensors=POINTER), COMPILE, 3,
        'qwen-opt: cannot read bad/model.safetensors: it is a Git LFS pointer, not the file itself; run "git lfs pull" in its folder'),
    Row("an old GGUF", written("old.gguf", b"GGUF\1\0\0\0"), "qwen-opt old.gguf -o out/model.qwen", 3,
        "qwen-opt: old.gguf has GGUF version 1 when 2 or 3 is needed"),

    # Before a compile.
    Row("info of a missing folder", None, "qwen-opt info nothing", 3,
        "qwen-opt info: nothing does not exist: a Hugging Face folder or a GGUF file is needed"),
    Row("info of no config", added(config_json=ABSENT), "qwen-run info bad", 3,
        "qwen-run: bad has no config.json and no GGUF file: the folder of a Hugging Face checkpoint is needed"),
    Row("a check of a checkpoint", None, f"qwen-run info --check {QWEN2}", 1,
        f"qwen-run: --check needs a compiled model, and {QWEN2} is a checkpoint"),

    # Adapters. AdaptersTest has more.
    Row("no adapter", None, "qwen-opt base-qwen2 --lora nothing -o out/model.qwen", 3,
        "qwen-opt: nothing does not exist: a Hugging Face folder or a GGUF file is needed"),
    Row("a pickle", added(PEFT, adapter_model_safetensors=ABSENT, adapter_model_bin="x"), ADAPT, 3,
        "qwen-opt: bad has no adapter_model.safetensors or adapters.safetensors; a pickle (adapter_model.bin) is not supported: "
        "load it with PEFT and save it again"),
    Row("an adapter of another type", edited(PEFT, "adapter_config.json", peft_type="IA3"), ADAPT, 3,
        'qwen-opt: bad/adapter_config.json: peft_type "IA3" is not supported; supported is "LORA"'),
    Row("layers twice", edited(PEFT, "adapter_config.json", layer_replication=[[0, 1], [0, 1]]), ADAPT, 3,
        "qwen-opt: bad/adapter_config.json: layer_replication an array is not supported; supported is null"),
    Row("look-around", edited(PEFT, "adapter_config.json", alpha_pattern={"(?!k)_proj": 2}), ADAPT, 3,
        'qwen-opt: bad/adapter_config.json: alpha_pattern has the regular expression "(?!k)_proj", which RE2 does not read '
        "(invalid perl operator: (?!); look-around and back-references are not supported"),
    Row("an adapter of another model", None, f"qwen-opt base-qwen3 --lora {PEFT} -o out/model.qwen", 3,
        f'qwen-opt: {PEFT}/adapter_model.safetensors: tensor "base_model.model.model.layers.0.self_attn.o_proj.lora_A.weight" has shape '
        "[8, 256] when [8, 128] is needed"),
    Row("an embedding that is the head", None, "qwen-opt base-qwen3 --lora lora-qwen2-embedding -o out/model.qwen", 3,
        'qwen-opt: base-qwen3/model.safetensors: tensor "model.embed_tokens.weight" is the lm_head of a tied model, too; an adapter that '
        "changes it is not supported unless it changes lm_head as well"),
    Row("an adapter as a model", None, f"qwen-opt {PEFT} -o out/model.qwen", 3,
        f"qwen-opt: {PEFT} is an adapter when a model is needed; compile its base model with --lora {PEFT}"),
    Row("a scale of an adapter", None, f"qwen-opt base-qwen2 --lora {PEFT}=1e99 -o out/model.qwen", 1,
        "qwen-opt: --lora has the scale 1e99 when a number from -1e9 to 1e9 is needed"),

    # config.json.
    # Keys that are not there have the defaults of transformers.
    Row("no hidden_size", edited(QWEN3, hidden_size=ABSENT), COMPILE, 3,
        'qwen-opt: bad/model.safetensors: tensor "model.embed_tokens.weight" has shape [320, 96] when [320, 4096] is needed'),
    Row("no num_hidden_layers", edited(num_hidden_layers=ABSENT), COMPILE, 3,
        'qwen-opt: bad has no tensor "model.layers.2.input_layernorm.weight", which its configuration demands with shape [64]'),
    Row("no num_attention_heads", edited(num_attention_heads=ABSENT, num_key_value_heads=5), COMPILE, 3,
        "qwen-opt: bad/config.json: the default of num_attention_heads is 32 when a multiple of num_key_value_heads, 5, is needed"),
    Row("rope_scaling beside rope_parameters", edited("qwen3-untied-f32", rope_scaling={"rope_type": "yarn", "factor": 4.0}), COMPILE, 3,
        "qwen-opt: bad/config.json: rope_parameters scales positions otherwise than rope_scaling, which counts; remove one of them"),
    Row("a rope_theta that does not count", edited("qwen3-untied-f32", rope_scaling={"rope_type": "default"}), COMPILE, 3,
        "qwen-opt: bad/config.json: rope_parameters.rope_theta is 5000000.0 when 10000.0, the default where rope_scaling lacks it, is needed"),
    Row("two rotations", edited(HYBRID, partial_rotary_factor=0.5), COMPILE, 3,
        "qwen-opt: bad/config.json: partial_rotary_factor is 0.5 when 0.25, as in rope_parameters, is needed"),
    Row("no architectures", edited(architectures=ABSENT), COMPILE, 3,
        "qwen-opt: bad/config.json has no architectures"),
    *count("hidden_size", 2 ** 24),
    *count("num_hidden_layers", 2 ** 16),
    *count("vocab_size", 2 ** 31 - 1),
    Row("a number as text", edited(QWEN3, hidden_size="96"), COMPILE, 3,
        'qwen-opt: bad/config.json: hidden_size is "96" when an integer from 1 to 16777216 is needed'),
    Row("a config that is not JSON", added(config_json='{\n "a": 1,\n}'), COMPILE, 3,
        "qwen-opt: bad/config.json is not JSON at line 3, column 1"),
    Row("a config that is a list", added(config_json="[1]"), COMPILE, 3,
        "qwen-opt: bad/config.json has an array when a JSON object is needed"),
    Row("another hidden size", edited(hidden_size=128), COMPILE, 3,
        'qwen-opt: bad/model.safetensors: tensor "model.embed_tokens.weight" has shape [320, 64] when [320, 128] is needed'),
    Row("heads that do not divide", edited(num_key_value_heads=5), COMPILE, 3,
        "qwen-opt: bad/config.json: num_attention_heads is 4 when a multiple of num_key_value_heads, 5, is needed"),
    Row("another architecture", edited(architectures=["LlamaForCausalLM"]), COMPILE, 3,
        f'qwen-opt: bad/config.json: architectures[0] "LlamaForCausalLM" is not supported; {ARCHITECTURES}'),
    Row("an architecture of streams", None, "qwen-opt qwen4_exp-bf16 -o out/model.qwen", 3,
        f'qwen-opt: qwen4_exp-bf16/config.json: architectures[0] "Qwen4ExpForConditionalGeneration" is not supported; {ARCHITECTURES}'),
    Row("more experts of a token than there are", edited(MOE, num_experts_per_tok=9), COMPILE, 3,
        "qwen-opt: bad/config.json: num_experts_per_tok is 9 when an integer from 1 to 8 is needed"),
    Row("too many experts", edited(MOE, num_local_experts=1025), COMPILE, 3,
        "qwen-opt: bad/config.json: num_local_experts is 1025 when an integer from 1 to 1024 is needed"),
    Row("two numbers of experts", edited(MOE, num_experts=4), COMPILE, 3,
        "qwen-opt: bad/config.json: num_local_experts is 8 when 4, as in num_experts, is needed"),
    Row("experts that are missing", edited(MOE, num_local_experts=9), COMPILE, 3,
        'qwen-opt: bad has no tensor "model.layers.0.mlp.experts.8.gate_proj.weight", which its configuration demands with shape [64, 64]'),
    Row("experts of another width", edited(MOE, moe_intermediate_size=96), COMPILE, 3,
        'qwen-opt: bad/model.safetensors: tensor "model.layers.0.mlp.experts.0.gate_proj.weight" has shape [64, 64] when [96, 64] is needed'),
    Row("a width of experts that is no multiple", edited(MOE, moe_intermediate_size=48), COMPILE, 3,
        "qwen-opt: bad/config.json: moe_intermediate_size is 48 when a multiple of 32 is needed"),
    Row("a router of another width", edited(MOE, num_local_experts=7), COMPILE, 3,
        'qwen-opt: bad/model.safetensors: tensor "model.layers.0.mlp.gate.weight" has shape [8, 64] when [7, 64] is needed'),
    Row("another activation", edited(hidden_act="gelu"), COMPILE, 3,
        'qwen-opt: bad/config.json: hidden_act "gelu" is not supported; supported is "silu"'),
    Row("another rope_scaling", edited(rope_scaling={"rope_type": "linear", "factor": 4.0}), COMPILE, 3,
        'qwen-opt: bad/config.json: rope_scaling.rope_type "linear" is not supported; supported are "default" and "yarn"'),
    Row("another rope type", edited(rope_parameters={"rope_type": "longrope", "rope_theta": 1e6}), COMPILE, 3,
        'qwen-opt: bad/config.json: rope_parameters.rope_type "longrope" is not supported; supported are "default" and "yarn"'),
    yarn("with a factor of 0", "qwen-opt: bad/config.json: rope_scaling.factor is 0.0 when a number from 1.0 to 1000000.0 is needed", factor=0.0),
    yarn("with a negative factor", "qwen-opt: bad/config.json: rope_scaling.factor is -4.0 when a number from 1.0 to 1000000.0 is needed", factor=-4.0),
    yarn("without a factor", "qwen-opt: bad/config.json has no rope_scaling.factor"),
    yarn("with a factor that is text", 'qwen-opt: bad/config.json: rope_scaling.factor is "4" when a number from 1.0 to 1000000.0 is needed', factor="4"),
    yarn("from 0 positions", "qwen-opt: bad/config.json: rope_scaling.original_max_position_embeddings is 0 when an integer from 1 to 1073741824 is needed", factor=4.0, original_max_position_embeddings=0),
    yarn("with a beta_slow of 0", "qwen-opt: bad/config.json: rope_scaling.beta_slow is 0.0 when a number from 1e-06 to 1000000.0 is needed", factor=4.0, beta_slow=0.0),
    yarn("with mscale", "qwen-opt: bad/config.json: rope_scaling.mscale 1.0 is not supported; supported is null", factor=4.0, mscale=1.0),
    yarn("with an attention_factor of 0", "qwen-opt: bad/config.json: rope_scaling.attention_factor is 0.0 when a number from 1e-06 to 1000000.0 is needed", factor=4.0, attention_factor=0.0),
    yarn("without truncation", "qwen-opt: bad/config.json: rope_scaling.truncate false is not supported; supported is true", factor=4.0, truncate=False),
    Row("a sliding window", edited(use_sliding_window=True), COMPILE, 3,
        "qwen-opt: bad/config.json: use_sliding_window true is not supported; supported is false"),
    Row("sliding layers", edited(layer_types=["sliding_attention"] * 2), COMPILE, 3,
        'qwen-opt: bad/config.json: layer_types[0] "sliding_attention" is not supported; supported is "full_attention"'),
    Row("partial rotation", edited(partial_rotary_factor=0.5), COMPILE, 3,
        "qwen-opt: bad/config.json: partial_rotary_factor 0.5 is not supported; supported is 1"),
    Row("a bias that Qwen3 lacks", edited(architectures=["Qwen3ForCausalLM"], model_type="qwen3", head_dim=16, attention_bias=True), COMPILE, 3,
        "qwen-opt: bad/config.json: attention_bias true is not supported; supported is false"),
    Row("K of broken groups", edited(intermediate_size=80), COMPILE, 3,
        "qwen-opt: bad/config.json: K of model.layers.0.mlp.down_proj.weight is 80 when a multiple of 32 is needed"),
    *(Row(f"a {key}", quantized(key), COMPILE, 3,
          f'qwen-opt: bad/config.json: {key}.quant_method "hqq" is not supported; the weights of the original model, in F32, F16 or BF16, or quant_method {{{{.*}}}}, awq, {{{{.*}}}}, are needed: '
          'tensor "model.norm.weight" has dtype I32') for key in ("quantization_config", "compression_config", "quantization")),
    # Integers of other programs.
    Row("GPTQ of 3 bits", edited(GPTQ, quantization_config={"quant_method": "gptq", "bits": 4, "group_size": 128} | {"bits": 3}), COMPILE, 3,
        "qwen-opt: bad/config.json: quantization_config.bits 3 is not supported; supported are 4 and 8"),
    Row("a rule with look-around", edited(GPTQ, quantization_config={"quant_method": "gptq", "bits": 4, "group_size": 128} | {"dynamic": {"-:(?!model)": {}}}), COMPILE, 3,
        'qwen-opt: bad/config.json: quantization_config.dynamic.-:(?!model) has the regular expression "(?!model)", which RE2 does not read '
        "(invalid perl operator: (?!); look-around and back-references are not supported"),
    Row("integers without scales", renamed(UP + "scales", UP + "odd", GPTQ), COMPILE, 3,
        f'qwen-opt: bad/model.safetensors: tensor "{UP}qweight" has no tensor "{UP}scales" beside it, which its form needs'),
    Row("a group that is not there", edited(GPTQ, quantization_config={"quant_method": "gptq", "bits": 4, "group_size": 128} | {"group_size": 64}), COMPILE, 3,
        'qwen-opt: bad/model.safetensors: tensor "model.layers.0.mlp.down_proj.scales" has shape [2, 256] when [4, 256] is needed'),
    Row("an encoder", edited(is_causal=False), COMPILE, 3,
        "qwen-opt: bad/config.json: is_causal false is not supported; supported is true"),
    Row("scaled logits", edited(logit_scale=0.5), COMPILE, 3,
        "qwen-opt: bad/config.json: logit_scale 0.5 is not supported; supported is 1"),
    Row("another model type", edited(model_type="llama"), COMPILE, 3,
        'qwen-opt: bad/config.json: model_type "llama" is not supported; supported is "qwen2" of Qwen2ForCausalLM'),
    Row("code of its own", edited(auto_map={"AutoModelForCausalLM": "modeling.OtherForCausalLM"}), COMPILE, 3,
        'qwen-opt: bad/config.json: auto_map.AutoModelForCausalLM "modeling.OtherForCausalLM" is not supported; supported is the class of architectures, Qwen2ForCausalLM'),
    Row("sampling defaults", edited(file="generation_config.json", temperature="hot"), COMPILE, 3,
        'qwen-opt: bad/generation_config.json: temperature is "hot" when a number from 0.0 to 1000000.0 is needed'),

    # config.json of hybrids and of Qwen 1.
    Row("one layer type", edited(HYBRID, layer_types=["linear_attention"]), COMPILE, 3,
        "qwen-opt: bad/config.json: layer_types has 1 elements when num_hidden_layers is 5"),
    Row("another layer type", edited(HYBRID, layer_types=["mamba"] * 5), COMPILE, 3,
        'qwen-opt: bad/config.json: layer_types[0] "mamba" is not supported; supported are "full_attention" and "linear_attention"'),
    Row("a convolution of 3", edited(HYBRID, linear_conv_kernel_dim=3), COMPILE, 3,
        "qwen-opt: bad/config.json: linear_conv_kernel_dim is 3 when an integer from 4 to 4 is needed"),
    Row("more value heads", edited(HYBRID, linear_num_value_heads=4), COMPILE, 3,
        'qwen-opt: bad/model.safetensors: tensor "model.layers.0.linear_attn.in_proj_qkv.weight" has shape [224, 64] when [256, 64] is needed'),
    Row("key heads that do not divide", edited(HYBRID, linear_num_key_heads=2), COMPILE, 3,
        "qwen-opt: bad/config.json: linear_num_value_heads is 3 when a multiple of linear_num_key_heads, 2, is needed"),
    Row("a rotation of 0.2", edited(HYBRID, partial_rotary_factor=ABSENT, rope_parameters={"rope_theta": 1e5, "partial_rotary_factor": 0.2}), COMPILE, 3,
        "qwen-opt: bad/config.json: rope_parameters.partial_rotary_factor is 0.2 when a part of head_dim, 32, that is a multiple of 8 is needed"),
    Row("a rotation of 9 values", edited(HYBRID, partial_rotary_factor=ABSENT, rope_parameters={"rope_theta": 1e5, "partial_rotary_factor": 0.28125}), COMPILE, 3,
        "qwen-opt: bad/config.json: rope_parameters.partial_rotary_factor is 0.28125 when a part of head_dim, 32, that is a multiple of 8 is needed"),
    Row("no output gate", edited(HYBRID, attn_output_gate=False), COMPILE, 3,
        "qwen-opt: bad/config.json: attn_output_gate false is not supported; supported is true"),
    Row("a smaller w2 of Qwen 1", edited("qwen1-bf16", intermediate_size=384), EMIT, 3,
        'qwen-opt: bad/model.safetensors: tensor "transformer.h.0.mlp.w2.weight" has shape [224, 96] when [192, 96] is needed'),
    Row("a layer that Qwen 1 lacks", edited("qwen1-bf16", num_hidden_layers=3), EMIT, 3,
        'qwen-opt: bad has no tensor "transformer.h.2.ln_1.weight", which its configuration demands with shape [96]'),

    # The tokenizer and the chat template.
    tokenizer("a tokenizer that is not JSON", "qwen-opt: bad/tokenizer.json is not JSON: it ends too early, at column 2", tokenizer_json="{"),
    tokenizer("a tokenizer that is a list", "qwen-opt: bad/tokenizer.json has an array when a JSON object is needed", tokenizer_json="[]"),
    tokenizer("a vocabulary that ends early", "qwen-opt: bad/vocab.json is not JSON: it ends too early, at column 8", vocab_json='{"a": 0'),
    tokenizer("a merge of three", 'qwen-opt: bad/merges.txt: line 1 is "a b c" where two tokens with a space between are needed', merges_txt="a b c\n"),
    # A template that chat cannot read is a warning; the error is about the tokens.
    Row("a template that includes", added(QWEN3, vocab_json=VOCABULARY, merges_txt="", chat_template_jinja='{% include "x" %}\n'), COMPILE, 3,
        "qwen-opt: warning: bad/chat_template.jinja: chat template, line 1: the tag 'include' is not supported; qwen-run chat will refuse the model, generate will not\nqwen-opt: the tokenizer has 355 tokens when the embedding has 320 rows"),

    Row("templates without a default", added(QWEN3, vocab_json=VOCABULARY, merges_txt="", tokenizer_config_json='{"chat_template": []}'), COMPILE, 3,
        "qwen-opt: warning: bad/tokenizer_config.json: chat_template is an array where a string, or a list with one named default, is needed; qwen-run chat will refuse the model, generate will not\nqwen-opt: the tokenizer has 355 tokens when the embedding has 320 rows"),

    # model.safetensors.
    Row("a header of 2^62 bytes", content(lambda data: (2 ** 62).to_bytes(8, "little") + data[8:]), COMPILE, 3,
        "qwen-opt: bad/model.safetensors: its header would have 4611686018427387904 bytes when 430936 are left in the file; it is truncated or not a safetensors file"),
    Row("a header that is not JSON", content(lambda data: data[:8] + b"x" * 16 + data[24:]), COMPILE, 3,
        "qwen-opt: bad/model.safetensors: its header is not JSON at column 1"),
    Row("data that end early", content(lambda data: data[:-10]), COMPILE, 3,
        'qwen-opt: bad/model.safetensors: tensor "model.norm.weight" has data_offsets 428032 to 428288 when the file has 428278 bytes of data; it may be truncated'),
    Row("data that are cut", content(lambda data: data[:600_000], QWEN3), COMPILE, 3,
        'qwen-opt: bad/model.safetensors: tensor "model.layers.1.self_attn.q_proj.weight" has data_offsets 541952 to 603392 when the file has 597504 bytes of data; it may be truncated'),
    Row("a header that ends early", content(lambda data: data[:20]), COMPILE, 3,
        "qwen-opt: bad/model.safetensors: its header would have 2648 bytes when 12 are left in the file; it is truncated or not a safetensors file"),
    Row("an empty file", content(lambda data: b""), COMPILE, 3,
        "qwen-opt: bad/model.safetensors has 0 bytes when a safetensors file starts with 8 for the length of its header"),
    Row("a missing tensor", renamed("model.norm.weight", "other"), COMPILE, 3,
        'qwen-opt: bad has no tensor "model.norm.weight", which its configuration demands with shape [64]'),
    Row("offsets beyond the file", tensor("model.norm.weight", data_offsets=[2 ** 40, 2 ** 40 + 8]), COMPILE, 3,
        'qwen-opt: bad/model.safetensors: tensor "model.norm.weight" has data_offsets 1099511627776 to 1099511627784 when the file has 428288 bytes of data; it may be truncated'),
    Row("offsets that do not match", tensor("model.norm.weight", data_offsets=lambda at: [at[0], at[1] - 2]), COMPILE, 3,
        'qwen-opt: bad/model.safetensors: tensor "model.norm.weight" has data_offsets 428032 to 428286 when its dtype and shape need 256 bytes'),
    Row("tensors that overlap", tensor("model.norm.weight", data_offsets=lambda at: [at[0] - 4, at[1] - 4]), COMPILE, 3,
        'qwen-opt: bad/model.safetensors: tensors "model.layers.1.self_attn.v_proj.weight" and "model.norm.weight" overlap at byte 428028 of its data'),
    Row("another rank", tensor("model.norm.weight", shape=lambda shape: [1, *shape]), COMPILE, 3,
        'qwen-opt: bad/model.safetensors: tensor "model.norm.weight" has shape [1, 64] when [64] is needed'),
    Row("another dtype", tensor("model.norm.weight", dtype="I32"), COMPILE, 3,
        'qwen-opt: bad/model.safetensors: tensor "model.norm.weight" has dtype I32 when F32, F16 or BF16 is needed'),
    Row("a huge shape", tensor("model.norm.weight", shape=[2 ** 40, 2 ** 40]), COMPILE, 3,
        'qwen-opt: bad/model.safetensors: tensor "model.norm.weight" has a shape of more than 2^63 bits'),
    Row("tensors of another layer", edited(num_hidden_layers=1), COMPILE, 3,
        'qwen-opt: bad/model.safetensors: tensor "model.layers.1.input_layernorm.weight" (and 11 more) is not a tensor of Qwen2ForCausalLM; --ignore-tensors REGEX compiles the model without them'),
    Row("another size of the vocabulary", edited(QWEN3, vocab_size=321), COMPILE, 3,
        'qwen-opt: bad/model.safetensors: tensor "model.embed_tokens.weight" has shape [320, 96] when [321, 96] is needed'),
    Row("a convolution of two taps", tensor("model.layers.0.linear_attn.conv1d.weight", HYBRID, dtype="F64", shape=lambda shape: [shape[0], 1, 2]),
        COMPILE, 3, 'qwen-opt: bad/model.safetensors: tensor "model.layers.0.linear_attn.conv1d.weight" has shape [224, 1, 2] when [224, 1, 4] is needed'),

    # Weights.
    *(Row(f"NaN in {name}", number(f"model.layers.0.linear_attn.{name}", 0, float("nan"), HYBRID), COMPILE, 1,
          f'qwen-opt: bad/model.safetensors: tensor "model.layers.0.linear_attn.{name}" has a value that is not finite')
      for name in ("A_log", "dt_bias", "conv1d.weight")),
    *(Row(f"NaN as {format}", number("model.layers.1.mlp.up_proj.weight", 4711, float("nan")), f"{COMPILE} --weights {format}", 1,
          'qwen-opt: bad/model.safetensors: tensor "model.layers.1.mlp.up_proj.weight" has a value that is not finite') for format in ("q4_0", "f32")),
    Row("an infinite bias", number("model.layers.0.self_attn.k_proj.bias", 3, float("-inf")), COMPILE, 1,
        'qwen-opt: bad/model.safetensors: tensor "model.layers.0.self_attn.k_proj.bias" has a value that is not finite'),
    Row("a scale beyond f16", number("model.layers.0.mlp.down_proj.weight", 0, 1e6), f"{COMPILE} --weights q4_0", 1,
        'qwen-opt: bad/model.safetensors: tensor "model.layers.0.mlp.down_proj.weight" has a block whose scale overflows f16; --weights f32 keeps it as it is'),
    Row("a value beyond bf16", number("model.layers.0.mlp.down_proj.weight", 0, -3.4e38), f"{COMPILE} --weights bf16", 1,
        'qwen-opt: bad/model.safetensors: tensor "model.layers.0.mlp.down_proj.weight" has a value that overflows bf16; --weights f32 keeps it as it is'),

    # Options.
    Row("a target of no name", None, f"qwen-opt {QWEN2} -o out/model.qwen --target quantum9000", 1,
        "qwen-opt: unknown target 'quantum9000' (a CPU of `clang --print-supported-cpus`, features such as armv8.2-a+dotprod or x86-64-v4+avx512vnni, or native)"),
    Row("a target like another name", None, f"qwen-opt {QWEN3} -o out/model.qwen --target pentium", 1,
        "qwen-opt: unknown target 'pentium' (a CPU of `clang --print-supported-cpus`, features such as armv8.2-a+dotprod or x86-64-v4+avx512vnni, or native)"),
    Row("a target that is too old", None, f"qwen-opt {QWEN2} -o out/model.qwen --target x86-64-v2", 1,
        "qwen-opt: target 'x86-64-v2' lacks avx2, fma, f16c: x86-64 code needs at least avx2, fma, f16c"),
    Row("targets of two architectures", None, f"qwen-opt {QWEN3} -o out/model.qwen --target haswell,cortex-a72", 1,
        "qwen-opt: target 'haswell' is x86-64 and 'cortex-a72' is aarch64: a file has code for one architecture; compile a file for each"),
    Row("a target twice", None, f"qwen-opt {QWEN3} -o out/model.qwen --target haswell,haswell", 1,
        "qwen-opt: targets 'haswell,haswell' have 'haswell' twice"),
    Row("a target without a name", None, f"qwen-opt {QWEN3} -o out/model.qwen --target haswell,,zen4", 1,
        "qwen-opt: targets 'haswell,,zen4' have an empty name; names are separated by one comma"),
    Row("a context that is too long", None, f"qwen-opt {QWEN2} -o out/model.qwen --context 1000000", 1,
        "qwen-opt: --context 1000000 is beyond the 256 positions that the model was made for (max_position_embeddings, context_length, or seq_length of a Qwen 1)"),
    Row("a context of one too many", None, f"qwen-opt {QWEN3} -o out/model.qwen --context 257", 1,
        "qwen-opt: --context 257 is beyond the 256 positions that the model was made for (max_position_embeddings, context_length, or seq_length of a Qwen 1)"),
    Row("a context beyond seq_length", None, "qwen-opt qwen1-bf16 --context 65 --emit=graph", 1,
        "qwen-opt: --context 65 is beyond the 64 positions that the model was made for (max_position_embeddings, context_length, or seq_length of a Qwen 1)"),
    Row("more rows than tokens", None, f"qwen-opt {QWEN3} -o out/model.qwen --max-rows 513", 1,
        "qwen-opt: --max-rows 513 is more than the 512 tokens of a call, which --max-tokens sets"),
    Row("a rule without a matrix", None, f"qwen-opt {QWEN3} -o out/model.qwen --tensor-weights v_proj=q8_0 --tensor-weights up_prj=q8_0", 1,
        "qwen-opt: --tensor-weights 'up_prj=q8_0' matches no matrix of the checkpoint; qwen-opt CHECKPOINT --emit=graph prints their names"),
    Row("a rule of half an expression", None, f"qwen-opt {QWEN3} -o out/model.qwen --tensor-weights up(=q8_0", 1,
        "qwen-opt: --tensor-weights 'up(=q8_0' has the regular expression \"up(\", which RE2 does not read (missing ): up(); look-around and back-references are not supported"),
    Row("a rule without a format", None, f"qwen-opt {QWEN3} --emit=graph --tensor-weights up_proj", 1,
        "qwen-opt: --tensor-weights 'up_proj' has no format when 'REGEX=FORMAT' is needed"),
    Row("a plan that is not there", None, PLAN, 3, "qwen-opt: bad does not exist: a plan, which --save-plan writes, is needed"),
    plan("cut short", "bad is not JSON: it ends too early, at column 20", b'{"version": 1, "mod'),
    plan("that is an array", "bad has an array when a JSON object is needed", b"[1]"),
    plan("of a later version", "bad: version is 2 when 1 is needed", lambda plan: plan.update(version=2)),
    plan("of another model", "bad: model.layers is 3 when 2, of this model, is needed", lambda plan: plan["model"].update(layers=3)),
    plan("of another architecture", 'bad: model.architecture is "Qwen3ForCausalLM" when "Qwen2ForCausalLM", of this model, is needed',
         lambda plan: plan["model"].update(architecture="Qwen3ForCausalLM")),
    plan("without matrices", "bad has no matrices", lambda plan: plan.pop("matrices")),
    plan("without a matrix", "bad has no matrices.model.layers.0.mlp.up_proj.weight", lambda plan: plan["matrices"].pop(UP + "weight")),
    plan("with an unknown matrix", 'bad has "model.layers.0.mlp.up.weight", which is no matrix or layer of the model whose format can be chosen, and no key of a plan',
         lambda plan: plan["matrices"].update({"model.layers.0.mlp.up.weight": {"format": "f32"}})),
    plan("with a vector", 'bad has "model.norm.weight", which is no matrix or layer of the model whose format can be chosen, and no key of a plan',
         lambda plan: plan["matrices"].update({"model.norm.weight": {"format": "f32"}})),
    plan("with another key", 'bad has "\\u001b[2J", which is no matrix or layer of the model whose format can be chosen, and no key of a plan',
         lambda plan: plan["matrices"][UP + "weight"].update({"\x1b[2J": 1})),
    plan("with an unknown format", f'bad: matrices.{UP}weight.format is "q9" when one of f32, bf16, {{{{.*}}}} is needed',
         lambda plan: plan["matrices"][UP + "weight"].update(format="q9")),
    plan("with an unknown quantizer", f'bad: matrices.{UP}weight.quantizer is "best" when one of keep, rtn, search, gptq, gptq+cd is needed',
         lambda plan: plan["matrices"][UP + "weight"].update(quantizer="best")),
    plan("with a quantizer of floats", f'bad: matrices.{UP}weight.quantizer is of a matrix in bf16, a format of floats',
         lambda plan: plan["matrices"][UP + "weight"].update(format="bf16")),
    plan("with another cache", 'bad: kv is "q9" when f32{{.*}} is needed', lambda plan: plan.update(kv="q9")),
    plan("with another cache of a layer", 'bad: kv_layers.1 is "q9" when f32{{.*}} is needed', lambda plan: plan.update(kv_layers={"1": "q9"})),
    plan("with a cache of a layer that is not there", 'bad has "2", which is no matrix or layer of the model whose format can be chosen, and no key of a plan',
         lambda plan: plan.update(kv_layers={"1": "f32", "2": "f32"})),
    plan("that keeps integers of floats", f"bad keeps the integers of {UP}weight in q4_0, but the checkpoint has none in this format",
         lambda plan: plan["matrices"][UP + "weight"].update(quantizer="keep")),
    plan("that needs a text", "the quantizer gptq needs a calibration text", lambda plan: plan["matrices"][UP + "weight"].update(quantizer="gptq"))
    ._replace(status=1),
    Row("a plan and rules", None, f"{PLAN} --weights q4_0", 2, "qwen-opt: --weights excludes --plan (see qwen-opt --help)"),
    Row("a plan as output", written("bad", "x"), f"qwen-opt {QWEN2} --plan bad -o bad", 1, input_of("bad")),
    Row("a plan to save in the file", None, f"qwen-opt {QWEN2} -o out/model.qwen --save-plan out/../out/model.qwen", 2,
        'qwen-opt: -o and --save-plan name the same file, "out/model.qwen" (see qwen-opt --help)'),
    Row("a plan to save in no folder", None, f"qwen-opt {QWEN2} -o /dev/null --save-plan none/plan", 1,
        "qwen-opt: cannot write 'none/plan': No such file or directory"),
    Row("tensors to ignore that are not there", None, f"qwen-opt {QWEN3} -o out/model.qwen --ignore-tensors v_proj", 1,
        'qwen-opt: --ignore-tensors "v_proj" matches no tensor that the model does not use'),
    Row("tensors to ignore by half an expression", None, f"qwen-opt {QWEN3} -o out/model.qwen --ignore-tensors (", 1,
        'qwen-opt: --ignore-tensors has the regular expression "(", which RE2 does not read (missing ): (); look-around and back-references are not supported'),
    Row("no output", None, f"qwen-opt {QWEN3}", 2,
        "qwen-opt: -o or --emit is missing (see qwen-opt --help)"),
    Row("another format", None, f"qwen-opt {QWEN3} -o out/model.qwen --weights q3_0", 2,
        "qwen-opt: --weights: q3_0 not in {keep,mixed,mix-q4_0,mix-iq4_xs,mix-iq4_nl,mix-q4_k_s,mix-q4_k_m,mix-q5_0,mix-q5_k_s,mix-q5_k_m,mix-q6_k,f32,bf16,q8_0,q4_0,q4_g128,q4_m_32,nl4,q6_k,q4_k,q5_k,nl4_xs,q5_0,q5_m_32,q4_m_64,q4_m_128,q4_z_32,q4_z_64,q4_z_128,fp4} (see qwen-opt --help)"),
    Row("a stage and an output", None, f"qwen-opt {QWEN3} -o out/model.qwen --emit=graph", 2,
        "qwen-opt: -o excludes --emit (see qwen-opt --help)"),
    Row("no checkpoint", None, "qwen-opt -o x", 2,
        "qwen-opt: CHECKPOINT is missing (see qwen-opt --help)"),
    Row("a memory below 0", None, f"qwen-opt {QWEN3} --calibrate --calibrate-memory -1 -o x", 2,
        'qwen-opt: --calibrate-memory: "-1" is not a number of bytes from 0 to 18446744073709551615, such as 500MiB or 4GiB (see qwen-opt --help)'),
    Row("a distillation alone", None, f"qwen-opt {QWEN3} --distill -o x", 2,
        "qwen-opt: --distill requires --calibrate (see qwen-opt --help)"),
    Row("a distillation without steps", None, f"qwen-opt {QWEN3} --calibrate --distill=0 -o x", 2,
        'qwen-opt: --distill: "0" is not a whole number from 1 to 10000 (see qwen-opt --help)'),
    Row("a distillation of rounded weights", None, f"qwen-opt {QWEN3} --calibrate --awq --quantizer rtn --distill -o x", 2,
        "qwen-opt: --distill has no effect on --quantizer rtn: gptq and gptq+cd have scales that learn (see qwen-opt --help)"),
    Row("--json alone", None, "qwen-opt --json", 2,
        "qwen-opt: --json requires --list-targets (see qwen-opt --help)"),

    # The output. An error about it comes before one about the context.
    Row("a folder as output", None, f"qwen-opt {QWEN3} -o out", 1,
        "qwen-opt: cannot write 'out': it is a folder; name a file in it"),
    Row("weights as output", added(QWEN3), "qwen-opt bad -o bad/model.safetensors", 1, input_of("bad/model.safetensors")),
    Row("a configuration as output, by a link", linked("link", "config.json"), "qwen-opt bad -o bad/link", 1, input_of("bad/link", "bad/config.json")),
    Row("a tokenizer as output", added(vocab_json='{"a": 0}', merges_txt=""), "qwen-opt bad -o bad/../bad/vocab.json", 1,
        input_of("bad/../bad/vocab.json", "bad/vocab.json")),
    Row("a GGUF file as output", linked("m.gguf", "../qwen3-q4_k_m/model.gguf"), "qwen-opt bad/m.gguf -o bad/m.gguf", 1, input_of("bad/m.gguf")),
    Row("a part of a GGUF file as output", split_gguf, "qwen-opt bad/model-00001-of-00003.gguf -o bad/model-00003-of-00003.gguf", 1,
        input_of("bad/model-00003-of-00003.gguf")),
    Row("an adapter as output", added(PEFT), f"{ADAPT.split(' -o')[0]} -o bad/adapter_model.safetensors", 1, input_of("bad/adapter_model.safetensors")),
    Row("a text as output", written("bad", "x"), f"qwen-opt {QWEN2} --calibrate=bad -o bad", 1, input_of("bad")),
    Row("a template as output", written("bad", "x"), "qwen-opt stories --chat-template bad -o bad", 1, input_of("bad")),
    Row("an output in no folder", None, f"qwen-opt {QWEN3} -o none/model.qwen --context 257", 1,
        "qwen-opt: cannot write 'none/model.qwen': No such file or directory"),
    # A limit on the size of files is like a full disk to a writer.
    Row("a limit of 300 KiB", None, f"sh -c 'ulimit -f 600; exec qwen-opt {QWEN3} -o out/model.qwen'", 1,
        "qwen-opt: no space left for 'out/model.qwen': {{\\d+}} bytes are needed (File too large)"),
    Row("a limit of 512 bytes", None, f"sh -c 'ulimit -f 1; exec qwen-opt {QWEN3} -o out/model.qwen'", 4,
        "qwen-opt: compiling qwen3-tied-bf16 needs files of up to 256.0 KiB when ulimit -f allows 0.5 KiB"),
    Row("a full disk", full_disk, f"qwen-opt {QWEN3} -o out/model.qwen", 1,
        "qwen-opt: no space left for 'out/model.qwen': {{\\d+}} bytes are needed (No space left on device)"),
    Row("no room for a stage", None, f"sh -c 'qwen-opt {QWEN3} --emit=graph > /dev/full'", 1,
        "qwen-opt: cannot write to standard output: No space left on device"),
    Row("no room for targets", None, "sh -c 'qwen-opt --list-targets > /dev/full'", 1,
        "qwen-opt: cannot write to standard output: No space left on device"),
    Row("no room for IR", None, "sh -c 'echo | qwen-opt - > /dev/full'", 1,
        "qwen-opt: cannot write to standard output: No space left on device"),
    Row("no room in a file for IR", None, "sh -c 'echo | qwen-opt - -o /dev/full'", 1,
        "qwen-opt: IO failure on output stream: No space left on device"),

    # --verify.
    Row("a runner that says nothing", None, f"qwen-opt {QWEN3} -o out/model.qwen --verify --runner true", 1,
        "qwen-opt: cannot verify with 'true': it does not print what qwen-run verify --json prints"),
    Row("a runner that verifies nothing", None, f"qwen-opt {QWEN3} -o out/model.qwen --verify --runner 'sh scripts/verify_nothing.sh'", 1,
        "qwen-opt: cannot verify with 'sh scripts/verify_nothing.sh': it says nothing about kernel {{[a-z0-9_]+\\..+}}"),
    Row("no runner", None, f"qwen-opt {QWEN3} -o out/model.qwen --verify --runner no-such-emulator", 1,
        "qwen-opt: cannot verify with 'no-such-emulator': no program 'no-such-emulator'"),
    Row("gptq without a text", None, f"qwen-opt {QWEN3} -o out/model.qwen --quantizer gptq", 2,
        "qwen-opt: --quantizer gptq needs --calibrate (see qwen-opt --help)"),
    Row("a text for rounding", None, f"qwen-opt {QWEN3} -o out/model.qwen --quantizer rtn --calibrate", 2,
        "qwen-opt: --calibrate has no effect on --quantizer rtn without --awq or --prune (see qwen-opt --help)"),
    Row("a text for a stage", None, f"qwen-opt {QWEN3} --emit=graph --calibrate", 2,
        "qwen-opt: --calibrate needs -o (see qwen-opt --help)"),
    Row("a budget of another unit", None, f"qwen-opt {QWEN3} -o out/model.qwen --calibrate --budget 5x", 2,
        'qwen-opt: --budget: "5x" is none of 4.6bpw, 300MB, 1.2GB, kl=0.01 and 60tok/s with a number above 0 (see qwen-opt --help)'),
    Row("a budget of nothing", None, f"qwen-opt {QWEN3} -o out/model.qwen --calibrate --budget kl=0", 2,
        'qwen-opt: --budget: "kl=0" is none of 4.6bpw, 300MB, 1.2GB, kl=0.01 and 60tok/s with a number above 0 (see qwen-opt --help)'),
    Row("a budget without a text", None, f"qwen-opt {QWEN3} -o out/model.qwen --budget 5MB", 2,
        "qwen-opt: --budget needs --calibrate or --imatrix (see qwen-opt --help)"),
    Row("a divergence without a text", written("bad", importance("blk.0.attn_q.weight", 64)),
        f"qwen-opt {QWEN2} -o out/model.qwen --budget kl=1 --imatrix bad", 2,
        "qwen-opt: --budget kl=1 needs --calibrate: an importance matrix knows no gradients (see qwen-opt --help)"),
    *(Row(f"a budget by an importance matrix of other {what}", written("bad", importance(name, width)),
          f"qwen-opt {QWEN2} -o out/model.qwen --budget 500bpw --imatrix bad", 3, f"qwen-opt: {message}")
      for what, name, width, message in (
          ("names", "blk.7.attn_q.weight", 64, 'bad is of another model: it has no row "blk.1.attn_v.weight"'),
          ("widths", "blk.0.attn_q.weight", 96, 'bad is of another model: tensor "blk.0.attn_q.weight" has 96 values when 64 are needed'))),
    Row("a budget and rules", None, f"qwen-opt {QWEN3} -o out/model.qwen --calibrate --budget 5MB --tensor-weights head=q4_0", 2,
        "qwen-opt: --tensor-weights excludes --budget (see qwen-opt --help)"),
    Row("a budget and a plan", None, f"qwen-opt {QWEN3} -o out/model.qwen --calibrate --budget 5MB --plan bad", 2,
        "qwen-opt: --plan excludes --budget (see qwen-opt --help)"),
    Row("a budget of rounded weights", None, f"qwen-opt {QWEN3} -o out/model.qwen --calibrate --awq --quantizer rtn --budget 5MB", 2,
        "qwen-opt: --budget needs --quantizer gptq or gptq+cd (see qwen-opt --help)"),
    Row("a budget by a short text", written("text", 99 * "A dog. "), "qwen-opt stories -o out/model.qwen --calibrate=text --budget 5MB", 1,
        "qwen-opt: text has {{[0-9]+}} tokens when a calibration needs at least 4096, better 32768"),
    Row("a budget and a format", None, f"qwen-opt {QWEN3} -o out/model.qwen --calibrate --budget 5MB --weights q4_0", 2,
        "qwen-opt: --weights excludes --budget (see qwen-opt --help)"),
    Row("a budget of too few bytes", None, f"qwen-opt {QWEN3} -o out/model.qwen --calibrate --budget 1bpw", 1,
        "qwen-opt: --budget 1bpw is beyond the smallest file that the formats allow, which has {{[0-9.]+}}bpw"),
    Row("a budget of integers", linked("m.gguf", "../qwen3-q4_k_m/model.gguf"), "qwen-opt bad/m.gguf -o out/model.qwen --calibrate --budget 5MB", 1,
        "qwen-opt: --budget 5MB has nothing to choose: all matrices are floats or keep their integers"),
    Row("a bandwidth for bytes", None, f"qwen-opt {QWEN3} -o out/model.qwen --calibrate --budget 5MB --gbps 30", 2,
        "qwen-opt: --gbps has no effect on a budget of 5MB (see qwen-opt --help)"),
    *(Row(f"an importance matrix {name}", files, f"qwen-opt {QWEN2} -o out/model.qwen --weights {weights} --imatrix bad", status, f"qwen-opt: {message}")
      for name, files, weights, status, message in (
          ("that is not there", None, "q4_0", 3, "cannot read bad: No such file or directory"),
          ("of another form", written("bad", '{"version": 1}'), "q4_0", 3,
           "bad is no importance matrix: it is neither a GGUF file nor has names, counts and sums up to its end; what llama-imatrix writes is needed"),
          ("cut short", written("bad", importance("blk.0.attn_q.weight", 64)[:-1]), "q4_0", 3,
           "bad is no importance matrix: it is neither a GGUF file nor has names, counts and sums up to its end; what llama-imatrix writes is needed"),
          ("of other names", written("bad", importance("blk.7.attn_q.weight", 64)), "q4_0", 3,
           'bad is of another model: it has no row "blk.1.attn_v.weight"'),
          ("of other widths", written("bad", importance("blk.0.attn_q.weight", 96)), "q4_0", 3,
           'bad is of another model: tensor "blk.0.attn_q.weight" has 96 values when 64 are needed'),
          ("for floats", written("bad", importance("blk.0.attn_q.weight", 64)), "bf16", 1,
           "--imatrix has no effect: no matrix has integers that the quantizer search chooses"))),
    *(Row(f"an importance matrix and {options}", written("bad", importance("blk.0.attn_q.weight", 64)),
          f"qwen-opt {QWEN3} -o out/model.qwen --imatrix bad {options}", status, f"qwen-opt: {message}")
      for options, status, message in (
          ("--quantizer rtn", 2, "--imatrix has no effect on --quantizer rtn (see qwen-opt --help)"),
          ("--calibrate", 2, "--calibrate excludes --imatrix (see qwen-opt --help)"),
          ("--weights q8_0 --rotate on", 1, "--rotate on excludes --imatrix, which is of inputs that are not rotated"))),
    Row("no text", None, f"qwen-opt {QWEN3} -o out/model.qwen --calibrate=none", 1,
        "qwen-opt: cannot read none: No such file or directory"),
    Row("a text without a tokenizer", None, f"qwen-opt {QWEN2} -o out/model.qwen --calibrate", 1,
        f"qwen-opt: {QWEN2} has no tokenizer, which --calibrate needs"),
    Row("a short text", written("text", 99 * "A dog. "), "qwen-opt stories -o out/model.qwen --calibrate=text", 1,
        "qwen-opt: text has {{[0-9]+}} tokens when a calibration needs at least 4096, better 32768"),
    Row("a text for floats", None, "qwen-opt stories -o out/model.qwen --weights f32 --calibrate", 1,
        "qwen-opt: the quantizer gptq has nothing to choose: all matrices are floats or keep their integers"),
    Row("no room for saved sublayers", full_disk, "qwen-opt stories -o out/model.qwen --calibrate", 1,
        "qwen-opt: {{.*}}/out has 1 MiB free when the saved sublayers of a calibration need {{[0-9]+}} MiB"),
    # What replaces parts of the checkpoint's files.
    Row("YaRN of a Qwen 1", None, "qwen-opt qwen1-bf16 --rope-scaling yarn:4 -o out/model.qwen", 1,
        "qwen-opt: --rope-scaling: qwen1-bf16 is a Qwen 1, whose positions YaRN does not scale"),
    Row("YaRN twice", None, "qwen-opt qwen3-yarn-f32 --rope-scaling yarn:2 -o out/model.qwen", 1,
        "qwen-opt: --rope-scaling: qwen3-yarn-f32 scales its positions itself, by YaRN with the factor 2.5"),
    Row("YaRN to fewer positions", None, f"qwen-opt {QWEN2} --rope-scaling yarn:2:128 -o out/model.qwen", 1,
        f"qwen-opt: --rope-scaling: {QWEN2} would have 256 positions when more than 256, those without it, and at most 1073741824 are needed"),
    Row("YaRN to too many positions", None, f"qwen-opt {QWEN2} --rope-scaling yarn:1000:1073741824 -o out/model.qwen", 1,
        f"qwen-opt: --rope-scaling: {QWEN2} would have 1073741824000 positions when more than 256, those without it, and at most 1073741824 are "
        "needed"),
    *(Row(f"a scaling {value}", None, f"qwen-opt {QWEN2} --rope-scaling {value} -o out/model.qwen", 2,
          f"qwen-opt: --rope-scaling: {message} (see qwen-opt --help)")
      for value, message in (("linear:2", '"linear:2" is not yarn:FACTOR or yarn:FACTOR:POSITIONS'),
                             ("yarn", '"" is not a number from 1 to 1e+06'),
                             ("yarn:0.5", '"0.5" is not a number from 1 to 1e+06'),
                             ("yarn:nan", '"nan" is not a number from 1 to 1e+06'),
                             ("yarn:4:", '"" is not a whole number from 1 to 1073741824'),
                             ("yarn:4:8:16", '"8:16" is not a whole number from 1 to 1073741824'))),
    Row("no chat template", None, "qwen-opt stories --chat-template nothing -o out/model.qwen", 3,
        "qwen-opt: nothing does not exist: a chat template is needed"),
    Row("an empty chat template", written("bad.jinja", ""), "qwen-opt stories --chat-template bad.jinja -o out/model.qwen", 3,
        "qwen-opt: bad.jinja is empty: a chat template is needed"),
    Row("a chat template that ends early", written("bad.jinja", "\n{% if x %}"), "qwen-opt stories --chat-template bad.jinja -o out/model.qwen", 3,
        "qwen-opt: bad.jinja: {{.*}}"),
    Row("a chat template without a tokenizer", written("bad.jinja", "x"), f"qwen-opt {QWEN2} --chat-template bad.jinja -o out/model.qwen", 3,
        f"qwen-opt: --chat-template needs a tokenizer, which {QWEN2} lacks"),
    Row("a chat template of a stage", None, "qwen-opt stories --chat-template nothing --emit=graph", 2,
        "qwen-opt: --chat-template requires -o (see qwen-opt --help)"),
    Row("layers that the model lacks", None, f"qwen-opt {QWEN3} --emit=graph --prune layers:0,2-3", 1,
        "qwen-opt: --prune names layer 2 when the model has layers 0 to 1"),
    Row("no layer that stays", None, f"qwen-opt {QWEN3} --emit=graph --prune layers:0-1", 1,
        "qwen-opt: --prune removes all 2 layers when at least 1 must stay"),
    Row("too many layers to remove", None, "qwen-opt stories -o out/model.qwen --prune sleb:6", 1,
        "qwen-opt: --prune removes 6 layers when the model can lose 1 to 5"),
    Row("another hybrid", None, f"qwen-opt {HYBRID} --emit=graph --prune layers:0", 1,
        f"qwen-opt: --prune breaks the pattern of full and linear attention of {HYBRID}: the layers that stay must be those of a smaller "
        "hybrid"),
    Row("layers for a text without a tokenizer", None, f"qwen-opt {QWEN2} -o out/model.qwen --prune shortgpt:1", 1,
        f"qwen-opt: {QWEN2} has no tokenizer, which --prune needs"),
    Row("layers that a text chooses for a stage", None, f"qwen-opt {QWEN3} --emit=graph --prune shortgpt:1", 2,
        "qwen-opt: --prune shortgpt needs -o (see qwen-opt --help)"),
    *(Row(f"pruning by {value}", None, f"qwen-opt {QWEN3} -o out/model.qwen --prune {value}", 2,
          f"qwen-opt: --prune has {json.dumps(value)} when shortgpt:N, sleb:N or layers:LIST is needed (see qwen-opt --help)")
      for value in ("magnitude:2", "sleb", "sleb:0", "shortgpt:2x")),
    *(Row(f"layers like {value}", None, f"qwen-opt {QWEN3} -o out/model.qwen --prune layers:{value}", 2,
          f"qwen-opt: --prune has {json.dumps('layers:' + value)} when a list of layers like layers:3,7-9 is needed (see qwen-opt --help)")
      for value in ("", "3-1", "1,,2", "a", "0-99999999999")),
    Row("a stage to verify", None, f"qwen-opt {QWEN3} --emit=graph --verify", 2,
        "qwen-opt: --verify requires -o (see qwen-opt --help)"),
    Row("a runner without --verify", None, f"qwen-opt {QWEN3} -o out/model.qwen --runner true", 2,
        "qwen-opt: --runner requires --verify (see qwen-opt --help)"),

    # qwen-opt export.
    Row("an export of a hybrid", None, "qwen-opt export hybrid.qwen -o out/m.gguf", 1,
        'qwen-opt export: hybrid.qwen is a model of "Qwen3_5ForCausalLM", which is not exported; Qwen2ForCausalLM, Qwen3ForCausalLM, Qwen2MoeForCausalLM and '
        "Qwen3MoeForCausalLM are; run it with qwen-run, or convert the checkpoint"),
    Row("an export of a rotated model", None, "qwen-opt export rotated.qwen -o out/m.gguf", 1,
        "qwen-opt export: rotated.qwen is rotated: it transforms its activations while it runs, which a GGUF file does not say; compile it with "
        "--rotate off"),
    Row("an export of broken blocks", None, "qwen-opt export k96.qwen -o out/m.gguf", 1,
        'qwen-opt export: k96.qwen: tensor "model.embed_tokens.weight" in q6_k has K 96 when blocks of Q6_K need a multiple of 256; compile with '
        "--weights q8_0 --rotate off, or with another format of blocks of 32"),
    Row("an export of zero points", None, "qwen-opt export zeros.qwen -o out/m.gguf", 1,
        'qwen-opt export: zeros.qwen: tensor "model.embed_tokens.weight" in q4_z_32 has a zero point that is no integer from 0 to 16, and Q5_0 '
        "holds no other; compile with another format, such as --weights q8_0 --rotate off"),
    Row("an export of damaged weights", artifact(lambda data, header, sections: flipped(data, sections["weights"][0] + 5, 1)),
        "qwen-opt export bad.qwen -o out/m.gguf", 3,
        "qwen-opt export: bad.qwen is damaged: the checksum of bytes 0 to {{[0-9]+}} of its weights does not match; copy the file again or "
        "compile the model again"),
    Row("an export of no file", None, "qwen-opt export none.qwen -o out/m.gguf", 3,
        "qwen-opt export: cannot read none.qwen: No such file or directory"),
    Row("an export to a folder", None, "qwen-opt export good.qwen -o out", 1,
        "qwen-opt export: cannot write 'out': it is a folder; name a file in it"),
    Row("an export onto its model", artifact(lambda data, header, sections: data), "qwen-opt export bad.qwen -o ./bad.qwen", 1,
        input_of("./bad.qwen", "bad.qwen").replace("opt:", "opt export:")),
    Row("an export to a full disk", full_disk, "qwen-opt export stories.qwen -o out/m.gguf", 1,
        "qwen-opt export: cannot write 'out/m.gguf': No space left on device"),
    Row("an export without a name", None, "qwen-opt export good.qwen", 2,
        "qwen-opt export: -o is missing (see qwen-opt export --help)"),

    # qwen-opt report.
    Row("a report without a CPU", None, "qwen-opt report v3.qwen", 1,
        "qwen-opt report: v3.qwen: its target 'x86-64-v3' names no cpu; say which one is to be modelled with --cpu"),
    Row("a report for a CPU of another architecture", None, "qwen-opt report arms.qwen --cpu znver3", 1,
        "qwen-opt report: arms.qwen: llvm does not know the cpu 'znver3' of aarch64"),
    Row("a report for a target that the file lacks", None, "qwen-opt report arms.qwen --target znver4", 1,
        "qwen-opt report: arms.qwen: it has no code for 'znver4', only for neoverse-v1, neoverse-n1"),
    Row("a report at a long context", None, "qwen-opt report arms.qwen --context 1000000", 1,
        "qwen-opt report: arms.qwen: --context is 1000000 when a sequence has 256 positions at most"),
    Row("a report on no file", None, "qwen-opt report none.qwen", 3,
        "qwen-opt report: cannot read none.qwen: No such file or directory"),
    Row("a report on another file", written("text", "no model\n"), "qwen-opt report text", 3,
        "qwen-opt report: text is not a compiled model: it does not start with an ELF header"),
    Row("a report for half a machine", None, "qwen-opt report arms.qwen --ghz 3", 2,
        "qwen-opt report: --ghz requires --cores (see qwen-opt report --help)"),
]

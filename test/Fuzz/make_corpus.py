"""Writes the inputs that fuzzing starts from, from test/Inputs and test/Dialect.

  make_corpus.py FOLDER

The build with fuzz targets calls it. The inputs of a target lie in FOLDER/TARGET. Each is small: what a parser meets first should fit in a few hundred bytes.
"""
import base64
import bz2
import io
import json
import pathlib
import re
import shutil
import struct
import sys
import zipfile

HERE = pathlib.Path(__file__).parent
INPUTS = HERE.parent / "Inputs"
CHECKPOINTS = INPUTS / "checkpoints"
OUT = pathlib.Path(sys.argv[1])
END = "\x1e"
# The packings of tensors that FormsFuzz has, by quant_method.
PACKINGS = {"gptq": ["gptq"], "awq": ["awq"], "auto-round": ["gptq", "awq"], "compressed-tensors": ["packed", "packed-mxfp4", "int8", "float8"],
            "fp8": ["fp8"], "mlx": ["mlx", "mxfp4"], "bitsandbytes": ["nf4"]}
# Deep enough to overflow the stack of a function that recurses once per level.
DEEP = 20000


def put(target, name, data):
    folder = OUT / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data.encode() if isinstance(data, str) else data)


def safetensors(header, data=b""):
    text = header if isinstance(header, str) else json.dumps(header)
    return struct.pack("<Q", len(text)) + text.encode() + data


def checkpoints():
    entry = lambda dtype, shape, first, last: dict(dtype=dtype, shape=shape, data_offsets=[first, last])
    put("Safetensors", "two", safetensors({"a": entry("F32", [2], 0, 8), "b": entry("BF16", [1, 3], 8, 14),
                                           "__metadata__": {"format": "pt"}}, bytes(14)))
    put("Safetensors", "empty", safetensors({}))
    put("Safetensors", "hole", safetensors({"a": entry("U8", [1], 1, 2)}, b"xy"))
    put("Safetensors", "overlap", safetensors({"a": entry("U8", [2], 0, 2), "b": entry("U8", [1], 1, 2)}, b"xy"))
    put("Safetensors", "huge", safetensors({"a": entry("F4", [2**40, 2**40], 0, 2**62)}))
    put("Safetensors", "deep", safetensors("[" * 4000))
    files = {"a": "one.safetensors", "b": "one.safetensors", "c": "two.safetensors"}
    put("Index", "good", json.dumps({"metadata": {"total_size": 4}, "weight_map": files}))
    put("Index", "elsewhere", json.dumps({"weight_map": {"a": "../one.safetensors"}}))
    put("Index", "missing", json.dumps({"weight_map": {"z": "two.safetensors"}}))
    for folder in sorted(CHECKPOINTS.iterdir()):
        put("Config", folder.name, json.dumps(json.loads((folder / "config.json").read_text())))
        quantization = json.loads((folder / "config.json").read_text()).get("quantization_config")
        if quantization:
            method = quantization.get("quant_method", "mlx")
            # The groups of the tensors that the target has, which it reads in all packings of the method.
            text = re.sub(r'"group_size": \d+', '"group_size": 32', json.dumps(quantization))
            state = {"quant_type": "nf4", "blocksize": 64, "shape": [16, 64], "nested_blocksize": 256, "nested_offset": 0.5}
            for packing in PACKINGS[method]:
                put("Forms", f"{folder.name}-{packing}", END.join([packing, method, text, json.dumps(state)]))
        generation = folder / "generation_config.json"
        if generation.exists():
            put("GenerationConfig", folder.name, json.dumps(json.loads(generation.read_text())))
    for target in ("Index", "Config", "GenerationConfig"):
        put(target, "deep", "[" * DEEP + "]" * DEEP)


def adapters():
    """The first byte says which file it is (AdapterFuzz.cpp)."""
    module = "model.layers.0.self_attn.k_proj."
    entry = lambda shape, first: dict(dtype="F16", shape=shape, data_offsets=[first, first + 2 * shape[0] * shape[1]])
    factors = lambda a, b: {a: entry([2, 256], 0), b: entry([64, 2], 1024)}
    for folder in sorted((INPUTS / "adapters").iterdir()):
        if (folder / "adapter_config.json").exists():
            config = json.loads((folder / "adapter_config.json").read_text())
            put("Adapter", folder.name, "\0" + json.dumps(config | {"use_rslora": True, "rank_pattern": {".*": 4}}))
    put("Adapter", "peft", b"\1" + safetensors(factors(f"base_model.model.{module}lora_A.weight", f"base_model.model.{module}lora_B.weight"), bytes(1280)))
    put("Adapter", "whole", b"\1" + safetensors({"base_model.model.model.norm.weight": dict(dtype="BF16", shape=[256], data_offsets=[0, 512])}, bytes(512)))
    turned = {f"{module}lora_a": entry([256, 2], 0), f"{module}lora_b": entry([2, 64], 1024)}
    put("Adapter", "mlx", b"\2" + safetensors(turned, bytes(1280)))
    keys = {"general.type": "adapter", "general.architecture": "qwen2", "adapter.type": "lora", "adapter.lora.alpha": 4.0}
    put("Adapter", "gguf", b"\3" + gguf(keys, [("blk.0.attn_k.weight.lora_a", 1, [256, 2], bytes(1024)),
                                               ("blk.0.attn_k.weight.lora_b", 1, [2, 64], bytes(256))]))


def alphabet():
    """The characters that stand for the bytes, as TokenizerFormat's reader has them."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(0x100, 0x200))
    return [chr(b if b in printable else next(others)) for b in range(256)]


def tokenizers():
    vocab = {c: i for i, c in enumerate(alphabet())}
    merges = []
    for left, right in (("a", "b"), ("ab", "c"), ("Ġ", "a"), ("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o")):
        vocab[left + right] = len(vocab)
        merges.append((left, right))
    added = [{"id": len(vocab) + i, "content": text, "single_word": False, "lstrip": i == 1, "rstrip": i == 1,
              "normalized": i == 1, "special": i == 0} for i, text in enumerate(["<|im_end|>", "<think>"])]
    stories = json.loads((HERE.parents[1] / "models" / "stories" / "tokenizer.json").read_text())
    stories["model"].update(vocab=vocab, merges=merges)
    stories["added_tokens"] = added
    dump = lambda value: json.dumps(value, ensure_ascii=False)
    put("TokenizerJson", "good", dump(stories))
    stories["model"]["merges"] = [" ".join(m) for m in merges]
    stories["normalizer"] = None
    put("TokenizerJson", "merges-as-text", dump(stories))
    text = "#version: 0.2\n" + "\n".join(map(" ".join, merges)) + "\n"
    names = {a["content"]: a["id"] for a in added}
    config = {"eos_token": "<|im_end|>", "added_tokens_decoder": {str(a.pop("id")): a for a in added},
              "chat_template": "{{ messages }}"}
    put("VocabMerges", "plain", dump(vocab) + END + text)
    put("VocabMerges", "whole", END.join([dump(vocab), text, dump(config),
                                         dump({"pad_token": {"content": "<|im_end|>"}}), dump(names)]))

    line = lambda i, token: f"{base64.b64encode(token).decode()} {i}\n"
    put("Tiktoken", "small", "".join(line(i, token) for i, token in enumerate([b"a", b"b", b"ab", b"aba"])))
    put("Tiktoken", "unmerged", "".join(line(i, token) for i, token in enumerate([b"a", b"b", b"abab"])))
    put("Tiktoken", "bytes", "".join(line(i, token) for i, token in enumerate(
        [*(bytes([b]) for b in range(256)), b"he", b"ll", b"hell", b"hello", b" hello"])))

    tokens = [bytes([i]) for i in range(256)] + [b"ab", b"abc", b" a", b"he", b"ll", b"hell", b"hello"]
    tokens += [b"<|im_end|>", b"<think>"]
    slots, none = 16, 0xFFFFFFFF
    table = [(none,) * 4] * slots
    for rank, (left, right) in enumerate(merges):
        a, b, c = vocab[left], vocab[right], vocab[left + right]
        at = ((((a << 32 | b) * 0x9E3779B97F4A7C15) % 2**64) >> 32) % 2**32 % slots
        while table[at][0] != none:
            at = (at + 1) % slots
        table[at] = (a, b, rank, c)
    offsets = [sum(map(len, tokens[:i])) for i in range(len(tokens) + 1)]
    header = struct.pack("<8s10I256I", b"QWENTOK\0", 1, 1, len(tokens), 2, slots, none, len(tokens) - 2, none, 0, 0,
                         *range(256))
    put("TokenizerBlob", "small", header + b"".join(struct.pack("<4I", *slot) for slot in table)
        + struct.pack("<4I", len(tokens) - 2, 1, len(tokens) - 1, 2 + 4 + 8)
        + struct.pack(f"<{len(offsets)}I", *offsets) + b"".join(tokens))


def gguf(keys, tensors, version=3):
    """`tensors` are (name, type, dimensions with K first, bytes)."""
    text = lambda s: struct.pack("<Q", len(s.encode())) + s.encode()

    def value(v):
        if isinstance(v, str):
            return struct.pack("<I", 8) + text(v)
        if isinstance(v, list):
            kind = 8 if isinstance(v[0], str) else 5
            return struct.pack("<IIQ", 9, kind, len(v)) + b"".join(text(x) if kind == 8 else struct.pack("<i", x) for x in v)
        return struct.pack("<If", 6, v) if isinstance(v, float) else struct.pack("<II", 4, v)

    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(keys))
    head += b"".join(text(key) + value(v) for key, v in keys.items())
    data = b""
    for name, kind, dims, raw in tensors:
        head += text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, len(data))
        data += raw + bytes(-len(raw) % 32)
    return head + bytes(-len(head) % 32) + data


def ggufs():
    size = {"block_count": 1, "context_length": 64, "embedding_length": 32, "feed_forward_length": 32,
            "attention.head_count": 2, "attention.head_count_kv": 1, "attention.layer_norm_rms_epsilon": 1e-6,
            "rope.freq_base": 1e4}
    model = {"general.architecture": "qwen2"} | {f"qwen2.{key}": v for key, v in size.items()}
    tensors = [("token_embd.weight", 8, [32, 300], bytes(300 * 34)), ("blk.0.attn_qkv.weight", 2, [32, 64], bytes(64 * 18)),
               ("output_norm.weight", 0, [32], bytes(128))]
    put("Gguf", "model", gguf(model, tensors))
    experts = {"expert_count": 3, "expert_used_count": 2, "expert_feed_forward_length": 32}
    put("Gguf", "experts", gguf({"general.architecture": "qwen2moe"} | {f"qwen2moe.{key}": v for key, v in (size | experts).items()}, [
        tensors[0], ("blk.0.ffn_gate_up_exps.weight", 2, [32, 64, 3], bytes(192 * 18)), ("blk.0.ffn_gate_inp_shexp.weight", 0, [32], bytes(128))]))
    put("Gguf", "version2", gguf({"general.alignment": 64}, [], 2))
    put("Gguf", "big-endian", gguf({}, [], 3 << 24))
    put("Gguf", "split", gguf(model | {"split.no": 0, "split.count": 2, "split.tensors.count": 3}, tensors[2:]))
    put("Gguf", "refused", gguf({"general.type": "adapter"}, [("t", 16, [256], bytes(66))]))
    sums = struct.pack("<8f", *range(8))
    put("ImportanceMatrix", "gguf", gguf({"general.type": "imatrix", "imatrix.datasets": ["text"], "imatrix.chunk_count": 2}, [
        ("blk.0.attn_q.weight.in_sum2", 0, [8], sums), ("blk.0.attn_q.weight.counts", 0, [1], struct.pack("<f", 3)),
        ("blk.0.ffn_up_exps.weight.in_sum2", 0, [4, 2], sums), ("blk.0.ffn_up_exps.weight.counts", 0, [1, 2], struct.pack("<2f", 0, 2))]))
    name = b"blk.0.attn_q.weight"
    put("ImportanceMatrix", "dat", struct.pack("<2i", 1, len(name)) + name + struct.pack("<2i", 2, 8) + sums + struct.pack("<2i", 2, 4) + b"text")
    tokens = alphabet() + ["ab", "<|im_end|>", "<think>", "[PAD259]"]
    put("Gguf", "tokenizer", gguf(model | {
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "qwen2", "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [1] * 257 + [3, 4, 5], "tokenizer.ggml.merges": ["a b"],
        "tokenizer.ggml.eos_token_id": 257, "tokenizer.chat_template": "{{ messages }}"},
        [("token_embd.weight", 2, [32, 260], bytes(260 * 18))]))


def texts():
    cases = [json.loads(line) for line in (INPUTS / "tokenizer" / "cases.jsonl").read_text().splitlines()]
    for i, case in enumerate(cases[:: max(1, len(cases) // 24)]):
        if len(case["text"]) < 400:
            put("Text", f"case{i:02}", case["text"])
    put("Text", "invalid", b"\xc0\x80 \xed\xa0\x80 \xf4\x90\x80\x80 \xe2\x82 \xff\xfe")
    put("Text", "marks", "a" + "\u0323\u0301" * 40 + "\u1100\u1161\u11a8")


def templates():
    for path in sorted((INPUTS / "tokenizer" / "templates").glob("*.jinja")):
        if path.stat().st_size <= 4096:
            put("ChatTemplate", path.stem, path.read_bytes())
    for name, source in {
        "loop": "{% for m in messages if m.role != 'x' recursive %}{{ loop.index0 }}{% if loop.last %}{% break %}"
                "{% endif %}{% else %}none{% endfor %}",
        "macro": "{%- macro f(a, b=2) -%}{{ a ~ b|string }}{{ caller() }}{%- endmacro -%}{% call f(1) %}x{% endcall %}",
        "namespace": "{% set ns = namespace(i=0) %}{% for x in range(n) %}{% set ns.i = ns.i + x %}{% endfor %}{{ ns.i }}",
        "filters": "{{ messages|map(attribute='role')|join(', ')|upper|trim }}{{ tools|tojson(indent=2) }}"
                   "{{ 'a,b'.split(',')[::-1] }}",
        "arithmetic": "{{ 7 // -2 * 2 ** 3 % 5 - 1.5e3 / 4 }}{{ 'x' * 3 + 'y' }}{{ 1 if n > 2 and not none else 0 }}",
        "raise": "{% if messages is defined %}{{ raise_exception('no ' ~ messages[-1]['role']) }}{% endif %}",
        "nested": "{{ " + "(" * 300 + "1" + ")" * 300 + " }}",
        "work": "{% for a in range(99999) %}{% for b in range(99999) %}{{ 'x' * 9999 }}{% endfor %}{% endfor %}",
    }.items():
        put("ChatTemplate", name, source)


def calls():
    """The first byte is the format (CallsFuzz.cpp)."""
    schema = json.dumps({"properties": {"a": {"type": ["integer", "null"]}, "b": {"anyOf": [{"type": "array"}, {"$ref": "#/properties/b"}]},
                                        "c": {"type": "string", "maxLength": 3}, "d": {"enum": ["x", 1]}}, "required": ["a"]})
    hermes = '<tool_call>\n{"name": "f", "arguments": {"a": "x\\ud83d\\u00e9\\d", "b": [1, null]}}\n</tool_call>'
    xml = "<tool_call>\n<function=f>\n<parameter=a>\n5\n</parameter>\n<parameter=b>\n[1]\n</parameter>\n<parameter=c>\nx\n</parameter>\n" \
          "</function>\n</tool_call>"
    for number, (name, call) in enumerate((("hermes", hermes), ("xml", xml))):
        for where in (0, 0x80):
            put("Calls", f"{name}-{where}", bytes([number + where]) + f"Text.\n{call}\n{call}{END}{schema}".encode())
        bare = call.replace("<tool_call>\n", "")
        put("Calls", f"{name}-bare", bytes([number]) + f"```\n{bare}\n```\n{bare}".encode())


def grammars():
    """The first byte is the kind or a format of calls, the second one chooses tokens (GrammarsFuzz.cpp)."""
    schema = {"type": "object", "properties": {"a": {"type": "string", "maxLength": 3, "pattern": "^a"}, "b": {"$ref": "#/$defs/b"}}, "required": ["a"],
              "additionalProperties": False, "$defs": {"b": {"type": "array", "items": {"enum": [1, None, "x"]}, "minItems": 1}}}
    parts = {"anyOf": [{"allOf": [{"minimum": 3}, {"maximum": 4.5}]}, {"type": "string", "format": "date"}, {"multipleOf": 5}, {"const": {"a": []}}]}
    for name, (kind, text) in {
        "schema": (0, json.dumps(schema)), "parts": (0, json.dumps(parts)), "cycle": (0, '{"$ref": "#"}'), "any": (0, "true"),
        "regex": (1, "(a|[^b-d]{2,3})+\\d*?x"), "choice": (2, '["a", "ab", "\\"\\u00e9"]'),
        "lark": (3, 'start: item ("," item)*\nitem: WORD | "(" item ")"\nWORD: /[a-z]+/\n%ignore " "'),
        "json": (3, 'start: "<" obj ">"\nobj: %json {"type": "object"}'),
        "text": (4, 'start: ("+" /.*/ "\\n")+ "\\"."\n'), "expression": (5, "[^a]{2,}\\n?|\"\\\\"), "tags": (6, 'start: "(" start? ")"\n%ignore /\\n/')}.items():
        put("Grammars", name, bytes([kind, 7]) + text.encode())


def artifacts():
    manifest = {
        "compiler": "handmade", "numerics_version": 1,
        "model": {"name": "m", "tokenizer_vocab": 37, "context": 100},
        "targets": [{"name": "test", "arch": "x86-64", "features": ["avx2"], "kernels": ["k"]}],
        "kv": {"page_tokens": 64, "page_bytes": 8192, "token_bytes": 128},
        "programs": [{
            "name": "forward",
            "model": {"architecture": "Qwen3ForCausalLM", "vocab_size": 40, "hidden_size": 32, "layers": 1, "heads": 2, "kv_heads": 1,
                      "head_dim": 16, "intermediate_size": 64, "rope_theta": 10000.0, "rms_norm_eps": 1e-6, "tied": True,
                      "max_context": 100},
            "limits": {"tokens": 8, "rows": 2}, "arena_bytes": 1024,
            "caches": [{"name": "kv", "kind": "paged", "format": "f32", "layer_bytes": 128, "layers": [0]},
                       {"name": "state", "kind": "fixed", "layer_bytes": 64, "layers": [0]}],
            "inputs": [{"name": "ids"}, {"name": "positions"}], "outputs": [{"name": "logits", "width": 40, "stride": 48}],
            "ops": ["first", "second"],
            "work": [{"kind": "linear", "calls": [{"macs": 16}]},
                     {"kind": "lm_head", "weight_bytes": 64, "active_bytes": 64, "count": 1,
                      "calls": [{"kernel": 1, "length": 40, "calls": 1}]}],
            "kernels": [[[0], [0, 0]]]}],
        "tensors": [{"name": "w", "shape": [4, 4], "format": "f32", "offset": 0, "bytes": 64,
                     "segments": [{"name": "v", "outputs": 4}]}],
        "generation": {"do_sample": True, "temperature": 0.7, "top_k": 20, "top_p": 0.8, "min_p": 0,
                       "repetition_penalty": 1.1, "bos_token_id": 35, "eos_token_id": [36]},
        "quantization": {"quantizer": "gptq", "rotated": True, "awq": False, "tokens": 512, "text": "ab"}}
    put("Manifest", "good", json.dumps(manifest))
    put("Manifest", "deep", "[" * 500 + "]" * 500)
    # The flipped bits of one byte of the handmade artifact in ArtifactFuzz.cpp, by offset in its input.
    elf, programs, note, dynamic, size = 0, 64, 64 + 5 * 56, 64 + 5 * 56 + 20 + 184, 64 + 5 * 56 + 20 + 184 + 32
    for name, flips in {
        "good": {}, "elf": {elf + 16: 1}, "headers": {elf + 56: 0x40}, "writable": {programs + 4: 2},
        "unaligned": {programs + 9: 1}, "thread-local": {programs + 2 * 56: 3}, "memory": {programs + 41: 1},
        "stack": {programs + 4 * 56 + 4: 1}, "note": {note + 4: 4}, "version": {note + 20 + 8: 2},
        "architecture": {note + 20 + 20: 3}, "manifest": {note + 20 + 48: 1, note + 20 + 56: 1},
        "weights": {note + 20 + 112 + 2: 0x40}, "tokenizer": {note + 20 + 64: 64, note + 20 + 72: 64},
        "needed": {dynamic: 1}}.items():
        put("Artifact", name, bytes(flips.get(i, 0) for i in range(size)))


def arguments():
    deep = "[" * 200 + "]" * 200
    for name, words in {
        "generate": "generate m.qwen -p text -n 20 --seed 3 --temperature 0.7 --top-k 5 --top-p 0.9",
        "ids": "generate m.qwen --ids 1,2,3 --min-p 0.1 --repetition-penalty 1.1 -t 2 --piece 3 --ignore-eos",
        "json": "logits m.qwen --ids [1,2] --ids {\"ids\":[3,4]} -o x.npy",
        "deep": "logits m.qwen -o x.npy --ids {\"ids\":" + deep + "}",
        "chat": "chat m.qwen --no-think -n 4",
        "bench": "bench m.qwen --prompt-tokens 1 -n 2 --repetitions 3 --json",
        "info": "info m.qwen --check --json",
        "tokenize": "tokenize m.qwen --decode -p 9,2147483648,-1",
        "perplexity": "perplexity m.qwen text --window 0x10 --stride 1e3",
        "compare": "compare a.qwen b.qwen text --window 512 --skip 256 --windows 16 --json",
        "embed": "embed m.qwen --ids 1,2 --dim 8 -o vectors.npy",
        "rerank": "rerank m.qwen -q where documents --instruction find",
        "help": "generate --help",
    }.items():
        put("CommandLine", name, "\n".join(words.split()))


def requests():
    """Bodies of HTTP requests."""
    message = {"role": "user", "content": "Hi"}
    bodies = {
        "chat": {"model": "m", "messages": [{"role": "system", "content": "Be brief."}, message], "stream": True,
                 "stream_options": {"include_usage": True}, "temperature": 0.5, "stop": ["\n\n", "User:"], "logprobs": True,
                 "top_logprobs": 2, "chat_template_kwargs": {"enable_thinking": False}, "tools": []},
        "parts": {"messages": [{"role": "user", "content": [{"type": "text", "text": "a\u00e9"}]}], "n": 2, "seed": 7,
                  "max_completion_tokens": 5, "logit_bias": {"5": -100, "7": 1.5}, "min_tokens": 2, "presence_penalty": -1,
                  "response_format": {"type": "text"}, "reasoning_effort": "none", "reasoning_format": "auto", "thinking_budget": 9},
        "scores": {"prompt": [[1, 2, 3], [4]], "echo": True, "logprobs": 1, "max_tokens": 0, "cache_salt": "s"},
        "texts": {"prompt": ["a", "b"], "stop": "ab", "stop_token_ids": [1], "min_p": 0.1, "suffix": None},
        "tokens": {"tokens": [1, 2]},
        "tools": {"messages": [message, {"role": "assistant", "content": None, "tool_calls": [
                      {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}}]},
                      {"role": "tool", "tool_call_id": "c", "content": "5"}], "tool_choice": "auto", "parallel_tool_calls": True,
                  "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}], "enable_thinking": True},
        "messages": {"max_tokens": 9, "system": [{"type": "text", "text": "x-anthropic-billing-header: a"}], "messages": [
                         {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "document", "source": {"type": "text", "data": "b"}}]},
                         {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm.", "signature": ""},
                                                           {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}}]},
                         {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "is_error": True, "content": [{"type": "text", "text": "5"}]}]},
                         {"role": "system", "content": "Hurry."}],
                     "tools": [{"name": "f", "input_schema": {"type": "object"}, "strict": True}, {"type": "web_search_20260318"}],
                     "tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": True}, "thinking": {"type": "enabled", "budget_tokens": 9},
                     "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": {}}}, "stop_sequences": ["a"], "cache_control": {}},
        "responses": {"instructions": "Be brief.", "input": [
                          {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "a"}]}, {"role": "user", "content": "b"},
                          {"type": "reasoning", "summary": [], "encrypted_content": "cXdlbi1ydW4gMQo="},
                          {"type": "function_call", "call_id": "c", "name": "f", "namespace": "n", "arguments": "{}"},
                          {"type": "custom_tool_call", "call_id": "d", "name": "p", "input": "x"},
                          {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "5"}]},
                          {"type": "custom_tool_call_output", "call_id": "d", "output": "6"}],
                      "tools": [{"type": "function", "name": "g", "strict": False, "parameters": {}}, {"type": "web_search"},
                                {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "f"}]},
                                {"type": "custom", "name": "p", "format": {"type": "grammar", "syntax": "lark", "definition": "start: /x/"}}],
                      "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "custom", "name": "p"}]}, "parallel_tool_calls": True,
                      "reasoning": {"effort": "low"}, "include": ["reasoning.encrypted_content"], "text": {"format": {"type": "text"}}, "store": False},
        "custom-text": {"input": "a\n\u00e9 \\ \"", "x": 1},
        "infill": {"input_prefix": "a", "input_suffix": "b", "prompt": "c", "input_extra": [{"filename": "f", "text": "t"}], "n_predict": 9},
    }
    for name, body in bodies.items():
        put("Request", name, json.dumps(body))
    put("Request", "deep", '{"metadata": ' + "[" * DEEP)


def sampler_options():
    """Rows of SamplerOptions.def: the name and the range in requests."""
    text = (HERE.parents[1] / "include/qwen/ABI/SamplerOptions.def").read_text()
    for name, least, most in re.findall(r"^QWEN_(?:MODEL_|SWITCH_)?SAMPLING\(\w+, \w+, (\w+), [^,]+, ([^,]+), ([^,]+),", text, re.M):
        yield name, float(least), 2.0**31 - 1 if most == "INT32_MAX" else float(most)


def samplers():
    """Numbers come from the end of the input (SamplerFuzz.cpp)."""
    for step in (1, 3, 7, 37, 101):
        put("Sampler", f"step-{step}", bytes(step * i % 256 for i in range(400)))
    for name, least, most in sampler_options():
        for which, value in ("least", least), ("most", most):
            put("Request", f"{name}-{which}", json.dumps({"prompt": [1], name: int(value) if value.is_integer() else value}))
        put("CommandLine", name, "\n".join(["generate", "m.qwen", f"--{name.replace('_', '-')}", f"{least:.15g}"]))


def drafters():
    """Numbers come from the end of the input (DraftersFuzz.cpp)."""
    for step in (1, 5, 11, 29, 83):
        put("Drafters", f"step-{step}", bytes(step * i % 256 for i in range(500)))


def tasks():
    """Data of tasks, behind the number of the file (TasksFuzz.cpp)."""
    row = lambda number, **fields: put("Tasks", f"row{number}", bytes([number]) + json.dumps(fields).encode())
    row(0, query="Question: a", choices=["b", "c"], gold=1)
    put("Tasks", "arc", b"\0" + json.dumps({"question": {"stem": "a", "choices": [{"text": "b", "label": "A"}]}, "answerKey": "A"}).encode())
    swag = dict(activity_label="a", ctx_a="b [c]", ctx_b="D", endings=["e", "f"], label="1")
    row(1, **swag)
    put("Tasks", "lines", b"\2a\n3\nb\nc\nd\ne\n")
    put("Tasks", "bzip2", b"\3" + bz2.compress(json.dumps(swag).encode()))
    row(4, query="a\n", choices=["b", "c"], gold=1)
    row(5, sentence="a _ b", option1="c", option2="d", answer="2")
    row(6, text="a b")
    put("Tasks", "pages", b"\7 = A = \n b ( c ) \" d \" \n = B = \n")
    put("Tasks", "csv", b'\x08"a ""b""\n",c,d,e,f,A\r\n')
    put("Tasks", "header", "\t,Question,A,B,C,D,Answer\n1,q,a,b,c,d,B\n")
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("val/law_val.csv", "id,question,A,B,C,D,answer\n0,q,a,b,c,d,C\n")
    put("Tasks", "zip", b"\n" + archive.getvalue())


def page_files():
    """The name of a file, and its bytes: a head (PageFile.cpp), and what follows."""
    name, before = bytes(range(32)), bytes(32)

    def file(ids, media=b"", version=1, payload=b"payload!", texts=(b"model", b"", b"key", b"salt")):
        rest = b"".join(texts) + media + struct.pack(f"<{len(ids)}i", *ids)
        rest += bytes(-(120 + len(rest)) % 8)
        return (b"QwenPage" + struct.pack("<IIQQ", version, 120 + len(rest), len(payload), 0) + name + before
                + struct.pack("<6I", *map(len, texts), len(media) // 56, len(ids)) + rest + payload)

    put("PageFile", "page", f"{name.hex()}.page{END}".encode() + file(range(64)))
    put("PageFile", "state", f"{name.hex()}.{before.hex()}.3.state{END}".encode() + file([1, 2, 3]))
    put("PageFile", "media", END.encode() + file(range(64), struct.pack("<3q", 60, 5, 2) + bytes(32)))
    put("PageFile", "version", END.encode() + file([], version=2))
    put("PageFile", "cut", END.encode() + file(range(64))[:200])


def modules():
    """The modules of the dialect's tests, without their comments."""
    for name in ("ops", "invalid", "invalid-attention"):
        text = (HERE.parent / "Dialect" / f"{name}.mlir").read_text()
        for i, part in enumerate(text.split("// -----")):
            lines = [line for line in part.splitlines() if line.strip() and not line.strip().startswith("//")]
            put("Mlir", f"{name}{i:02}", "\n".join(lines) + "\n")


shutil.rmtree(OUT, ignore_errors=True)
checkpoints()
adapters()
tokenizers()
ggufs()
texts()
templates()
calls()
grammars()
artifacts()
arguments()
requests()
samplers()
drafters()
tasks()
page_files()
modules()

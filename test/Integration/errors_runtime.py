"""The errors of qwen-run (errors.py checks them; docs/testing.md says how to add one)."""
import json
import struct

from errors_files import HEADER, SECTIONS, VERSION, Row, artifact, edited, flipped, patched, written

LOGITS = "qwen-run logits bad.qwen --ids 2,3,4 -o bad.npy"
NO_TOKENIZER = "qwen-run: good.qwen has no tokenizer, because its checkpoint had none: only token ids work"
NO_LOGITS = ("qwen-run: unfit.qwen has no logits: its checkpoint has no lm_head and does not tie it to the embedding; "
             "it embeds texts only (qwen-run embed, /v1/embeddings)")
CONTEXT = "when the model was compiled for a context of 4; recompile it with qwen-opt --context for up to 1024"


def damaged(name, message, change, command=LOGITS):
    return Row(name, artifact(change), command, 3, message)


def in_section(name, cut=None):
    """Flips a byte in the middle of a section, or cuts the file in it."""
    def change(good, header, sections):
        offset, size = sections[name]
        if cut is None:
            return flipped(good, offset + size // 2, 0x10)
        return good[:offset + cut(size)]
    return change


BORDERS = {"before": lambda size: 0, "after a byte of": lambda size: 1, "within": lambda size: size // 2,
           "a byte before the end of": lambda size: size - 1}
TOO_SHORT = "qwen-run: bad.qwen is not a compiled model: it is too short"
TRUNCATED = r"qwen-run: bad.qwen is truncated: it has {{\d+}} bytes when its header says {{\d+}}"
OTHER_VERSION = r"when this program reads {{\d+}}; recompile the model with the qwen-opt of this version"
WEIGHTS = ("qwen-run: bad.qwen is damaged: the checksum of bytes 0 to 175872 of its weights does not match; "
           "copy the file again or compile the model again")
# What a flipped byte of the header, and of the code behind it, is found as: each up to an offset.
FIELDS = (
    (8, "qwen-run: bad.qwen is not a compiled model: its header starts with other letters"),
    (12, rf"qwen-run: bad.qwen has format version {{{{\d+}}}} {OTHER_VERSION}"),
    (16, rf"qwen-run: bad.qwen has kernel ABI version {{{{\d+}}}} {OTHER_VERSION}"),
    (20, rf"qwen-run: bad.qwen has context size {{{{\d+}}}} {OTHER_VERSION}"),
    (24, r"qwen-run: bad.qwen is damaged: its architecture is number {{\d+}}"),
    (184, "qwen-run: bad.qwen is damaged: the checksum of its header does not match"),
    (HEADER, "qwen-run: bad.qwen is damaged: the checksum of its code does not match"),
)


def flipped_weight(good, header, sections):
    offset, size = sections["weights"]
    return flipped(good, offset + size // 2, 1)


def config(name, text, message, status=1):
    return Row(name, written("config", text), "qwen-run serve stories.qwen --config config", status, message)


def replay(name, document, message, separator=": "):
    return Row(name, written("text.json", json.dumps(document)), "qwen-run bench stories.qwen --replay text.json", 3,
               f"qwen-run: text.json{separator}{message}")


def task(name, document, options, message):
    return Row(name, written("arc_easy.jsonl", json.dumps(document)),
               f"qwen-run eval stories.qwen --tasks arc_easy --data . {options}", 1, "qwen-run: " + message)


ROWS = [
    # What is not a compiled model, or is damaged.
    Row("a file that is missing", None, "qwen-run generate nothing.qwen --ids 2", 3,
        "qwen-run: cannot read nothing.qwen: No such file or directory"),
    Row("an empty file", written("empty.qwen", ""), "qwen-run logits empty.qwen --ids 2,3,4 -o bad.npy", 3,
        "qwen-run: empty.qwen is not a compiled model: it is too short"),
    Row("a text", written("text.qwen", "hello, this is no artifact\n" * 100), "qwen-run logits text.qwen --ids 2,3,4 -o bad.npy", 3,
        "qwen-run: text.qwen is not a compiled model: it does not start with an ELF header"),
    Row("another ELF file", None, "qwen-run logits /bin/true --ids 2,3,4 -o bad.npy", 3,
        "qwen-run: /bin/true is not a compiled model: it has no note of qwen-opt"),
    damaged("another version", f"qwen-run: bad.qwen has format version 999 {OTHER_VERSION}",
            lambda good, header, sections: patched(good, header + VERSION, struct.pack("<I", 999))),
    damaged("a byte too many", "qwen-run: bad.qwen is damaged: it has {{\\d+}} bytes when its header says {{\\d+}}",
            lambda good, header, sections: good + b"x"),
    *(damaged(f"a flipped byte of {section}", f"qwen-run: bad.qwen is damaged: the checksum of its {name} does not match", in_section(section))
      for section, name in (("code", "code"), ("manifest", "manifest"), ("weightChecksums", "weight checksums"))),
    *(damaged(f"a file that ends {where} the {section}", TOO_SHORT if section == "code" and where in ("before", "after a byte of") else TRUNCATED,
              in_section(section, cut))
      for section in ("code", "manifest", "weightChecksums", "weights") for where, cut in BORDERS.items()),
    *(damaged(f"a flipped byte of the header, {at}", next(message for end, message in FIELDS if at < end),
              lambda good, header, sections, at=at: flipped(good, header + at, 0xFF)) for at in range(0, HEADER, 3)),
    damaged("a flipped weight in info", WEIGHTS, flipped_weight, "qwen-run info bad.qwen --check"),
    *(damaged(f"a flipped weight, checked {when}", WEIGHTS, flipped_weight, f"{LOGITS} --check {when}") for when in ("background", "now")),

    # What the machine or the model lacks.
    Row("another architecture", None, "qwen-run generate arm.qwen --ids 2", 5,
        "qwen-run: arm.qwen was compiled for aarch64 and this machine is x86-64; recompile the model with qwen-opt --target"),
    Row("another architecture to verify", None, "qwen-run verify arm.qwen", 5,
        "qwen-run: arm.qwen was compiled for aarch64 and this machine is x86-64; recompile the model with qwen-opt --target"),
    Row("a feature that lacks", None, "qemu-aarch64-static -cpu cortex-a72 aarch64-qwen-run generate arm.qwen --ids 2", 5,
        "qwen-run: arm.qwen was compiled for CPU features that this machine lacks: armv8.2-a+dotprod needs dotprod; "
        "recompile the model with qwen-opt --target native here"),
    Row("features of two targets that lack", None, "qemu-aarch64-static -cpu cortex-a72 aarch64-qwen-run logits arms.qwen --ids 2 -o bad.npy", 5,
        "qwen-run: arms.qwen was compiled for CPU features that this machine lacks: neoverse-v1 needs {{.*}}i8mm, sve; "
        "neoverse-n1 needs dotprod; recompile the model with qwen-opt --target native here"),
    Row("generate without a tokenizer", None, "qwen-run generate good.qwen -p text", 1, NO_TOKENIZER),
    Row("tokenize without a tokenizer", None, "qwen-run tokenize good.qwen -p text", 1, NO_TOKENIZER),
    Row("chat without a tokenizer", None, "qwen-run chat good.qwen", 1, NO_TOKENIZER),
    *(Row(f"{what} of {command}", written("bad.jinja", text), f"qwen-run {command} stories.qwen --chat-template {file}", 3, f"qwen-run: {message}")
      for command in ("chat", "serve") for what, text, file, message in (
          ("no chat template", "", "nothing", "cannot read nothing: No such file or directory"),
          ("an empty chat template", "", "bad.jinja", "bad.jinja is empty: a chat template is needed"),
          ("a template that includes", '\n{% include "x" %}', "bad.jinja", "bad.jinja: chat template, line 2: the tag 'include' is not supported"))),
    *(Row(f"{what} of chat", written("bad.json", text), "qwen-run chat stories.qwen --tools bad.json", status, f"qwen-run: {message}")
      for what, text, status, message in (
          ("tools without JSON", "x", 3, "bad.json is not JSON at column 1"),
          ("no array of tools", "{}", 3, "bad.json must be an array of functions"),
          ("a tool without a function", '[{"type": "x"}]', 3, 'bad.json[0] must be {"type": "function", "function": {...}}'),
          ("tools for a template without", '[{"type": "function", "function": {"name": "f"}}]', 1,
           "the chat template ignores tools, so that the model cannot call them"))),
    Row("another format of tools", None, "qwen-run serve stories.qwen --listen 127.0.0.1:0 --tool-format x", 1,
        'qwen-run: --tool-format must be one of hermes, xml, not "x"'),
    Row("perplexity without a tokenizer", None, "qwen-run perplexity good.qwen scripts/errors.py", 1, NO_TOKENIZER),
    Row("a query without its tokens", None, "qwen-run rerank stories.qwen scripts/errors.py -q x", 1,
        'qwen-run: the model cannot rerank: its tokenizer has 2 tokens for "yes" when one is needed'),

    # What a model does not give.
    *(Row(f"{command} without an lm_head", None, f"qwen-run {command} unfit.qwen {options}", 1, NO_LOGITS) for command, options in (
        ("generate", "--ids 2"), ("chat", ""), ("logits", "--ids 2 -o bad.npy"), ("perplexity", "scripts/errors.py"),
        ("rerank", "scripts/errors.py -q x"))),
    Row("bench without an lm_head", None, "qwen-run bench unfit.qwen --prompt-tokens 4 -n 2", 1, NO_LOGITS.replace("unfit.qwen", "bad")),
    Row("another pooling", None, "qwen-run embed unfit.qwen --ids 2", 1,
        'qwen-run: unfit.qwen has no embedding of the last token: the pooling of its checkpoint is "mean" when "last" is needed'),

    # Prompts.
    Row("a prompt that is too long", None, "qwen-run generate good.qwen --ids 2" + ",2" * 299, 4,
        "qwen-run: the prompt has 300 tokens when the model was compiled for a context of 256"),
    Row("a prompt of 5 for 4", None, "qwen-run generate short.qwen --ids 1,2,3,4,5", 4,
        f"qwen-run: the prompt has 5 tokens {CONTEXT}"),
    Row("logits of 5 for 4", None, "qwen-run logits short.qwen --ids 1,2,3,4,5 -o short.npy", 4,
        f"qwen-run: --ids has 5 tokens {CONTEXT}"),
    # A text that cannot fit is not read to its end. A token has at most 13 bytes, and NFC leaves at least a quarter of a text.
    Row("a text without an end", None, "sh -c 'yes | qwen-run generate stories.qwen'", 1,
        "qwen-run: standard input has more than 53248 bytes: the model was compiled for a context of 1024"),
    Row("an id that is too large", None, "qwen-run generate good.qwen --ids 2,999999", 1,
        "qwen-run: token id 999999 is not in the model's vocabulary of 320"),
    Row("a negative id", None, "qwen-run generate good.qwen --ids 2,-1", 1,
        'qwen-run: --ids has "-1" where a token id is needed'),
    Row("nested ids", written("deep.json", '{"ids": ' + "[" * 10 ** 6 + "]" * 10 ** 6 + "}"),
        "sh -c 'qwen-run tokenize stories.qwen --decode < deep.json'", 1, "qwen-run: the input is not a list of token ids"),
    Row("a line without tokens", None, r"sh -c 'printf \"a\\n\\nb\" | qwen-run embed stories.qwen'", 1,
        "qwen-run: standard input line 2 is empty: at least one token is needed"),

    # Outputs. These errors come before those about the model.
    Row("logits in no folder", None, "qwen-run logits arm.qwen --ids 2 -o no/x.npy", 1,
        "qwen-run: cannot write 'no/x.npy': No such file or directory"),
    Row("a picture in no folder", None, "qwen-run bench none.qwen --profile --svg no/steps.svg", 1,
        "qwen-run: cannot write 'no/steps.svg': No such file or directory"),
    Row("logits onto the model", artifact(lambda data, header, sections: data), "qwen-run logits bad.qwen --ids 2 -o ./bad.qwen", 1,
        "qwen-run: cannot write './bad.qwen': it is the input 'bad.qwen'; name another file"),
    Row("a picture onto the model", artifact(lambda data, header, sections: data), "qwen-run bench bad.qwen --profile --svg bad.qwen", 1,
        "qwen-run: cannot write 'bad.qwen': it is an input; name another file"),
    Row("a picture onto a checkpoint", edited(), "qwen-run bench bad --profile --svg bad/config.json", 1,
        "qwen-run: cannot write 'bad/config.json': it is an input; name another file"),
    Row("answers onto a checkpoint", edited(), "qwen-run batch bad scripts/errors.py -o ./bad/config.json", 1,
        "qwen-run: cannot write './bad/config.json': it is the input 'bad/config.json'; name another file"),
    Row("vectors onto their texts", written("bad", "x"), "qwen-run embed stories.qwen bad -o bad", 1,
        "qwen-run: cannot write 'bad': it is an input; name another file"),
    Row("vectors onto standard input", written("bad", "x"), "sh -c 'qwen-run embed stories.qwen -o bad < bad'", 1,
        "qwen-run: cannot write 'bad': it is the input '/dev/stdin'; name another file"),
    Row("samples onto documents", written("arc_easy.jsonl", json.dumps({"question": "x", "choices": {"text": ["y"], "label": ["A"]}, "answerKey": "A"})),
        "qwen-run eval stories.qwen --tasks arc_easy --data . --samples ./arc_easy.jsonl", 1,
        "qwen-run: cannot write './arc_easy.jsonl': it is an input; name another file"),
    Row("samples onto another file", written("bad", "x"), "qwen-run eval stories.qwen --tasks arc_easy --data inputs/tasks --samples bad", 1,
        'qwen-run: bad begins with "x" when {{.*}} is needed; choose another file'),
    Row("logits onto a folder", None, "qwen-run logits stories.qwen --ids 2 -o out", 1,
        "qwen-run: cannot write 'out': it is a folder; name a file in it"),
    Row("no room for text", None, "sh -c 'qwen-run generate stories.qwen -p \"The king\" -n 5 > /dev/full'", 1,
        "qwen-run: cannot write to standard output: No space left on device"),

    # Numbers that are not finite, with the op, on any thread.
    Row("a key beyond f16", None, "qwen-run logits append.qwen --ids 3,4,5 -t 2 -o bad.npy", 1,
        "qwen-run: a number is not finite at sequence 0, position {{[0-2]}}, in layers.1.self_attn.append; the file may be damaged, which qwen-run info --check finds, or keys or values are too large for f16, which qwen-opt --kv f32 avoids"),
    Row("an overflow on the way to the logits", None, "qwen-run logits norm.qwen --ids 3,4,5 -t 3 -o bad.npy", 1,
        "qwen-run: a number is not finite at sequence 0, position {{[0-2]}}, in lm_head; the file may be damaged, which qwen-run info --check finds"),
    Row("an overflow in a quantized norm", None, "qwen-run logits quantize.qwen --ids 3,4,5 -o bad.npy", 1,
        "qwen-run: a number is not finite at sequence 0, position {{[0-2]}}, in layers.0.input_layernorm; the file may be damaged, which qwen-run info --check finds"),
    # Finite activations whose squares overflow: the norm that quantizes finds them, and with f32 weights the next check.
    Row("squares that overflow", None, "qwen-run logits squares.qwen --ids 3,4,5 -o bad.npy", 1,
        "qwen-run: a number is not finite at sequence 0, position {{[0-2]}}, in layers.0.post_attention_layernorm; the file may be damaged, which qwen-run info --check finds"),
    Row("squares that overflow in f32", None, "qwen-run logits squares-f32.qwen --ids 3,4,5 -o bad.npy", 1,
        "qwen-run: a number is not finite at sequence 0, position {{[0-2]}}, in layers.1.self_attn.append; the file may be damaged, which qwen-run info --check finds"),

    # Options.
    Row("no FILE", None, "qwen-run generate", 2,
        "qwen-run: MODEL is missing (see qwen-run generate --help)"),
    Row("a negative seed", None, "qwen-run generate stories.qwen -p x --seed -1", 2,
        'qwen-run: --seed: "-1" is not a whole number from 0 to 18446744073709551615 (see qwen-run generate --help)'),
    Row("too little memory", None, "qwen-run generate stories.qwen -p x --max-memory 1m", 4,
        "qwen-run: stories needs at least {{[0-9]+}} bytes of memory (process 16777216, calls {{[0-9]+}}, the KV cache {{[0-9]+}}) "
        "when --max-memory allows 1048576 bytes"),
    *(Row(f"a memory of {size}", None, f"qwen-run generate stories.qwen -p x --max-memory {size}", 2,
          f'qwen-run: --max-memory: "{size}" is not a number of bytes from 1 to 9223372036854775807, such as 500MiB or 4GiB (see qwen-run generate --help)')
      for size in ("0", "8X", "16000000T")),
    Row("top-k of 2^63", None, "qwen-run generate stories.qwen -p x --top-k 9223372036854775808", 2,
        'qwen-run: --top-k: "9223372036854775808" is not a whole number from 0 to 9223372036854775807 (see qwen-run generate --help)'),
    *(Row(f"--{option} {value}", None, f"qwen-run generate stories.qwen -p x --{option} {value}", 1,
          f"qwen-run: {option} is {value}.000000 when {needed} is needed") for option, value, needed in (
              ("temperature", -1, "0 or more"), ("top-p", 0, "more than 0 and at most 1"), ("min-p", 2, "0 to 1"),
              ("repetition-penalty", 0, "more than 0"))),
    Row("65 beams", None, "qwen-run generate stories.qwen -p x --num-beams 65", 2,
        'qwen-run: --num-beams: "65" is not a whole number from 1 to 64 (see qwen-run generate --help)'),
    Row("a length penalty without beams", None, "qwen-run generate stories.qwen -p x --length-penalty 2", 2,
        "qwen-run: --length-penalty requires --num-beams (see qwen-run generate --help)"),
    *(Row(f"4 beams and {options}", None, f"qwen-run generate stories.qwen -p x --num-beams 4 {options}", 1, f"qwen-run: {error} is needed")
      for options, error in (
          ("--num-beam-groups 3 --diversity-penalty 1", "num-beam-groups is 3 when a divisor of num-beams (4)"),
          ("--num-beam-groups 2", "diversity-penalty is 0 when more than 0 with num-beam-groups"),
          ("--num-return-sequences 5", "the number of answers is 5 when 1 to num-beams (4)"))),
    Row("vectors that are too long", None, "qwen-run embed stories.qwen --ids 1 --dim 257", 1,
        "qwen-run: --dim is 257 when the model has 256 hidden values"),
    Row("a size below 0", None, "sh -c 'XDG_CACHE_HOME=$PWD qwen-run cache prune --max-size -1'", 2,
        'qwen-run: --max-size: "-1" is not a number of bytes from 0 to 18446744073709551615, such as 500MiB or 4GiB (see qwen-run cache --help)'),
    Row("a depth within a page", None, "qwen-run bench stories.qwen --depth 100", 1,
        "qwen-run: a depth of 100 is not a multiple of 64, the positions of a page"),
    Row("a depth and clients", None, "qwen-run bench stories.qwen --clients 2 --depth 64", 2,
        "qwen-run: --depth excludes --clients (see qwen-run bench --help)"),
    Row("a batch and clients", None, "qwen-run bench stories.qwen --clients 2 --batch 2", 2,
        "qwen-run: --batch excludes --clients (see qwen-run bench --help)"),
    Row("a drafter that is none", None, "qwen-run generate stories.qwen -p x --speculate eagle", 2,
        'qwen-run: --speculate: "eagle" is none of off, auto, lookup, mtp and no file (see qwen-run generate --help)'),
    Row("a draft model that is none", None, "qwen-run generate stories.qwen -p x --speculate scripts/errors.py", 3,
        "qwen-run: scripts/errors.py is not a compiled model: it does not start with an ELF header"),
    Row("a draft model without a tokenizer", None, "qwen-run generate stories.qwen -p x --speculate good.qwen", 1,
        "qwen-run: good.qwen cannot draft for stories.qwen: good.qwen has no tokenizer, and both need the same one"),
    Row("a chance of 2", None, "qwen-run bench stories.qwen --acceptance 2", 2,
        'qwen-run: --acceptance: "2" is not a number from 0 to 1 (see qwen-run bench --help)'),
    Row("drafts of a bench that draws nothing", None, "qwen-run bench stories.qwen --speculate lookup", 2,
        "qwen-run: --speculate needs --replay or --clients (see qwen-run bench --help)"),
    Row("a number of drafts without a text", None, "qwen-run bench stories.qwen --drafts 3", 2,
        "qwen-run: --drafts requires --replay (see qwen-run bench --help)"),
    replay("a text without an answer", {"prompt": "x"}, '"answer" must be a text or a list of token ids of stories.qwen'),
    replay("a text with ids of another model", {"prompt": [1, 4096], "answer": "x"}, '"prompt" must be a text or a list of token ids of stories.qwen'),
    replay("a text of floats", {"prompt": "x", "answer": [1.5]}, '"answer" must be a text or a list of token ids of stories.qwen'),
    replay("an empty text", {"prompt": "", "answer": "x"}, '"prompt" is empty'),
    replay("a text that is too long", {"prompt": [1], "answer": [1] * 1024}, " has 1 and 1024 tokens, which do not fit in the context of 1024", separator=""),
    # Perplexity rejects windows and strides without a definition.
    Row("a window of 1", None, "qwen-run perplexity short.qwen scripts/errors.py --window 1", 2,
        'qwen-run: --window: "1" is not a whole number from 2 to 2147483647 (see qwen-run perplexity --help)'),
    Row("a window of 5 for 4", None, "qwen-run perplexity short.qwen scripts/errors.py --window 5", 1,
        "qwen-run: the window is 5 tokens when at least 2 are needed and the model was compiled for a context of 4; recompile it with qwen-opt --context for up to 1024"),
    Row("a stride beyond the window", None, "qwen-run perplexity short.qwen scripts/errors.py --window 3 --stride 4", 1,
        "qwen-run: the stride is 4 tokens when at most the window of 3 is possible: the tokens between two windows would not be scored"),
    # compare takes models of one tokenizer, and windows that score something.
    Row("another number of logits", None, "qwen-run compare stories.qwen good.qwen scripts/errors.py", 1,
        "qwen-run: good.qwen has {{\\d+}} logits when stories.qwen has 4096: only models of one vocabulary can be compared"),
    Row("a comparison without an lm_head", None, "qwen-run compare unfit.qwen unfit.qwen scripts/errors.py", 1, NO_LOGITS),
    Row("a comparison without a tokenizer", None, "qwen-run compare good.qwen good.qwen scripts/errors.py --window 8", 1, NO_TOKENIZER),
    Row("a comparison of 5 for 4", None, "qwen-run compare short.qwen short.qwen scripts/errors.py --window 5", 1,
        f"qwen-run: the window is 5 tokens {CONTEXT}"),
    Row("a window that is skipped", None, "qwen-run compare stories.qwen stories.qwen scripts/errors.py --window 4 --skip 3", 1,
        "qwen-run: --skip is 3 when at most 2 tokens can be skipped of a window of 4"),
    Row("a text without a window", written("empty.txt", ""), "qwen-run compare stories.qwen stories.qwen empty.txt --window 4", 1,
        "qwen-run: empty.txt has 0 tokens when a window has 4"),

    # eval.
    Row("tasks without a folder", None, "qwen-run eval stories.qwen --tasks piqa --data nothing", 1,
        "qwen-run: nothing is no folder when a folder with the data of tasks is needed"),
    Row("tasks without data", None, "qwen-run eval stories.qwen --tasks winogrande --data scripts", 1,
        "qwen-run: scripts has no data of winogrande: it needs winogrande_1.1/dev.jsonl, winogrande/validation.jsonl"),
    Row("an unknown task", None, "qwen-run eval stories.qwen --tasks arc_hard --data .", 1,
        'qwen-run: no task is named "arc_hard"; there are arc_easy, {{.*}}, cmmlu, and the subjects of the last ones, such as mmlu_anatomy'),
    task("an index above the choices", {"query": "Question: q", "choices": ["a", "b"], "gold": 2}, "",
         "./arc_easy.jsonl line 1: gold is 2 when an integer from 0 to 1 is needed"),
    task("a question without choices", {"query": "Question: q"}, "", "./arc_easy.jsonl line 1 has no choices"),
    task("a choice that is too long", {"query": "Question: " + "a b " * 9, "choices": ["b c d e f g h"], "gold": 0}, "--max-length 2",
         "arc_easy document 0: a continuation has {{[0-9]+}} tokens when the model reads at most 2"),
    task("examples that are missing", {"query": "Question: q", "choices": ["a"], "gold": 0}, "--num-fewshot 1",
         ". has no data of arc_easy: it needs arc_easy_train.jsonl, arc_easy/train.jsonl, ARC-Easy/ARC-Easy-Train.jsonl"),
    task("a length above the context", {"query": "Question: q", "choices": ["a"], "gold": 0}, "--max-length 9999",
         "--max-length is 9999 when the model was compiled for a context of 1024"),

    # The program that uses only the C interface.
    Row("embed without arguments", None, "embed", 2,
        "usage: embed MODEL TEXT [COUNT [chat]]"),
    Row("embed of a missing model", None, "embed none Once", 1,
        "embed: cannot load the model: cannot read none: No such file or directory"),
    Row("embed of messages that are not JSON", None, """embed stories.qwen '{"messages": 3' 1 chat""", 1,
        "embed: cannot read the text: qwen_encode_chat: json is not JSON: it ends too early, at column 15"),

    # serve.
    Row("a public address without a key", None, "qwen-run serve stories.qwen --listen 0.0.0.0:0", 1,
        "qwen-run: --listen 0.0.0.0:0 is reachable by other machines: it needs an API key (--api-key-file), or --no-auth"),
    Row("a public address beside a local one", None, "qwen-run serve stories.qwen --listen 127.0.0.1:0 --listen 0.0.0.0:0", 1,
        "qwen-run: --listen 0.0.0.0:0 is reachable by other machines: it needs an API key (--api-key-file), or --no-auth"),
    *(Row(f"the origin {origin}", None, f"qwen-run serve stories.qwen --cors-origins https://a.example,{origin}", 1,
          f'qwen-run: --cors-origins "{origin}" matches no page: {fault}; browsers send SCHEME://HOST or SCHEME://HOST:PORT, such as '
          "https://example.org")
      for origin, fault in (("b.example", "it has no scheme"), ("https://b.example/", "it has a slash or more behind the host"),
                            ("https://b.example:443", "browsers leave out the port of the scheme"))),
    config("an option that serve lacks", "colour = 1", 'qwen-run: config line 1: "colour = 1" is not "option = value" with an option of serve'),
    config("an option without a value", "\nqueue", 'qwen-run: config line 2: "queue" is not "option = value" with an option of serve'),
    config("an option of another kind", "queue = x", 'qwen-run: --queue: "x" is not a whole number from 1 to 2147483647 (see qwen-run serve --help)', 2),
    config("a config in a config", "config = x", 'qwen-run: config line 1: "config = x" is not "option = value" with an option of serve'),
    config("a certificate without a key", "tls-cert = x", "qwen-run: --tls-cert requires --tls-key (see qwen-run serve --help)", 2),
    config("a certificate that is missing", "tls-cert = nothing\ntls-key = x", "qwen-run: --tls-cert nothing: No such file or directory"),
]

"""Chat through a pipe gives the answers of generate on the rendered template; sampling follows the generation config.

  chat.py MODEL_FOLDER TEMPLATES MODEL EXAMPLES LIBRARY WORKDIR      MODEL is MODEL_FOLDER (models/stories), compiled
"""
import ctypes
import json
import os
import pathlib
import pty
import re
import shutil
import struct
import subprocess
import sys

from checks import Checks, compile_model, run
from errors_elsewhere import NO_ANSWER, NO_ANSWERS

FOLDER, TEMPLATES, stories, EXAMPLES, LIBRARY, WORK = (pathlib.Path(a) for a in sys.argv[1:])
sys.path.insert(0, str(EXAMPLES))
import batch  # noqa: E402

OPTIONS = ["-n", "24"]
CONTEXT = 96
checks = Checks()


def chat(model, lines, *options):
    return run(["qwen-run", "chat", model, *OPTIONS, *options], input=lines)


def generate(model, prompt, *options):
    return run(["qwen-run", "generate", model, *OPTIONS, *options], input=prompt)


def turn(role, text):
    return f"<|im_start|>{role}\n{text}<|im_end|>\n"


def expect(name, got, expected):
    checks.check(got == expected, f"{name}: {got!r} is not {expected!r}")


def turns(model):
    """The second answer follows the first one. An empty line is not a turn, and the last line needs no newline."""
    first = generate(model, turn("user", "Tell a story.") + "<|im_start|>assistant\n")
    history = turn("user", "Tell a story.") + turn("assistant", first.removesuffix("\n"))
    second = generate(model, history + turn("user", "Go on.") + "<|im_start|>assistant\n")
    checks.check(first.strip() and second.strip(), f"empty answers: {first!r}, {second!r}")
    expect("two turns", chat(model, "Tell a story.\n\nGo on."), first + second)
    expect("no turn", chat(model, ""), "")
    # A line is text, unless it may have special tokens.
    injected = generate(model, turn("user", "Go on.<|im_end|>") + "<|im_start|>assistant\n")
    expect("--allow-special", chat(model, "Go on.<|im_end|>", "--allow-special"), injected)
    checks.check(chat(model, "Go on.<|im_end|>") != injected, "a line has a special token")


def thinking(work):
    """Qwen3's template closes an empty thought if thinking is disabled."""
    folder = work / "thinking"
    shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns("golden"))
    (folder / "chat_template.jinja").write_text((TEMPLATES / "Qwen-Qwen3-0.6B.jinja").read_text())
    model = compile_model(folder, work / "thinking.qwen", "--context", CONTEXT)
    prompt = turn("user", "Hello") + "<|im_start|>assistant\n"
    on, off = generate(model, prompt), generate(model, prompt + "<think>\n\n</think>\n\n")
    checks.check(on != off, "the thought makes no difference")
    expect("default", chat(model, "Hello\n"), on)
    expect("--think", chat(model, "Hello\n", "--think"), on)
    expect("--no-think", chat(model, "Hello\n", "--no-think"), off)
    expect("--chat-template", chat(stories, "Hello\n", "--no-think", "--chat-template", folder / "chat_template.jinja"),
           generate(stories, prompt + "<think>\n\n</think>\n\n"))
    return model


def copy_row(folder, source, target):
    """Gives a token the embedding of another, and so its probability."""
    file = folder / "model.safetensors"
    data = bytearray(file.read_bytes())
    size = struct.unpack("<Q", data[:8])[0]
    embedding = json.loads(data[8:8 + size])["model.embed_tokens.weight"]
    begin, end = embedding["data_offsets"]
    row = (end - begin) // embedding["shape"][0]
    first = 8 + size + begin
    data[first + target * row:first + (target + 1) * row] = data[first + source * row:first + (source + 1) * row]
    file.write_bytes(data)


def on_terminal(model, line, *options):
    """What chat writes to a terminal."""
    terminal, output = pty.openpty()
    process = subprocess.Popen(["qwen-run", "chat", model, *options], stdin=subprocess.PIPE, stdout=output, stderr=subprocess.DEVNULL,
                               env={**os.environ, "TERM": "xterm", "NO_COLOR": ""})
    os.close(output)
    process.communicate(line.encode())
    text = b""
    try:
        while part := os.read(terminal, 4096):
            text += part
    except OSError:  # the other side is closed
        pass
    os.close(terminal)
    return text.decode().replace("\r\n", "\n")


def reasoning(work):
    """A terminal shows the reasoning in dim letters without its marks; a pipe gets it as it is. The prompt begins it, with a text; </think>
    is a token, as likely as a comma, which the answer in this format of the cache has."""
    folder = work / "reasoning"
    shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns("golden"))
    (folder / "chat_template.jinja").write_text((TEMPLATES / "Qwen-QwQ-32B.jinja").read_text())
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    tokenizer["model"]["vocab"] = {text: i for text, i in vocabulary.items() if i != 4092}
    tokenizer["model"]["merges"].pop()
    tokenizer["added_tokens"].append({**tokenizer["added_tokens"][0], "id": 4092, "content": "</think>", "special": False})
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    copy_row(folder, vocabulary[","], 4092)
    model = compile_model(folder, work / "reasoning.qwen", "--kv", "f16")
    for options, parts in ((["--think", "-n", "1"], 1), (["--think", *OPTIONS], 2), (["--no-think", *OPTIONS], 0)):
        text = piped(model, ["Hello"], *options).stdout
        thought, mark, rest = text.partition("</think>") if parts else ("", "", text)
        checks.check((bool(thought.strip()) + bool(mark)) == parts and (rest.strip() or parts == 1), f"{options}: {text!r}")
        dim = "\x1b[2m" + thought.strip("\n") + "\x1b[22m" if parts else ""
        expect(f"{options} on a terminal", on_terminal(model, "Hello\n", *options), dim + ("\n\n" + rest.lstrip("\n") if mark else rest or "\n"))
    parser(model)


class ParserOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint32), ("include_stop", ctypes.c_int32), ("keep_special", ctypes.c_int32),
                ("join_reasoning", ctypes.c_int32), ("prompt", ctypes.POINTER(ctypes.c_int32)), ("prompt_size", ctypes.c_size_t),
                ("stops", ctypes.POINTER(ctypes.c_char_p)), ("stop_count", ctypes.c_size_t),
                ("end_tokens", ctypes.POINTER(ctypes.c_int32)), ("end_count", ctypes.c_size_t), ("has_budget", ctypes.c_int32),
                ("reasoning_budget", ctypes.c_int64), ("tools", ctypes.c_char_p), ("tool_format", ctypes.c_char_p),
                ("budget_message", ctypes.POINTER(ctypes.c_int32)), ("budget_message_size", ctypes.c_size_t)]


class Event(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint32), ("kind", ctypes.c_int32), ("text", ctypes.c_void_p), ("text_size", ctypes.c_size_t),
                ("token_count", ctypes.c_size_t)]


class State(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint32), ("in_reasoning", ctypes.c_int32), ("reasoning_tokens", ctypes.c_int64),
                ("next_token", ctypes.c_int32), ("stopped", ctypes.c_int32), ("has_calls", ctypes.c_int32)]


def parser(model):
    """The parser of the C interface: the events of an answer whose reasoning the prompt begins, and the state before each token."""
    loaded = batch.Model(str(LIBRARY), str(model), 1)
    library = loaded.library
    library.qwen_parser_new.restype = ctypes.c_void_p
    library.qwen_parser_new.argtypes = [ctypes.c_void_p, ctypes.POINTER(ParserOptions)]
    library.qwen_parser_feed.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_int32), ctypes.c_size_t]
    library.qwen_parser_event.argtypes = [ctypes.c_void_p, ctypes.POINTER(Event)]
    library.qwen_parser_state.argtypes = [ctypes.c_void_p, ctypes.POINTER(State)]
    library.qwen_parser_finish.argtypes = library.qwen_parser_free.argtypes = [ctypes.c_void_p]
    stops = (ctypes.c_char_p * 2)(b"none", b"king")
    prompt, end = loaded.encode("<|im_start|>assistant\n<think>\n"), loaded.encode("<|im_end|>")

    def parse(text, **options):
        ids = loaded.encode(text)
        given = ParserOptions(ctypes.sizeof(ParserOptions), prompt=prompt, prompt_size=len(prompt), stops=stops, stop_count=2, end_tokens=end,
                              end_count=1, **options)
        one = loaded.check(library.qwen_parser_new(loaded.model, ctypes.byref(given)))
        event, state, texts, states, tokens = Event(ctypes.sizeof(Event)), State(ctypes.sizeof(State)), {}, [], 0
        for i in range(len(ids) + 1):
            loaded.check(library.qwen_parser_state(one, ctypes.byref(state)))
            states.append((state.in_reasoning, state.reasoning_tokens, state.next_token, state.stopped))
            if i < len(ids):
                loaded.check(library.qwen_parser_feed(one, (ctypes.c_int32 * 1)(ids[i]), 1))
            else:
                loaded.check(library.qwen_parser_finish(one))
            while loaded.check(library.qwen_parser_event(one, ctypes.byref(event))):
                texts[event.kind] = texts.get(event.kind, "") + ctypes.string_at(event.text, event.text_size).decode()
                tokens += event.token_count
        expect("tokens of the parser", tokens, len(ids))
        checks.check(library.qwen_parser_feed(one, ids, 1) < 0 and b"the answer has ended" in library.qwen_last_error(), "an ended answer goes on")
        library.qwen_parser_free(one)
        return texts, states

    thought = len(loaded.encode("Once upon"))
    texts, states = parse("Once upon</think>\n\nThe king<|im_end|>")
    expect("events", texts, {0: "The ", 1: "Once upon", 5: "king", 6: ""})
    expect("states", states[:thought + 2], [(1, i, -1, 0) for i in range(thought + 1)] + [(0, thought, -1, 0)])
    expect("the last state", states[-1], (0, thought, -1, 1))
    expect("one text", parse("Once</think>A king<|im_end|>", join_reasoning=1, include_stop=1, keep_special=1)[0],
           {0: "Once</think>A king", 5: "king", 6: ""})
    expect("a budget", parse("Once upon", has_budget=1, reasoning_budget=1)[1][1], (1, 1, 4092, 0))
    message = loaded.encode("king")
    expect("a message", parse("Once upon", has_budget=1, reasoning_budget=1 + len(message), budget_message=message,
                              budget_message_size=len(message))[1][1], (1, 1, message[0], 0))
    called = 'Once</think>A <tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
    tools = b'[{"type": "function", "function": {"name": "f"}}]'
    expect("a call", parse(called, tools=tools)[0], {0: "A ", 1: "Once", 2: "f", 3: '{"a": 1}', 4: "", 6: ""})
    expect("a text", parse(called)[0][0], called.partition("</think>")[2])
    for given, reason in (({"tools": b"[1]"}, b"tools[0] must be"), ({"tools": b"x"}, b"tools is not JSON"),
                          ({"tools": tools, "tool_format": b"x"}, b"tool_format must be one of hermes, xml")):
        options = ParserOptions(ctypes.sizeof(ParserOptions), **given)
        checks.check(not library.qwen_parser_new(loaded.model, ctypes.byref(options)) and reason in library.qwen_last_error(),
                     f"{given}: {library.qwen_last_error()}")
    options = ParserOptions(ctypes.sizeof(ParserOptions), stops=(ctypes.c_char_p * 1)(b""), stop_count=1)
    checks.check(not library.qwen_parser_new(loaded.model, ctypes.byref(options)) and b"a stop string is empty" in library.qwen_last_error(),
                 "an empty stop string is taken")
    loaded.close()


def piped(model, lines, *options):
    return subprocess.run(["qwen-run", "chat", model, *options], input="\n".join(lines), capture_output=True, text=True)


def refused_lines(model):
    """A line that cannot fit gets no answer, and the conversation continues without it."""
    result = piped(model, ["Hello.", "x" * 100_000, "word " * 200, "word " * 90, "Go on.", "y" * 100_000], *OPTIONS)
    expect("refused", result.stderr.splitlines(),
           [NO_ANSWER.format(length=length, context=CONTEXT)
            for length in ("more than 4992 bytes", "202 tokens", "103 tokens in the chat format", "more than 4992 bytes")] +
           [NO_ANSWERS.format(count=4)])
    expect("status of refused lines", result.returncode, 1)
    expect("answers between refused lines", result.stdout, chat(model, "Hello.\nGo on."))


def full_context(model):
    """A full context ends an answer. Chat forgets the oldest turns to keep a quarter of the context free."""
    lines = ["Tell a story.", "Go on.", "And then?", "What was it?", "Who was it?"]
    result = piped(model, lines, *OPTIONS)
    expect("status of a full context", result.returncode, 0)
    expect("notes", [line.split(":")[1] for line in result.stderr.splitlines()],
           [" the answer ends because the context is full", " the conversation forgets the oldest 1 of 3 turns",
            " the conversation forgets the oldest 2 of 3 turns"])
    answers = []
    prompts = [turn("user", line) for line in lines]
    for line, first in enumerate((0, 0, 0, 1, 3)):
        history = "".join(prompts[i] + turn("assistant", answers[i].removesuffix("\n")) for i in range(first, line))
        answers.append(generate(model, history + prompts[line] + "<|im_start|>assistant\n"))
    expect("answers with turns forgotten", result.stdout, "".join(answers))


def sampling(model):
    """Options replace single values of the generation config."""
    config = json.loads((FOLDER / "generation_config.json").read_text())
    given = [part for key in ("temperature", "top_k", "top_p", "repetition_penalty")
             for part in ("--" + key.replace("_", "-"), str(config[key]))]
    text = generate(model, "The king")
    expect("the config's values", generate(model, "The king", *given), text)
    checks.check(generate(model, "The king", "--seed", "6") != text, "another seed gives the same")
    expect("the seed's default", generate(model, "The king", "--seed", "0"), text)
    greedy = generate(model, "The king", "--temperature", "0")
    checks.check(greedy != text, "temperature 0 gives what sampling gives")
    for option in (("--top-k", "1"), ("--top-p", "1e-9"), ("--min-p", "1")):
        expect(" ".join(option), generate(model, "The king", *option), greedy)
    checks.check(generate(model, "The king", "--temperature", "0", "--repetition-penalty", "5") != greedy,
                 "the repetition penalty makes no difference")


def ends(work):
    """Without --ignore-eos the answer stops before the first end token; no generation config is greedy."""
    folder = work / "ends"
    shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns("golden"))
    (folder / "generation_config.json").unlink()
    model = compile_model(folder, work / "ends.qwen")
    text = generate(model, "The king", "--ignore-eos")
    expect("greedy by default", generate(model, "The king", "--ignore-eos", "--temperature", "0"), text)
    command = ["qwen-run", "generate", model, *OPTIONS, "--ids", "5,6,7", "--temperature", "1"]
    ids = run([*command, "--ignore-eos"]).strip().split(",")
    checks.check(len(ids) == 24, f"ids are {ids}")
    config = json.loads((folder / "config.json").read_text())
    end = next(i for i in ids if ids.index(i) > 0)
    config["eos_token_id"] = int(end)
    (folder / "config.json").write_text(json.dumps(config))
    model = compile_model(folder, work / "ends.qwen")
    expect("ends", run(command).strip().split(","), ids[:ids.index(end)])


shutil.rmtree(WORK, ignore_errors=True)
WORK.mkdir(parents=True)
turns(stories)
short = thinking(WORK)
reasoning(WORK)
refused_lines(short)
full_context(short)
sampling(stories)
ends(WORK)
checks.finish()

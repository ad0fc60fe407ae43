"""Chat through a pipe gives the answers of generate on the rendered template; sampling follows the generation config.

  chat.py MODEL_FOLDER TEMPLATES MODEL WORKDIR      MODEL is MODEL_FOLDER (models/stories), compiled
"""
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

FOLDER, TEMPLATES, stories, WORK = (pathlib.Path(a) for a in sys.argv[1:])
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

"""Chat on terminals of tmux: each command at two widths, keys, pastes, wide characters, colors, dumb terminals.

  chat_terminal.py MODEL_FOLDER INPUTS MODEL WORKDIR [write]      MODEL is MODEL_FOLDER (models/stories), compiled

INPUTS/chat has what the terminals show, by width; "write" renews it. Lines with figures of time are joined, and N stands for each figure.
"""
import fcntl
import json
import os
import pathlib
import re
import shutil
import signal
import struct
import sys
import termios

from checks import Checks, compile_model, run
from server import Server
from terminal import Terminal, Terminals

FOLDER, INPUTS, MODEL, WORK = (pathlib.Path(a).resolve() for a in sys.argv[1:5])
PROMPT = re.compile(r"(^|\n)> ?$")
checks = Checks()

shutil.rmtree(WORK, ignore_errors=True)
WORK.mkdir(parents=True)
# Names of files on the screens must not depend on the folder.
editor = WORK / "editor"
editor.write_text('#!/bin/sh\necho "Who was the king?" > "$1"\n')
editor.chmod(0o700)
terminals = Terminals(WORK, {"VISUAL": "./editor"})


class Chat(Terminal):
    def __init__(self, name, model, *options, width=80, height=24, output="/dev/tty", **environment):
        command = ["sh", "-c", f'cd "$0" && exec "$@" > {output}', WORK, "qwen-run", "chat", model, "-t", "1", *options]
        super().__init__(terminals, name, command, width, height, **environment)
        self.prompts = 0
        self.ready()

    def ready(self):
        """Waits for the next prompt."""
        self.prompts += 1
        return self.wait(lambda text: len(re.findall(r"^>", text, re.M)) >= self.prompts and PROMPT.search(text))

    def send(self, line):
        self.type(line)
        self.keys("Enter")
        return self.ready()

    def leave(self):
        self.keys("C-d")
        checks.expect(f"{self.name}: the end", self.wait(lambda text: "\nstatus " in text).rsplit("\n", 1)[1], "status 0")


def without_times(text):
    joined = re.sub(r"\[\d+ tokens,[^]]*\]|(?<=> /stats\n)[^>]*(?=\n>)", lambda match: " ".join(match[0].split()), text)
    return re.sub(r"\d+\.\d(?= ms| tokens)", "N", re.sub(r" +$", "", joined, flags=re.M))


def commands(width):
    """Each command, and what it shows."""
    chat = Chat(f"commands-{width}", MODEL, "-n", "16", width=width)
    for line in ("/help", "/regen", "Tell a story.", "/regen", "/seed", "/seed 0", "/regen", "/think hide", "/set top_k 3", "/set top_k 1.5",
                 "/system Be brief.", "日本語" * 14, "/save saved.json", "/clear", "/edit", "/edit", "/load saved.json", "/load editor",
                 "/save", "/clear now", "/quit", "/stats", "//"):
        if line == "/edit":
            chat.prompts += 1  # It shows the message.
        chat.send(line)
    chat.type("/exit")
    chat.keys("Enter")
    shown = without_times(chat.wait(lambda text: "\nstatus " in text))
    golden = INPUTS / f"chat/{width}.txt"
    if sys.argv[5:] == ["write"]:
        golden.write_text(shown + "\n")
    wanted = golden.read_text().splitlines()
    for number, (got, line) in enumerate(zip(shown.splitlines() + [None] * len(wanted), wanted + [None] * len(shown))):
        if got != line:
            checks.check(False, f"{golden} line {number + 1}: {got!r} is not {line!r}")
            break


def saved_conversation():
    """The server answers what was saved, and gives the same answer to the same messages."""
    saved = json.loads((WORK / "saved.json").read_text())
    server = Server(MODEL)
    *messages, last = saved.pop("messages")
    checks.expect("roles", [message["role"] for message in messages + [last]], ["system", "user", "assistant", "user", "assistant"])
    answer = server.post("/v1/chat/completions", messages=messages, **saved)
    checks.expect("the server's answer", answer["choices"][0]["message"]["content"], last["content"])
    server.post("/v1/chat/completions", messages=[*messages, last], **saved)
    server.stop()


def saved_onto():
    """A conversation replaces the file that it was loaded from, and not the model."""
    (WORK / "model").symlink_to(MODEL)
    chat = Chat("onto", MODEL, "-n", "1")
    checks.check("cannot write 'model': it is the input" in chat.send("/save model"), "/save onto the model")
    checks.check((WORK / "model").is_symlink(), "the model is lost")
    chat.send("/load saved.json")
    checks.check('saved to "saved.json"' in chat.send("/save saved.json"), "/save onto what was loaded")
    chat.leave()


def interrupted_answer():
    """Ctrl-C ends an answer, here one that waits because a pipe is full, and not the chat."""
    os.mkfifo(WORK / "pipe")
    pipe = os.open(WORK / "pipe", os.O_RDWR | os.O_NONBLOCK)
    size = fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, 4096)
    os.write(pipe, b"x" * (size - 500))
    chat = Chat("interrupt", MODEL, "-n", "1000", "--seed", "1", output="pipe")
    chat.type("Tell a story.")
    chat.keys("Enter")
    chat.wait(lambda text: struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4))[0] > size - 50)
    chat.keys("C-c")
    chat.wait(lambda text: text.endswith("^C"))
    written = os.read(pipe, size)
    stopped = chat.ready()
    tokens = int(re.search(r"\[(\d+) tokens", stopped)[1])
    checks.check(50 < tokens < 400 and written.count(b"x") >= size - 500, f"Ctrl-C: {tokens} tokens")
    chat.leave()


def keys():
    """Ctrl-C and Ctrl-D, lines that go on, pastes, the history."""
    chat = Chat("keys", MODEL, "-n", "30", "--seed", "1")
    chat.send("Tell a story.")
    chat.keys("C-c")
    checks.check(chat.ready().endswith("> ^C\nCtrl-D or /exit leaves\n>"), "Ctrl-C at an empty prompt")
    chat.type("word " * 20)
    # Ctrl-C drops what the program has not read yet.
    chat.wait(lambda text: text.endswith("d word word word word"))
    chat.keys("C-a", "C-c")
    # The line stays, and the cursor leaves it.
    checks.expect("Ctrl-C in a line", chat.ready().splitlines()[-2:], ["d word word word word ^C", ">"])
    checks.check("\ntop_p 0.95                Sample from the most likely tokens" in chat.send("/set"), "/set")
    chat.send("/set temperature 0")
    chat.send("/clear")
    # Nothing is sent before Enter.
    chat.paste("/system one\ntwo\nthree")
    chat.wait(lambda text: text.endswith("three"))
    chat.send("")
    chat.send("/save pasted.json")
    chat.keys("Up", "Up")
    chat.wait(lambda text: text.endswith("three"))
    chat.type("!\\")
    chat.keys("Enter")
    chat.wait(lambda text: text.endswith("\n."))
    chat.send("four")
    chat.send("/save continued.json")
    chat.type('"""/exit')
    chat.keys("Enter")
    chat.type('"""')
    chat.keys("Enter")
    chat.wait(lambda text: text.count("context left") == 2)
    chat.ready()
    # A program that goes on after Ctrl-Z sets the terminal again, which a shell has set meanwhile.
    name, group = terminals.tmux("display-message", "-p", "-t", chat.name, "#{pane_tty} #{pane_pid}").split()
    tty = os.open(name, os.O_RDWR | os.O_NOCTTY)
    mode = termios.tcgetattr(tty)
    mode[3] |= termios.ICANON | termios.ECHO
    termios.tcsetattr(tty, termios.TCSANOW, mode)
    os.killpg(int(group), signal.SIGCONT)
    chat.wait(lambda _: not termios.tcgetattr(tty)[3] & termios.ICANON)
    chat.keys("Up")
    chat.wait(lambda text: text.endswith("> /exit"))
    chat.keys("C-u")
    chat.wait(PROMPT.search)
    chat.type("left\\")
    chat.keys("Enter", "C-d")
    chat.ready()
    chat.leave()
    texts = [json.loads((WORK / f"{name}.json").read_text())["messages"][0]["content"] for name in ("pasted", "continued")]
    checks.expect("a paste", texts, ["one\ntwo\nthree", "one\ntwo\nthree!\nfour"])
    history = (WORK / ".local/state/qwen-run/history").read_text().splitlines()
    checks.check('"/system one\\ntwo\\nthree"' in history and history[-1] == '"/exit"', f"the history: {history[-3:]}")
    checks.expect("mode of the history", (WORK / ".local/state/qwen-run/history").stat().st_mode & 0o777, 0o600)


def odd_bytes():
    """Bytes that are not UTF-8 take neither Enter nor the end of a paste along, and CRLF is one line break."""
    chat = Chat("bytes", MODEL, "-n", "1")
    seen = []

    def said(text):
        chat.wait(lambda screen: screen.endswith(text))
        chat.send("")
        chat.send("/save bytes.json")
        chat.send("/clear")
        seen.append(json.loads((WORK / "bytes.json").read_text())["messages"][0]["content"])
    for cut, shown in (("63 61 66 e9", "caf"), ("e6 97", ">"), ("f0 9f 98", ">"), ("80", "\ufffd")):
        chat.keys("-H", *cut.split())
        said(shown)
    for cut in ("e9", "f0 9f"):
        chat.keys("-H", *"1b 5b 32 30 30 7e 61 0d".split(), *cut.split(), *"1b 5b 32 30 31 7e".split())
        chat.type("b")
        said("\ufffdb")
    for raw in (True, False):
        chat.paste("one\r\ntwo\r\n\r\nthree" if raw else "one\ntwo\n\nthree", raw=raw)
        said("three")
    chat.paste("one\n\ntwo", raw=True)
    said("two")
    # A paste without marks: each line is a line of the message.
    chat.paste('"""one\r\ntwo\r\n\r\nthree"""', bracketed=False, raw=True)
    said('three"""')
    chat.leave()
    checks.expect("messages of odd bytes", seen, ["caf\ufffd", "\ufffd", "\ufffd", "\ufffd", "a\n\ufffdb", "a\n\ufffdb", *["one\ntwo\n\nthree"] * 2, "one\n\ntwo", "one\ntwo\n\nthree"])


def wide_characters():
    """A character of two columns does not stand half at the edge; the cursor moves by characters."""
    chat = Chat("wide", MODEL, "-n", "0", width=21)
    chat.type("日" * 12)
    chat.wait(lambda text: text.endswith("\n> " + "日" * 9 + "\n" + "日" * 3))
    chat.keys("Left", "Left", "Left", "BSpace")
    chat.type("é")
    chat.wait(lambda text: text.endswith("\n> " + "日" * 8 + "é日\n" + "日" * 2))
    chat.keys("BSpace")
    chat.type("é" * 2)
    chat.wait(lambda text: text.endswith("\n> " + "日" * 8 + "éé\n" + "日" * 3))
    chat.keys("Enter")
    chat.ready()
    chat.leave()


def reasoning():
    """Reasoning is dim or hidden on terminals with colors, and has its marks on others. No control character of the model comes through."""
    folder = WORK / "reasoning"
    shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns("golden"))
    (folder / "chat_template.jinja").write_text((INPUTS / "tokenizer/templates/Qwen-QwQ-32B.jinja").read_text())
    model = compile_model(folder, WORK / "reasoning.qwen")
    escape = json.loads(run(["qwen-run", "tokenize", model, "-p", "\x1b", "--json"]))["ids"][0]
    bias = ["--think", "-n", "3", "--logit-bias", f"{escape}=100"]
    chat = Chat("color", model, *bias)
    chat.send("a")
    shown = chat.text("-e")
    checks.check("\x1b[2m\\u001b\\u001b\\u001b" in shown, f"color: {shown!r}")
    chat.send("/think hide")
    hidden = chat.send("b").split("> b\n")[1]
    checks.check(hidden.startswith("\n[3 tokens"), f"hidden: {hidden!r}")
    chat.send("/think off")
    chat.send("/save off.json")
    checks.expect("/think off", json.loads((WORK / "off.json").read_text())["chat_template_kwargs"], {"enable_thinking": False})
    checks.check(chat.send("/think maybe").endswith('/think needs show, hide, on or off, not "maybe"\n>'), "/think maybe")
    chat.leave()
    for name, environment, options in (("no-color", {"NO_COLOR": "1"}, []), ("never", {}, ["--color", "never"]), ("dumb", {"TERM": "dumb"}, [])):
        chat = Chat(name, model, *bias, *options, **environment)
        chat.send("a")
        shown = chat.text("-e")
        checks.check("\n\\u001b\\u001b\\u001b\n[3 tokens" in shown and "\x1b[" not in shown, f"{name}: {shown!r}")
        chat.leave()


commands(80)
commands(20)
saved_conversation()
saved_onto()
interrupted_answer()
keys()
odd_bytes()
wide_characters()
reasoning()
checks.finish()

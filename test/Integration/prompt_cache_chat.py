"""qwen-run chat --cache-dir: a chat that ended or was saved goes on in another process, which reads none of it again.

  prompt_cache_chat.py FOLDER TEMPLATES MODEL WORKDIR      MODEL is FOLDER (models/stories), compiled

A hybrid (hybrid_model.py) goes on from snapshots only.
"""
import json
import os
import pathlib
import pty
import re
import select
import subprocess
import sys
import time

from checks import Checks, run
from hybrid_model import compile_hybrid
from server import Server

FOLDER, TEMPLATES, MODEL, WORK = (pathlib.Path(a).resolve() for a in sys.argv[1:])
PAGE = 64
LINE, NEXT = "Tell a story. " * 20, "And then?"
#: With Qwen3.5's own template, a prompt does not go on behind an answer, whose reasoning it leaves out.
TEMPLATE = ("--chat-template", TEMPLATES / "Qwen-Qwen2.5-7B-Instruct.jinja")
#: Short, because the answers of random weights are no text that the tokenizer makes the same tokens of.
OPTIONS = (*TEMPLATE, "-n", 8, "--temperature", 0)
STATS = r"prompt +(\d+) tokens?, (\d+) of them new"
checks = Checks()
expect = checks.expect


class Chat:
    """A chat on a terminal that only shows lines."""

    def __init__(self, *options):
        self.terminal, end = pty.openpty()
        command = ["qwen-run", "chat", *options, *OPTIONS, "-t", "1"]
        self.process = subprocess.Popen([str(c) for c in command], stdin=end, stdout=end, stderr=end, env={**os.environ, "TERM": "dumb"})
        os.close(end)
        self.shown, self.seen = "", 0
        self.until(r"> $")

    def until(self, pattern):
        """Waits until what is new matches, and returns the match."""
        end = time.time() + 120
        while not (match := re.search(pattern, self.shown[self.seen:])):
            if time.time() > end or not select.select([self.terminal], [], [], 120)[0]:
                sys.exit(f"no {pattern!r}: {self.shown!r}")
            self.shown += os.read(self.terminal, 65536).decode(errors="replace")
        self.seen += match.end()
        return match

    def send(self, line, pattern):
        os.write(self.terminal, line.encode() + b"\n")
        match = self.until(pattern)
        self.until(r"> $")
        return match

    def end(self, kill=False):
        if kill:
            self.process.kill()
        else:
            os.write(self.terminal, b"/exit\n")
        status = self.process.wait(timeout=120)
        os.close(self.terminal)
        return status


def in_one_process(model):
    """Tokens of the second prompt of a chat, and those of them that had run."""
    chat = Chat(model)
    chat.send(LINE, "context left")
    first = int(chat.send("/stats", STATS)[1])
    chat.send(NEXT, "context left")
    row = chat.send("/stats", STATS)
    chat.end()
    size, known = int(row[1]), int(row[1]) - int(row[2])
    checks.check(first < known < size, f"{model.stem}: a chat knew {known} tokens behind a prompt of {first}")
    # Pages alone do not bring back the last tokens, which a snapshot does.
    return size, known // PAGE * PAGE if model == MODEL else known


def goes_on(model, work, isSaved, expected):
    """The first process ends by itself, or is killed when it has saved the chat."""
    folder, saved = work / "cache", work / "saved.json"
    chat = Chat(model, "--cache-dir", folder)
    chat.send(LINE, "context left")
    chat.send(f"/save {saved}", "saved to")
    if isSaved:
        # A thread writes.
        pages, rest = divmod(expected[1], PAGE)
        for _ in range(400):
            if len(list(folder.glob("*.page"))) >= pages and (rest == 0 or list(folder.glob(f"*.{rest}.state"))):
                break
            time.sleep(0.05)
        chat.end(kill=True)
    else:
        expect("the end of a chat", chat.end(), 0)

    chat = Chat(model, "--cache-dir", folder)
    chat.send(f"/load {saved}", "loaded 2 messages")
    chat.send(NEXT, "context left")
    row = chat.send("/stats", STATS)
    expect(f"{model.stem}: the second prompt, and its known tokens", (int(row[1]), int(row[1]) - int(row[2])), expected)
    expect("the end of a chat", chat.end(), 0)


def in_a_pipe(model, folder, expected):
    """Without a terminal, too, the end of a chat keeps it. A server goes on with it."""
    plain = run(["qwen-run", "chat", model, *OPTIONS], input=LINE)
    for _ in range(2):
        expect("a chat with a cache", run(["qwen-run", "chat", model, *OPTIONS, "--cache-dir", folder], input=LINE), plain)
    messages = [{"role": "user", "content": LINE}, {"role": "assistant", "content": plain.removesuffix("\n")}, {"role": "user", "content": NEXT}]
    server = Server(model, "--cache-dir", folder, *TEMPLATE)
    usage = server.post("/v1/chat/completions", messages=messages, max_tokens=1)["usage"]
    expect(f"{model.stem}: a server's prompt, and its known tokens",
           (usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]), expected)
    status, log = server.stop()
    expect("status and log", (status, [line for line in log.splitlines() if not line.startswith("req-")]), (0, []))


def main():
    hybrid = compile_hybrid(FOLDER, TEMPLATES, WORK)
    for model in (MODEL, hybrid):
        expected = in_one_process(model)
        for name, isSaved in (("end", False), ("save", True)):
            work = WORK / f"{model.stem}-{name}"
            work.mkdir()
            goes_on(model, work, isSaved, expected)
        in_a_pipe(model, WORK / f"{model.stem}-pipe", expected)
    checks.finish()


main()

"""qwen-run serve --cache-dir on a disk that cannot be written: it serves what is there, with the same bits.

  prompt_cache_read_only.py MODEL WORKDIR

The disk is a mount that is read-only, in a namespace of the test's own; and a folder whose modes allow no writing, for a process that
file modes bind: root gives up the capability to ignore them.
"""
import json
import os
import pathlib
import subprocess
import sys

from checks import Checks, run
from server import Server

MODEL, WORK = (pathlib.Path(a).resolve() for a in sys.argv[1:])
PROMPT, FOUND = [5, 6, 7, 8] * 50, 192
checks = Checks()
expect = checks.expect

BOUND = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search,-fowner"] if os.geteuid() == 0 else []


def read_only(folder):
    """What runs a command that sees a folder on a mount which is read-only."""
    return ["unshare", "--map-root-user", "--mount", "sh", "-c",
            'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"', folder]


def start(folder, *before):
    return Server(None, program=[*before, "qwen-run", "serve", MODEL, "--listen", "127.0.0.1:0", "--cache-dir", folder])


def completion(server, prompt):
    body = {"prompt": prompt, "max_tokens": 8, "seed": 1, "temperature": 1, "logprobs": 3, "ignore_eos": True}
    answer = server.post("/v1/completions", **body)
    choice = answer["choices"][0]
    return (choice["text"], choice["logprobs"]), answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def state_of(folder):
    return {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.iterdir()}


def serves(folder, why, before, expected, *, atOnce=True):
    """A server, a chat and `qwen-run cache` read the folder, and change nothing in it."""
    known = state_of(folder)
    server = start(folder, *before)
    expect(f"{why}: an answer", completion(server, PROMPT), expected)
    expect(f"{why}: the tokens of a new prompt", [completion(server, [9] + PROMPT)[1] for _ in range(2)], [0, FOUND])
    status, log = server.stop()
    told = [line for line in (server.said + log).splitlines() if "prompts" in line]
    expect(f"{why}: status and line", (status, told), (0, [f"qwen-run: no more prompts are written to {folder}: {why}"]))
    answers = [run([*prefix, "qwen-run", "chat", MODEL, "-n", "8", *options], input="Tell a story. " * 20)
               for prefix, options in (((), ()), (before, ("--cache-dir", folder)))]
    expect(f"{why}: a chat", answers[1], answers[0])
    rows = json.loads(run([*before, "qwen-run", "cache", "prompts", folder, "--json"]))
    expect(f"{why}: tokens that are listed", [row["tokens"] for row in rows], [FOUND])
    if atOnce:
        result = subprocess.run([*before, "qwen-run", "cache", "clear", folder], capture_output=True, text=True)
        expect(f"{why}: clear", (result.returncode, result.stderr), (1, f"qwen-run: cannot write {folder}: {why}\n"))
    # The owner of a file may note its use.
    left = state_of(folder)
    expect(f"{why}: files", {name: data for name, (_, data) in left.items()}, {name: data for name, (_, data) in known.items()})


def refuses(folder, why, before):
    """A folder without a key cannot become a cache."""
    result = subprocess.run([*map(str, before), "qwen-run", "serve", MODEL, "--listen", "127.0.0.1:0", "--cache-dir", folder],
                            capture_output=True, text=True, timeout=60)
    expect(f"{why}: no cache", (result.returncode, result.stderr),
           (1, f"qwen-run: {folder} is no prompt cache, and cannot become one: {why}\n"))


def main():
    folder, empty = WORK / "cache", WORK / "empty"
    empty.mkdir(mode=0o700)
    server = start(folder)
    answer = completion(server, PROMPT)[0]
    server.stop()
    expected = (answer, FOUND)

    mount = read_only(folder)
    tried = subprocess.run([*map(str, mount), "true"], capture_output=True, text=True)
    if tried.returncode:
        print(f"a mount is not tried, since this process may make no namespace: {tried.stderr.strip()}")
    else:
        serves(folder, "Read-only file system", mount, expected)
        refuses(empty, "Read-only file system", read_only(empty))

    tried = subprocess.run([*BOUND, "true"], capture_output=True, text=True)
    if tried.returncode:
        print(f"modes are not tried, since root cannot give up a capability: {tried.stderr.strip()}")
    else:
        # The lock may be opened, and no file can be made.
        folder.chmod(0o500)
        serves(folder, "Permission denied", BOUND, expected, atOnce=False)
        for path in folder.iterdir():
            path.chmod(0o400)
        serves(folder, "Permission denied", BOUND, expected)
        folder.chmod(0o700)
        empty.chmod(0o500)
        refuses(empty, "Permission denied", BOUND)
        empty.chmod(0o700)
    checks.finish()


main()

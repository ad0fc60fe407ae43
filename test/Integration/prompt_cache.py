"""qwen-run serve --cache-dir: a server that starts again has the prompts of the one before, with the same bits.

  prompt_cache.py FOLDER TEMPLATES MODEL WORKDIR      MODEL is FOLDER (models/stories), compiled

A hybrid (hybrid_model.py) stores snapshots, too.
"""
import json
import pathlib
import re
import stat
import subprocess
import sys
import time

from checks import Checks, compile_model, run
from hybrid_model import compile_hybrid
from server import Server

FOLDER, TEMPLATES, MODEL, WORK = (pathlib.Path(a) for a in sys.argv[1:])
PAGE = 64
#: The last token always runs.
PROMPT, FOUND = [5, 6, 7, 8] * 50, 3 * PAGE
SECRET = "a-secret-key-of-a-client"
#: A hybrid goes on from snapshots only.
EVERY = ("--snapshot-every", str(PAGE))
checks = Checks()
expect = checks.expect


def completion(server, prompt=PROMPT, headers=None, **more):
    """What an answer says, with its numbers, and how many tokens of the prompt did not run."""
    body = {"prompt": prompt, "max_tokens": 8, "seed": 1, "temperature": 1, "logprobs": 3, "ignore_eos": True, **more}
    answer = json.loads(server.send("POST", "/v1/completions", body, headers)[2])
    choice = answer["choices"][0]
    return (choice["text"], choice["logprobs"]), answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def cached(server, *arguments, **more):
    return completion(server, *arguments, **more)[1]


def metrics(server):
    """The values of the metrics of the cache, by name and, with several models, by model."""
    found = {}
    for line in server.send("GET", "/metrics")[2].splitlines():
        if match := re.fullmatch(r'qwen_cache_disk_([a-z_]+?)(?:_total\{model_name="([^"]+)"\})? ([0-9]+)', line):
            found[(match[2], match[1]) if match[2] else match[1]] = int(match[3])
    return found


def stopped(server):
    """The status, and the lines of the log but for those of requests."""
    status, log = server.stop()
    return status, [line for line in log.splitlines() if not line.startswith(("req-", "model "))]


def turn(server, messages):
    """A turn of a chat, whose answer becomes a message; its size, and the tokens that did not run."""
    answer = server.post("/v1/chat/completions", messages=messages, max_tokens=40, seed=1, ignore_eos=True)
    messages.append(answer["choices"][0]["message"])
    usage = answer["usage"]
    return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]


def restarts(model, folder):
    plain = Server(model, "--no-prefix-cache")
    expected = completion(plain)[0]
    plain.stop()
    options = ("--cache-dir", folder, "--sequences", "2", *EVERY)
    for found in (0, FOUND, FOUND):
        server = Server(model, *options)
        answer = completion(server)
        expect(f"{model.name}: an answer of a restarted server", answer, (expected, found))
        expect("a salt's tokens", cached(server, cache_salt="s"), 0 if not found else FOUND)
        expect("another prompt's tokens", cached(server, [9] + PROMPT), 0 if not found else FOUND)
        expect("status and log", stopped(server), (0, []))


def chats_go_on(model, folder):
    """A chat whose server starts again before each turn runs no more tokens than one in memory."""
    lines = ["Tell a story.", "Go on. " * 30, "And then?", "Why? " * 20]
    kept, anew = [], []
    memory = Server(model)
    for number, line in enumerate(lines):
        kept.append({"role": "user", "content": line})
        anew.append({"role": "user", "content": line})
        expected = turn(memory, kept)
        server = Server(model, "--cache-dir", folder)
        found = turn(server, anew)
        expect(f"{model.name}: tokens of turn {number} and those of the cache", found, expected)
        server.stop()
    expect(f"{model.name}: the chat", anew, kept)
    checks.check(expected[1] > PAGE, f"{model.name}: a chat had {expected} tokens")
    memory.stop()


def keys(folder):
    """Keys may move in their file. Nothing tells what they are."""
    file = WORK / "keys"
    header = {SECRET: {"Authorization": f"Bearer {SECRET}"}, "b": {"x-api-key": "b"}}
    for order, key, found in (((SECRET, "b"), SECRET, 0), (("b", SECRET), SECRET, FOUND), (("b", SECRET), "b", 0), ((SECRET, "b"), "b", FOUND)):
        file.write_text("\n".join(order) + "\n")
        server = Server(MODEL, "--cache-dir", folder, "--api-key-file", file)
        expect(f"tokens of {key}", cached(server, headers=header[key]), found)
        server.stop()
    server = Server(MODEL, "--cache-dir", folder, "--api-key-file", file, "--cache-shared")
    expect("tokens of keys that share", [cached(server, headers=header[key]) for key in (SECRET, "b")], [0, FOUND])
    server.stop()
    for path in folder.iterdir():
        checks.check(SECRET.encode() not in path.read_bytes() and SECRET not in path.name, f"{path} has an API key")
        expect(f"mode of {path.name}", stat.S_IMODE(path.stat().st_mode), 0o600)
    expect("mode of the folder", stat.S_IMODE(folder.stat().st_mode), 0o700)


def share_a_folder(models, folder):
    """Servers of other files and of the same one, at the same time."""
    for found in (0, FOUND):
        servers = [Server(model, "--cache-dir", folder, *EVERY) for model in models]
        answers = [completion(server) for server in servers]
        expect("tokens that servers found", [number for _, number in answers], [found] * len(models))
        if found == 0:
            expected = answers
        expect("answers of servers that share a folder", [answer for answer, _ in answers], [answer for answer, _ in expected])
        for server in servers:
            expect("status and log", stopped(server), (0, []))


def counted(models, folder):
    """What /metrics says of the cache, of one model and of several."""
    server = Server(MODEL, "--name", "a", "--cache-dir", folder)
    expect("tokens without a cache", cached(server), 0)
    expect("status and log", stopped(server), (0, []))
    sizes = [path.stat().st_size for path in folder.glob("*.page")]
    server = Server(MODEL, "--name", "a", "--cache-dir", folder)
    expect("tokens", cached(server), FOUND)
    found = metrics(server)
    names = ("read", "hit_tokens", "written", "lost", "dropped", "failed")
    expect("counts of a restarted server", [found["a", name] for name in names], [len(sizes), FOUND, 0, 0, 0, 0])
    expect("bytes on disk and in memory", (found["bytes"], found["waiting_bytes"]), (sum(sizes), 0))
    checks.check(0 < found["a", "read_bytes"] < sum(sizes), f"bytes: {found}")
    server.stop()

    a, b = (model.stem for model in models)
    server = Server(None, program=["qwen-run", "serve", *models, "--listen", "127.0.0.1:0", "--kv-pages", "20", "--cache-dir", folder, *EVERY])
    expect("tokens of two models", [cached(server, model=model) for model in (a, b)], [FOUND, 0])
    for _ in range(400):
        found = metrics(server)
        if found["waiting_bytes"] == 0:
            break
        time.sleep(0.05)
    expect("counts of two models", [found[model, name] for model in (a, b) for name in ("read", "hit_tokens")], [len(sizes), FOUND, 0, 0])
    # Three pages and, of a hybrid, the snapshots behind them and at the end.
    expect("what two models wrote", [found[model, "written"] for model in (a, b)], [0, 7])
    expect("bytes on disk", found["bytes"], sum(path.stat().st_size for path in folder.iterdir() if path.suffix in (".page", ".state")))
    expect("status and log", stopped(server), (0, []))
    plain = Server(MODEL)
    expect("metrics without a cache", metrics(plain), {})
    plain.stop()


def faults(folder):
    server = Server(MODEL, "--cache-dir", folder)
    expected = completion(server)[0]
    server.stop()
    pages = sorted(folder.glob("*.page"))

    def damage(path):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)

    for path in pages:
        damage(path)
    (folder / "note.txt").write_text("x")
    # The pages behind a damaged one are read at the same time, if there is time. All run, and are written again.
    damaged = len(pages)
    while damaged > 0:
        server = Server(MODEL, "--cache-dir", folder)
        answer, found = completion(server)
        expect("an answer without damaged pages", answer, expected)
        checks.check(damaged < len(pages) or found == 0, f"{found} tokens of damaged pages")
        status, lines = stopped(server)
        expect("lines of damage", (status, {line.split(".page ")[1] for line in lines}), (0, {"is damaged or of another program, and is ignored"}))
        if not lines:
            break
        damaged -= len(lines)
    expect("damaged pages without a line", damaged, 0)
    # One that is damaged ends the load there.
    counts = []
    for path in pages:
        damage(path)
        server = Server(MODEL, "--cache-dir", folder)
        answer, found = completion(server)
        counts.append(found)
        expect("an answer without a damaged page", answer, expected)
        status, lines = stopped(server)
        expect("lines of a damaged page", (status, [line.split(".page ")[1] for line in lines]), (0, ["is damaged or of another program, and is ignored"]))
    expect("tokens before each damage", sorted(counts), [number * PAGE for number in range(len(pages))])
    (folder / "note.txt").unlink()
    server = Server(MODEL, "--cache-dir", folder)
    expect("tokens behind the damage", completion(server), (expected, FOUND))
    expect("status and log", stopped(server), (0, []))

    # A disk that is full.
    small = WORK / "small"
    server = Server(MODEL, program=["sh", "-c", f"ulimit -f 8; exec qwen-run serve {MODEL} --listen 127.0.0.1:0 --cache-dir {small}"])
    server.port = int(server.address.rsplit(":", 1)[1])
    for found in (0, FOUND):
        expect("an answer beside a full disk", completion(server), (expected, found))
    found = metrics(server)
    checks.check(found["stories", "failed"] > 0 and found["stories", "written"] == 0, f"a full disk: {found}")
    expect("lines of a full disk", stopped(server), (0, [f"qwen-run: no more prompts are written to {small}: File too large"]))
    expect("files of a full disk", sorted(path.name for path in small.iterdir()), ["key", "lock"])

    # Little room.
    size = pages[0].stat().st_size
    server = Server(MODEL, "--cache-dir", WORK / "little", "--cache-disk", str(4 * size))
    for first in range(8):
        cached(server, [first] + PROMPT)
    expect("status and log", stopped(server), (0, []))
    expect("pages in little room", len(list((WORK / "little").glob("*.page"))), 4)


def lists_and_clears(models, folder):
    """`qwen-run cache` while a server uses the folder."""
    server = Server(MODEL, "--cache-dir", folder)
    rows = json.loads(run(["qwen-run", "cache", "prompts", folder, "--json"]))
    sizes = {path.name: path.stat().st_size for path in folder.iterdir() if path.suffix in (".page", ".state")}
    expect("files of all models", (len(rows), sum(row["bytes"] for row in rows)), (len(models), sum(sizes.values())))
    expect("tokens of all models", [row["tokens"] for row in rows], [FOUND] * len(models))
    checks.check(all(row["last_use"] > 0 for row in rows) and sum(row["snapshots"] > 0 for row in rows) == 1, f"cache prompts: {rows}")
    expect("lines of all models", run(["qwen-run", "cache", "prompts", folder]).count("\n"), len(models))
    run(["qwen-run", "cache", "clear", folder])
    expect("files that are left", sorted(path.name for path in folder.iterdir()), ["key", "lock"])
    expect("tokens of a cache that was cleared", [cached(server) for _ in range(2)], [0, FOUND])
    expect("status and log", stopped(server), (0, []))


def chats_in_the_terminal(folder):
    """A chat goes on where an earlier process stopped, and so does a server with the same chat."""
    lines = ["Tell a story. " * 20, "And then?"]
    plain = run(["qwen-run", "chat", MODEL, "-n", "40"], input="\n".join(lines))
    for number in range(2):
        found = run(["qwen-run", "chat", MODEL, "-n", "40", "--cache-dir", folder], input="\n".join(lines))
        expect(f"chat {number} with a cache", found, plain)
    server = Server(MODEL, "--cache-dir", folder)
    size, known = turn(server, [{"role": "user", "content": lines[0].strip()}])
    checks.check(size - PAGE <= known < size, f"a server had {known} of {size} tokens of a chat")
    expect("status and log", stopped(server), (0, []))


def refused():
    link = WORK / "link"
    link.symlink_to(WORK)
    waits = "the prompt cache on disk needs at least 16777216 bytes of memory (what waits for the disk 16777216) when --max-memory allows 10485760 bytes"
    for options, error, expected in ((("--cache-dir", link), f"{link} is a symbolic link", 1), (("--cache-dir", MODEL), "is no folder", 1),
                                     (("--cache-dir", WORK / "new", "--no-prefix-cache"), "--cache-dir excludes --no-prefix-cache", 1),
                                     (("--cache-dir", WORK / "new", "--max-memory", "10m"), waits, 4),
                                     (("--cache-dir", WORK / "new", "--max-memory", "20m"), "20971520 bytes and other models and caches have 1", 4)):
        command = ["qwen-run", "serve", MODEL, "--listen", "127.0.0.1:0", *options]
        process = subprocess.run([str(c) for c in command], capture_output=True, text=True)
        expect(f"status and lines of {options}", (process.returncode, process.stderr.count("\n")), (expected, 1))
        checks.check(error in process.stderr, f"{options}: {process.stderr!r}")


f16 = compile_model(FOLDER, WORK / "f16.qwen", "--kv", "f16")
linear = compile_hybrid(FOLDER, TEMPLATES, WORK)
restarts(MODEL, WORK / "dense")
restarts(linear, WORK / "linear")
chats_go_on(MODEL, WORK / "chat")
chats_go_on(linear, WORK / "chat")
keys(WORK / "secret")
share_a_folder([MODEL, f16, linear, MODEL], WORK / "shared")
lists_and_clears([MODEL, f16, linear], WORK / "shared")
counted([MODEL, linear], WORK / "counted")
faults(WORK / "faults")
chats_in_the_terminal(WORK / "terminal")
refused()
checks.finish()

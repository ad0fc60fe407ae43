"""qwen-run batch answers each line once, as the server answers its body, however often the run is killed.

  batch.py MODEL WORKDIR [memory]      memory: also how much a run takes
"""
import json
import os
import pathlib
import pty
import re
import signal
import subprocess
import sys
import time

from checks import Checks, own_lines
from server import Server

MODEL, WORK = sys.argv[1], pathlib.Path(sys.argv[2])
checks = Checks()
expect = checks.expect
CHAT, TEXT, VECTORS = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"


def write(name, lines):
    (WORK / name).write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))


def command(source, out, *options):
    return [str(c) for c in ("qwen-run", "batch", MODEL, WORK / source, "-o", WORK / out, *options)]


def batch(source, out, *options):
    """The status, and the lines of standard error without the folder's name."""
    result = subprocess.run(command(source, out, *options), capture_output=True, text=True)
    expect(f"standard output for {source}", result.stdout, "")
    return result.returncode, [line.replace(f"{WORK}/", "") for line in own_lines(result.stderr)]


def core(body):
    """The body of an answer without what differs from one request to the next."""
    body = {key: value for key, value in body.items() if key not in ("id", "created", "timings")}
    body.get("usage", {}).pop("prompt_tokens_details", None)
    return body


def answers(name):
    """Status and core of each answer by its id, or the error of its line."""
    found = {}
    for line in (WORK / name).read_text().splitlines():
        answer = json.loads(line)
        expect("members of an answer", list(answer), ["id", "custom_id", "response", "error"])
        key = answer["custom_id"] if answer["custom_id"] is not None else answer["id"]
        checks.check(key not in found, f"{name} has two answers to {key}")
        response = answer["response"]
        found[key] = answer["error"] if response is None else (response["status_code"], core(response["body"]))
    return found


def requests():
    """Paths and bodies: seeds or none, several choices, stops, scores, vectors, and errors of the protocols."""
    texts = ["The king", "Once upon a time", "She said, \"", "It was late \u00e9\u20ac", "A"]
    for i in range(40):
        text, more = texts[i % len(texts)], {"max_tokens": 4 + 5 * (i % 7)}
        if i % 3:
            more["seed"] = i
        if i % 4 == 0:
            more |= {"n": 2, "stop": [" the", "ing"]}
        if i % 3 == 2:
            yield VECTORS, {"input": [text, "x"], "dimensions": 8}
        elif i % 2:
            yield TEXT, {"prompt": text, "logprobs": i % 4, "echo": i % 5 == 0, **more}
        else:
            yield CHAT, {"messages": [{"role": "user", "content": text}], "temperature": 0.5 + i / 50, **more}
    yield TEXT, {"prompt": "x", "temperature": -1}
    yield TEXT, {"prompt": "x", "model": "another"}
    yield "/v1/nothing", {}


def same_as_server():
    """Both forms, all at once, against the server's answers to one request after another."""
    lines, expected = [], {}
    server = Server(MODEL)
    for number, (path, body) in enumerate(requests(), 1):
        short = number % 2 and path != "/v1/nothing"
        lines.append({"id": number, **body} if short else {"custom_id": f"r{number}", "method": "POST", "url": path, "body": body})
        drawn = {} if path == VECTORS or "seed" in body else {"seed": number}
        status, _, text = server.send("POST", path, body | drawn)
        expected[number if short else f"r{number}"] = (status, core(json.loads(text)))
    server.stop()
    write("same.jsonl", lines)
    errors = sum(status != 200 for status, _ in expected.values())
    expect("errors of the protocols", errors, 3)
    expect("a run", batch("same.jsonl", "same.out"), (0, [f"qwen-run: {errors} of {len(lines)} answers are errors"]))
    got = answers("same.out")
    expect("ids", sorted(map(str, got)), sorted(map(str, expected)))
    for key, answer in expected.items():
        expect(f"the answer to {key}", got.get(key), answer)
    # Pages for one or two of them, so that others lose theirs.
    batch("same.jsonl", "scarce.out", "--kv-pages", 6, "--sequences", 8, "--no-prefix-cache")
    expect("with few pages", answers("scarce.out"), got)


def refused_lines():
    """A line that is no request has its error in its answer; the others have theirs."""
    fine = {"id": "fine", "prompt": "The", "max_tokens": 2}
    write("bad.jsonl", ["nonsense", fine, "", "[" * 100, {"id": "stream", "prompt": "The", "stream": True}, {"prompt": "The"},
                        {"id": ["x"], "prompt": "x"}, {"custom_id": "get", "method": "GET", "url": TEXT, "body": {}},
                        {"id": "long", "prompt": "x" * 400}, '{"id": "key", "id": "key", "prompt": "x"}', "\xff"])
    status, errors = batch("bad.jsonl", "bad.out", "--max-body", 300)
    expect("a run with bad lines", (status, errors), (0, ["qwen-run: 9 of 10 answers are errors"]))
    got = answers("bad.out")
    checks.check(got.pop("fine")[0] == 200, "a good line among bad ones has no answer")
    expect("a stream", (got["stream"][0], got.pop("stream")[1]["error"]["message"]), (400, "a batch has no streams: stream must be false"))
    expect("codes", {error["code"] for error in got.values()}, {"invalid_line"})
    expect("messages", {key: error["message"] for key, error in got.items() if key not in ("batch_req_4", "batch_req_10")}, {
        "batch_req_1": "the line is not JSON at column 2",
        "batch_req_6": 'the line has neither "custom_id" nor "id"',
        "batch_req_7": '"id" is an array when a string or an integer is needed',
        "get": '"method" is "GET" when "POST" is needed',
        "batch_req_9": "the line has more than 300 bytes (--max-body)",
        "batch_req_11": "the line is not JSON at column 1"})


def killed():
    """Kills a run after some answers, again and again, and once in the middle of a line. The answers are those of a run without."""
    lines = [{"id": f"k{i}", "prompt": "The king", "max_tokens": 40 + 7 * (i % 9), "ignore_eos": True} for i in range(160)]
    lines[17] = "nonsense"
    write("kill.jsonl", lines)
    batch("kill.jsonl", "whole.out")
    partial = WORK / "kill.out.partial"

    def written():
        return partial.read_bytes().count(b"\n") if partial.exists() else 0

    for kill, more in enumerate((1, 2, 15, 1, 20, 30)):
        before = written()
        process = subprocess.Popen(command("kill.jsonl", "kill.out"), stderr=subprocess.PIPE, text=True)
        while written() < before + more and process.poll() is None:
            time.sleep(0.001)
        if kill == 3:
            expect("a second run", batch("kill.jsonl", "kill.out"), (1, ["qwen-run: another run writes kill.out.partial"]))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        expect("status of a killed run", process.returncode, -signal.SIGKILL)
        checks.check(not (WORK / "kill.out").exists(), "a killed run has its output under its name")
        if kill in (2, 4):
            # As if the kill had torn the last line.
            os.truncate(partial, partial.stat().st_size - 9)
    done = written()
    checks.check(done >= 65, f"a resumed run has lost answers: {done} are left")
    status, errors = batch("kill.jsonl", "kill.out")
    expect("the last run", (status, errors), (0, [f"qwen-run: kill.out.partial has {done} of 160 answers",
                                                  "qwen-run: 1 of 160 answers are errors"]))
    checks.check(not partial.exists(), "a partial file is left")
    expect("lines", (WORK / "kill.out").read_bytes().count(b"\n"), 160)
    expect("answers after kills", answers("kill.out"), answers("whole.out"))
    expect("again", batch("kill.jsonl", "kill.out"), (1, ["qwen-run: kill.out exists; remove it, or name another file"]))


def refused_files():
    """Errors that end a run before it begins."""
    line = {"id": "a", "prompt": "The", "max_tokens": 1}
    write("twice.jsonl", [line, "nonsense", {**line, "prompt": "A"}])
    expect("an id twice", batch("twice.jsonl", "twice.out"),
           (1, ['qwen-run: twice.jsonl line 3: the id "\\"a\\"" is that of line 1, too; each line needs an id of its own']))
    expect("a file without an answer", [name for name in os.listdir(WORK) if name.startswith("twice.out")], [])
    write("one.jsonl", [line])
    for given in ("one.jsonl", "sub/../one.jsonl"):
        (WORK / "sub").mkdir(exist_ok=True)
        named = "an input" if given == "one.jsonl" else "the input 'one.jsonl'"
        expect("answers onto their lines", batch("one.jsonl", given), (1, [f"qwen-run: cannot write '{given}': it is {named}; name another file"]))
    write("two.partial", [line])
    expect("a partial file that is the input", batch("two.partial", "two"), (1, ["qwen-run: cannot write 'two.partial': it is an input; name another file"]))
    expect("a folder", batch("one.jsonl", "sub"), (1, ["qwen-run: cannot write 'sub': it is a folder; name a file in it"]))
    for name, before, error in (
            ("other", {"id": "batch_req_1", "custom_id": "b", "response": None},
             'one.jsonl line 1: the id is "\\"a\\"" when other.partial has an answer to "\\"b\\""; remove that file to begin again'),
            ("more", {"id": "batch_req_2", "custom_id": "a", "response": None},
             "more.partial has answers to 1 lines that one.jsonl does not have; remove that file to begin again"),
            ("foreign", {"id": "x"}, 'foreign.partial line 1: the line is not an answer to the line of a batch; remove the file to begin again')):
        write(f"{name}.partial", [before])
        expect(name, batch("one.jsonl", name), (1, [f"qwen-run: {error}"]))
    expect("no input", batch("none.jsonl", "out"), (1, ["qwen-run: cannot read none.jsonl: No such file or directory"]))
    expect("no folder", batch("one.jsonl", "none/out"), (1, ["qwen-run: cannot write none/out.partial: No such file or directory"]))
    piped = subprocess.run([*command("one.jsonl", "out")[:-1], "/dev/stdout"], capture_output=True, text=True)
    expect("answers to a pipe", (piped.returncode, [json.loads(text)["custom_id"] for text in piped.stdout.splitlines()]), (0, ["a"]))
    os.mkfifo(WORK / "pipe")
    expect("a pipe", batch("pipe", "out"), (1, ["qwen-run: pipe is not a regular file"]))


def progress():
    """On a terminal only: other tests see standard error without it."""
    reader, writer = pty.openpty()
    write("bar.jsonl", [{"id": i, "prompt": "The", "max_tokens": 2} for i in range(30)])
    subprocess.run(command("bar.jsonl", "bar.out"), stderr=writer, check=True)
    shown = os.read(reader, 65536).decode()
    checks.check("50%" in shown and "bar.jsonl [####" in shown, f"the terminal shows {shown!r}")


def memory():
    """A run takes less than its input."""
    write("large.jsonl", ["x" * 1000] * 60000)
    process = subprocess.Popen(command("large.jsonl", "large.out"), stderr=subprocess.DEVNULL)
    most = 0
    while process.poll() is None:
        found = re.search(r"VmHWM:\s+(\d+)", pathlib.Path(f"/proc/{process.pid}/status").read_text())
        most = int(found[1]) if found else most
        time.sleep(0.01)
    size = (WORK / "large.jsonl").stat().st_size >> 10
    checks.check(process.returncode == 0 and 0 < most < size, f"a batch of {size} KiB takes {most} KiB, and gives {process.returncode}")


same_as_server()
refused_lines()
killed()
refused_files()
progress()
if "memory" in sys.argv[3:]:
    memory()
checks.finish()

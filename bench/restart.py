#!/usr/bin/env python3
"""How soon a server that starts again answers a long chat from its prompt cache on disk (qwen-run serve --cache-dir).

  .venv/bin/python bench/restart.py WORKDIR [--model NAME] [--layers N] [--weights FORMAT] [--tokens N] [--last N] [--rounds N] [--threads N] [--json]
  .venv/bin/python bench/restart.py WORKDIR --beside STREAMS [--draw N] [...]

Makes a checkpoint with random weights and compiles it, unless WORKDIR has it. The first run also fills the cache: it runs a prompt of
--tokens random ids, which takes minutes; WORKDIR keeps the files, and a run that was stopped goes on where it was.

A round drops the files of the cache from the system's page cache, reads a file of as many bytes from the same disk, which gives the
speed of the disk, drops the files again, touches as much free memory as the server will need, and starts a server. Its first request is the prompt with a last question of --last other ids:
the seconds to its first token are `disk`. The second one is the prompt with another last question, whose pages memory has: `memory`.
The bound is memory + bytes / speed + 0.3 s, of the bytes that the server has read: a hybrid reads one of its snapshots. The first token and
its logprob must equal the first run's.

--beside measures what the writing thread costs instead: a round lets STREAMS clients draw --draw tokens behind prompts of --tokens new
ids from a new server with a cache on disk, and from two without, one before it and one behind it; the rate counts the tokens from the
last first one to the first end. The two without are compared, too: their ratio tells what the same program's runs differ by. --layers makes
the model with fewer layers than it has.
"""
import argparse
import concurrent.futures
import http.client
import json
import mmap
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

import numpy

import peers
from models import stream
from serve import free_port

ROOT = pathlib.Path(__file__).resolve().parent.parent
BIN = ROOT / "build/host/bin"
MARGIN = 0.3
# Tokens, so many that a hybrid has a snapshot at each end of a step.
STEP = 1024


def drop(paths):
    """Removes files from the page cache."""
    for path in paths:
        with open(path, "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def disk_speed(folder, size):
    """Bytes a second of a cold read of a new file."""
    path = folder / "speed"
    with open(path, "wb") as file:
        for _ in range(-(-size // (1 << 20))):
            file.write(random.randbytes(1 << 20))
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    start = time.perf_counter()
    done = 0
    with open(path, "rb", buffering=0) as file:
        while part := len(file.read(1 << 23)):
            done += part
    speed = done / (time.perf_counter() - start)
    path.unlink()
    return speed


def touch(size):
    """Lets the system have free memory that was used. The host of a virtual machine gives memory when it is first touched, which can take
    seconds for a GB."""
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.madvise(mmap.MADV_HUGEPAGE)
        for place in range(0, size, mmap.PAGESIZE):
            memory[place] = 1


class Server:
    def __init__(self, args, *options):
        self.port = free_port()
        command = [BIN / "qwen-run", "serve", args.file, "--listen", f"127.0.0.1:{self.port}", "--name", "bench", *options]
        if args.threads:
            command += ["-t", args.threads]
        self.process = subprocess.Popen([str(c) for c in command], stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            if "answers on" in line:
                return
        sys.exit("no server")

    def first(self, prompt):
        """Seconds to the first token, the token with its logprob, and the tokens of the prompt that did not run."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=3600)
        start = time.perf_counter()
        connection.request("POST", "/v1/completions", json.dumps({"prompt": prompt, "max_tokens": 1, "temperature": 0, "logprobs": 1}),
                           {"Content-Type": "application/json"})
        answer = json.loads(connection.getresponse().read())
        seconds = time.perf_counter() - start
        return seconds, answer["choices"][0]["logprobs"], answer["usage"]["prompt_tokens_details"]["cached_tokens"]

    def metric(self, name):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
        return next((float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name + "{")), 0)

    def stop(self):
        self.process.terminate()
        self.process.communicate()


def ids(seed, count):
    numbers = random.Random(seed)
    return [numbers.randrange(1000, 100000) for _ in range(count)]


def measure(args, cache, prompt):
    questions = [ids(number, args.last) for number in (1, 2)]
    files = [path for path in cache.iterdir() if path.suffix in (".page", ".state")]
    size = sum(path.stat().st_size for path in files)
    speed = disk_speed(args.workdir, size)
    drop(files)
    # In the page cache and in the server.
    touch(2 * size)
    server = Server(args, "--cache-dir", cache, "--sequences", "1")
    # The model is warm.
    server.first(prompt[-40:])
    disk, bits, cached = server.first(prompt + questions[0])
    read = server.metric("qwen_cache_disk_read_bytes_total")
    memory, _, kept = server.first(prompt + questions[1])
    server.stop()
    return {"disk": disk, "memory": memory, "bytes": read, "speed": speed, "bound": memory + read / speed + MARGIN, "cached": cached, "kept": kept,
            "same": bits == json.loads((cache.with_suffix(".json")).read_text())}


def fill(args, cache, prompt):
    """Runs the prompt and notes its first token. Each step finds on disk what an earlier run, which was stopped, has left."""
    server = Server(args, "--cache-dir", cache, "--sequences", "1")
    for end in range(STEP, len(prompt), STEP):
        server.first(prompt[:end])
    cache.with_suffix(".json").write_text(json.dumps(server.first(prompt + ids(1, args.last))[1]))
    server.stop()


def rate(server, args, seed):
    """Tokens a second of all streams."""
    with concurrent.futures.ThreadPoolExecutor(args.beside) as threads:
        answers = list(threads.map(lambda i: stream(server.port, "bench", ids(f"{seed} {i}", args.tokens), args.draw), range(args.beside)))
    begin, end = max(times[0] for times, _ in answers), min(times[-1] for times, _ in answers)
    return sum(begin < at <= end for times, _ in answers for at in times) / (end - begin)


def beside(args):
    """Rates of one server with a cache on disk between two without, and the bytes that the cache wrote. Each round has new processes, whose speeds differ."""
    options = ("--sequences", args.beside, "--speculate", "off")
    rounds, written = [], 0
    with tempfile.TemporaryDirectory(dir=args.workdir) as folder:
        for number in range(args.rounds):
            found = {}
            for name in ("plain", "cache", "again")[::1 if number % 2 else -1]:
                server = Server(args, *options, *(("--cache-dir", pathlib.Path(folder) / "cache") if name == "cache" else ()))
                server.first(ids(f"{number} {name}", 40))
                found[name] = rate(server, args, f"{number} {name}")
                written += server.metric("qwen_cache_disk_written_bytes_total")
                server.stop()
            rounds.append(found)
    return rounds, written


def tell_beside(args):
    rounds, written = beside(args)
    if args.json:
        print(json.dumps({"rounds": rounds, "written": written}, indent=1))
        return
    costs = [2 * found["cache"] / (found["plain"] + found["again"]) for found in rounds]
    controls = [found["again"] / found["plain"] for found in rounds]
    for found, cost, control in zip(rounds, costs, controls):
        print(f"{found['plain']:.1f} and {found['again']:.1f} tokens/s: {control:.3f}, with a cache {found['cache']:.1f}: {cost:.3f}")
    for name, ratios in (("with a cache", costs), ("the control", controls)):
        low, median, high = numpy.quantile(ratios, (0.25, 0.5, 0.75))
        print(f"{name}: median {median:.3f}, quartiles {low:.3f} and {high:.3f}")
    print(f"{written / 1e6:.0f} MB were written")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workdir", type=pathlib.Path)
    parser.add_argument("--model", default="qwen2.5-0.5b")
    parser.add_argument("--layers", type=int)
    parser.add_argument("--weights", default="q4_0")
    parser.add_argument("--tokens", type=int, default=14976)
    parser.add_argument("--last", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--beside", type=int)
    parser.add_argument("--draw", type=int, default=256)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    name = args.model + (f"-{args.layers}" if args.layers else "")
    checkpoint, args.file = args.workdir / name, args.workdir / f"{name}.qwen"
    args.workdir.mkdir(parents=True, exist_ok=True)
    if not args.file.exists():
        if not checkpoint.exists():
            layers = ["--layers", args.layers] if args.layers else []
            peers.output(sys.executable, ROOT / "bench/make_checkpoint.py", args.model, checkpoint, *layers, "--tokenizer",
                         ROOT / "test/Inputs/tokenizer/qwen2")
        peers.output(BIN / "qwen-opt", checkpoint, "-o", args.file, "--weights", args.weights, "--quantizer", "rtn")
    if args.beside:
        tell_beside(args)
        return
    prompt = ids(0, args.tokens)
    cache = args.workdir / f"{name}.{args.tokens}.cache"
    if not cache.with_suffix(".json").exists():
        fill(args, cache, prompt)
    rounds = [measure(args, cache, prompt) for _ in range(args.rounds)]
    if args.json:
        print(json.dumps(rounds, indent=1))
        return
    for found in rounds:
        print(f"disk {found['disk']:.2f} s of {found['bound']:.2f} s, memory {found['memory']:.2f} s, {found['bytes'] / 1e6:.0f} MB at "
              f"{found['speed'] / 1e6:.0f} MB/s, {found['cached']} and {found['kept']} tokens cached, same bits: {found['same']}")
    print(f"median {statistics.median(found['disk'] for found in rounds):.2f} s")


if __name__ == "__main__":
    main()

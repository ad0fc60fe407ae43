#!/usr/bin/env python3
"""Compares `qwen-run serve` with llama.cpp's llama-server under several clients, in alternating runs on this machine.

  .venv/bin/python bench/serve.py WORKDIR [--model NAME] [--rounds N] [--clients 1,4,8,16] [--threads N] [--base BUILD] [--json]
  .venv/bin/python bench/serve.py WORKDIR --servers N [--model NAME] [--clients N] [--threads N] [--loads 1,2,4] [--seconds N] [--queue N] [--json]

Makes a checkpoint with random weights, compiles it to q4_0 and makes a GGUF file of llama.cpp in q4_0 (bench/peers.py). Builds
llama-server, without its page, from the source package of llama-cpp-python in WORKDIR/llama-server, unless it is there.

Each round starts every server once and measures, with prompts of random token ids and greedy sampling:
  load     N clients send requests of 128 tokens that draw 64, three each: requests a second, and the median time to the first token
  turn     a prompt of 4,000 tokens of which 3,900 have run: seconds to the first token, warm; and cold, with no token known
  pace     the gaps between the tokens of a stream while another client's prompt of 4,000 tokens is read: median and greatest, beside
           the median before
  decode   8 and 32 clients with prompts of 16 tokens that draw 128, from the last first token to the first end; qwen-run only,
           beside `qwen-run bench --batch`
--base runs the server of an older build of this project (the folder build/host of another clone) in place of llama-server, and also
prints the ratios of qwen-run to it, round by round; above 1, qwen-run is better.
--servers measures N servers of this project with --threads threads each behind vllm-router instead (bench/fleet.py), at --loads times the load
that one of them holds, each for --seconds; --queue requests wait in a server: answers a second, median and 99th percentile of the time to the first token and of the gaps, and what was refused.
The clients are one program (bench/Clients.cpp), because they share the CPU with the server.
"""
import argparse
import contextlib
import http.client
import json
import os
import pathlib
import random
import socket
import statistics
import subprocess
import sys
import tarfile
import time
import urllib.parse
import urllib.request

import fleet
import peers

CONTEXT, LONG, KNOWN = 4352, 4000, 3900
SOURCE = "https://pypi.org/pypi/llama-cpp-python/json"


def llama_server(folder):
    """Builds llama-server in `folder`; the path of the program."""
    program = folder / "build/bin/llama-server"
    if program.exists():
        return program
    folder.mkdir(parents=True, exist_ok=True)
    with urllib.request.urlopen(SOURCE) as answer:
        package = next(file for file in json.load(answer)["urls"] if file["packagetype"] == "sdist")
    archive = folder / pathlib.PurePosixPath(urllib.parse.urlparse(package["url"]).path).name
    urllib.request.urlretrieve(package["url"], archive)
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    source = next(folder.glob("llama_cpp_python-*/vendor/llama.cpp"))
    off = [f"-DLLAMA_{name}=OFF" for name in ("BUILD_UI", "USE_PREBUILT_UI", "BUILD_TESTS", "BUILD_EXAMPLES", "BUILD_APP", "OPENSSL")]
    peers.output("cmake", "-S", source, "-B", folder / "build", "-DCMAKE_BUILD_TYPE=Release", "-DBUILD_SHARED_LIBS=OFF", *off)
    peers.output("cmake", "--build", folder / "build", "--target", "llama-server", "--parallel", os.cpu_count())
    return program


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


class Server:
    """A running server. `command` gets the number of sequences and the port."""

    def __init__(self, command, sequences):
        self.port = free_port()
        self.process = subprocess.Popen(list(map(str, command(sequences, self.port))), stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        end = time.time() + 120
        while True:
            with contextlib.suppress(OSError):
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
                connection.request("GET", "/health")
                if connection.getresponse().status == 200:
                    return
            if time.time() > end or self.process.poll() is not None:
                sys.exit(f"{self.process.args[0]} does not start")
            time.sleep(0.05)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def answers(self, requests):
        """When each of the requests (client, after, prompt, count) was sent and when its tokens came, in seconds. Those of a client follow
        each other, and each waits until `after` tokens of all clients have come."""
        text = b""
        for client, after, prompt, count in requests:
            body = json.dumps({"prompt": prompt, "max_tokens": count, "temperature": 0, "ignore_eos": True, "stream": True})
            header = ("POST /v1/completions HTTP/1.1", "Host: localhost", "Connection: close", "Content-Type: application/json",
                      f"Content-Length: {len(body)}", "", body)
            request = "\r\n".join(header).encode()
            text += f"{client} {after} {len(request)}\n".encode() + request
        clients = subprocess.run([peers.BIN / "bench-clients", str(self.port)], input=text, stdout=subprocess.PIPE, check=True)
        return [[float(word) for word in line.split()] for line in clients.stdout.decode().splitlines()]

    def stream(self, prompt, count):
        """The times of the tokens of an answer, from the moment that the request is sent."""
        sent, *times = self.answers([(0, 0, prompt, count)])[0]
        return [time - sent for time in times]


def ids(random_numbers, count):
    return [random_numbers.randrange(1000, 100000) for _ in range(count)]


def load(server, count, random_numbers):
    answers = server.answers([(client, 0, ids(random_numbers, 128), 64) for client in range(count) for _ in range(3)])
    return {"requests per second": len(answers) / max(times[-1] for times in answers),
            "first token": statistics.median(first - sent for sent, first, *_ in answers)}


def turn(server, random_numbers):
    prompt, other = ids(random_numbers, LONG), ids(random_numbers, LONG)
    server.stream(prompt[:KNOWN], 2)
    return {"warm": server.stream(prompt, 2)[0], "cold": server.stream(other, 2)[0]}


def pace(server, random_numbers):
    (_, *times), (begin, *_, end) = server.answers([(0, 0, ids(random_numbers, 16), 300), (1, 50, ids(random_numbers, LONG), 2)])
    gaps = [(b - a, b) for a, b in zip(times, times[1:])]
    before = [gap for gap, at in gaps if at < begin][5:]
    during = [gap for gap, at in gaps if begin <= at <= end]
    return {"before": statistics.median(before), "median": statistics.median(during), "greatest": max(during)}


def decode(server, count, random_numbers):
    answers = [times for _, *times in server.answers([(client, 0, ids(random_numbers, 16), 128) for client in range(count)])]
    begin, end = max(times[0] for times in answers), min(times[-1] for times in answers)
    return sum(begin < moment <= end for times in answers for moment in times) / (end - begin)


def batch(bin, file, clients, threads):
    result = json.loads(peers.output(bin / "qwen-run", "bench", file, "--json", "--batch", clients, "--prompt-tokens", 16, "-n", 128,
                                     "--repetitions", 1, "-t", threads))
    return result["decode_tokens_per_second"]["median"]


def measure(name, command, args, seed):
    """The figures of one server in one round."""
    random_numbers = random.Random(seed)
    figures = {}
    with Server(command, max(args.clients)) as server:
        server.stream(ids(random_numbers, 128), 8)
        for clients in args.clients:
            for kind, value in load(server, clients, random_numbers).items():
                figures[f"{clients} clients, {kind}"] = value
    with Server(command, 2) as server:
        server.stream(ids(random_numbers, 128), 8)
        for kind, value in turn(server, random_numbers).items():
            figures[f"turn, {kind}"] = value
        for kind, value in pace(server, random_numbers).items():
            figures[f"gap, {kind}"] = value
    if name in args.builds:
        bin, file = args.builds[name]
        for clients in (8, 32):
            with Server(command, clients) as server:
                # As in bench, the first run warms caches and is not counted.
                decode(server, clients, random_numbers)
                figures[f"{clients} clients, decode tokens per second"] = decode(server, clients, random_numbers)
            figures[f"{clients} clients, of bench --batch"] = (figures[f"{clients} clients, decode tokens per second"]
                                                               / batch(bin, file, clients, args.threads))
    return figures


def commands(args):
    """How the servers start, by name."""
    args.workdir = args.workdir.resolve()
    args.workdir.mkdir(parents=True, exist_ok=True)
    checkpoint = peers.make_checkpoint(args)
    args.builds = {"qwen-run": (peers.BIN, args.workdir / f"{args.model}.serve.qwen")}
    if args.base:
        args.builds["base"] = args.base / "bin", args.workdir / f"{args.model}.base.serve.qwen"
    for bin, file in args.builds.values():
        peers.Ours(file, args.threads, bin).compile(checkpoint, "--context", CONTEXT)

    def server_of(bin, file):
        return lambda sequences, port: [bin / "qwen-run", "serve", file, "--listen", f"127.0.0.1:{port}", "--sequences", sequences, "-t",
                                        args.threads, "--check", "off", *(["--name", fleet.NAME, "--queue", args.queue] if args.servers else [])]

    servers = {name: server_of(*build) for name, build in args.builds.items()}
    if args.base or args.servers:
        return servers
    python = peers.install(args.workdir / "peers", False)
    gguf, source = args.workdir / f"{args.model}.q4_0.gguf", args.workdir / f"{args.model}.f16.gguf"
    if not gguf.exists():
        llama = [python, peers.BENCH / "peer_llama_cpp.py"]
        peers.output(*llama, "convert", checkpoint, source)
        peers.output(*llama, "quantize", source, gguf, "q4_0")
    program = llama_server(args.workdir / "llama-server")
    servers["llama-server"] = lambda sequences, port: [program, "-m", gguf, "--port", port, "-np", sequences, "-c", sequences * CONTEXT,
                                                       "-t", args.threads, "-tb", args.threads]
    return servers


def ratios(rounds):
    """Ratios of qwen-run to the base for each figure; above 1, qwen-run is better."""
    def ratio(kind, ours, base):
        return ours / base if kind.endswith(("per second", "--batch")) else base / ours

    return {kind: peers.spread([ratio(kind, ours[kind], base[kind]) for ours, base in zip(rounds["qwen-run"], rounds["base"])])
            for kind in rounds["base"][0]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workdir", type=pathlib.Path)
    parser.add_argument("--model", default="qwen2.5-0.5b")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=lambda text: list(map(int, text.split(","))), default=[1, 4, 8, 16])
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--base", type=lambda path: pathlib.Path(path).resolve(), metavar="BUILD")
    parser.add_argument("--servers", type=int, default=0)
    parser.add_argument("--loads", type=lambda text: list(map(float, text.split(","))), default=[1, 2, 4])
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--queue", type=int, default=64)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    servers = commands(args)
    if args.servers:
        result = fleet.measure(args, lambda sequences: Server(servers["qwen-run"], sequences), free_port)
        print(json.dumps(result, indent=2) if args.json else fleet.text(result, args.servers))
        return
    rounds = {name: [] for name in servers}
    for number in range(args.rounds):
        # Each server is first in a round as often as it is last.
        for name, command in sorted(servers.items(), reverse=number % 2 == 1):
            if sys.stderr.isatty():
                print(f"\rround {number + 1} of {args.rounds}: {name:<16}", end="", file=sys.stderr, flush=True)
            rounds[name].append(measure(name, command, args, number))
    if sys.stderr.isatty():
        print(file=sys.stderr)
    result = {name: {kind: peers.spread([figures[kind] for figures in all_rounds]) for kind in all_rounds[0]}
              for name, all_rounds in rounds.items()}
    if args.base:
        result["ratio"] = ratios(rounds)
    if args.json:
        print(json.dumps({"cpu": peers.cpu_name(), "threads": args.threads, "rounds": args.rounds, "figures": result}, indent=2))
        return
    print(f"{peers.cpu_name()}, {args.threads} threads, {args.rounds} rounds: median (least to greatest)")
    for kind in result["qwen-run"]:
        cells = [f"{s['median']:9.4g} ({s['least']:.4g} to {s['greatest']:.4g})"
                 for s in (figures.get(kind) for figures in result.values()) if s]
        print(f"{kind:38}" + "".join(f"{cell:36}" for cell in cells))


if __name__ == "__main__":
    main()

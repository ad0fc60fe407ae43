#!/usr/bin/env python3
"""Compares the decode of B beams with that of B requests in a batch, in alternating runs of one server.

  .venv/bin/python bench/beams.py MODEL [--program qwen-run] [--beams 2,4,8] [--rounds N] [--tokens N] [--threads N]

MODEL is a compiled file. A run has greedy requests of 16 random token ids that draw 32 tokens, and more: the difference is decode alone. B requests have B prompts,
a search has one. Prints for each B the median time of a step of each, and the median, least and greatest of the ratios of the rounds.
"""
import argparse
import http.client
import json
import random
import statistics
import subprocess
import time

from serve import free_port

SHORT = 32


class Server:
    def __init__(self, options):
        self.port = free_port()
        threads = ["-t", str(options.threads)] if options.threads else []
        self.process = subprocess.Popen([options.program, "serve", options.model, "--listen", f"127.0.0.1:{self.port}", *threads],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(600):
            time.sleep(0.1)
            try:
                self.send("GET", "/health")
                return
            except OSError:
                pass
        raise SystemExit("the server does not start")

    def send(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        connection.request(method, path, json.dumps(body) if body else None, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read().decode()
        if answer.status != 200:
            raise SystemExit(text)
        return text

    def seconds(self, body):
        start = time.perf_counter()
        self.send("POST", "/v1/completions", {"ignore_eos": True, "temperature": 0, **body})
        return time.perf_counter() - start


def step(server, count, tokens, isSearch, generator):
    """Seconds of a step of `count` beams or requests."""
    def prompt():
        return [generator.randrange(1000, 50000) for _ in range(16)]
    body = ({"prompt": prompt(), "num_beams": count, "early_stopping": "never"} if isSearch
            else {"prompt": [prompt() for _ in range(count)]})
    short, long = (server.seconds({**body, "max_tokens": most}) for most in (SHORT, SHORT + tokens))
    return (long - short) / tokens


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--program", default="build/host/bin/qwen-run")
    parser.add_argument("--beams", default="2,4,8")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--threads", type=int, default=0)
    options = parser.parse_args()
    server = Server(options)
    generator = random.Random(1)
    try:
        for count in map(int, options.beams.split(",")):
            rounds = [[step(server, count, options.tokens, isSearch, generator) for isSearch in (True, False)] for _ in range(options.rounds)]
            beams, plain = (statistics.median(each) * 1e3 for each in zip(*rounds))
            ratios = sorted(beam / other for beam, other in rounds)
            print(f"B = {count}: {beams:.2f} ms a step with beams, {plain:.2f} ms without; ratio {statistics.median(ratios):.3f} "
                  f"({ratios[0]:.3f} to {ratios[-1]:.3f})", flush=True)
    finally:
        server.process.terminate()
        server.process.wait()


if __name__ == "__main__":
    main()

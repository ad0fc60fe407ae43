#!/usr/bin/env python3
"""Compares the decode of B beams with that of B requests in a batch, in alternating runs of one server.

  .venv/bin/python bench/beams.py MODEL [--program qwen-run] [--beams 2,4,8] [--rounds N] [--tokens N] [--threads N]

MODEL is a compiled file. A run has greedy requests of 16 random token ids that draw 32 tokens, and more: the difference is decode alone. B requests have B prompts,
a search has one. Prints for each B the median time of a step of each, and the median, least and greatest of the ratios of the rounds.
"""
import argparse
import http.client
import pathlib
import random
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "test/Integration"))
from server import Server  # noqa: E402

SHORT = 32


class TimedServer(Server):
    """A server of the program, the model and the threads of `options`."""

    def __init__(self, options):
        threads = ["-t", options.threads] if options.threads else []
        super().__init__(options.model, program=[options.program, "serve", options.model, "--listen", "127.0.0.1:0", *threads])

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)

    def seconds(self, body):
        """The time of a completion."""
        start = time.perf_counter()
        self.post("/v1/completions", **{"ignore_eos": True, "temperature": 0, **body})
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
    server = TimedServer(options)
    generator = random.Random(1)
    try:
        for count in map(int, options.beams.split(",")):
            rounds = [[step(server, count, options.tokens, isSearch, generator) for isSearch in (True, False)] for _ in range(options.rounds)]
            beams, plain = (statistics.median(each) * 1e3 for each in zip(*rounds))
            ratios = sorted(beam / other for beam, other in rounds)
            print(f"B = {count}: {beams:.2f} ms a step with beams, {plain:.2f} ms without; ratio {statistics.median(ratios):.3f} "
                  f"({ratios[0]:.3f} to {ratios[-1]:.3f})", flush=True)
    finally:
        server.stop()


if __name__ == "__main__":
    main()

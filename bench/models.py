#!/usr/bin/env python3
"""Measures two models that answer at the same time in one `qwen-run serve`, beside each of them alone.

  .venv/bin/python bench/models.py WORKDIR [--model NAME] [--rounds N] [--streams 1,4] [--tokens N] [--threads N] [--json]

Makes a checkpoint with random weights, compiles it to q4_0 and copies the file, so that both models read weights of their own. Each round
lets STREAMS clients of one model draw TOKENS tokens behind a prompt of 16, then the clients of the other model, then all at the same time. The
rate of a model counts the tokens from its last first token to the first end of its streams; beside the other model, while both draw. Says
which part of its rate each model keeps, and whether the texts are the same.
"""
import argparse
import concurrent.futures
import http.client
import json
import os
import pathlib
import random
import shutil
import socket
import statistics
import subprocess
import sys
import time

import peers


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def stream(port, model, prompt, count):
    """The times of the tokens of an answer, and its text."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    body = {"model": model, "prompt": prompt, "max_tokens": count, "temperature": 0, "ignore_eos": True, "stream": True, "return_token_ids": True}
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        sys.exit(f"{model}: {response.status} {response.read()[:300]}")
    times, ids = [], []
    for line in response:
        if line.startswith(b"data: {"):
            drawn = [each for choice in json.loads(line[6:])["choices"] for each in choice.get("token_ids") or []]
            ids += drawn
            times += [time.monotonic()] * len(drawn)
    return times, ids


def draw(port, models, streams, count):
    """Tokens a second of each of the models while all draw, and all their tokens."""
    jobs = [(model, i) for model in models for i in range(streams)]
    with concurrent.futures.ThreadPoolExecutor(len(jobs)) as threads:
        answers = list(threads.map(
            lambda job: stream(port, job[0], [random.Random(job[1]).randrange(1000, 100000) for _ in range(16)], count), jobs))
    begin, end = max(times[0] for times, _ in answers), min(times[-1] for times, _ in answers)
    rates = {model: sum(begin < at <= end for (name, _), (times, _) in zip(jobs, answers) if name == model for at in times) / (end - begin)
             for model in models}
    return rates, {job: ids for job, (_, ids) in zip(jobs, answers)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workdir", type=pathlib.Path)
    parser.add_argument("--model", default="qwen2.5-0.5b")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--streams", type=lambda text: list(map(int, text.split(","))), default=[1, 4])
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    args.workdir.mkdir(parents=True, exist_ok=True)
    files = [args.workdir / "a.qwen", args.workdir / "b.qwen"]
    if not files[0].exists():
        peers.Ours(files[0], args.threads).compile(peers.make_checkpoint(args), "--weights", "q4_0", "--context", 2048)
    if not files[1].exists():
        shutil.copy(files[0], files[1])
    port = free_port()
    command = [peers.BIN / "qwen-run", "serve", *files, "--listen", f"127.0.0.1:{port}", "-t", args.threads, "--check", "off", "--speculate", "off"]
    server = subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE, text=True)
    kept, figures, same = {}, {}, True
    try:
        for line in server.stderr:
            if "answers on" in line:
                break
        for model in "ab":
            draw(port, [model], 1, 8)
        for _ in range(args.rounds):
            for streams in args.streams:
                alone, right = {}, {}
                for model in "ab":
                    rates, ids = draw(port, [model], streams, args.tokens)
                    alone |= rates
                    right |= ids
                both, ids = draw(port, ["a", "b"], streams, args.tokens)
                same &= ids == right
                for model in "ab":
                    kept.setdefault(f"{streams} streams, {model}", []).append(both[model] / alone[model])
                    figures.setdefault(f"{streams} streams, {model}", []).append((alone[model], both[model]))
    finally:
        server.terminate()
    server.communicate()
    if args.json:
        print(json.dumps({"cpu": peers.cpu_name(), "threads": args.threads, "same": same, "kept": {k: peers.spread(v) for k, v in kept.items()}}, indent=2))
        return
    print(f"{peers.cpu_name()}, {args.threads} threads, {args.rounds} rounds; the tokens are {'the same' if same else 'NOT the same'}")
    for name, parts in kept.items():
        alone, both = (statistics.median(pair[i] for pair in figures[name]) for i in (0, 1))
        print(f"{name:14} {alone:7.1f} tokens/s alone, {both:7.1f} beside the other: {statistics.median(parts):.3f} ({min(parts):.3f} to {max(parts):.3f})")


if __name__ == "__main__":
    main()

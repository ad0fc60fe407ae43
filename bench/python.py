#!/usr/bin/env python3
"""What the Python package costs: its import, loads, answers beside those of `qwen-run`, a processor, and the jitter of other threads.

  PYTHONPATH=build/python bench/python.py MODEL [--threads N] [--json]

MODEL is a compiled file. build/python is made by test/Integration/python_package.py. Prints medians, and of the jitter the greatest
delay of a thread that wants to wake each 10 ms while prompts run.
"""
import argparse
import json
import statistics
import subprocess
import sys
import threading
import time


def seconds(call, times=5):
    """The median time of a call."""
    found = []
    for _ in range(times):
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    return statistics.median(found)


def in_turns(calls, times=40):
    """The median times of calls, which take turns: a busy machine slows all."""
    found = [[] for _ in calls]
    for _ in range(times):
        for call, to in zip(calls, found):
            to.append(seconds(call, 1))
    return [statistics.median(each) for each in found]


def jitter(model, params):
    """The greatest delay of a thread during prompts, in seconds."""
    worst, done, every = 0.0, threading.Event(), 0.01

    def tick():
        nonlocal worst
        due = time.perf_counter() + every
        while not done.is_set():
            time.sleep(max(due - time.perf_counter(), 0))
            worst = max(worst, time.perf_counter() - due)
            due = time.perf_counter() + every

    ticker = threading.Thread(target=tick)
    ticker.start()
    text = "The king was old. " * (model.context_size // 8)
    for salt in range(1, 9):
        model.generate(text, params(max_tokens=4, cache_salt=salt))
    done.set()
    ticker.join()
    return worst


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    import qwen_compiler
    params = qwen_compiler.SamplingParams
    figures = {"import_ms": 1e3 * seconds(lambda: subprocess.run([sys.executable, "-c", "import qwen_compiler"], check=True)),
               "interpreter_ms": 1e3 * seconds(lambda: subprocess.run([sys.executable, "-c", ""], check=True)),
               "load_ms": 1e3 * seconds(lambda: qwen_compiler.load(args.model, check="off").close())}
    with qwen_compiler.load(args.model, check="off", threads=args.threads) as model:
        def answer(**options):
            return lambda: model.generate("Once upon a time", params(max_tokens=100, ignore_eos=True, seed=1, **options))
        both = in_turns([answer(), answer(logits_processors=[lambda tokens, logits: None])])
        figures["answer_ms"], figures["processor_ms"] = (1e3 * each for each in both)
        figures["processor_cost"] = figures["processor_ms"] / figures["answer_ms"] - 1
        figures["jitter_ms"] = 1e3 * jitter(model, params)
    print(json.dumps(figures) if args.json else "\n".join(f"{name:16} {value:.2f}" for name, value in figures.items()))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""What each sampler costs a step of a model: a table in Markdown.

  python bench/samplers.py MODEL.qwen [--rounds N] [--threads N] [--history N]

Runs decode steps and draws in turns in one process, by build/host/runtime/libqwenrt.so. A sampler's cost is the least time of a draw with it
less that of a draw without it, alone in its place, as a part of a step. Draws are from the model's logits (of random weights, so
almost all tokens are likely) and from peaked ones, in which few are. Penalties and DRY see a prompt of --history tokens that repeats itself.
"""
import argparse
import ctypes
import pathlib
import re
import time

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
TYPES = {"uint32_t": ctypes.c_uint32, "int32_t": ctypes.c_int32, "int64_t": ctypes.c_int64, "uint64_t": ctypes.c_uint64,
         "size_t": ctypes.c_size_t, "float": ctypes.c_float, "double": ctypes.c_double}
# By name: its options.
SAMPLERS = {
    "penalties": {"repetition_penalty": 1.1, "frequency_penalty": 0.2, "presence_penalty": 0.1},
    "no_repeat_ngram": {"no_repeat_ngram_size": 4},
    "exponential_decay": {"exponential_decay_factor": 1.01},
    "min_tokens": {"min_tokens": 1000000},
    "bad_words": {"bad_words": ["one", "two words", "newline\n", "and"]},
    "dry": {"dry_multiplier": 0.8},
    "dynatemp": {"dynatemp_range": 0.5},
    "top_n_sigma": {"top_n_sigma": 1},
    "top_h": {"top_h": 0.4},
    "top_k": {"top_k": 40},
    "top_p": {"top_p": 0.9},
    "min_p": {"min_p": 0.05},
    "typical_p": {"typical_p": 0.9},
    "epsilon_cutoff": {"epsilon_cutoff": 0.0005},
    "eta_cutoff": {"eta_cutoff": 0.0005},
    "xtc": {"xtc_probability": 1, "xtc_threshold": 0.1},
    "mirostat 1": {"mirostat": 1},
    "mirostat 2": {"mirostat": 2},
}


def struct(name):
    """A struct of the C header."""
    text = (ROOT / "runtime/include/qwenrt.h").read_text()
    body = re.search(r"typedef struct " + name + r" \{(.*?)\} " + name + ";", text, re.S)[1]
    body = re.sub(r"/\*.*?\*/", "", body, flags=re.S)
    fields = [(field, ctypes.c_void_p if "*" in kind else TYPES[kind.strip()])
              for kind, field in re.findall(r"([\w\s*]+?)\s?(\w+);", body)]
    return type(name, (ctypes.Structure,), {"_fields_": fields})


class Runtime:
    def __init__(self, path, threads):
        self.library = ctypes.CDLL(ROOT / "build/host/runtime/libqwenrt.so")
        for name in ("qwen_load", "qwen_sampler_new"):
            getattr(self.library, name).restype = ctypes.c_void_p
        self.library.qwen_last_error.restype = ctypes.c_char_p
        options = struct("qwen_options")(size=ctypes.sizeof(struct("qwen_options")), threads=threads)
        self.model = ctypes.c_void_p(self.check(self.library.qwen_load(str(path).encode(), ctypes.byref(options))))
        self.library.qwen_finish_check(self.model)
        self.vocab = self.library.qwen_vocab_size(self.model)
        self.sequence = self.library.qwen_open_sequence(self.model)
        self.Sampling, self.Token = struct("qwen_sampling"), struct("qwen_token")
        self.position = 0
        self.kept = []

    def check(self, result):
        if not result or result < 0:
            raise SystemExit(self.library.qwen_last_error().decode())
        return result

    def forward(self, logits):
        token = self.Token(self.position * 7 % 1000, self.sequence, self.position, 1)
        self.position += 1
        if self.library.qwen_forward(self.model, ctypes.byref(token), ctypes.c_size_t(1), logits.ctypes.data_as(ctypes.c_void_p)):
            raise SystemExit(self.library.qwen_last_error().decode())

    def sampler(self, options, history):
        """A sampler with `options`, others off, after a prompt."""
        sampling = self.Sampling(size=ctypes.sizeof(self.Sampling))
        self.library.qwen_default_sampling(self.model, ctypes.byref(sampling))
        for name, value in {"temperature": 1, "top_k": 0, "top_p": 1, "min_p": 0, "repetition_penalty": 1, **options}.items():
            if isinstance(value, list):
                texts = (ctypes.c_char_p * len(value))(*(text.encode() for text in value))
                self.kept.append(texts)
                sampling.bad_words, sampling.bad_word_count = ctypes.cast(texts, ctypes.c_void_p), len(value)
            else:
                setattr(sampling, name, value)
        handle = ctypes.c_void_p(self.check(self.library.qwen_sampler_new(self.model, ctypes.byref(sampling), ctypes.c_uint64(0))))
        for token in history:
            self.library.qwen_sampler_accept(handle, ctypes.c_int32(token))
        return handle

    def draw(self, sampler, logits, position):
        if self.library.qwen_sample(sampler, logits.ctypes.data_as(ctypes.c_void_p), ctypes.c_int64(position)) < 0:
            raise SystemExit(self.library.qwen_last_error().decode())


def timed(run):
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--history", type=int, default=4096)
    args = parser.parse_args()
    runtime = Runtime(args.model, args.threads)
    generator = np.random.default_rng(41)
    # Phrases that come again, as in a text.
    phrases = generator.integers(0, 30000, (64, 12))
    history = phrases[generator.integers(0, 64, args.history // 12 + 1)].reshape(-1)[:args.history].tolist()
    peaked = (generator.standard_normal(runtime.vocab) * 2).astype(np.float32)
    peaked[generator.integers(0, runtime.vocab, 40)] += np.linspace(8, 14, 40, dtype=np.float32)
    flat = np.zeros(runtime.vocab, np.float32)
    steps = []
    samplers = {name: runtime.sampler(options, history) for name, options in {"": {}, **SAMPLERS}.items()}
    times = {(name, row): [] for name in samplers for row in (0, 1)}
    for round_ in range(args.rounds):
        for name, sampler in samplers.items():
            steps.append(timed(lambda: runtime.forward(flat)))
            for row, logits in enumerate((flat, peaked)):
                times[name, row].append(timed(lambda: runtime.draw(sampler, logits, runtime.position)))
    step = min(steps)
    least = {key: min(values) for key, values in times.items()}
    print(f"A step takes {step * 1e3:.2f} ms; a draw without samplers {least['', 0] * 1e6:.0f} us from the model's logits, "
          f"{least['', 1] * 1e6:.0f} us from peaked ones ({runtime.vocab} tokens).\n")
    print("| sampler | flat, us | of a step | peaked, us | of a step |\n|---|---|---|---|---|")
    for name in SAMPLERS:
        cells = [name]
        for row in (0, 1):
            cost = least[name, row] - least["", row]
            cells += [f"{cost * 1e6:.0f}", f"{cost / step * 100:.1f}%"]
        print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()

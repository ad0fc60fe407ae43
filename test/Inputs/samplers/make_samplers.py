#!/usr/bin/env python3
"""Records which tokens transformers and llama.cpp keep of rows of logits: test/Inputs/samplers/kept.bin.

  python3 -m venv build/samplers && build/samplers/bin/pip install numpy==2.4.6 torch==2.15.0 transformers==5.23.0
  build/samplers/bin/pip download --no-deps --no-binary :all: llama-cpp-python==0.3.36 && tar xf llama_cpp_python-0.3.36.tar.gz
  cd llama_cpp_python-0.3.36/vendor/llama.cpp
  printf '#include "llama-impl.h"\\n#include "llama-vocab.h"\\nvoid llama_log_internal(ggml_log_level, const char *, ...) {}\\n
      struct llama_vocab::impl {};\\nllama_vocab::llama_vocab() {}\\nllama_vocab::~llama_vocab() {}\\n' > missing.cpp
  g++ -std=c++17 -O2 -DNDEBUG -fPIC -shared -Iinclude -Isrc -Iggml/include src/llama-sampler.cpp missing.cpp -o llama-sampler.so
  build/samplers/bin/python test/Inputs/samplers/make_samplers.py llama-sampler.so

llama.cpp's samplers are in one file. Here they need nothing else of llama.cpp but a vocabulary without tokens. cases.json has the sizes
of rows and the options; test/Unit/SamplersTest.cpp makes the same rows. kept.bin has, for each sampler and row, two little-endian words:
the number of kept tokens, and a hash of those that do not tie with a token that is not kept. A row whose decision is so close that
rounding may change it has the number 0 (see `Decision.close`); if nothing is left, the hash is 1. llama.cpp computes in float, so its
definitions are computed and recorded in double, and the rows are counted in which it differs: 6 of 100 rows of 151,936 tokens for
top-n-sigma, and 147 of 8,000 rows of 320 for Mirostat 1: these are so flat that its k exceeds every int, and it keeps one token.

Samplers that change logits are recorded by what min-p then keeps; each row has a prompt and an answer before it. draws.json has the
probabilities that they give one of these rows. Mirostat is recorded after three draws with the random numbers of docs/numerics.md.
"""
import argparse
import collections
import contextlib
import ctypes
import itertools
import json
import math
import os
import pathlib

import numpy as np
import torch
from transformers.generation.logits_process import (
    EpsilonLogitsWarper, EtaLogitsWarper, ExponentialDecayLengthPenalty, MinNewTokensLengthLogitsProcessor, NoBadWordsLogitsProcessor,
    NoRepeatNGramLogitsProcessor, RepetitionPenaltyLogitsProcessor, TopHLogitsWarper, TypicalLogitsWarper)

FOLDER = pathlib.Path(__file__).resolve().parent
# So that EtaLogitsWarper keeps its epsilon in double.
torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)


def philox4x32(counter, key):
    """Philox4x32-10 (Salmon et al. 2011) of arrays of counters: four arrays of u64 that hold 32-bit words."""
    mask = np.uint64(0xFFFFFFFF)
    counter = [np.asarray(word, np.uint64) for word in counter]
    for number in range(10):
        keys = [np.uint64((word + number * weyl) & 0xFFFFFFFF) for word, weyl in zip(key, (0x9E3779B9, 0xBB67AE85))]
        first, second = np.uint64(0xD2511F53) * counter[0], np.uint64(0xCD9E8D57) * counter[2]
        high = np.uint64(32)
        counter = [(second >> high) ^ counter[1] ^ keys[0], second & mask, (first >> high) ^ counter[3] ^ keys[1], first & mask]
    return counter


# The test vectors of Random123.
for counter, key, words in (
    ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    ([0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344], [0xA4093822, 0x299F31D0], [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]),
):
    assert [int(word) for word in philox4x32(counter, key)] == words


def make_row(row, tokens):
    """The logits [tokens] of a row, with the same bits as SamplersTest.cpp has: of 16 rows, 6 are peaked, 3 flat, 3 have ties, 3 have
    -infinity, and 1 has one token left."""
    key, kind = (0x726F7773, row), row % 16  # The key is "rows" in ASCII.
    setting = [int(word) for word in philox4x32([0, 1, 0, 0], key)]
    words = [word.astype(np.int64) for word in philox4x32([np.arange(tokens), *np.zeros((3, tokens), int)], key)]
    # The sum of four numbers is about normal. One of 64 tokens is more likely.
    units = sum(word >> 12 for word in words) - (1 << 21)
    if 6 <= kind < 9:
        units >>= 1 + setting[1] % 4
    else:
        units += np.where(words[0] & 63 == 0, (words[1] & 4095) << 9, 0)
        units = (units * (1 + setting[0] % 8)) >> 2
    if 9 <= kind < 12:
        step = 15 + setting[2] % 4
        units = units >> step << step
        words[3][:] = 0
    # One addition that rounds. Small logits have more bits, so that differences round, too.
    logits = (units * 2.0**-18).astype(np.float32) + ((words[3] & 1023) * 2.0**-30).astype(np.float32)
    if kind >= 12:
        kept = (words[2] & 4095) < (4096 >> setting[3] % 12) if kind < 15 else np.zeros(tokens, bool)
        kept[setting[1] % tokens] = True
        logits[~kept] = -np.inf
    return logits


class History:
    """The prompt and the answer before a row: few of its likeliest tokens, so that there are repeats. The two likeliest end the answer."""

    def __init__(self, row, logits):
        key = (0x726F7773, row)
        setting = [int(word) for word in philox4x32([0, 2, 0, 0], key)]
        likeliest = np.argsort(-logits, kind="stable")[: 2 + setting[0] % 11]
        count = 1 + setting[1] % 64
        words = philox4x32([np.arange(count), np.full(count, 3), *np.zeros((2, count), int)], key)[0].astype(np.int64)
        self.ids = likeliest[words % len(likeliest)].tolist()
        self.prompt = setting[2] % (count + 1)
        self.ends = likeliest[:2].tolist()
        # Sequences of tokens that DRY does not look past, in every second row, and that the answer must not contain.
        self.breakers = [[self.ids[0]], [*self.ends]] if row % 2 else []
        self.bad_words = [[*self.ids[-1:], self.ends[0]], [*self.ids[-2:], self.ends[1]], self.ids[:3]]
        if row % 4:
            self.bad_words.append(self.ends[1:])


class Decision:
    """What a sampler keeps of a row of logits in double, with what it compares."""

    def __init__(self, logits, number=0):
        self.logits, self.close, self.number = logits, False, number
        self.finite = logits > -np.inf
        shifted = np.exp(logits - logits.max())
        self.total = shifted.sum()
        self.p = shifted / self.total
        self.log_p = logits - logits.max() - math.log(self.total)
        self.entropy = -(self.p[self.finite] * self.log_p[self.finite]).sum()

    def compare(self, values, threshold):
        """Marks the row as close if a value is within 1e-6 of the threshold, and within 1e-5 of the threshold's size: small
        probabilities are compared as exactly as large ones."""
        self.close |= bool((np.abs(values - threshold) < min(1e-6, 1e-5 * abs(threshold))).any())


def transformers_keeps(warper, logits):
    return (warper(None, torch.from_numpy(logits)[None])[0] > -math.inf).numpy()


def typical_p(setting, row):
    mass = setting["typical_p"]
    distance = np.abs(row.log_p + row.entropy)[row.finite]
    order = np.argsort(distance, kind="stable")
    sums = np.cumsum(row.p[row.finite][order])
    ordered, logits = distance[order], row.logits[row.finite][order]
    # Tokens with the same logit are kept together.
    ends = np.append(np.nonzero(logits[1:] != logits[:-1])[0], len(logits) - 1)
    last = ends[min(np.searchsorted(sums[ends], mass), len(ends) - 1)]
    row.compare(sums[ends[:-1]], mass)
    # Logits order the tokens on one side of the entropy. Rounding may exchange only tokens of different sides.
    side = row.log_p[row.finite][order] + row.entropy > 0
    if last < len(order) - 1:
        row.close |= bool((np.abs(ordered[side != side[last]] - ordered[last]) < 1e-6).any())
        row.close |= bool((np.abs(ordered[side != side[last + 1]] - ordered[last + 1]) < 1e-6).any())
    return transformers_keeps(TypicalLogitsWarper(mass), row.logits)


def epsilon_cutoff(setting, row):
    epsilon = setting["epsilon_cutoff"]
    row.compare(row.p[row.logits < row.logits.max()], epsilon)
    return transformers_keeps(EpsilonLogitsWarper(epsilon), row.logits)


def eta_cutoff(setting, row):
    epsilon = setting["eta_cutoff"]
    row.compare(row.p[row.logits < row.logits.max()], min(epsilon, math.sqrt(epsilon) * math.exp(-row.entropy)))
    return transformers_keeps(EtaLogitsWarper(epsilon), row.logits)


def top_h(setting, row):
    share = setting["top_h"]
    best = np.sort(row.logits[row.finite])[::-1][:100]
    p = np.exp(best - best[0])
    p /= p.sum()
    sums = np.cumsum(-p * np.log(p))
    # The first token is always kept.
    row.close |= bool((np.abs(sums[1:] - share * sums[-1]) < 1e-6).any())
    return transformers_keeps(TopHLogitsWarper(share), row.logits)


def top_n_sigma(setting, row):
    n = setting["top_n_sigma"]
    finite = row.logits[row.finite]
    threshold = finite.max() - n * finite.std()
    # The largest is always kept.
    row.close |= bool((np.abs(finite[finite < finite.max()] - threshold) < 1e-6).any())
    kept = row.logits >= threshold
    return kept, LLAMA.keeps("top_n_sigma", row.logits, n)


def xtc_threshold(setting, row):
    threshold = setting["xtc_threshold"]
    row.compare(row.p, threshold)
    likely = row.p >= threshold
    kept = row.finite.copy()
    if likely.sum() >= 2:
        order = np.argsort(-row.logits, kind="stable")
        kept[order[: likely.sum() - 1]] = False
    return kept, LLAMA.keeps("xtc", row.logits, 1, threshold, 0, 0)


class Mirostat:
    """Mirostat in double. mu begins at 2 tau."""

    def __init__(self, setting, row):
        self.version, self.eta, self.tau, self.row = setting["mirostat"], setting["mirostat_eta"], setting["mirostat_tau"], row
        self.mu = 2 * self.tau
        self.order = np.argsort(-row.logits, kind="stable")[: row.finite.sum()]
        self.sorted = row.logits[self.order]

    def kept(self):
        """The number of tokens that are kept, and whether rounding may change it."""
        left, close = len(self.order), False
        if self.version == 2:
            p, threshold = self.row.p[self.order], 2.0**-self.mu
            close = bool((np.abs(p[1:] - threshold) < min(1e-6, 1e-5 * threshold)).any())
            return max(int((p >= threshold).sum()), 1), close
        if left == 1:
            return 1, False
        t = np.log(np.arange(2, min(left, 100) + 1) / np.arange(1, min(left, 100)))
        s = (t * -np.diff(self.sorted[:100])).sum() / (t * t).sum()
        if s <= 0 or s == 1:
            return left, -1e-6 < s < 0
        k = ((s - 1) * 2.0**self.mu / (1 - len(self.row.logits) ** (1 - s))) ** (1 / s)
        return min(max(int(k), 1), left), (k < left + 1 and abs(k - round(k)) < 1e-6 * k) or s < 1e-6 or abs(s - 1) < 1e-6

    def learn(self, place):
        """From the draw of a token that is kept."""
        weights = np.exp(self.sorted[: self.kept()[0]] - self.sorted[0])
        self.mu -= self.eta * (math.log2(weights.sum() / weights[place]) - self.tau)


def random_number(seed, position):
    words = [int(word) for word in philox4x32([0, 0, position, 0], (seed & 0xFFFFFFFF, seed >> 32))]
    return (words[0] << 32 | words[1]) // 2**11 * 2.0**-53


def mirostat(setting, row):
    state = Mirostat(setting, row)
    for position in range(3):
        size, close = state.kept()
        sums = np.cumsum(np.exp(state.sorted[:size] - state.sorted[0]))
        threshold = random_number(row.number, position) * sums[-1]
        row.close |= close or bool((np.abs(sums - threshold) < 1e-6 * sums[-1]).any())
        state.learn(np.searchsorted(sums[:-1], threshold, side="right"))
    size, close = state.kept()
    row.close |= close
    kept = np.zeros(len(row.logits), bool)
    kept[state.order[:size]] = True
    return kept, kept if row.close or llama_agrees(setting, row) else ~kept


def llama_agrees(setting, row):
    """Whether llama.cpp keeps as many tokens as the definition after each of its own draws. True, if that is a close decision."""
    state = Mirostat(setting, row)
    values = row.number, state.tau, state.eta
    made = ("mirostat", len(row.logits), *values, 100) if state.version == 1 else ("mirostat_v2", *values)
    with LLAMA.sampler(*made) as sampler:
        for _ in range(4):
            size, close = state.kept()
            left, selected = sampler.apply(row.logits)
            if close or size != len(left):
                return close
            # Of tokens that tie, llama.cpp may keep others.
            state.learn(np.searchsorted(-state.sorted, -left["logit"][selected].astype(np.float64)))
    return True


mirostat_2 = mirostat


# ---------------------------------------------------------------------------------------------------------------------
# Samplers that change logits
# ---------------------------------------------------------------------------------------------------------------------
def processed(processor, row, history):
    return processor(torch.tensor([history.ids]), torch.from_numpy(row.logits.copy())[None])[0].numpy()


def repetition_penalty(setting, row, history):
    return processed(RepetitionPenaltyLogitsProcessor(float(setting["repetition_penalty"])), row, history)


def no_repeat_ngram_size(setting, row, history):
    return processed(NoRepeatNGramLogitsProcessor(setting["no_repeat_ngram_size"]), row, history)


def exponential_decay_factor(setting, row, history):
    pair = setting["exponential_decay_start"], setting["exponential_decay_factor"]
    return processed(ExponentialDecayLengthPenalty(pair, history.ends, history.prompt), row, history)


def min_tokens(setting, row, history):
    return processed(MinNewTokensLengthLogitsProcessor(history.prompt, setting["min_tokens"], history.ends), row, history)


def frequency_penalty(setting, row, history):
    counts = np.bincount(history.ids[history.prompt:], minlength=len(row.logits))
    frequency, presence = setting["frequency_penalty"], setting["presence_penalty"]
    logits = row.logits - counts * frequency - (counts > 0) * presence
    with LLAMA.sampler("penalties", len(logits), 1000, 1, frequency, presence, accepted=history.ids[history.prompt:]) as sampler:
        return logits, sampler.change(row.logits)


def dynatemp_range(setting, row, history):
    temperature, span, exponent = setting["temperature"], setting["dynatemp_range"], setting["dynatemp_exponent"]
    left = row.finite.sum()
    share = min(row.entropy / math.log(left), 1) if left > 1 and row.entropy > 0 else 0
    least = max(0, temperature - span)
    logits = row.logits / (least + (temperature + span - least) * share**exponent)
    with LLAMA.sampler("temp_ext", temperature, span, exponent) as sampler:
        return logits, sampler.change(row.logits) if left > 1 else logits


def dry_multiplier(setting, row, history):
    multiplier, base, allowed, last = (setting[f"dry_{name}"] for name in ("multiplier", "base", "allowed_length", "penalty_last_n"))
    ids = history.ids[-last:]
    # Nothing before the latest breaker is looked at.
    limit = next((i - len(breaker) + 1 for i in range(len(ids)) for breaker in sorted(history.breakers, key=len, reverse=True)
                  if len(breaker) <= i + 1 and ids[len(ids) - 1 - i:len(ids) - 1 - i + len(breaker)] == breaker), len(ids))
    longest = collections.Counter()
    for end in range(1, len(ids)):
        repeat = next((i for i in range(end) if ids[end - 1 - i] != ids[-1 - i]), end)
        longest[ids[end]] = max(longest[ids[end]], min(repeat, limit))
    logits = row.logits.copy()
    for token, repeat in longest.items():
        if repeat >= allowed and [token] not in history.breakers:
            logits[token] -= multiplier * base ** (repeat - allowed)
    arrays = [(ctypes.c_int32 * len(breaker))(*breaker) for breaker in history.breakers]
    vectors = (ctypes.c_void_p * (3 * len(arrays)))(*(pointer for array in arrays for pointer in pointers(array)))
    with LLAMA.sampler("dry", multiplier, base, allowed, last, (ctypes.c_void_p * 3)(*pointers(vectors)), accepted=history.ids) as sampler:
        return logits, sampler.change(row.logits)


def pointers(array):
    """The members of a std::vector."""
    begin = ctypes.addressof(array)
    return begin, begin + ctypes.sizeof(array), begin + ctypes.sizeof(array)


def bad_words(setting, row, history):
    # The class itself makes tensors of float and of the default.
    torch.set_default_dtype(torch.float32)
    logits = processed(NoBadWordsLogitsProcessor(history.bad_words), row, history)
    torch.set_default_dtype(torch.float64)
    return logits


def min_p(least, logits, row):
    """What min-p keeps of changed logits. Marks the row as close if rounding of the logits may change that."""
    most = logits.max()
    if most == -np.inf:
        return np.zeros(len(logits), bool)
    distance = logits[logits < most] - most - math.log(least)
    row.close |= bool((np.abs(distance) < 1e-5 * max(1, abs(most) / 20)).any())
    return logits >= most + math.log(least)


def keep_processed(case, setting, row, history):
    """What is kept, by llama.cpp's class, too, if that is the truth."""
    changed = globals()[case["name"]](setting, row, history)
    if isinstance(changed, tuple):
        return tuple(min_p(setting["min_p"], logits, row) for logits in changed)
    return min_p(setting["min_p"], changed, row)


class Llama:
    """llama.cpp's samplers. They compute in float."""

    class Tokens(ctypes.Structure):
        _fields_ = [("data", ctypes.c_void_p), ("size", ctypes.c_size_t), ("selected", ctypes.c_int64), ("sorted", ctypes.c_bool)]

    TOKEN = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])
    INT, UINT, FLOAT, SIZE = ctypes.c_int32, ctypes.c_uint32, ctypes.c_float, ctypes.c_size_t
    TYPES = {"top_n_sigma": [FLOAT], "xtc": [FLOAT, FLOAT, SIZE, UINT], "mirostat": [INT, UINT, FLOAT, FLOAT, INT],
             "mirostat_v2": [UINT, FLOAT, FLOAT], "penalties": [INT, INT, FLOAT, FLOAT, FLOAT],
             "dry": [FLOAT, FLOAT, INT, INT, ctypes.c_void_p], "temp_ext": [FLOAT, FLOAT, FLOAT]}
    # A function of C++ that takes a std::vector<std::vector<llama_token>>.
    NAMES = {"dry": "_Z30llama_sampler_init_dry_testingffiiRKSt6vectorIS_IiSaIiEESaIS1_EE"}

    def __init__(self, path):
        # ctypes itself would look for all symbols at once.
        libc = ctypes.CDLL(None)
        libc.dlopen.restype, libc.dlopen.argtypes = ctypes.c_void_p, (ctypes.c_char_p, ctypes.c_int)
        handle = libc.dlopen(os.path.abspath(path).encode(), os.RTLD_LAZY)
        assert handle, f"cannot load {path}"
        self.library = ctypes.CDLL(path, handle=handle)

    @contextlib.contextmanager
    def sampler(self, name, *values, accepted=()):
        """A sampler that has seen some tokens."""
        make = self.library[self.NAMES.get(name, f"llama_sampler_init_{name}")]
        make.restype, make.argtypes = ctypes.c_void_p, self.TYPES[name]
        self.handle = ctypes.c_void_p(make(*values))
        for token in accepted:
            self.library.llama_sampler_accept(self.handle, ctypes.c_int32(token))
        yield self
        self.library.llama_sampler_free(self.handle)

    def apply(self, logits):
        """The tokens that are left of those with a finite logit, and the place of the one that is drawn."""
        tokens = np.zeros((logits > -np.inf).sum(), self.TOKEN)
        tokens["id"] = np.nonzero(logits > -np.inf)[0]
        tokens["logit"] = logits[tokens["id"]]
        array = self.Tokens(tokens.ctypes.data, len(tokens), -1, False)
        self.library.llama_sampler_apply(self.handle, ctypes.byref(array))
        begin = (array.data - tokens.ctypes.data) // self.TOKEN.itemsize
        left = tokens[begin : begin + array.size]
        return left[left["logit"] > -np.inf], array.selected

    def change(self, logits):
        left, _ = self.apply(logits)
        changed = np.full(len(logits), -np.inf)
        changed[left["id"]] = left["logit"]
        return changed

    def keeps(self, name, logits, *values):
        with self.sampler(name, *values) as sampler:
            return sampler.change(logits) > -np.inf


def hash_of(kept, logits):
    """The sum of MurmurHash3's finalizers of the kept ids, in 32 bits, without those whose logit a token has that is not kept. Without
    logits, of all kept ids."""
    if logits is not None:
        kept = kept & ~np.isin(logits, logits[~kept])
    h = np.nonzero(kept)[0].astype(np.uint64)
    mask = np.uint64(0xFFFFFFFF)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        h = ((h ^ (h >> np.uint64(shift))) * np.uint64(factor)) & mask
    return int(h.sum()) & 0xFFFFFFFF


def record_draws(case):
    """The probabilities of the tokens of a row of which the sampler keeps some, and which it changes."""
    setting = case["settings"][2]
    for number in itertools.count():
        logits = make_row(number, 320).astype(np.float64)
        row, history = Decision(logits, number), History(number, logits)
        changed = globals()[case["name"]](setting, row, history)
        changed = changed[0] if isinstance(changed, tuple) else changed
        kept = min_p(setting["min_p"], changed, row)
        if not row.close and not np.array_equal(changed, logits) and 8 <= kept.sum() < 320:
            p = np.where(kept, np.exp(changed - changed.max()), 0)
            return dict(name=case["name"], row=number, setting=setting, probabilities=(p / p.sum()).tolist())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", help="llama.cpp's samplers as a shared library")
    global LLAMA
    LLAMA = Llama(parser.parse_args().library)
    cases = json.loads((FOLDER / "cases.json").read_text())
    record = [[] for _ in cases["samplers"]]
    left_out, differ = collections.Counter(), collections.Counter()
    number = 0
    for size in cases["sizes"]:
        for number in range(number, number + size["rows"]):
            logits = make_row(number, size["tokens"])
            history = History(number, logits)
            for case, rows in zip(cases["samplers"], record):
                row = Decision(logits.astype(np.float64), number)
                setting = case["settings"][number // 16 % len(case["settings"])]
                changes = "min_p" in setting
                kept = keep_processed(case, setting, row, history) if changes else globals()[case["name"]](setting, row)
                key = case["name"], size["tokens"]
                ties = None if changes else logits
                if isinstance(kept, tuple):
                    kept, llama = kept
                    differ[key] += not row.close and (kept.sum() != llama.sum() or hash_of(kept, ties) != hash_of(llama, ties))
                left_out[key] += row.close
                rows.append((0, 0) if row.close else (int(kept.sum()), hash_of(kept, ties)) if kept.any() else (0, 1))
        number += 1
    (FOLDER / "kept.bin").write_bytes(np.array(record, "<u4").tobytes())
    draws = [record_draws(case) for case in cases["samplers"] if "min_p" in case["settings"][2]]
    (FOLDER / "draws.json").write_text("[\n" + ",\n".join(map(json.dumps, draws)) + "\n]\n")
    for size in cases["sizes"]:
        for case in cases["samplers"]:
            key = case["name"], size["tokens"]
            print(*key, f"rows {size['rows']}, left out {left_out[key]}, llama.cpp's float differs {differ[key]}")


if __name__ == "__main__":
    main()

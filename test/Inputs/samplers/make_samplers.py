#!/usr/bin/env python3
"""Records which tokens transformers and llama.cpp keep of rows of logits: test/Inputs/samplers/kept.bin.

  python3 -m venv build/samplers && build/samplers/bin/pip install numpy==2.4.6 torch==2.15.0 transformers==5.23.0
  build/samplers/bin/pip download --no-deps --no-binary :all: llama-cpp-python==0.3.36 && tar xf llama_cpp_python-0.3.36.tar.gz
  cd llama_cpp_python-0.3.36/vendor/llama.cpp
  g++ -std=c++17 -O2 -DNDEBUG -fPIC -shared -Iinclude -Isrc -Iggml/include src/llama-sampler.cpp -o llama-sampler.so
  build/samplers/bin/python test/Inputs/samplers/make_samplers.py llama-sampler.so

llama.cpp's samplers are in one file, which needs nothing of the rest of llama.cpp that they call. cases.json has the sizes of rows and
the values of options; test/Unit/SamplersTest.cpp makes the same rows. kept.bin has, for each sampler and row, two little-endian words:
the number of kept tokens, and a hash of those that do not tie with a token that is not kept. A row whose decision is so close that
rounding may change it has the number 0 (see `Decision.close`). llama.cpp sums in float, so its definitions are computed and recorded in
double, and the rows are counted in which it differs: 6 of 100 rows of 151,936 tokens for top-n-sigma, no others.
"""
import argparse
import collections
import ctypes
import json
import math
import os
import pathlib

import numpy as np
import torch
from transformers.generation.logits_process import (EpsilonLogitsWarper, EtaLogitsWarper, TopHLogitsWarper,
                                                    TypicalLogitsWarper)

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


class Decision:
    """What a sampler keeps of a row of logits in double, with what it compares."""

    def __init__(self, logits):
        self.logits, self.close = logits, False
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


def typical_p(mass, row):
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


def epsilon_cutoff(epsilon, row):
    row.compare(row.p[row.logits < row.logits.max()], epsilon)
    return transformers_keeps(EpsilonLogitsWarper(epsilon), row.logits)


def eta_cutoff(epsilon, row):
    row.compare(row.p[row.logits < row.logits.max()], min(epsilon, math.sqrt(epsilon) * math.exp(-row.entropy)))
    return transformers_keeps(EtaLogitsWarper(epsilon), row.logits)


def top_h(share, row):
    best = np.sort(row.logits[row.finite])[::-1][:100]
    p = np.exp(best - best[0])
    p /= p.sum()
    sums = np.cumsum(-p * np.log(p))
    # The first token is always kept.
    row.close |= bool((np.abs(sums[1:] - share * sums[-1]) < 1e-6).any())
    return transformers_keeps(TopHLogitsWarper(share), row.logits)


def top_n_sigma(n, row):
    finite = row.logits[row.finite]
    threshold = finite.max() - n * finite.std()
    # The largest is always kept.
    row.close |= bool((np.abs(finite[finite < finite.max()] - threshold) < 1e-6).any())
    kept = row.logits >= threshold
    return kept, LLAMA.keeps(LLAMA.llama_sampler_init_top_n_sigma(n), row.logits)


def xtc_threshold(threshold, row):
    row.compare(row.p, threshold)
    likely = row.p >= threshold
    kept = row.finite.copy()
    if likely.sum() >= 2:
        order = np.argsort(-row.logits, kind="stable")
        kept[order[: likely.sum() - 1]] = False
    return kept, LLAMA.keeps(LLAMA.llama_sampler_init_xtc(1, threshold, 0, 0), row.logits)


class Llama:
    """llama.cpp's samplers. They compute in float."""

    class Tokens(ctypes.Structure):
        _fields_ = [("data", ctypes.c_void_p), ("size", ctypes.c_size_t), ("selected", ctypes.c_int64), ("sorted", ctypes.c_bool)]

    TOKEN = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])

    def __init__(self, path):
        # ctypes itself would look for all symbols at once.
        libc = ctypes.CDLL(None)
        libc.dlopen.restype, libc.dlopen.argtypes = ctypes.c_void_p, (ctypes.c_char_p, ctypes.c_int)
        handle = libc.dlopen(os.path.abspath(path).encode(), os.RTLD_LAZY)
        assert handle, f"cannot load {path}"
        self.library = ctypes.CDLL(path, handle=handle)
        for name, types in (("top_n_sigma", [ctypes.c_float]),
                            ("xtc", [ctypes.c_float, ctypes.c_float, ctypes.c_size_t, ctypes.c_uint32])):
            function = self.library[f"llama_sampler_init_{name}"]
            function.restype, function.argtypes = ctypes.c_void_p, types
            setattr(self, f"llama_sampler_init_{name}", function)

    def keeps(self, sampler, logits):
        tokens = np.zeros(len(logits), self.TOKEN)
        tokens["id"], tokens["logit"] = np.arange(len(logits)), logits
        array = self.Tokens(tokens.ctypes.data, len(tokens), -1, False)
        self.library.llama_sampler_apply(ctypes.c_void_p(sampler), ctypes.byref(array))
        self.library.llama_sampler_free(ctypes.c_void_p(sampler))
        begin = (array.data - tokens.ctypes.data) // self.TOKEN.itemsize
        left = tokens[begin : begin + array.size]
        kept = np.zeros(len(logits), bool)
        kept[left["id"][left["logit"] > -np.inf]] = True
        return kept


def hash_of(kept, logits):
    """The sum of MurmurHash3's finalizers of the kept ids, in 32 bits, without those whose logit a token has that is not kept."""
    h = np.nonzero(kept & ~np.isin(logits, logits[~kept]))[0].astype(np.uint64)
    mask = np.uint64(0xFFFFFFFF)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        h = ((h ^ (h >> np.uint64(shift))) * np.uint64(factor)) & mask
    return int(h.sum()) & 0xFFFFFFFF


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
            for case, rows in zip(cases["samplers"], record):
                row = Decision(logits.astype(np.float64))
                kept = globals()[case["option"]](case["values"][number // 16 % len(case["values"])], row)
                key = case["option"], size["tokens"]
                if isinstance(kept, tuple):
                    kept, llama = kept
                    differ[key] += not row.close and (kept.sum() != llama.sum() or hash_of(kept, logits) != hash_of(llama, logits))
                left_out[key] += row.close
                rows.append((0, 0) if row.close else (int(kept.sum()), hash_of(kept, logits)))
        number += 1
    (FOLDER / "kept.bin").write_bytes(np.array(record, "<u4").tobytes())
    for size in cases["sizes"]:
        for case in cases["samplers"]:
            key = case["option"], size["tokens"]
            print(*key, f"rows {size['rows']}, left out {left_out[key]}, llama.cpp's float differs {differ[key]}")


if __name__ == "__main__":
    main()

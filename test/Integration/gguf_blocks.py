"""Compares the project's encoders with gguf's, byte for byte, on random blocks.

gguf_blocks.py ENCODE_BLOCKS q4_0|q4_1|q5_0|q5_1|q8_0|iq4_nl [BLOCKS]: half of the blocks have f32 values, half bf16 values. gguf's Python
has no encoder of iq4_nl; here is ggml's.
"""
import os
import subprocess
import sys

import gguf
import numpy as np

CHUNK = 50000


def blocks(rng, count, bf16):
    scale = np.exp2(rng.uniform(-20, 8, (count, 1)))
    x = (rng.standard_normal((count, 32)) * scale).astype(np.float32)
    if bf16:
        x = (x.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    # Blocks with zeros, and blocks that have their largest magnitude with both signs.
    x[::97, 5:] = 0
    x[1::97, 7] = -x[1::97, 3]
    return x


def nearest(x):
    """The codes of the codebook's values nearest to x; of two that are as near, the greater."""
    codebook = np.array(gguf.quants.IQ4_NL.kvalues, np.float32)
    return np.searchsorted((codebook[:-1] + codebook[1:]) / 2, x, side="right").astype(np.uint8), codebook


def iq4_nl(x):
    """quantize_iq4_nl of ggml without an importance matrix, each step rounded to f32."""
    largest = np.take_along_axis(x, np.abs(x).argmax(1)[:, None], 1)[:, 0]
    with np.errstate(all="ignore"):
        inverses = [1 / (-largest / np.float32(-127))] + [np.float32(i - 127) / largest for i in range(-7, 8)]
        best, scale = np.zeros_like(largest), np.zeros_like(largest)
        for inverse in inverses:
            codes, codebook = nearest(x * inverse[:, None])
            q, qx, qq = codebook[codes], np.zeros_like(largest), np.zeros_like(largest)
            for i in range(32):
                qx += x[:, i] * x[:, i] * q[:, i] * x[:, i]
                qq += x[:, i] * x[:, i] * q[:, i] * q[:, i]
            better = (qq > 0) & (qx * qx > best * qq)
            scale = np.where(better, qx / qq, scale)
            best = np.where(better, scale * qx, best)
        scale[np.abs(largest) < 1e-15] = 0
        codes, _ = nearest(x * np.where(scale == 0, np.float32(0), 1 / scale)[:, None])
    packed = codes[:, :16] | codes[:, 16:] << np.uint8(4)
    return np.concatenate([scale.astype(np.float16)[:, None].view(np.uint8), packed], 1)


def main():
    program = sys.argv[1]
    name = sys.argv[2]
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 1000000 if "QWEN_TEST_FULL" in os.environ else 100000
    kind = gguf.GGMLQuantizationType[name.upper()]
    rng = np.random.default_rng(1)
    for begin in range(0, count, CHUNK):
        x = blocks(rng, min(CHUNK, count - begin), bf16=begin // CHUNK % 2 == 1)
        got = subprocess.run([program, name], input=x.tobytes(), stdout=subprocess.PIPE, check=True).stdout
        want = iq4_nl(x) if name == "iq4_nl" else gguf.quants.quantize(x, kind)
        got = np.frombuffer(got, np.uint8).reshape(-1, want.shape[1])
        if got.shape != want.shape:
            sys.exit(f"{len(got)} blocks came back when {len(want)} were sent")
        wrong = np.flatnonzero((got != want).any(1))
        if len(wrong):
            i = wrong[0]
            sys.exit(f"{len(wrong)} blocks differ; the first is block {begin + i}:\n{x[i]}\n{got[i]}\n{want[i]}")
    print(f"{count} blocks are equal")


if __name__ == "__main__":
    main()

"""Compares the project's q4_0 and q8_0 encoders with gguf's, byte for byte, on random blocks.

gguf_blocks.py ENCODE_BLOCKS q4_0|q8_0 [BLOCKS]: half of the blocks have f32 values, half bf16 values.
"""
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


def main():
    program = sys.argv[1]
    name = sys.argv[2]
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 1000000
    kind = gguf.GGMLQuantizationType[name.upper()]
    size = {"q4_0": 18, "q8_0": 34}[name]
    rng = np.random.default_rng(1)
    for begin in range(0, count, CHUNK):
        x = blocks(rng, min(CHUNK, count - begin), bf16=begin // CHUNK % 2 == 1)
        got = subprocess.run([program, name], input=x.tobytes(), stdout=subprocess.PIPE, check=True).stdout
        want = gguf.quants.quantize(x, kind)
        got = np.frombuffer(got, np.uint8).reshape(-1, size)
        if got.shape != want.shape:
            sys.exit(f"{len(got)} blocks came back when {len(want)} were sent")
        wrong = np.flatnonzero((got != want).any(1))
        if len(wrong):
            i = wrong[0]
            sys.exit(f"{len(wrong)} blocks differ; the first is block {begin + i}:\n{x[i]}\n{got[i]}\n{want[i]}")
    print(f"{count} blocks are equal")


if __name__ == "__main__":
    main()

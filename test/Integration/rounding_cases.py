"""Rows of weights at the edges of their formats, for the tests of the rules in Python."""
import numpy as np


def rows(columns, rng, most=65504):
    """[rows, columns] in f32 up to `most`: random rows of many sizes, of f32 and of values that bf16 holds, zeros, subnormals, ties and extremes."""
    scale = np.float32(2) ** rng.integers(-30, 12, (64, 1)).astype(np.float32)
    random = rng.standard_normal((64, columns), np.float32) * scale
    short = (random.view(np.uint32) & 0xffff0000).view(np.float32)
    wide = rng.standard_normal((16, columns)).astype(np.float32) * np.float32(2) ** rng.integers(-20, 10, (16, columns)).astype(np.float32)
    # Few different values: ties of the largest, with both signs, and ties of roundings.
    ties = rng.integers(-8, 9, (32, columns)).astype(np.float32) / 16
    signed = np.where(rng.random((16, columns)) < 0.5, np.float32(-1), np.float32(1)) * np.float32(0.75)
    one_sided = abs(random[:16]) * np.where(np.arange(16) % 2, np.float32(-1), np.float32(1))[:, None]
    sparse = np.where(rng.random((16, columns)) < 0.1, random[:16], np.float32(0))
    zeros = np.zeros((2, columns), np.float32)
    zeros[1, ::3] = -0.0
    subnormal = rng.integers(-2**20, 2**20, (16, columns)).astype(np.int32)
    tiny = (abs(subnormal).astype(np.uint32) | np.where(subnormal < 0, np.uint32(1 << 31), np.uint32(0))).view(np.float32)
    small = tiny * np.float32(2) ** rng.integers(0, 30, (16, 1)).astype(np.float32)
    extreme = rng.choice(np.float32([-1, -0.5, 0, 0.25, 1]), (8, columns)).astype(np.float32) * np.float32(most)
    least = np.float32(np.finfo(np.float16).smallest_subnormal) * rng.integers(-20, 20, (8, columns)).astype(np.float32)
    return np.concatenate([random, short, wide, ties, signed, one_sided, sparse, zeros, tiny, small, extreme, least])


COLUMNS = (32, 96, 128, 160, 256, 416)

"""The rules of docs/numerics.md by operations that NumPy and PyTorch share, and the gradients that training takes in their place.

Arrays are NumPy's or PyTorch's, in f32. The results have the bits of `weights.quantize_rows`, on every device whose single operations
round as IEEE 754 says: each step below is one operation, and no compiler may join two of them. A divisor is always an array, because
PyTorch multiplies by the reciprocal of a number on a GPU.
"""
from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Callable
from typing import Any

Array = Any
# Values of activations that share a scale, and the magnitude below which all of them are zero.
ACTIVATION_BLOCK = 128
LEAST_ACTIVATION = 2.0**-100


def namespace(x: Array) -> Any:
    """The module of an array: numpy or torch."""
    return sys.modules[type(x).__module__.partition(".")[0]]


def half(x: Array) -> Array:
    """Rounded to f16, in f32."""
    return x.half().float() if hasattr(x, "half") else x.astype("float16").astype("float32")


def divided(x: Array, by: Array) -> Array:
    """x / by, rounded once."""
    return namespace(x).true_divide(x, by)


def constant(like: Array, value: float) -> Array:
    """An array with the shape of another one."""
    return namespace(like).full_like(like, value)


def quiet(x: Array) -> Any:
    """A context in which NumPy says nothing of divisions by zero, which the rules allow."""
    return sys.modules["numpy"].errstate(all="ignore") if namespace(x).__name__ == "numpy" else contextlib.nullcontext()


def blocks_of(x: Array, size: int, fill: Callable[[Array, int], Array]) -> Array:
    """[..., columns] as [..., blocks, size]. `fill(x, count)` makes what is missing at the end of a row."""
    missing = -x.shape[-1] % size
    if missing:
        x = namespace(x).concatenate([x, fill(x, missing)], -1)
    return x.reshape(*x.shape[:-1], -1, size)


def zeros(x: Array, count: int) -> Array:
    """`count` zeros behind each row."""
    xp = namespace(x)
    return xp.broadcast_to(xp.zeros_like(x[..., :1]), (*x.shape[:-1], count))


def last(x: Array, count: int) -> Array:
    """The last value of each row, `count` times."""
    return x[..., -1:] + zeros(x, count)


def rows_of(blocks: Array, columns: int) -> Array:
    """The contrary of blocks_of."""
    return blocks.reshape(*blocks.shape[:-2], -1)[..., :columns]


def _most(x: Array) -> Array:
    return namespace(x).amax(x, axis=-1, keepdims=True)


def _least(x: Array) -> Array:
    return namespace(x).amin(x, axis=-1, keepdims=True)


def _largest(x: Array) -> Array:
    """The value of largest magnitude of each block, the first of several."""
    xp = namespace(x)
    index = xp.argmax(abs(x), axis=-1, keepdims=True)
    return xp.take_along_dim(x, index, -1) if hasattr(xp, "take_along_dim") else xp.take_along_axis(x, index, -1)


def _inverse(d: Array) -> Array:
    return namespace(d).where(d == 0, constant(d, 0), divided(constant(d, 1), d))


def _code(x: Array, most: int) -> Array:
    """Rounded down to a code from 0 to `most`; NaN becomes 0."""
    xp = namespace(x)
    return xp.trunc(xp.clip(xp.where(x >= 0, x, constant(x, 0)), 0, most))


def _signed(x: Array, half_range: int) -> tuple[Array, Array]:
    d = divided(_largest(x), constant(_largest(x), -half_range))
    place = x * _inverse(d) + (half_range + 0.5)
    return (_code(place, 2 * half_range - 1) - half_range) * half(d), place < 2 * half_range


def _ranged(x: Array, top: int) -> tuple[Array, Array]:
    least = _least(x)
    span = _most(x) - least
    d = divided(span, constant(span, top))
    code = _code((x - least) * _inverse(d) + 0.5, top)
    return code * half(d) + half(least), x == x


def _zero(x: Array) -> tuple[Array, Array]:
    xp = namespace(x)
    least, most = xp.clip(_least(x), None, 0), xp.clip(_most(x), 0, None)
    d = divided(most - least, constant(least, 15))
    inverse = _inverse(d)
    inverse = xp.where(xp.isfinite(inverse), inverse, constant(inverse, 0))
    zero = half((constant(least, 0) - least) * inverse)
    return (_code(x * inverse + zero + 0.5, 15) - zero) * half(d), x == x


def _absolute(x: Array) -> tuple[Array, Array]:
    xp = namespace(x)
    most = _most(abs(x))
    d = divided(most, constant(most, 127))
    value = x * _inverse(d)
    # Half away from zero: the number below 1/2 does not reach the next integer from below a half.
    shifted = value + xp.copysign(constant(value, float.fromhex("0x1.fffffep-2")), value)
    code = xp.trunc(xp.where(abs(shifted) < 128, shifted, constant(shifted, 0)))
    # An integer has no negative zero.
    return (code + 0.0) * half(d), x == x


@dataclasses.dataclass(frozen=True)
class Rule:
    """A format whose values these rules give."""

    block: int
    """Weights that share a scale."""
    rounded: Callable[[Array], tuple[Array, Array]]
    """From blocks to their values, and to where a weight lies within the range of the integers."""
    least: int
    most: int
    """The integers."""
    has_minimum: bool = False
    fill: Callable[[Array, int], Array] = zeros
    on_grid: bool = True
    """Whether `qwen-opt` finds the integers in values of f32 (docs/import.md)."""


def _zero_rule(block: int) -> Rule:
    # A zero point of the rule need not be an integer, and then values lie on no grid.
    return Rule(block, _zero, 0, 15, on_grid=False)


def _signed_rule(block: int, half_range: int) -> Rule:
    return Rule(block, lambda x: _signed(x, half_range), -half_range, half_range - 1)


def _ranged_rule(block: int, top: int) -> Rule:
    return Rule(block, lambda x: _ranged(x, top), 0, top, has_minimum=True, fill=last)


RULES = {
    "q8_0": Rule(32, _absolute, -127, 127),
    "q4_0": _signed_rule(32, 8),
    "q4_g128": _signed_rule(128, 8),
    "q5_0": _signed_rule(32, 16),
    "q4_m_32": _ranged_rule(32, 15),
    "q4_m_64": _ranged_rule(64, 15),
    "q4_m_128": _ranged_rule(128, 15),
    "q5_m_32": _ranged_rule(32, 31),
    "q4_z_32": _zero_rule(32),
    "q4_z_64": _zero_rule(64),
    "q4_z_128": _zero_rule(128),
}


def round_rows(format: str, x: Array) -> tuple[Array, Array]:
    """The values of rows in a format of RULES, and where the gradient of a value is that of its weight (straight through): where the
    integers do not end before it."""
    rule = RULES[format]
    with quiet(x):
        values, inside = rule.rounded(blocks_of(x, rule.block, rule.fill))
    return rows_of(values, x.shape[-1]), rows_of(inside, x.shape[-1])


def round_activations(x: Array) -> Array:
    """The values of activations behind the engine's quantizer. The gradient of a value is that of its activation: none lies outside of the
    range."""
    xp = namespace(x)
    with quiet(x):
        blocks = blocks_of(x, ACTIVATION_BLOCK, zeros)
        most = _most(abs(blocks))
        tiny = most < LEAST_ACTIVATION
        factor = xp.where(tiny, constant(most, 0), divided(constant(most, 127), most))
        d = xp.where(tiny, constant(most, 0), divided(most, constant(most, 127)))
        q = xp.clip(xp.round(blocks * factor), -127, 127) * d
    return rows_of(q, x.shape[-1])


def spread(scales: Array, block: int, columns: int) -> Array:
    """[..., blocks] as [..., columns]: the scale of each weight."""
    shape = (*scales.shape, block)
    return rows_of(namespace(scales).broadcast_to(scales[..., None], shape), columns)


def learned_values(format: str, x: Array, scales: Array) -> tuple[Array, Array, Array]:
    """Weights rounded with scales [..., blocks] that are learned (LSQ): the values, their integers, and the integers before they were
    rounded. The format has no minimums."""
    rule = RULES[format]
    xp = namespace(x)
    with quiet(x):
        d = spread(half(scales), rule.block, x.shape[-1])
        exact = xp.where(d == 0, constant(x, 0), divided(x, d))
        integers = xp.clip(xp.round(exact), rule.least, rule.most)
        # An integer has no negative zero.
        return (integers + 0.0) * d, integers, exact


def learned_gradients(format: str, gradient: Array, integers: Array, exact: Array) -> tuple[Array, Array]:
    """The gradients by the weights and by the scales that learned_values have from the gradient by its values
    ([Esser et al. 2020](https://arxiv.org/abs/1902.08153)): within the range a weight passes its own, and a scale gets the error of the
    rounding; outside a scale gets the last integer."""
    rule = RULES[format]
    inside = (exact >= rule.least - 0.5) & (exact <= rule.most + 0.5)
    xp = namespace(gradient)
    by_scale = gradient * xp.where(inside, integers - exact, integers)
    return gradient * inside, sums_of(by_scale, rule.block)


def grid_of(format: str, x: Array) -> tuple[Array, Array] | None:
    """The integers and scales of weights that lie on a grid of a format without minimums, as `save` and `qwen-opt export` leave them; None if a
    block has none. Of several scales, the largest."""
    rule = RULES[format]
    xp = namespace(x)
    blocks = blocks_of(x, rule.block, zeros)
    largest = _largest(blocks)
    integers, scales = xp.zeros_like(blocks), xp.zeros_like(largest)
    found = largest == 0
    with quiet(x):
        # The largest weight is the least or the greatest integer of all, or one between.
        for integer in range(1, max(rule.most, -rule.least) + 1):
            for sign in (-1, 1):
                d = half(divided(largest, constant(largest, sign * integer)))
                q = xp.round(divided(blocks, xp.broadcast_to(xp.where(d == 0, constant(d, 1), d), blocks.shape)))
                fits = (_most(abs(q * d - blocks)) == 0) & (_least(q) >= rule.least) & (_most(q) <= rule.most) & (d != 0) & ~found
                integers, scales = xp.where(fits, q, integers), xp.where(fits, d, scales)
                found = found | fits
    if not bool(found.all()):
        return None
    return rows_of(integers, x.shape[-1]), scales[..., 0]


def sums_of(x: Array, block: int) -> Array:
    """The sums of each block."""
    return namespace(x).sum(blocks_of(x, block, zeros), axis=-1)

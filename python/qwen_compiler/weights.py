"""The formats of weights: what the compiler makes of rows of floats without a calibration, bit for bit. Needs NumPy.

    parts = qwen_compiler.weights.quantize_rows("q4_0", matrix)
    parts.values        # what a compiled model computes with, in f32

docs/quantization.md lists the formats. Any number of threads may call these functions.
"""
from __future__ import annotations

import ctypes
import dataclasses
from typing import Any

from . import _declarations as c
from ._errors import Error
from ._library import check, library, sized
from ._processors import numpy

# Arrays of NumPy have no types here: the package does not need it otherwise.
Array = Any


@dataclasses.dataclass(frozen=True)
class WeightFormat:
    """A format of weights."""

    name: str
    """The name in options of qwen-opt."""
    bits: int
    """Bits of the code of a weight."""
    is_float: bool
    """Whether weights are floats, which have no part but their values."""
    block: int
    """Weights along a row that share a scale; the last block of a row may have fewer. 0: there is no scale."""
    sub_block: int
    """Weights that share a sub-scale. 0: there is none."""
    has_minimums: bool
    has_zero_points: bool
    has_sub_minimums: bool


@dataclasses.dataclass(frozen=True)
class WeightParts:
    """What rows become. A part that the format lacks is None."""

    values: Array
    """f32 [rows, columns]: what a model computes with."""
    codes: Array = None
    """uint8 [rows, columns]: the stored bits."""
    integers: Array = None
    """int8 [rows, columns]: the integers that they stand for."""
    scales: Array = None
    """f32 [rows, blocks]."""
    minimums: Array = None
    """f32 [rows, blocks]."""
    zero_points: Array = None
    """f32 [rows, blocks]."""
    sub_scales: Array = None
    """int8 [rows, sub-blocks]."""
    sub_minimums: Array = None
    """int8 [rows, sub-blocks]."""


_formats: dict[str, WeightFormat] = {}


def formats() -> dict[str, WeightFormat]:
    """All formats by their names."""
    if not _formats:
        found = sized(c.qwen_weight_format)
        while check(library().qwen_weight_format_at(len(_formats), ctypes.byref(found))):
            _formats[found.name.decode()] = WeightFormat(
                found.name.decode(), found.bits, bool(found.is_float), found.block, found.sub_block, bool(found.has_minimums), bool(found.has_zero_points),
                bool(found.has_sub_minimums))
    return dict(_formats)


def format_named(name: str) -> WeightFormat:
    """The format with this name. Raises Error if there is none."""
    known = formats()
    if name not in known:
        raise Error(f"the format {name!r} of weights is unknown; there are {', '.join(known)}")
    return known[name]


def _pointer(array: Array, kind: Any) -> Any:
    return None if array is None else array.ctypes.data_as(ctypes.POINTER(kind))


def quantize_rows(format: str, weights: Array, values_only: bool = False) -> WeightParts:
    """Rounds the rows of a matrix [rows, columns], or of several matrices [..., rows, columns], as the compiler does.

    `columns` is a multiple of 32. `values_only` leaves the other parts out. Raises Error for an unknown format, a value that is not
    finite and a scale that f16 does not hold.
    """
    kind = format_named(format)
    module = numpy()
    if not module:
        raise Error("quantize_rows needs NumPy; install it: pip install numpy")
    rows = module.ascontiguousarray(weights, module.float32)
    if rows.ndim < 2:
        raise Error(f"the weights have {rows.ndim} dimensions when 2 are needed: rows and columns")
    columns = rows.shape[-1]

    def part(has: bool, dtype: str, size: int) -> Array:
        return module.empty((*rows.shape[:-1], -(-columns // size)), dtype) if has and not values_only else None

    values = module.empty(rows.shape, module.float32)
    codes, integers = (part(not kind.is_float, dtype, 1) for dtype in ("uint8", "int8"))
    scales, minimums, zero_points = (part(has, "float32", max(kind.block, 1)) for has in (not kind.is_float, kind.has_minimums, kind.has_zero_points))
    sub_scales, sub_minimums = (part(has, "int8", max(kind.sub_block, 1)) for has in (kind.sub_block > 0, kind.has_sub_minimums))
    parts = sized(c.qwen_weight_parts, values=_pointer(values, ctypes.c_float), codes=_pointer(codes, ctypes.c_uint8),
                  integers=_pointer(integers, ctypes.c_int8), scales=_pointer(scales, ctypes.c_float), minimums=_pointer(minimums, ctypes.c_float),
                  zero_points=_pointer(zero_points, ctypes.c_float), sub_scales=_pointer(sub_scales, ctypes.c_int8),
                  sub_minimums=_pointer(sub_minimums, ctypes.c_int8))
    check(library().qwen_quantize_rows(format.encode(), _pointer(rows, ctypes.c_float), rows.size // max(columns, 1), columns, ctypes.byref(parts)))
    return WeightParts(values, codes, integers, scales, minimums, zero_points, sub_scales, sub_minimums)

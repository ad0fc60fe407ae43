"""The formats of weights in the Python package: the library's parts, the rules by NumPy with the library's bits, and the gradients of training.

  python_weights.py
"""
import subprocess
import sys

import numpy as np
import qwen_compiler
from checks import Checks, same_bits
from qwen_compiler import _rules, weights
from rounding_cases import COLUMNS, rows

checks = Checks()
rng = np.random.default_rng(1)


def refusal(*arguments):
    try:
        weights.quantize_rows(*arguments)
    except qwen_compiler.Error as error:
        return str(error)
    return "nothing"


def check_parts(format, x):
    """Parts make the values."""
    kind, parts = weights.formats()[format], weights.quantize_rows(format, x)
    checks.check(same_bits(weights.quantize_rows(format, x, values_only=True).values, parts.values), f"{format}: values alone differ")
    checks.check((parts.minimums is not None) == kind.has_minimums and (parts.sub_scales is not None) == bool(kind.sub_block), f"{format}: other parts")
    if kind.is_float or kind.sub_block:
        return
    scales, integers = _rules.spread(parts.scales, kind.block, x.shape[1]), parts.integers.astype(np.float32)
    if kind.has_zero_points:
        integers = integers - _rules.spread(parts.zero_points, kind.block, x.shape[1])
    values = integers * scales
    if kind.has_minimums:
        values = values + _rules.spread(parts.minimums, kind.block, x.shape[1])
    checks.check(same_bits(values, parts.values), f"{format}: the values are not those of the parts")


for columns in COLUMNS:
    x = rows(columns, rng)
    for format in weights.formats():
        check_parts(format, x)
    for format, rule in _rules.RULES.items():
        # Scales up to the largest of f16, where no minimum ends before.
        x = rows(columns, rng, 65504 * (1 if rule.has_minimum else 7))
        values, _ = _rules.round_rows(format, x)
        checks.check(same_bits(values, weights.quantize_rows(format, x, values_only=True).values), f"{format}, {columns} columns: the rule has other bits")

# The grid of values that were rounded: the same values, of scales that f16 has.
for format in ("q4_0", "q4_g128", "q5_0", "q8_0"):
    values = weights.quantize_rows(format, rng.standard_normal((40, 416), np.float32) * np.float32(2) ** rng.integers(-12, 4, (40, 1)).astype(np.float32)).values
    values[0] = 0
    values[1, 1:] = 0
    integers, scales = _rules.grid_of(format, values)
    checks.check(np.array_equal(integers * _rules.spread(scales, _rules.RULES[format].block, 416), values), f"{format}: the grid has other values")
    checks.check(np.array_equal(scales, np.float32(np.float16(scales))), f"{format}: a scale is no f16")
    checks.check(_rules.grid_of(format, values + np.float32(1e-3)) is None, f"{format}: floats lie on a grid")

# Several matrices at once, and refusals.
x = rng.standard_normal((3, 5, 64), np.float32)
checks.check(same_bits(weights.quantize_rows("q4_k", x).values[1], weights.quantize_rows("q4_k", x[1]).values), "a matrix of several differs")
checks.check(refusal("q4", x).startswith("the format 'q4' of weights is unknown; there are f32, bf16, q8_0"), refusal("q4", x))
checks.expect("no rows", refusal("q4_0", x[0, 0]), "the weights have 1 dimensions when 2 are needed: rows and columns")
checks.expect("columns", refusal("q4_0", x[..., :33]), "qwen_quantize_rows: columns is 33 when a multiple of 32 is needed")
checks.expect("NaN", refusal("q4_0", x * np.float32(np.nan)), "qwen_quantize_rows: the matrix has a value that is not finite")

# Activations: the definition, a value at a time.
x = np.concatenate([rows(416, rng), np.full((1, 416), 2.0**-101, np.float32)])
expected = np.zeros_like(x)
for row, out in zip(x, expected):
    for begin in range(0, len(row), 128):
        block = row[begin:begin + 128]
        most = abs(block).max()
        if most >= np.float32(2.0**-100):
            q = np.clip(np.rint(block * (np.float32(127) / most)), -127, 127)
            out[begin:begin + 128] = q * (most / np.float32(127))
checks.check(np.array_equal(_rules.round_activations(x), expected), "activations differ")

# Straight through: a weight beyond the last integer moves no value.
values, inside = _rules.round_rows("q4_0", np.float32([[-8, 7.4, 7.6, 8] + [0.0] * 28]))
checks.expect("inside", inside[0, :5].tolist(), [True, True, False, False, True])
checks.expect("values", values[0, :4].tolist(), [-8, 7, 7, 7])

# Learned scales: the gradient by a weight is 1 within the range; that by a scale is the change of the values with the integers kept.
x = rng.standard_normal((8, 64), np.float32) * np.float32(3)
scales = np.float32(rng.uniform(0.25, 0.5, (8, 2)))
values, integers, exact = _rules.learned_values("q4_0", x, scales)
gradient = rng.standard_normal((8, 64), np.float32)
by_weight, by_scale = _rules.learned_gradients("q4_0", gradient, integers, exact)
clipped = (exact < -8.5) | (exact > 7.5)
checks.check(clipped.any() and not clipped.all(), "no weight is clipped, or all are")
checks.check(np.array_equal(by_weight, np.where(clipped, 0, gradient)), "the gradient by the weights")
expected = (gradient.astype(np.float64) * np.where(clipped, integers, integers - exact)).reshape(8, 2, 32).sum(-1)
checks.check(np.allclose(by_scale, expected, rtol=1e-4, atol=1e-4), "the gradient by the scales")
step = np.float32(2.0**-6)
moved = _rules.learned_values("q4_0", np.where(clipped, x, np.float32(0)), scales + step)[0]
still = _rules.learned_values("q4_0", np.where(clipped, x, np.float32(0)), scales)[0]
slope = ((moved - still)[clipped] * gradient[clipped]).sum() / step
checks.check(np.isclose(slope, (gradient * integers)[clipped].sum(), rtol=0.02), "the slope of clipped weights")

# The command of training needs PyTorch, and says so.
program = "import sys; sys.modules['torch'] = None; from qwen_compiler._programs import qwen_train; qwen_train()"
done = subprocess.run([sys.executable, "-B", "-c", program], capture_output=True, text=True)
checks.expect("qwen-train without PyTorch", (done.returncode, done.stderr), (1, "qwen-train: torch is missing; install it: pip install 'qwen_compiler[train]'\n"))
checks.finish()

"""The rules and functions of training by PyTorch: bits of the library on every device that is there, and gradients.

  train_rules.py
"""
import numpy as np
import torch
from checks import Checks, same_bits
from qwen_compiler import _rules, train, weights
from rounding_cases import COLUMNS, rows

checks = Checks()
rng = np.random.default_rng(2)
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def bits(tensor):
    return tensor.detach().cpu().numpy()


for columns in COLUMNS:
    for format, rule in _rules.RULES.items():
        x = rows(columns, rng, 65504 * (1 if rule.has_minimum else 7))
        expected = weights.quantize_rows(format, x, values_only=True).values
        for device in DEVICES:
            values, inside = _rules.round_rows(format, torch.from_numpy(x).to(device))
            checks.check(same_bits(bits(values), expected), f"{format}, {columns} columns, {device}: the rule has other bits")
            checks.check(np.array_equal(bits(inside), _rules.round_rows(format, x)[1]), f"{format}, {columns} columns, {device}: another range")
    x = rows(columns, rng)
    for device in DEVICES:
        found = bits(_rules.round_activations(torch.from_numpy(x).to(device)))
        checks.check(same_bits(found, _rules.round_activations(x)), f"activations, {columns} columns, {device}")
        scales = np.float32(rng.uniform(-1, 1, (len(x), -(-columns // 32))))
        found, expected = (_rules.learned_values("q4_0", *(f(each) for each in (x, scales))) for f in (lambda a: torch.from_numpy(a).to(device), lambda a: a))
        checks.check(all(same_bits(bits(a), b) for a, b in zip(found, expected)), f"learned scales, {columns} columns, {device}")

# Every format goes through the library; a weight in bf16 is what it is in f32.
x = torch.from_numpy(rng.standard_normal((8, 256), np.float32))
for format in weights.formats():
    for each in (x, x.bfloat16()):
        expected = weights.quantize_rows(format, each.float().numpy(), values_only=True).values
        checks.check(same_bits(bits(train.round_weights(each, format)), expected), f"{format}: the function has other bits")

# Gradients: straight through within the range, LSQ's by scales, as autograd has them of the same sums.
w = torch.tensor([[-8, 7.4, 7.6, 8] + [0.0] * 28], requires_grad=True)
train.round_weights(w).backward(torch.arange(32.0)[None])
checks.expect("straight through", w.grad[0, :5].tolist(), [0, 1, 0, 0, 4])
a = torch.randn(4, 160, requires_grad=True)
train.round_activations(a).backward(torch.ones(4, 160))
checks.check(bool((a.grad == 1).all()), "the gradient of activations")
w = torch.randn(6, 96, requires_grad=True)
s = torch.full((6, 3), 0.3).half().float().requires_grad_()
g = torch.randn(6, 96)
train.round_weights(w, "q4_0", s).backward(g)
w2, s2 = (each.detach().clone().requires_grad_() for each in (w, s))
d = s2.repeat_interleave(32, 1)
exact = w2 / d
clamped = exact.clamp(-8.5, 7.5)
integers = (clamped + (clamped.round().clamp(-8, 7) - clamped).detach())
(integers * d).backward(g)
checks.check(torch.allclose(w.grad, w2.grad, atol=1e-6), "LSQ's gradient by weights")
checks.check(torch.allclose(s.grad, s2.grad, atol=1e-4), "LSQ's gradient by scales")
checks.finish()

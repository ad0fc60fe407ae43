"""The engine's quantizers as functions of PyTorch, with gradients."""
from __future__ import annotations

from typing import Any

import torch  # type: ignore

from .. import _rules, weights

Tensor = Any


def values_of(format: str, weight: Tensor) -> Tensor:
    """The values that the engine computes with in place of `weight`, in f32. On a CPU the library rounds, elsewhere the rules, with the same
    bits; a format without rules goes through the CPU."""
    rounded = weight.detach().float()
    if weight.device.type != "cpu" and format in _rules.RULES:
        return _rules.round_rows(format, rounded)[0]
    values = weights.quantize_rows(format, rounded.cpu().numpy(), values_only=True).values
    return torch.from_numpy(values).to(weight.device)


class _RoundWeights(torch.autograd.Function):  # type: ignore
    """Straight through, where the integers do not end before a weight."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, format: str) -> Tensor:
        """The values of the weights."""
        values = values_of(format, weight)
        ctx.inside = None
        if ctx.needs_input_grad[0] and format in _rules.RULES:
            ctx.save_for_backward(_rules.round_rows(format, weight.detach().float())[1])
            ctx.inside = True
        return values

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """The gradient by the weights."""
        gradient, = gradients
        return gradient * ctx.saved_tensors[0] if ctx.inside else gradient, None


class _RoundLearned(torch.autograd.Function):  # type: ignore
    """Weights with scales that are learned."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, scales: Tensor, format: str) -> Tensor:
        """The values of the weights."""
        values, integers, exact = _rules.learned_values(format, weight.detach(), scales.detach())
        ctx.format = format
        ctx.save_for_backward(integers, exact)
        return values

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """The gradients by the weights and the scales."""
        gradient, = gradients
        integers, exact = ctx.saved_tensors
        return *_rules.learned_gradients(ctx.format, gradient, integers, exact), None


class _RoundActivations(torch.autograd.Function):  # type: ignore
    """Straight through: no activation lies outside of the range."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """The values of the activations."""
        return _rules.round_activations(x.detach().float()).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """The gradient as it is."""
        return gradients[0]


class _RoundHalf(torch.autograd.Function):  # type: ignore
    """Rounded to f16."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """The values of f16."""
        return _rules.half(x.detach())

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """The gradient as it is."""
        return gradients[0]


def round_weights(weight: Tensor, format: str = "q4_0", scales: Tensor | None = None) -> Tensor:
    """The values of a matrix [..., rows, columns] in a format, bit for bit those of a compiled model; the gradient is straight through.

    `scales` [..., rows, blocks] are learned, too: then a weight is the nearest of their multiples, and the scales have the gradient of LSQ.
    Raises qwen_compiler.Error for an unknown format, a weight that is not finite and a scale that f16 does not hold.
    """
    return _RoundWeights.apply(weight, format) if scales is None else _RoundLearned.apply(weight, scales, format)


def round_activations(x: Tensor) -> Tensor:
    """The values that a product of the engine reads in place of `x` [..., columns], bit for bit; the gradient is straight through."""
    return _RoundActivations.apply(x)


def fixed_values(integers: Tensor, scales: Tensor, minimums: Tensor | None, block: int) -> Tensor:
    """Integers [..., columns] times scales [..., blocks] of f16, plus minimums. The scales and minimums have gradients."""
    columns = integers.shape[-1]
    values = integers * _rules.spread(_RoundHalf.apply(scales), block, columns)
    return values if minimums is None else values + _rules.spread(_RoundHalf.apply(minimums), block, columns)

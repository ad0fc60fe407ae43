"""From a model of transformers to one that computes with the engine's integers, and back to a folder."""
from __future__ import annotations

import contextlib
import math
import os
import pathlib
import shutil
import weakref
from collections.abc import Iterator
from typing import Any

import torch  # type: ignore

from .. import _rules, weights
from .._errors import Error
from ._functions import fixed_values, round_activations, round_weights

Tensor = Any
functional = torch.nn.functional
nn = torch.nn
# Linear modules that the engine computes in f32 (docs/architecture.md: exact weights).
EXACT = ("in_proj_a", "in_proj_b", "in_proj_ba", "shared_expert_gate")
# Files of a checkpoint's folder that have neither weights nor a configuration.
KEPT_FILES = ("tokenizer*", "vocab*", "merges*", "special_tokens_map.json", "added_tokens.json", "chat_template*", "*.tiktoken", "generation_config.json")
# How far from the edge of its integer, in scales, a weight begins that the floats have beyond it.
MARGIN = 0.2


class Rounded:
    """All weights are trained; the encoder gives their scales."""

    def __init__(self, format: str) -> None:
        """Knows the format."""
        self.format = format

    def begin(self, module: Any, name: str) -> dict[str, Tensor]:
        """The parameters and buffers that the module gets for its weight of this name."""
        return {}

    def values(self, weight: Tensor, more: dict[str, Tensor]) -> Tensor:
        """The values of [..., rows, columns], or of some of the rows with their rows of `more`."""
        return round_weights(weight, self.format)


def begun_parts(format: str, weight: Tensor) -> weights.WeightParts:
    """The parts of a matrix: of the integers on whose grid it lies, or else of the encoder."""
    values = weight.detach().cpu().numpy()
    # Most matrices of floats have no grid in their first row.
    has_grid = not _rules.RULES[format].has_minimum and _rules.grid_of(format, values[..., :1, :])
    if has_grid and (grid := _rules.grid_of(format, values)):
        return weights.WeightParts(values, integers=grid[0].astype("int8"), scales=grid[1])
    return weights.quantize_rows(format, values)


class Learned(Rounded):
    """All weights and their scales are trained (LSQ)."""

    def begin(self, module: Any, name: str) -> dict[str, Tensor]:
        """Scales that begin as those of the checkpoint's grid, or of the encoder."""
        parts = begun_parts(self.format, getattr(module, name))
        return {"scales": nn.Parameter(torch.from_numpy(parts.scales))}

    def values(self, weight: Tensor, more: dict[str, Tensor]) -> Tensor:
        """The nearest multiples of the scales."""
        return round_weights(weight, self.format, more["scales"])


def lay_in_cells(model: Any, floats: dict[int, Tensor]) -> None:
    """Moves the weights of a model that `lsq` has prepared to where `floats`, by the ids of parameters, had them, but for what would change their
    integers. A weight in the middle of two integers needs more steps to leave its own than a training has."""
    reach = 0.5 - MARGIN
    with torch.no_grad():
        for module in model.modules():
            for name, parts in getattr(module, "qwen_parts", {}).items():
                weight = getattr(module, name)
                if "scales" not in parts or id(weight) not in floats:
                    continue
                format, scales = module.qwen_rounding.method.format, getattr(module, f"{name}_scales")
                _, integers, _ = _rules.learned_values(format, weight, scales)
                d = _rules.spread(_rules.half(scales), _rules.RULES[format].block, weight.shape[-1])
                place = torch.where(d == 0, 0, floats.pop(id(weight)) / d)
                weight.copy_(place.clamp(integers - reach, integers + reach) * d)


class Fixed(Rounded):
    """The integers of the checkpoint's grid, or of the encoder, stay; their scales and minimums are trained."""

    def begin(self, module: Any, name: str) -> dict[str, Tensor]:
        """Integers, and scales that begin as theirs."""
        weight = getattr(module, name)
        weight.requires_grad_(False)
        parts = begun_parts(self.format, weight)
        begun = {"integers": torch.from_numpy(parts.integers), "scales": nn.Parameter(torch.from_numpy(parts.scales))}
        return begun if parts.minimums is None else begun | {"minimums": nn.Parameter(torch.from_numpy(parts.minimums))}

    def values(self, weight: Tensor, more: dict[str, Tensor]) -> Tensor:
        """Integers times scales, plus minimums."""
        return fixed_values(more["integers"], more["scales"], more.get("minimums"), _rules.RULES[self.format].block)


class Pooled(Fixed):
    """The integers and scales of the encoder stay; an adapter by groups changes the minimums (QA-LoRA)."""

    rank = 16

    def begin(self, module: Any, name: str) -> dict[str, Tensor]:
        """Integers, scales, minimums, and the two factors of an update that is zero."""
        begun = super().begin(module, name)
        for part in ("scales", "minimums"):
            begun[part].requires_grad_(False)
        *more, rows, groups = begun["scales"].shape
        first = torch.empty(*more, self.rank, groups)
        nn.init.kaiming_uniform_(first, a=math.sqrt(5))
        return begun | {"lora_a": nn.Parameter(first), "lora_b": nn.Parameter(torch.zeros(*more, rows, self.rank))}

    def values(self, weight: Tensor, more: dict[str, Tensor]) -> Tensor:
        """Integers times scales, plus minimums that the adapter changes."""
        return super().values(weight, more | {"minimums": more["minimums"] + more["lora_b"] @ more["lora_a"]})


# Ways to train a rounded model, and which formats they take.
METHODS = {"qat": Rounded, "lsq": Learned, "scales": Fixed, "qalora": Pooled}


class Rounding:
    """What a prepared model does at each of its matrices."""

    def __init__(self, method: Rounded, activations: bool) -> None:
        """`activations`: whether the inputs of products are rounded, too."""
        self.method = method
        self.activations = activations
        # Products that read the same input round it once.
        self.last: tuple[Any, Any] | None = None

    def inputs(self, x: Tensor) -> Tensor:
        """What a product reads in place of `x`."""
        if not self.activations:
            return x
        if self.last and self.last[0]() is x and (known := self.last[1]()) is not None:
            return known
        rounded = round_activations(x)
        self.last = weakref.ref(x), weakref.ref(rounded)
        return rounded

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"last": None}

    def add(self, module: Any, name: str, known: dict[int, dict[str, Tensor]]) -> None:
        """Adds to a module what its weight of this name needs. Tied weights share it: `known` has it by weight."""
        weight = getattr(module, name)
        if id(weight) not in known:
            known[id(weight)] = self.method.begin(module, name)
        for part, tensor in known[id(weight)].items():
            if isinstance(tensor, nn.Parameter):
                module.register_parameter(f"{name}_{part}", tensor)
            else:
                module.register_buffer(f"{name}_{part}", tensor)
        module.qwen_parts = {**getattr(module, "qwen_parts", {}), name: tuple(known[id(weight)])}
        module.qwen_rounding = self

    def more(self, module: Any, name: str) -> dict[str, Tensor]:
        """What `add` added."""
        return {part: getattr(module, f"{name}_{part}") for part in module.qwen_parts[name]}

    def values(self, module: Any, name: str) -> Tensor:
        """The values of a matrix of the module."""
        return self.method.values(getattr(module, name), self.more(module, name))


class RoundedLinear(nn.Linear):  # type: ignore
    """A product as the engine computes it."""

    def forward(self, x: Tensor) -> Tensor:
        """Rounded inputs times rounded weights."""
        return functional.linear(self.qwen_rounding.inputs(x), self.qwen_rounding.values(self, "weight"), self.bias)


class RoundedEmbedding(nn.Embedding):  # type: ignore
    """The rows of a rounded matrix. Only those that are read are rounded."""

    def forward(self, ids: Tensor) -> Tensor:
        """The rows of the ids."""
        more = {part: tensor if part == "lora_a" else functional.embedding(ids.reshape(-1), tensor)
                for part, tensor in self.qwen_rounding.more(self, "weight").items()}
        rows = functional.embedding(ids.reshape(-1), self.weight)
        return self.qwen_rounding.method.values(rows, more).reshape(*ids.shape, -1)


def experts_forward(self: Any, x: Tensor, choices: Tensor, shares: Tensor) -> Tensor:
    """The sum of the chosen experts of each token, of a module of transformers with all experts' matrices: x [tokens, hidden], choices and
    shares [tokens, active]."""
    x = x.reshape(-1, x.shape[-1])
    result = torch.zeros_like(x)
    inputs = self.qwen_rounding.inputs(x)
    gates, downs = (self.qwen_rounding.values(self, name) for name in ("gate_up_proj", "down_proj"))
    for expert in range(len(downs)):
        tokens, places = torch.where(choices == expert)
        if len(tokens):
            gate, up = functional.linear(inputs[tokens], gates[expert]).chunk(2, -1)
            product = self.qwen_rounding.inputs(self.act_fn(gate) * up)
            result.index_add_(0, tokens, functional.linear(product, downs[expert]) * shares[tokens, places, None])
    return result


def _is_experts(module: Any) -> bool:
    return all(getattr(getattr(module, name, None), "ndim", 0) == 3 for name in ("gate_up_proj", "down_proj"))


def _matrices(model: Any, lm_head: bool) -> Iterator[tuple[str, Any, tuple[str, ...]]]:
    """The modules whose matrices are rounded: name, module and the names of its weights."""
    ends = {id(each) for each in (model.get_input_embeddings(), model.get_output_embeddings())}
    for name, module in model.named_modules():
        if id(module) in ends and not lm_head:
            continue
        if type(module) is nn.Embedding or (type(module) is nn.Linear and name.rpartition(".")[2] not in EXACT):
            yield name, module, ("weight",)
        elif _is_experts(module):
            yield name, module, ("gate_up_proj", "down_proj")


def _experts_class(module: Any) -> Any:
    return type(f"Rounded{type(module).__name__}", (type(module),), {"forward": experts_forward})


def _check(name: str, weight: Tensor) -> None:
    if weight.dtype != torch.float32:
        raise Error(f"{name} has {str(weight.dtype).removeprefix('torch.')} when float32 is needed: small updates would be lost; load the model with "
                    "dtype=torch.float32")
    if weight.shape[-1] % 32:
        raise Error(f"{name} has rows of {weight.shape[-1]} weights when a multiple of 32 is needed")
    if not torch.isfinite(weight).all():
        raise Error(f"{name} has a value that is not finite")


def prepare(model: Any, format: str = "q4_0", activations: bool = True, lm_head: bool = True, method: str = "qat", rank: int = 16) -> Any:
    """Makes a causal model of transformers, in float32, compute with the integers of a format. Returns it.

    Its parameters and their names stay, so that any loop may train it. `activations`: the inputs of products are rounded, too, as
    in a compiled model. `lm_head`: the embedding and the head are rounded as well. A `method` of METHODS says what is trained; `rank` is
    that of the adapters of qalora. Raises qwen_compiler.Error for a format or a method that does not fit.
    """
    if method not in METHODS:
        raise Error(f"the method {method!r} is unknown; there are {', '.join(METHODS)}")
    grids = [name for name, rule in _rules.RULES.items() if rule.on_grid]
    weights.format_named(format)
    if format not in grids:
        raise Error(f"the format {format} cannot be trained, because no float tells its integers; there are {', '.join(grids)}")
    has_minimum = _rules.RULES[format].has_minimum
    if method in ("lsq", "qalora") and has_minimum != (method == "qalora"):
        fitting = ", ".join(name for name in grids if _rules.RULES[name].has_minimum == (method == "qalora"))
        raise Error(f"the method {method} needs a format {'with' if method == 'qalora' else 'without'} minimums, such as {fitting}, and not {format}")
    way = METHODS[method](format)
    if isinstance(way, Pooled):
        way.rank = rank
    found = list(_matrices(model, lm_head))
    if not found:
        raise Error(f"{type(model).__name__} has no matrix that can be rounded, or is prepared already")
    for name, module, names in found:
        for each in names:
            _check(f"{name}.{each}", getattr(module, each))
    if isinstance(way, Fixed):
        model.requires_grad_(False)
    rounding = Rounding(way, activations)
    known: dict[int, dict[str, Tensor]] = {}
    for _, module, names in found:
        for each in names:
            rounding.add(module, each, known)
        module.__class__ = {nn.Linear: RoundedLinear, nn.Embedding: RoundedEmbedding}.get(type(module)) or _experts_class(module)
    return model


def rounded_state(model: Any) -> dict[str, Tensor]:
    """The tensors of a prepared model by their names in the model before, in f32: matrices on the grid of their format."""
    state: dict[str, Tensor] = model.state_dict()
    kept = {name: tensor.detach().float().cpu() for name, tensor in state.items()}
    known: dict[int, Tensor] = {}
    prepared = False
    with torch.no_grad():
        for name, module in model.named_modules():
            for each, parts in getattr(module, "qwen_parts", {}).items():
                prepared = True
                weight = getattr(module, each)
                if id(weight) not in known:
                    known[id(weight)] = module.qwen_rounding.values(module, each).float().cpu().contiguous()
                prefix = f"{name}." if name else ""
                kept[prefix + each] = known[id(weight)]
                for part in parts:
                    kept.pop(f"{prefix}{each}_{part}", None)
    if not prepared:
        raise Error(f"{type(model).__name__} is not prepared; call prepare() first")
    return kept


@contextlib.contextmanager
def new_folder(target: pathlib.Path) -> Iterator[pathlib.Path]:
    """A path for a folder that gets the name `target` when the body ends, and goes if the body fails. Raises Error if it cannot be written."""
    part = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        yield part
        os.rename(part, target)
    except BaseException as error:
        shutil.rmtree(part, ignore_errors=True)
        # safetensors has an error of its own for a full disk.
        if isinstance(error, OSError) or type(error).__name__ == "SafetensorError":
            raise Error(f"cannot write {target}: {getattr(error, 'strerror', None) or error}") from None
        raise


def write_folder(model: Any, folder: str | os.PathLike[str], state: dict[str, Tensor], more: dict[str, str]) -> None:
    """Writes a checkpoint: the tensors, the configuration, the files of the model's own folder that have no weights, and texts by their
    names. The folder appears at once, and must not be there. Raises Error."""
    target = pathlib.Path(folder)
    if target.exists():
        raise Error(f"{target} exists; remove it or name another folder")
    with new_folder(target) as part:
        model.save_pretrained(part, state_dict=state)
        source = pathlib.Path(model.name_or_path or os.devnull)
        for pattern in KEPT_FILES if source.is_dir() else ():
            for file in source.glob(pattern):
                if file.is_file():
                    shutil.copyfile(file, part / file.name)
        for name, text in more.items():
            (part / name).write_text(text)


def save(model: Any, folder: str | os.PathLike[str]) -> None:
    """Writes a prepared model as a folder of safetensors in float32, whose integers `qwen-opt FOLDER` keeps; bf16 and f16 would not hold
    them. The tokenizer comes from the folder of the model. Nothing is left if it fails. Raises qwen_compiler.Error."""
    write_folder(model, folder, rounded_state(model), {})

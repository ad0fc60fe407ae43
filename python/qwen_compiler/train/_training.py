"""The loop of qwen-train: steps, losses, checkpoints and what is told of them."""
from __future__ import annotations

import dataclasses
import json
import math
import os
import pathlib
import time
from collections.abc import Callable
from typing import Any

import torch  # type: ignore

from .._errors import Error
from ._curve import svg

Tensor = Any
functional = torch.nn.functional
# The file of a training's state, in its folder.
STATE = "state.pt"
# Logits of a forward pass: what does not fit is run in parts.
MOST_LOGITS = 2**25
# The least time between two saves, and the most of a training's time that saves take.
SAVE_SECONDS = 60.0
SAVE_SHARE = 0.05
WARMUP = 0.05
CLIP = 1.0
# The share of the learning rate that scales have.
SCALES = 0.1


@dataclasses.dataclass(frozen=True)
class Recipe:
    """The numbers of a training."""

    learning_rate: float
    epochs: float
    batch: int
    """Windows of a step."""
    seed: int
    evaluations: int
    """How often the held-out windows are measured, the begin and the end not counted."""
    temperature: float = 1.0
    """Of the teacher's and the model's probabilities in the loss."""
    alpha: float = 1.0
    """The share of the divergence to the teacher in the loss; the rest is the loss of the text's own tokens."""


class Diverged(Error):
    """A training whose numbers are not finite, which no state can help."""


def divergence(logits: Tensor, teacher: Tensor, temperature: float = 1.0) -> Tensor:
    """The mean KL divergence of the teacher's probabilities to the model's, times the square of the temperature."""
    own, other = (each.float().flatten(0, -2).div(temperature).log_softmax(-1) for each in (logits, teacher))
    return functional.kl_div(own, other, reduction="batchmean", log_target=True) * temperature**2


def text_loss(logits: Tensor, ids: Tensor) -> Tensor:
    """The mean loss of each token behind the first."""
    return functional.cross_entropy(logits[:, :-1].float().flatten(0, 1), ids[:, 1:].flatten())


class Training:
    """A training that can be killed: `folder` has its state until it ends."""

    def __init__(self, model: Any, teacher: Any, windows: Tensor, held_out: Tensor, recipe: Recipe, folder: pathlib.Path, device: str) -> None:
        """Prepares the steps. `teacher` may be None."""
        self.model, self.teacher, self.recipe, self.folder, self.device = model, teacher, recipe, folder, device
        self.windows, self.held_out = windows, held_out
        # AdamW moves all numbers by about the same. A scale moves each weight of its block, and some of them eight times as far.
        groups: dict[float, list[Tensor]] = {1.0: [], SCALES: []}
        for name, each in model.named_parameters():
            if each.requires_grad:
                groups[SCALES if name.endswith("_scales") else 1.0].append(each)
        self.optimizer = torch.optim.AdamW([{"params": each, "share": share} for share, each in groups.items() if each], lr=recipe.learning_rate,
                                           weight_decay=0.0, betas=(0.9, 0.99))
        self.steps = max(1, math.ceil(len(windows) * recipe.epochs / recipe.batch))
        self.step = 0
        self.history: dict[str, list[tuple[float, float]]] = {"loss": [], "KL": []}

    def rate(self, step: int) -> float:
        """The share of the learning rate: it rises, then falls as a cosine."""
        warmup = max(1, round(WARMUP * self.steps))
        return min((step + 1) / warmup, 0.5 * (1 + math.cos(math.pi * step / self.steps)))

    def batch_of(self, step: int) -> Tensor:
        """The windows of a step: a permutation of all of them in each epoch, by the seed."""
        size, count = self.recipe.batch, len(self.windows)
        places = range(step * size, (step + 1) * size)
        orders = {epoch: torch.randperm(count, generator=torch.Generator().manual_seed(self.recipe.seed * 1_000_003 + epoch))
                  for epoch in {place // count for place in places}}
        return self.windows[torch.stack([orders[place // count][place % count] for place in places])].to(self.device)

    def _parts(self, ids: Tensor) -> Any:
        vocabulary = self.model.get_output_embeddings().weight.shape[0]
        return ids.split(max(1, MOST_LOGITS // (vocabulary * ids.shape[1])))

    def _losses(self, ids: Tensor) -> dict[str, Callable[[float], Tensor]]:
        """Functions of a temperature that compute the losses of some windows."""
        try:
            logits = self.model(input_ids=ids, use_cache=False).logits
        except Error as error:
            # What the library says of weights that no scale holds.
            raise self._diverged(str(error)) from None
        losses: dict[str, Callable[[float], Tensor]] = {"loss": lambda _: text_loss(logits, ids)}
        if self.teacher is not None:
            with torch.no_grad():
                target = self.teacher(input_ids=ids, use_cache=False).logits
            losses["KL"] = lambda temperature: divergence(logits, target, temperature)
        return losses

    def _diverged(self, what: str) -> Diverged:
        return Diverged(f"{what} after {self.step} steps; take a smaller --lr than {self.recipe.learning_rate:g}")

    def run_step(self) -> float:
        """Runs a step. Returns its loss. Raises Diverged if it is not finite."""
        self.model.train()
        for group in self.optimizer.param_groups:
            group["lr"] = self.recipe.learning_rate * self.rate(self.step) * group["share"]
        ids = self.batch_of(self.step)
        total = 0.0
        for part in self._parts(ids):
            losses = self._losses(part)
            shares = {"KL": self.recipe.alpha, "loss": 1 - self.recipe.alpha} if self.teacher is not None else {"loss": 1.0}
            loss = sum(share * losses[name](self.recipe.temperature) for name, share in shares.items() if share)
            share = len(part) / len(ids)
            (loss * share).backward()
            total += loss.item() * share
        norm = torch.nn.utils.clip_grad_norm_((each for group in self.optimizer.param_groups for each in group["params"]), CLIP)
        if not (math.isfinite(total) and math.isfinite(norm)):
            raise self._diverged("the loss is not finite")
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1
        return total

    @torch.no_grad()  # type: ignore
    def evaluate(self) -> dict[str, float]:
        """The loss of the held-out windows, and the KL divergence to the teacher."""
        self.model.eval()
        sums: dict[str, float] = {}
        for part in self._parts(self.held_out.to(self.device)):
            for name, loss in self._losses(part).items():
                sums[name] = sums.get(name, 0.0) + loss(1.0).item() * len(part) / len(self.held_out)
        tokens = float(self.step * self.recipe.batch * self.windows.shape[1])
        for name, value in sums.items():
            self.history[name].append((tokens, value))
        return sums

    def picture(self) -> str:
        """The curve of what was measured, as SVG."""
        return svg({name: values for name, values in self.history.items() if values})

    def _state_file(self) -> pathlib.Path:
        return self.folder / STATE

    def save(self) -> None:
        """Writes the state, which `load` reads. Raises Error."""
        trained = {name: each.detach() for name, each in self.model.named_parameters() if each.requires_grad}
        state = {"step": self.step, "history": json.dumps(self.history), "weights": trained, "optimizer": self.optimizer.state_dict()}
        temporary = self._state_file().with_suffix(".tmp")
        try:
            torch.save(state, temporary)
            os.replace(temporary, self._state_file())
        except (OSError, RuntimeError) as error:
            # PyTorch's writer has no error of its own.
            temporary.unlink(missing_ok=True)
            raise Error(f"cannot write {self._state_file()}: {getattr(error, 'strerror', None) or str(error).splitlines()[0]}") from None

    def load(self) -> bool:
        """Goes on where a killed run has saved its state. Returns whether there is one. Raises Error."""
        if not self._state_file().exists():
            return False
        try:
            state = torch.load(self._state_file(), map_location=self.device, weights_only=True)
        except Exception:  # Damaged bytes raise what the unpickler likes.
            raise Error(f"{self._state_file()} is damaged; remove {self.folder} to begin anew") from None
        self.step = state["step"]
        self.history = {name: [(x, y) for x, y in values] for name, values in json.loads(state["history"]).items()}
        parameters = dict(self.model.named_parameters())
        with torch.no_grad():
            for name, value in state["weights"].items():
                parameters[name].copy_(value)
        self.optimizer.load_state_dict(state["optimizer"])
        return True

    def run(self, tell: Callable[[int, str], None]) -> None:
        """Runs all steps, from where it stands. `tell` gets the steps that are done and a line about them."""
        if not self.step:
            self.evaluate()
        saved, pause = time.monotonic(), SAVE_SECONDS
        every = max(1, self.steps // (self.recipe.evaluations + 1))
        while self.step < self.steps:
            loss = self.run_step()
            is_point = self.step % every == 0 and self.step < self.steps
            if is_point:
                self.evaluate()
            if is_point or time.monotonic() - saved > pause:
                begin = time.monotonic()
                self.save()
                saved = time.monotonic()
                pause = max(SAVE_SECONDS, (saved - begin) / SAVE_SHARE)
            tell(self.step, f"loss {loss:.4f}")
        self.evaluate()

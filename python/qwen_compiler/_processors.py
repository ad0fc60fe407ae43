"""Functions of Python that change logits before a draw."""
from __future__ import annotations

import ctypes
import importlib
from collections.abc import Sequence
from typing import Any

from ._errors import Error
from ._handle import Handle
from ._library import check, library
from ._sampling import LogitsProcessor


_numpy: list[Any] = []


def numpy() -> Any:
    """NumPy, or None without it."""
    if not _numpy:
        try:
            _numpy.append(importlib.import_module("numpy"))
        except ImportError:
            _numpy.append(None)
    return _numpy[0]


class Processors:
    """The processors of one answer, with a sampler that draws as the scheduler's own does."""

    def __init__(self, handle: Handle, functions: Sequence[LogitsProcessor], sampling: Any, answer: int, prompt: list[int]) -> None:
        """The options of the sampler are those of the request."""
        self.functions = functions
        self.tokens = list(prompt)
        self.kept: Any = None
        self.size = library().qwen_vocab_size(handle.model)
        self.sampler = check(library().qwen_sampler_new(handle.model, ctypes.byref(sampling), answer))
        for token in prompt:
            check(library().qwen_sampler_accept(self.sampler, token))

    def draw(self, draw: Any) -> int:
        """The next token. Raises what a processor raises."""
        logits = self._copy(draw.logits)
        for function in self.functions:
            changed = function(list(self.tokens), logits)
            if changed is not None:
                logits = changed
        token = check(library().qwen_sample(self.sampler, self._pointer(logits), draw.position))
        self.tokens.append(token)
        return int(token)

    def _copy(self, row: Any) -> Any:
        module = numpy()
        copy: Any = module.empty(self.size, module.float32) if module else (ctypes.c_float * self.size)()
        ctypes.memmove(copy.ctypes.data if module else copy, row, 4 * self.size)
        return copy

    def _pointer(self, logits: Any) -> Any:
        if module := numpy():
            logits = module.ascontiguousarray(logits, module.float32)
            if logits.shape != (self.size,):
                raise Error(f"a logits processor returned the shape {logits.shape} when ({self.size},) is needed")
            # Until the next draw, nobody else may keep it.
            self.kept = logits
            return ctypes.cast(logits.ctypes.data, ctypes.POINTER(ctypes.c_float))
        if len(logits) != self.size:
            raise Error(f"a logits processor returned {len(logits)} logits when {self.size} are needed")
        return logits if isinstance(logits, ctypes.Array) else (ctypes.c_float * self.size)(*logits)

    def free(self) -> None:
        """Frees the sampler."""
        library().qwen_sampler_free(self.sampler)
        self.sampler = 0

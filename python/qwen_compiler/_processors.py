"""Functions of Python that change logits before a draw."""
from __future__ import annotations

import ctypes
import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

from . import _declarations as c
from ._errors import Error
from ._handle import Handle
from ._library import check, held_library, library
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
        # All of a draw keeps the interpreter lock: to get it back would take longer than to copy and to draw.
        self.copy: Callable[[int, Any, int], object] = held_library().copy
        self.sample: Callable[[int, int, int], int] = held_library().sample
        self._make_row()
        self.sampler = check(library().qwen_sampler_new(handle.model, ctypes.byref(sampling), answer))
        for token in prompt:
            check(library().qwen_sampler_accept(self.sampler, token))

    def draw(self, address: int) -> int:
        """The next token of the qwen_draw there. Raises what a processor raises."""
        draw = c.qwen_draw.from_address(address)
        if self._references() > self.references:
            self._make_row()
        self.copy(self.address, draw.logits, 4 * self.size)
        changed = self._changed()
        token = self.sample(self.sampler, self.address if changed is None else self._address_of(changed), draw.position)
        if token < 0:
            check(token)
        self.tokens.append(token)
        return token

    def _changed(self) -> Any:
        """What the processors return in place of the row that they get."""
        logits = self.row
        for function in self.functions:
            changed = function(list(self.tokens), logits)
            if changed is not None:
                logits = changed
        return None if logits is self.row else logits

    def _make_row(self) -> None:
        """Memory for the logits of all draws, as long as no processor keeps it."""
        module = numpy()
        self.row: Any = module.empty(self.size, module.float32) if module else (ctypes.c_float * self.size)()
        self.address: int = self.row.ctypes.data if module else ctypes.addressof(self.row)
        self.references = self._references()

    def _references(self) -> int:
        """Number of references to the row. Those of this class are as many each time."""
        return sys.getrefcount(self.row)

    def _address_of(self, logits: Any) -> int:
        """The address of logits that a processor has made."""
        if module := numpy():
            logits = module.ascontiguousarray(logits, module.float32)
            if logits.shape != (self.size,):
                raise Error(f"a logits processor returned the shape {logits.shape} when ({self.size},) is needed")
            # Until the next draw, nobody else may keep it.
            self.kept = logits
            return int(logits.ctypes.data)
        if len(logits) != self.size:
            raise Error(f"a logits processor returned {len(logits)} logits when {self.size} are needed")
        self.kept = logits if isinstance(logits, ctypes.Array) else (ctypes.c_float * self.size)(*logits)
        return ctypes.addressof(self.kept)

    def free(self) -> None:
        """Frees the sampler."""
        library().qwen_sampler_free(self.sampler)
        self.sampler = 0

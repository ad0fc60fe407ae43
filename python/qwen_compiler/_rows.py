"""Rows of a prompt: logits, hidden values, and the logs of probabilities that they give."""
from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from . import _declarations as c
from ._handle import Handle, Running
from ._library import check, ids_array, library, sized
from ._processors import numpy


OnLogits: Any = next(field[1] for field in c.qwen_request._fields_ if field[0] == "on_logits")


class Surprise(Running):
    """A request for the sum of -log p of the last `count` tokens, each given those before it, as `qwen-run perplexity` adds them up: in
    double precision."""

    def __init__(self, handle: Handle, ids: Sequence[int], count: int) -> None:
        """Starts it. Raises Error if it cannot run."""
        super().__init__(handle)
        self.total = 0.0
        self.left = iter(ids_array(ids[-count:]))
        self.id, self.logprob = ctypes.c_int32(), ctypes.c_double()
        # The row of a token scores the token after it. The object keeps the functions, which the scheduler calls.
        self.on_logits = OnLogits(self._on_row)
        prompt = ids_array(ids[:-1])
        handle.submit(self, sized(c.qwen_request, prompt=prompt, prompt_size=len(prompt), row_count=count, on_logits=self.on_logits,
                                  updates=c.QWEN_UPDATES_ANSWER))

    def _on_row(self, _: int | None, row: Any, size: int) -> None:
        self.id.value = next(self.left)
        library().qwen_double_logprobs(self.handle.model, row, ctypes.byref(self.id), 1, ctypes.byref(self.logprob))
        self.total -= self.logprob.value

    def on_end(self, ending: Any) -> None:
        """All rows have come, or none is of use."""
        self.note_failure(ending)
        self.ended.set()


class Rows(Running):
    """A request for the rows of the last `count` tokens of a prompt, in order."""

    def __init__(self, handle: Handle, ids: Sequence[int], want: int, count: int, width: int, tell: Callable[[], None] | None = None) -> None:
        """Starts it. `want` is a QWEN_WANT number. The reader's thread calls `tell` at its end. Raises Error if it cannot run."""
        super().__init__(handle)
        self.tell = tell
        self.count, self.width = count, width
        # NumPy gets memory from the system without touching it.
        module = numpy()
        self.memory: Any = module.empty((count, width), module.float32) if module else (ctypes.c_float * (count * width))()
        request = sized(c.qwen_request, prompt=ids_array(ids), prompt_size=len(ids), want_rows=want, row_count=count, rows=self.row(0),
                        rows_size=count * width, updates=c.QWEN_UPDATES_ANSWER)
        handle.submit(self, request)

    def row(self, index: int) -> Any:
        """A row as C sees it."""
        start = self.memory.ctypes.data if numpy() else ctypes.addressof(self.memory)
        return ctypes.cast(start + index * self.width * 4, ctypes.POINTER(ctypes.c_float))

    def array(self) -> Any:
        """[count, width] as an array of NumPy, or without NumPy as a memoryview."""
        return self.memory if numpy() else memoryview(self.memory).cast("B").cast("f", (self.count, self.width))

    def on_token(self, event: Any) -> None:
        """Nothing is drawn."""

    def on_end(self, ending: Any) -> None:
        """All rows are written, or none is of use."""
        self.note_failure(ending)
        self.ended.set()
        if self.tell:
            self.tell()

    def checked(self) -> Rows:
        """Itself. Raises the error of a request that failed."""
        if self.failure:
            raise self.failure
        return self

    def logprobs(self, ids: Sequence[int]) -> list[float]:
        """The logs of the probabilities of the next token of each row."""
        found = (ctypes.c_float * len(ids))()
        with self.handle.use() as model:
            for index, token in enumerate(ids_array(ids)):
                each = ctypes.byref(found, 4 * index)
                check(library().qwen_logprobs(model, self.row(index), ctypes.byref(ctypes.c_int32(token)), 1, ctypes.cast(each, ctypes.POINTER(ctypes.c_float))))
        return list(found)

    def greatest(self) -> list[int]:
        """The most likely next token of each row."""
        ids = (ctypes.c_int32 * 1)()
        found = []
        with self.handle.use() as model:
            for index in range(self.count):
                check(library().qwen_top_tokens(model, self.row(index), ids, 1))
                found.append(ids[0])
        return found

"""What the package raises."""
from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._answers import Result


class Error(Exception):
    """What the library or a program refuses, in its one line."""

    def __init__(self, text: str, code: int = -1) -> None:
        """`code` is a QWEN_ERROR number of qwenrt.h, or the exit status of a program."""
        super().__init__(text)
        self.code = code


class ClosedError(Error):
    """The model is closed."""


class AnswerError(Error):
    """An answer failed, others did not. The cause (`__cause__`) is the error of the first that failed."""

    def __init__(self, text: str, code: int, results: list[Result]) -> None:
        """`results` has all prompts in their order; an answer that failed has the finish reason "error" and its error."""
        super().__init__(text, code)
        self.results = results

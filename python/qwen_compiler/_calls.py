"""Which tools an answer may call."""
from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ._errors import Error

Tool = Mapping[str, Any]


def function_of(tool: Tool) -> Mapping[str, Any]:
    """What a tool says of its function; nothing if it has another form, which the library refuses."""
    function = tool.get("function")
    return function if isinstance(function, Mapping) else {}


class Calls:
    """The tools of a conversation and what the answer promises about them, by OpenAI's tool_choice and parallel_tool_calls."""

    def __init__(self, tools: Sequence[Tool] | None = None, choice: str | Mapping[str, Any] | None = None, parallel: bool = True) -> None:
        """Raises Error for a choice that is none."""
        named = function_of(choice).get("name") if isinstance(choice, Mapping) else None
        if choice not in (None, "none", "auto", "required") and not isinstance(named, str):
            raise Error(f'tool_choice is {choice!r} when none, auto, required or {{"type": "function", "function": {{"name": ...}}}} is needed')
        self.shown: list[dict[str, Any]] = [] if choice == "none" else [dict(tool) for tool in tools or []]
        """The tools that the chat template writes."""
        self.offered = [tool for tool in self.shown if named is None or function_of(tool).get("name") == named]
        """The tools that the answer may call."""
        self.is_required = named is not None or choice == "required"
        self.is_single = bool(self.shown) and (named is not None or not parallel)
        if self.is_required and not self.offered:
            raise Error(f"tool_choice has the name {named!r}, which no tool has" if named else "tool_choice needs tools")

    @property
    def has_rules(self) -> bool:
        """Whether a grammar keeps the calls."""
        return self.is_required or self.is_single or any(function_of(tool).get("strict") is True for tool in self.offered)

    @property
    def json(self) -> str:
        """The tools that the answer may call."""
        return json.dumps(self.offered)

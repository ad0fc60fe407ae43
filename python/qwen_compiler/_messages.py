"""Messages as chat templates take them."""
from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ._errors import Error

Message = Mapping[str, Any]


def content_text(content: Any) -> str:
    """The text of a content: a string, or parts of type "text"."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    for part in content:
        if part.get("type") != "text":
            raise Error(f"a message has a part of type {part.get('type')!r} when the model reads text only")
    return "".join(part["text"] for part in content)


def call_of(call: Mapping[str, Any]) -> dict[str, Any]:
    """A call of a tool with its arguments as an object."""
    function = dict(call["function"])
    if isinstance(function.get("arguments"), str):
        try:
            function["arguments"] = json.loads(function["arguments"] or "{}")
        except ValueError:
            function["arguments"] = {}
    return {**call, "function": function}


def template_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Messages of OpenAI's form for a template."""
    result = []
    for message in messages:
        if not isinstance(message, Mapping) or "role" not in message:
            raise Error(f"a message must be a mapping with a role, not {message!r}")
        turn = {name: value for name, value in message.items() if value is not None}
        turn["content"] = content_text(message.get("content"))
        if turn["role"] == "developer":
            turn["role"] = "system"
        if "reasoning" in turn:
            turn["reasoning_content"] = turn.pop("reasoning")
        # Templates take an empty list for calls.
        if calls := turn.pop("tool_calls", None):
            turn["tool_calls"] = [call_of(call) for call in calls]
        result.append(turn)
    return result

"""Grammars that answers keep to (docs/structured-output.md)."""
from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Mapping
from typing import Any

from . import _declarations as c
from ._calls import Calls
from ._errors import Error
from ._handle import Handle
from ._library import check, encoded, library, sized

# vLLM's names of what an answer keeps to.
KINDS = {"json": c.QWEN_GRAMMAR_JSON_SCHEMA, "regex": c.QWEN_GRAMMAR_REGEX, "choice": c.QWEN_GRAMMAR_CHOICE, "grammar": c.QWEN_GRAMMAR_LARK}
# Grammars that a model keeps for later requests.
KEPT = 32


class Grammar:
    """A grammar of a model. Its memory goes with its last reference, or with the model."""

    def __init__(self, handle: Handle, make: Callable[[int], int | None]) -> None:
        """`make` gets the model. Raises Error if it makes none."""
        self.handle = handle
        with handle.use() as model:
            self.pointer: int = check(make(model))
            with handle.changed:
                handle.grammars.add(self.pointer)

    def __del__(self) -> None:
        """Frees it, unless the model did."""
        pointer = getattr(self, "pointer", None)
        with self.handle.changed:
            if pointer in self.handle.grammars:
                self.handle.grammars.remove(pointer)
                library().qwen_grammar_free(pointer)


def grammar_of(handle: Handle, wanted: Mapping[str, Any] | None) -> Grammar | None:
    """The grammar of a member of KINDS, which may take a second to make. Raises Error for another one."""
    if not wanted:
        return None
    given = {name: value for name, value in wanted.items() if value is not None and value is not False}
    if given.pop("json_object", False):
        given["json"] = {"type": "object"}
    if len(given) != 1 or not given.keys() <= KINDS.keys():
        raise Error(f"structured_outputs has {', '.join(sorted(given)) or 'nothing'} when one of {', '.join(KINDS)} and json_object is needed")
    (name, value), = given.items()
    text = value if isinstance(value, str) and name != "choice" else json.dumps(value)
    data = encoded(text)
    return known_grammar(handle, (KINDS[name], text), lambda model: library().qwen_grammar_new(model, KINDS[name], data, len(data)))


def call_grammar_of(handle: Handle, calls: Calls) -> Grammar:
    """The grammar of the calls of an answer, which takes as long. Raises Error if one cannot be kept."""
    rules = sized(c.qwen_call_rules, is_required=calls.is_required, is_single=calls.is_single, tools=calls.json.encode())
    return known_grammar(handle, (calls.is_required, calls.is_single, calls.json),
                         lambda model: library().qwen_grammar_new_calls(model, ctypes.byref(rules)))


def known_grammar(handle: Handle, key: tuple[Any, ...], make: Callable[[int], int | None]) -> Grammar:
    """A grammar that an earlier request had, or a new one."""
    with handle.changed:
        known = handle.known_grammars.pop(key, None)
    known = known or Grammar(handle, make)
    with handle.changed:
        handle.known_grammars[key] = known
        while len(handle.known_grammars) > KEPT:
            del handle.known_grammars[next(iter(handle.known_grammars))]
    return known


def structured_outputs_of(response_format: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """What OpenAI's response_format asks for, in vLLM's words."""
    if not response_format or response_format.get("type") == "text":
        return None
    kind = response_format.get("type")
    if kind == "json_schema":
        # llama-cpp-python writes the schema directly.
        return {"json": response_format.get("json_schema", {}).get("schema", response_format.get("schema", True))}
    if kind == "json_object":
        return {"json": response_format["schema"]} if response_format.get("schema") else {"json_object": True}
    raise Error(f"response_format has the type {kind!r} when text, json_object or json_schema is needed")

"""From the tokens of an answer to its text, reasoning and calls of tools."""
from __future__ import annotations

import ctypes
import uuid
from collections.abc import Sequence

from . import _declarations as c
from ._answers import Completion, Delta, ToolCall, ToolDelta
from ._calls import Calls
from ._handle import Handle
from ._library import all_bytes, check, ids_array, library, sized, texts_array
from ._sampling import SamplingParams


class Parser:
    """The parser of one answer, which it fills."""

    def __init__(self, model: int, answer: Completion, params: SamplingParams, *, prompt: Sequence[int], ends: Sequence[int], chat: bool,
                 calls: Calls) -> None:
        """`ends` are the tokens that end an answer. `chat`: it may begin with reasoning, and call tools."""
        self.answer = answer
        # Whether a stop string has ended the text.
        self.stopped = False
        self.texts: list[str] = []
        self.thoughts: list[str] = []
        ids, stop_ids, stops = ids_array(prompt), ids_array(ends), texts_array(params.stops)
        options = sized(c.qwen_parser_options, include_stop=params.include_stop_str_in_output, keep_special=not params.skip_special_tokens,
                        join_reasoning=not chat, prompt=ids, prompt_size=len(ids), stops=stops, stop_count=len(stops), end_tokens=stop_ids,
                        end_count=len(stop_ids), has_call_grammar=calls.has_rules)
        if calls.offered:
            options.tools = calls.json.encode()
        self.pointer: int = check(library().qwen_parser_new(model, ctypes.byref(options)))

    def read(self, ids: Sequence[int], delta: Delta) -> None:
        """Takes the next tokens, and adds what they give to the answer and to its next part."""
        check(library().qwen_parser_feed(self.pointer, ids_array(ids), len(ids)))
        self._take_events(delta)

    def finish(self, delta: Delta) -> None:
        """Ends the answer and frees the parser."""
        library().qwen_parser_finish(self.pointer)
        self._take_events(delta)
        self.answer.text, self.answer.reasoning = "".join(self.texts), "".join(self.thoughts)
        self.free()

    def free(self) -> None:
        """Frees it. Does nothing the second time."""
        library().qwen_parser_free(self.pointer)
        self.pointer = 0

    def set_reason(self, reason: str, stop_tokens: Sequence[int]) -> None:
        """Why the answer ended, "stop" also at one of the `stop_tokens` of its request."""
        answer = self.answer
        last = answer.token_ids[-1] if answer.token_ids else None
        if self.stopped:
            reason = "stop"
        elif reason == "stop" and last in stop_tokens:
            answer.stop_reason = last
        if reason == "stop" and answer.tool_calls and all(call.complete for call in answer.tool_calls):
            reason = "tool_calls"
        answer.finish_reason = reason

    def _take_events(self, delta: Delta) -> None:
        event = sized(c.qwen_event)
        calls = self.answer.tool_calls
        while library().qwen_parser_event(self.pointer, ctypes.byref(event)) > 0:
            text = ctypes.string_at(event.text, event.text_size).decode() if event.text_size else ""
            if event.kind == c.QWEN_EVENT_TEXT:
                self.texts.append(text)
                delta.text += text
            elif event.kind == c.QWEN_EVENT_REASONING:
                self.thoughts.append(text)
                delta.reasoning += text
            elif event.kind == c.QWEN_EVENT_TOOL_BEGIN:
                calls.append(ToolCall(text, id="call_" + uuid.uuid4().hex))
                delta.tool_calls.append(ToolDelta(len(calls) - 1, text))
            elif event.kind == c.QWEN_EVENT_TOOL_ARGUMENTS:
                calls[-1].arguments += text
                delta.tool_calls.append(ToolDelta(len(calls) - 1, None, text))
            elif event.kind == c.QWEN_EVENT_TOOL_END:
                calls[-1].complete = True
            elif event.kind == c.QWEN_EVENT_STOP_STRING:
                self.stopped = True
                self.answer.stop_reason = text


def piece(handle: Handle, token: int) -> str:
    """The text of one token."""
    return all_bytes(library().qwen_detokenize, handle.model, ids_array([token]), 1).decode(errors="replace")

"""A request that runs: its tokens become an answer."""
from __future__ import annotations

import ctypes
import json
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from . import _declarations as c
from ._answers import Completion, Delta, Logprob, ToolCall, ToolDelta
from ._grammar import Grammar
from ._handle import CALLER, Handle, KeptThread, Running
from ._library import all_bytes, check, ids_array, library, sized, texts_array
from ._processors import Processors
from ._sampling import SamplingParams, native_sampling

REASONS = {c.QWEN_END_STOP: "stop", c.QWEN_END_LENGTH: "length", c.QWEN_END_CALLBACK: "stop", c.QWEN_END_CANCELLED: "abort", c.QWEN_END_FAILED: "error"}
MEMBERS: dict[str, Any] = {field[0]: field[1] for field in c.qwen_request._fields_}
# on_draw with addresses, which take less time to make than pointers.
OnDraw = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)


class Task:
    """What the answers to one prompt share."""

    def __init__(self, number: int, text: str | None, ids: list[int], ends: list[int], params: SamplingParams, *, chat: bool = False,
                 tools: Sequence[dict[str, Any]] | None = None, reasons: bool = False) -> None:
        """`ends` are the model's tokens that end an answer. `reasons`: the answer may begin with reasoning."""
        self.number = number
        self.text = text
        self.ids = ids
        # The tokens that end an answer.
        self.ends = [*([] if params.ignore_eos else ends), *(params.stop_token_ids or [])]
        self.params = params
        self.chat = chat
        self.tools = tools
        self.reasons = reasons
        self.grammar: Grammar | None = None


class Flight(Running):
    """A request of a task. On the reader's thread, `listen` gets each part of the answer, and None at the end."""

    def __init__(self, handle: Handle, task: Task, index: int, seed: int, listen: Callable[[Flight, Delta | None], None], streams: bool) -> None:
        """Starts it. Raises Error if it cannot run."""
        super().__init__(handle)
        self.task = task
        self.listen = listen
        self.streams = streams
        # Whether tokens come one by one. Else the end has all of them, and the engine works alone.
        self.reads = streams or bool(task.params.stops)
        self.answer = Completion(index, seed=seed)
        self.prompt_logprobs: list[dict[int, Logprob] | None] | None = None
        self.cached = 0
        self.texts: list[str] = []
        self.thoughts: list[str] = []
        self.stopped = False
        # The position of the first token that the answer does not get.
        self.failed_at = 0
        self.processors: Processors | None = None
        self.parser = 0
        params = task.params
        if params.logprobs is not None:
            self.answer.logprobs = []
            self.answer.cumulative_logprob = 0.0
        if params.prompt_logprobs is not None:
            self.prompt_logprobs = [None]
        with handle.use() as model:
            self.sampling = native_sampling(model, params, seed)
            self.parser = self._parser(model)
            try:
                if params.logits_processors:
                    self.processors = Processors(handle, params.logits_processors, self.sampling, index, task.ids)
                handle.submit(self, self._request())
            except BaseException:
                self._free()
                raise

    def _parser(self, model: int) -> int:
        params = self.task.params
        ids, ends, stops = ids_array(self.task.ids), ids_array(self.task.ends), texts_array(params.stops)
        options = sized(c.qwen_parser_options, include_stop=params.include_stop_str_in_output, keep_special=not params.skip_special_tokens,
                        join_reasoning=not self.task.chat, prompt=ids, prompt_size=len(ids), stops=stops, stop_count=len(stops), end_tokens=ends,
                        end_count=len(ends))
        if self.task.tools:
            options.tools = json.dumps(self.task.tools).encode()
        return int(check(library().qwen_parser_new(model, ctypes.byref(options))))

    def _request(self) -> Any:
        task, params = self.task, self.task.params
        ids, stops = ids_array(task.ids), ids_array(task.ends)
        request = sized(c.qwen_request, priority=params.priority, prompt=ids, prompt_size=len(ids), sampling=ctypes.pointer(self.sampling),
                        answer=self.answer.index, max_tokens=-1 if params.max_tokens is None else params.max_tokens, stop_tokens=stops,
                        stop_count=len(stops), salt=params.cache_salt, updates=c.QWEN_UPDATES_ANSWER)
        wanted = [count for count in (params.logprobs, params.prompt_logprobs) if count is not None]
        if wanted:
            request.logprobs = 1
            request.top_logprobs = max(wanted)
            request.score_prompt = params.prompt_logprobs is not None
        if task.grammar:
            request.grammar = task.grammar.pointer
            request.grammar_after_reasoning = task.reasons
        if not self.reads:
            request.updates = c.QWEN_UPDATES_AT_END
        if self.processors:
            self.thread = KeptThread()
            # The object keeps the functions, which the scheduler calls.
            self.functions = OnDraw(self._on_draw), MEMBERS["on_end"](self._on_last)
            request.on_draw, request.on_end = ctypes.cast(self.functions[0], MEMBERS["on_draw"]), self.functions[1]
        return request

    # On the scheduler's thread.

    def _on_draw(self, _: int | None, draw: int) -> int:
        CALLER.handle = self.handle
        self.thread.keep()
        try:
            if not self.failure and self.processors:
                return self.processors.draw(draw)
        except BaseException as error:  # It belongs to the thread that waits for the answer.
            self.failed_at = c.qwen_draw.from_address(draw).position
            self.failure = error
        finally:
            CALLER.handle = None
        # It may have no number yet, but it has one at a later draw.
        library().qwen_cancel(self.handle.scheduler, self.request)
        # Any token: the answer does not get it.
        return self.task.ids[-1]

    def _on_last(self, _: int | None, ending: Any) -> None:
        self.thread.release()

    # On the reader's thread.

    def on_token(self, event: Any) -> None:
        """A token of the prompt or of the answer."""
        if event.is_prompt:
            if self.prompt_logprobs is not None:
                self.prompt_logprobs.append(self._logprobs(event, self.task.params.prompt_logprobs or 0))
            return
        # The reader lags behind the draws.
        if self.stopped or (self.failure and event.position >= self.failed_at):
            self.cancel()
            return
        answer = self.answer
        answer.token_ids.append(event.id)
        if not self.reads and answer.logprobs is None:
            return
        delta = Delta(self.task.number, answer.index, token_ids=[event.id])
        if answer.logprobs is not None and answer.cumulative_logprob is not None:
            delta.logprobs = [self._logprobs(event, self.task.params.logprobs or 0)]
            answer.logprobs += delta.logprobs
            answer.cumulative_logprob += event.logprob
        if self.reads:
            self._read([event.id])
            self._take_events(delta)
        if self.streams:
            self.listen(self, delta)
        if self.stopped:
            self.cancel()

    def on_end(self, ending: Any) -> None:
        """The end, after all tokens."""
        answer, delta = self.answer, Delta(self.task.number, self.answer.index)
        self.cached = ending.cached_tokens
        if not self.failure and not self.stopped:
            self.note_failure(ending)
        if not self.reads:
            self._read(answer.token_ids)
        library().qwen_parser_finish(self.parser)
        self._take_events(delta)
        self._set_reason(ending.reason)
        answer.text, answer.reasoning = "".join(self.texts), "".join(self.thoughts)
        answer.error = self.failure
        delta.finish_reason, delta.stop_reason = answer.finish_reason, answer.stop_reason
        self._free()
        if self.handle.exits:
            return
        if self.streams and not self.failure:
            self.listen(self, delta)
        self.ended.set()
        self.listen(self, None)

    def _set_reason(self, reason: int) -> None:
        answer = self.answer
        answer.finish_reason = REASONS.get(reason, "abort")
        last = answer.token_ids[-1] if answer.token_ids else None
        if self.failure:
            answer.finish_reason = "error"
        elif self.stopped:
            answer.finish_reason = "stop"
        elif reason == c.QWEN_END_STOP and last in (self.task.params.stop_token_ids or ()):
            answer.stop_reason = last
        if answer.finish_reason == "stop" and answer.tool_calls and all(call.complete for call in answer.tool_calls):
            answer.finish_reason = "tool_calls"

    def _logprobs(self, event: Any, count: int) -> dict[int, Logprob]:
        """What an event says of its token and of the `count` most likely ones."""
        found = {}
        for rank, each in enumerate(event.top[:event.top_count] if event.top_count else [], 1):
            if rank <= count or each.id == event.id:
                found[each.id] = Logprob(each.logprob, rank, self._piece(each.id))
        found.setdefault(event.id, Logprob(event.logprob, None, self._piece(event.id)))
        return found

    def _piece(self, token: int) -> str:
        return all_bytes(library().qwen_detokenize, self.handle.model, ids_array([token]), 1).decode(errors="replace")

    def _read(self, ids: list[int]) -> None:
        """Gives tokens to the parser."""
        check(library().qwen_parser_feed(self.parser, ids_array(ids), len(ids)))

    def _take_events(self, delta: Delta) -> None:
        """Adds what the parser knows to the answer and to its next part."""
        event = sized(c.qwen_event)
        while library().qwen_parser_event(self.parser, ctypes.byref(event)) > 0:
            text = ctypes.string_at(event.text, event.text_size).decode() if event.text_size else ""
            calls = self.answer.tool_calls
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

    def _free(self) -> None:
        library().qwen_parser_free(self.parser)
        self.parser = 0
        if self.processors:
            self.processors.free()

"""A request that runs: its tokens become an answer."""
from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from . import _declarations as c
from ._answers import Completion, Delta, Logprob
from ._calls import Calls
from ._errors import Error
from ._grammar import Grammar
from ._handle import CALLER, Handle, KeptThread, Running
from ._library import ids_array, library, sized
from ._parser import Parser, piece
from ._processors import Processors
from ._sampling import SamplingParams, native_beams, native_sampling

REASONS = {c.QWEN_END_STOP: "stop", c.QWEN_END_LENGTH: "length", c.QWEN_END_CALLBACK: "stop", c.QWEN_END_CANCELLED: "abort", c.QWEN_END_FAILED: "error"}
MEMBERS: dict[str, Any] = {field[0]: field[1] for field in c.qwen_request._fields_}
# on_draw with addresses, which take less time to make than pointers.
OnDraw = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)


class Task:
    """What the answers to one prompt share."""

    def __init__(self, number: int, text: str | None, ids: list[int], ends: list[int], params: SamplingParams, *, chat: bool = False,
                 calls: Calls | None = None, reasons: bool = False) -> None:
        """`ends` are the model's tokens that end an answer. `reasons`: the answer may begin with reasoning."""
        self.number = number
        self.text = text
        self.ids = ids
        # The tokens that end an answer.
        self.ends = [*([] if params.ignore_eos else ends), *(params.stop_token_ids or [])]
        self.params = params
        self.chat = chat
        self.calls = calls or Calls()
        self.reasons = reasons
        self.grammar: Grammar | None = None
        # A beam search gives all answers.
        self.requests = 1 if params.is_search else params.n


Listener = Callable[["Request", "Delta | None"], None]


class Request(Running):
    """A request of a task. On the reader's thread, `listen` gets each part of an answer, and None at the end."""

    def __init__(self, handle: Handle, task: Task, listen: Listener, streams: bool) -> None:
        """`submit` starts it."""
        super().__init__(handle)
        self.task = task
        self.listen = listen
        self.streams = streams
        self.answers: list[Completion] = []
        self.prompt_logprobs: list[dict[int, Logprob] | None] | None = None if task.params.prompt_logprobs is None else [None]
        self.cached = 0

    def parser(self, model: int, answer: Completion) -> Parser:
        """A parser that fills an answer."""
        task = self.task
        return Parser(model, answer, task.params, prompt=task.ids, ends=task.ends, chat=task.chat, calls=task.calls)

    def native(self, sampling: Any) -> Any:
        """The request for C. The struct keeps the memory to which it points."""
        task, params = self.task, self.task.params
        ids, stops = ids_array(task.ids), ids_array(task.ends)
        request = sized(c.qwen_request, priority=params.priority, prompt=ids, prompt_size=len(ids), sampling=ctypes.pointer(sampling),
                        max_tokens=-1 if params.max_tokens is None else params.max_tokens, stop_tokens=stops,
                        stop_count=len(stops), salt=params.cache_salt, updates=c.QWEN_UPDATES_ANSWER)
        wanted = [count for count in (params.logprobs, params.prompt_logprobs) if count is not None]
        if wanted:
            request.logprobs = 1
            request.top_logprobs = max(wanted)
            request.score_prompt = params.prompt_logprobs is not None
        if task.grammar:
            request.grammar = task.grammar.pointer
            request.grammar_after_reasoning = task.reasons
        if params.allowed_token_ids is not None:
            allowed = ids_array(params.allowed_token_ids)
            request.allowed_tokens, request.allowed_count = allowed, len(allowed)
        if params.thinking_token_budget is not None:
            request.has_budget, request.reasoning_budget = 1, params.thinking_token_budget
        return request

    # On the reader's thread.

    def take_prompt(self, event: Any) -> None:
        """Keeps the score of a token of the prompt."""
        if self.prompt_logprobs is not None:
            self.prompt_logprobs.append(self.logprobs_of(event, self.task.params.prompt_logprobs or 0))

    def logprobs_of(self, event: Any, count: int) -> dict[int, Logprob]:
        """What an event says of its token and of the `count` most likely ones."""
        found = {}
        for rank, each in enumerate(event.top[:event.top_count] if event.top_count else [], 1):
            if rank <= count or each.id == event.id:
                found[each.id] = Logprob(each.logprob, rank, piece(self.handle, each.id))
        found.setdefault(event.id, Logprob(event.logprob, None, piece(self.handle, event.id)))
        return found

    def tell(self, delta: Delta) -> None:
        """Passes on a part of an answer to who streams."""
        if self.streams:
            self.listen(self, delta)

    def end(self, last: Delta | None = None) -> None:
        """Passes on the last part, unless the answer failed, and wakes who waits."""
        if self.handle.exits:
            return
        if last and not self.failure:
            self.tell(last)
        self.ended.set()
        self.listen(self, None)


class Flight(Request):
    """A request that draws one answer."""

    def __init__(self, handle: Handle, task: Task, index: int, seed: int, listen: Listener, streams: bool) -> None:
        """Starts it. Raises Error if it cannot run."""
        super().__init__(handle, task, listen, streams)
        self.answer = Completion(index, seed=seed)
        self.answers.append(self.answer)
        # Whether tokens come one by one. Else the end has all of them, and the engine works alone.
        self.reads = streams or bool(task.params.stops)
        # The position of the first token that the answer does not get.
        self.failed_at = 0
        self.processors: Processors | None = None
        params = task.params
        if params.logprobs is not None:
            self.answer.logprobs = []
            self.answer.cumulative_logprob = 0.0
        with handle.use() as model:
            self.sampling = native_sampling(model, params, seed)
            self.text = self.parser(model, self.answer)
            try:
                if params.logits_processors:
                    self.processors = Processors(handle, params.logits_processors, self.sampling, index, task.ids)
                handle.submit(self, self._native())
            except BaseException:
                self._free()
                raise

    def _native(self) -> Any:
        request = self.native(self.sampling)
        request.answer = self.answer.index
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
            self.take_prompt(event)
            return
        # The reader lags behind the draws.
        if self.text.stopped or (self.failure and event.position >= self.failed_at):
            self.cancel()
            return
        answer = self.answer
        answer.token_ids.append(event.id)
        if not self.reads and answer.logprobs is None:
            return
        delta = Delta(self.task.number, answer.index, token_ids=[event.id])
        if answer.logprobs is not None and answer.cumulative_logprob is not None:
            delta.logprobs = [self.logprobs_of(event, self.task.params.logprobs or 0)]
            answer.logprobs += delta.logprobs
            answer.cumulative_logprob += event.logprob
        if self.reads:
            self.text.read([event.id], delta)
        self.tell(delta)
        if self.text.stopped:
            self.cancel()

    def on_end(self, ending: Any) -> None:
        """The end, after all tokens."""
        answer, delta = self.answer, Delta(self.task.number, self.answer.index)
        self.cached = ending.cached_tokens
        if not self.failure and not self.text.stopped:
            self.note_failure(ending)
        if not self.reads:
            self.text.read(answer.token_ids, delta)
        self.text.finish(delta)
        self.text.set_reason("error" if self.failure else REASONS.get(ending.reason, "abort"), self.task.params.stop_token_ids or ())
        answer.error = self.failure
        delta.finish_reason, delta.stop_reason = answer.finish_reason, answer.stop_reason
        self._free()
        self.end(delta)

    def _free(self) -> None:
        self.text.free()
        if self.processors:
            self.processors.free()


class Search(Request):
    """A beam search, which gives all answers to a prompt at its end, best first."""

    def __init__(self, handle: Handle, task: Task, listen: Listener, streams: bool) -> None:
        """Starts it. Raises Error if it cannot run."""
        super().__init__(handle, task, listen, streams)
        if task.params.stops:
            raise Error("stop must be empty with num_beams; stop_token_ids ends beams")
        with handle.use() as model:
            request = self.native(native_sampling(model, task.params, 0))
            request.beams = ctypes.pointer(native_beams(task.params))
            handle.submit(self, request)

    def on_token(self, event: Any) -> None:
        """A token of the prompt."""
        self.take_prompt(event)

    def on_answer(self, found: Any) -> None:
        """The next answer (qwen_beam_answer)."""
        params = self.task.params
        ids, logprobs = found.ids[:found.count], found.logprobs[:found.count]
        answer = Completion(len(self.answers), token_ids=ids, cumulative_logprob=sum(logprobs), score=found.score)
        if params.logprobs is not None:
            answer.logprobs = [{token: Logprob(logprob, None, piece(self.handle, token))} for token, logprob in zip(ids, logprobs)]
        delta = Delta(self.task.number, answer.index, token_ids=ids, logprobs=answer.logprobs)
        text = self.parser(self.handle.model, answer)
        text.read(ids, delta)
        text.finish(delta)
        text.set_reason("stop" if ids and ids[-1] in self.task.ends else "length", params.stop_token_ids or ())
        delta.finish_reason, delta.stop_reason = answer.finish_reason, answer.stop_reason
        self.answers.append(answer)
        self.tell(delta)

    def on_end(self, ending: Any) -> None:
        """The end, after all answers."""
        self.cached = ending.cached_tokens
        self.note_failure(ending)
        if not self.answers:
            self.answers = [Completion(0, finish_reason=REASONS.get(ending.reason, "abort"), error=self.failure)]
        self.end()

"""Waits for answers: blocking, as a stream, and in asyncio."""
from __future__ import annotations

import asyncio
import collections
import contextlib
import functools
import queue
import random
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import Any

from ._answers import Completion, Delta, Result
from ._errors import AnswerError, ClosedError, Error
from ._flight import Flight, Listener, Request, Search, Task
from ._grammar import call_grammar_of, grammar_of
from ._handle import Handle, Running
from ._rows import Rows, Surprise

# Prompts whose rows are asked for at once, and floats of all these rows if they are several.
AHEAD, FLOATS = 32, 2**24


def prepare(handle: Handle, tasks: list[Task]) -> None:
    """Makes the grammars, which may take seconds."""
    for task in tasks:
        asked = task.params.structured_outputs
        if asked and task.calls.has_rules:
            raise Error("calls that a grammar keeps exclude structured_outputs and response_format")
        task.grammar = task.grammar or (call_grammar_of(handle, task.calls) if task.calls.has_rules else grammar_of(handle, asked))


async def aprepare(handle: Handle, tasks: list[Task]) -> None:
    """The same beside the loop of asyncio."""
    if any(task.params.structured_outputs or task.calls.has_rules for task in tasks):
        await asyncio.to_thread(prepare, handle, tasks)


def start(handle: Handle, tasks: list[Task], listen: Listener, *, streams: bool = False) -> list[Request]:
    """Starts all answers to all prompts. Raises Error, without any of them, if one cannot run."""
    flights: list[Request] = []
    try:
        prepare(handle, tasks)
        for task in tasks:
            if task.params.is_search:
                flights.append(Search(handle, task, listen, streams))
                continue
            seed = random.getrandbits(53) if task.params.seed is None else task.params.seed
            for index in range(task.params.n):
                flights.append(Flight(handle, task, index, seed, listen, streams))
    except BaseException:
        stop(flights)
        raise
    return flights


def stop(flights: Sequence[Running]) -> None:
    """Ends what runs, within a step of the model."""
    for flight in flights:
        flight.cancel()
    for flight in flights:
        if not flight.handle.exits:
            flight.ended.wait()


def results_of(flights: list[Request]) -> list[Result]:
    """The results in the order of the prompts. Raises the error of answers that failed."""
    results: dict[int, Result] = {}
    for flight in flights:
        task = flight.task
        result = results.setdefault(task.number, Result(task.text, task.ids, [], flight.prompt_logprobs, flight.cached))
        result.outputs += flight.answers
    ordered = list(results.values())
    for result in ordered:
        for answer in result.outputs:
            if answer.error:
                raise_error(answer, ordered)
    return ordered


def raise_error(answer: Completion, results: list[Result]) -> None:
    """Raises the error of an answer, with what others became."""
    error = answer.error
    if isinstance(error, ClosedError):
        raise error
    code = error.code if isinstance(error, Error) else -1
    raise AnswerError(str(error) or type(error).__name__, code, results) from error


def generate(handle: Handle, tasks: list[Task]) -> list[Result]:
    """All answers. An interrupt ends them."""
    flights = start(handle, tasks, lambda *_: None)
    wait(flights)
    return results_of(flights)


def wait(flights: Sequence[Running]) -> None:
    """Waits for the ends. An interrupt ends all."""
    try:
        for flight in flights:
            flight.ended.wait()
    except BaseException:
        stop(flights)
        raise


def has_room(ahead: Sequence[Rows], width: int) -> bool:
    """Whether more rows are asked for: enough that the scheduler has work, and no more memory than that takes."""
    return len(ahead) < AHEAD and sum(each.count for each in ahead) * width < FLOATS


def rows(handle: Handle, prompts: Iterable[tuple[Sequence[int], int]], want: int, width: int) -> Iterator[Rows]:
    """The rows of the last tokens of each prompt, of the number beside it, in the order of the prompts. Raises the error of one that failed."""
    ahead: collections.deque[Rows] = collections.deque()
    left = iter(prompts)
    try:
        while True:
            while has_room(ahead, width):
                ids, count = next(left, ((), 0))
                if not count:
                    break
                ahead.append(Rows(handle, ids, want, count, width))
            if not ahead:
                return
            wait([ahead[0]])
            yield ahead.popleft().checked()
    finally:
        stop(ahead)


def surprise(handle: Handle, ids: Sequence[int], count: int) -> float:
    """The sum of -log p of the last tokens of a text (Surprise)."""
    sums = Surprise(handle, ids, count)
    wait([sums])
    if sums.failure:
        raise sums.failure
    return sums.total


def stream(handle: Handle, tasks: list[Task]) -> Iterator[Delta]:
    """The parts of all answers as they come. An iterator that is closed ends them."""
    arrived: queue.SimpleQueue[Delta | None] = queue.SimpleQueue()
    flights = start(handle, tasks, lambda _, delta: arrived.put(delta), streams=True)
    try:
        left = len(flights)
        while left:
            delta = arrived.get()
            if delta:
                yield delta
            else:
                left -= 1
        results_of(flights)
    finally:
        stop(flights)


class _Loop:
    """Calls functions in a loop of asyncio from other threads."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()

    def call(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Does nothing if the loop has ended."""
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(function, *arguments)


async def agenerate(handle: Handle, tasks: list[Task]) -> list[Result]:
    """All answers. A task that is cancelled ends them."""
    await aprepare(handle, tasks)
    loop, left, done = _Loop(), sum(task.requests for task in tasks), asyncio.Event()

    def count() -> None:
        nonlocal left
        left -= 1
        if not left:
            done.set()

    flights = start(handle, tasks, lambda _, delta: None if delta else loop.call(count))
    try:
        if flights:
            await done.wait()
    finally:
        for flight in flights:
            flight.cancel()
    return results_of(flights)


async def arows(handle: Handle, prompts: Iterable[tuple[Sequence[int], int]], want: int, width: int) -> AsyncIterator[Rows]:
    """`rows` for asyncio. A task that is cancelled ends them."""
    loop = _Loop()
    ahead: collections.deque[tuple[Rows, asyncio.Event]] = collections.deque()
    left = iter(prompts)
    try:
        while True:
            while has_room([each for each, _ in ahead], width):
                ids, count = next(left, ((), 0))
                if not count:
                    break
                done = asyncio.Event()
                ahead.append((Rows(handle, ids, want, count, width, functools.partial(loop.call, done.set)), done))
            if not ahead:
                return
            await ahead[0][1].wait()
            yield ahead.popleft()[0].checked()
    finally:
        for each, _ in ahead:
            each.cancel()


async def astream(handle: Handle, tasks: list[Task]) -> AsyncIterator[Delta]:
    """The parts of all answers as they come. A task that is cancelled ends them."""
    await aprepare(handle, tasks)
    loop = _Loop()
    arrived: asyncio.Queue[Delta | None] = asyncio.Queue()
    flights = start(handle, tasks, lambda _, delta: loop.call(arrived.put_nowait, delta), streams=True)
    try:
        left = len(flights)
        while left:
            delta = await arrived.get()
            if delta:
                yield delta
            else:
                left -= 1
        results_of(flights)
    finally:
        for flight in flights:
            flight.cancel()

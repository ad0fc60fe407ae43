"""A loaded model with its scheduler: who may use it, who reads the updates of its requests, and when its memory goes."""
from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import threading
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from . import _declarations as c
from ._errors import ClosedError, Error
from ._library import check, library, sized

if TYPE_CHECKING:
    from ._grammar import Grammar

# Requests may wait without a bound: a batch has as many as it has prompts.
QUEUE = 2**31 - 1
# Updates that the reader takes at once.
UPDATES = 256


class _Caller(threading.local):
    """What a thread is in: the model whose scheduler runs a function of a request on it and waits, and the number of calls of `use`."""

    handle: Handle | None = None
    uses = 0


CALLER = _Caller()


class KeptThread:
    """A thread that Python did not start, with its state in the interpreter, which goes with the last function of Python on it, and which
    takes longer to make than a draw."""

    def __init__(self) -> None:
        """Keeps no thread yet."""
        # CPython has these functions.
        self.python: Any = getattr(ctypes, "pythonapi", None)
        self.is_kept = False

    def keep(self) -> None:
        """Keeps the state of this thread from now on."""
        if self.python and not self.is_kept:
            self.python.PyGILState_Ensure()
            self.is_kept = True

    def release(self) -> None:
        """Lets it go, on the same thread."""
        if self.is_kept:
            has_lock = 0
            self.python.PyGILState_Release(has_lock)
            self.is_kept = False


HANDLES: weakref.WeakSet[Handle] = weakref.WeakSet()


@atexit.register
def close_all() -> None:
    """Frees all models before the interpreter goes."""
    for handle in list(HANDLES):
        handle.exits = True
        handle.close()


class Handle:
    """The model, its scheduler and the thread that reads what happens to its requests. Any thread may call all functions."""

    def __init__(self, path: str, options: Any) -> None:
        """Loads a compiled file. Raises Error."""
        self.path = path
        self.process = os.getpid()
        self.model: int = check(library().qwen_load(os.fsencode(path), ctypes.byref(options)))
        try:
            scheduler_options = sized(c.qwen_scheduler_options, queue=QUEUE)
            self.scheduler: int = check(library().qwen_scheduler_new(self.model, ctypes.byref(scheduler_options)))
        except Error:
            library().qwen_free(self.model)
            raise
        self.flights: dict[int, Running] = {}
        self.last_flight = 0
        self.users = 0
        # Pointers to the grammars that live, and those that later requests may use.
        self.grammars: set[int] = set()
        self.known_grammars: dict[tuple[Any, ...], Grammar] = {}
        self.closed = False
        # The program ends: threads that wait get nothing more, and so say nothing.
        self.exits = False
        self.freed = threading.Event()
        self.changed = threading.Condition()
        # A thread that waits for nothing but the library does not keep the program from its end.
        self.reader = threading.Thread(target=self._read, name="qwen_compiler", daemon=True)
        self.reader.start()
        HANDLES.add(self)

    @contextlib.contextmanager
    def use(self) -> Iterator[int]:
        """The model for a short call, during which it is not freed. Raises ClosedError."""
        self.check_process()
        with self.changed:
            is_open = not self.closed
            self.users += is_open
        if not is_open:
            raise self.refusal()
        CALLER.uses += 1
        refused: ClosedError | None = None
        try:
            yield self.model
        except ClosedError as error:
            refused = error
        finally:
            CALLER.uses -= 1
            with self.changed:
                self.users -= 1
                if not self.users:
                    self.changed.notify_all()
        if refused:
            raise self.refusal() from refused.__cause__

    def refusal(self) -> ClosedError:
        """The error of a closed model. A thread that the end of the program leaves behind gets none, because its traceback would be output."""
        if self.exits and threading.current_thread().daemon and not CALLER.uses:
            threading.Event().wait()
        return ClosedError(f"the model of {self.path} is closed")

    def check_process(self) -> None:
        """Raises Error in a child of fork, which has none of the model's threads."""
        if os.getpid() != self.process:
            raise Error(f"the model of {self.path} belongs to process {self.process}, which forked this one; load it here, too: "
                        "both share the pages of its file")

    def submit(self, flight: Running, request: Any) -> None:
        """Starts a request. Raises Error if it cannot run."""
        if CALLER.handle is self:
            raise Error("a logits processor cannot wait for its own model")
        with self.use():
            with self.changed:
                self.last_flight += 1
                number = self.last_flight
                self.flights[number] = flight
            request.user = number
            try:
                flight.request = check(library().qwen_submit(self.scheduler, ctypes.byref(request)))
            except Error as error:
                with self.changed:
                    del self.flights[number]
                # Another thread has closed the model meanwhile.
                if error.code == c.QWEN_ERROR_CANCELLED:
                    raise ClosedError(str(error)) from None
                raise

    def cancel(self, request: int) -> None:
        """Ends a request before its next step."""
        with contextlib.suppress(ClosedError), self.use():
            library().qwen_cancel(self.scheduler, request)

    def _read(self) -> None:
        """Passes updates to the requests until the scheduler has ended."""
        updates = (c.qwen_update * UPDATES)()
        while True:
            count = library().qwen_scheduler_next(self.scheduler, 0, updates, UPDATES, -1)
            if count < 0:
                break
            for i in range(count):
                self._pass(updates[i])

    def _pass(self, update: Any) -> None:
        flight = self.flights[update.user]
        flight.request = update.request
        if update.kind == c.QWEN_UPDATE_TOKEN:
            flight.on_token(c.qwen_token_event.from_address(update.data))
        elif update.kind == c.QWEN_UPDATE_ANSWER:
            flight.on_answer(c.qwen_beam_answer.from_address(update.data))
        elif update.kind == c.QWEN_UPDATE_END:
            with self.changed:
                del self.flights[update.user]
            flight.on_end(c.qwen_ending.from_address(update.data))

    def close(self) -> None:
        """Ends all requests and frees the model. Does nothing the second time, and in a child of fork."""
        if os.getpid() != self.process:
            self.closed = True
            return
        if CALLER.handle is self:
            raise Error("a logits processor cannot close its own model")
        with self.changed:
            first = not self.closed
            self.closed = True
        if not first:
            self.freed.wait()
            return
        library().qwen_scheduler_close(self.scheduler)
        self.reader.join()
        with self.changed:
            self.changed.wait_for(lambda: not self.users)
            for grammar in self.grammars:
                library().qwen_grammar_free(grammar)
            self.grammars.clear()
        library().qwen_scheduler_free(self.scheduler)
        library().qwen_free(self.model)
        self.freed.set()

    def finalize(self) -> None:
        """Closes a model that nobody has any more. The garbage collector may run on a thread for which `close` would wait."""
        if CALLER.handle is self or threading.current_thread() is self.reader:
            threading.Thread(target=self.close).start()
        else:
            self.close()


class Running:
    """A request that runs. The reader of its model calls on_token, on_answer and on_end."""

    def __init__(self, handle: Handle) -> None:
        """`handle.submit` starts it."""
        self.handle = handle
        # Its number, which the scheduler gives.
        self.request = 0
        self.ended = threading.Event()
        self.failure: BaseException | None = None

    def on_token(self, event: Any) -> None:
        """A token of the prompt or of the answer (qwen_token_event)."""
        raise NotImplementedError

    def on_answer(self, found: Any) -> None:
        """An answer of a beam search (qwen_beam_answer)."""
        raise NotImplementedError

    def on_end(self, ending: Any) -> None:
        """The end, after all tokens (qwen_ending)."""
        raise NotImplementedError

    def cancel(self) -> None:
        """Ends it before its next step. Does nothing if it has ended."""
        if not self.ended.is_set():
            self.handle.cancel(self.request)

    def note_failure(self, ending: Any) -> None:
        """Keeps what an ending says of an error."""
        if ending.reason == c.QWEN_END_FAILED:
            self.failure = Error((ending.text or b"").decode(errors="replace"), ending.error)
        elif ending.reason == c.QWEN_END_CANCELLED and self.handle.closed:
            self.failure = ClosedError(f"the model of {self.handle.path} was closed during an answer")

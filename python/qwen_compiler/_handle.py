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
    from ._flight import Flight

# Requests may wait without a bound: a batch has as many as it has prompts.
QUEUE = 2**31 - 1
# Updates that the reader takes at once.
UPDATES = 256


class _Caller(threading.local):
    """The model whose scheduler runs a function of a request on this thread, and waits for it."""

    handle: Handle | None = None


CALLER = _Caller()


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
        self.flights: dict[int, Flight] = {}
        self.last_flight = 0
        self.users = 0
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
        if self.exits and threading.current_thread().daemon:
            threading.Event().wait()
        with self.changed:
            if self.closed:
                raise ClosedError(f"the model of {self.path} is closed")
            self.users += 1
        try:
            yield self.model
        finally:
            with self.changed:
                self.users -= 1
                if not self.users:
                    self.changed.notify_all()

    def check_process(self) -> None:
        """Raises Error in a child of fork, which has none of the model's threads."""
        if os.getpid() != self.process:
            raise Error(f"the model of {self.path} belongs to process {self.process}, which forked this one; load it here, too: "
                        "both share the pages of its file")

    def submit(self, flight: Flight, request: Any) -> None:
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
            except Error:
                with self.changed:
                    del self.flights[number]
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
            flight.on_token(ctypes.cast(update.data, ctypes.POINTER(c.qwen_token_event)).contents)
        elif update.kind == c.QWEN_UPDATE_END:
            with self.changed:
                del self.flights[update.user]
            flight.on_end(ctypes.cast(update.data, ctypes.POINTER(c.qwen_ending)).contents)

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
        library().qwen_scheduler_free(self.scheduler)
        library().qwen_free(self.model)
        self.freed.set()

    def finalize(self) -> None:
        """Closes a model that nobody has any more. The garbage collector may run on a thread for which `close` would wait."""
        if CALLER.handle is self or threading.current_thread() is self.reader:
            threading.Thread(target=self.close).start()
        else:
            self.close()

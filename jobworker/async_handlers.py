"""Runs async handlers on one event loop beside the pool: one that awaits holds no thread.

Its job waits (`Why.HANDLER_RUNS`), and runs again once the handler has ended. A handler that blocks
the loop stops all of them. It is named after a second; after the time limit the loop is left to it,
and another one begins.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from dispatcher.conversations.mailbox import HandlerCall
from jobworker.bot.places import deepest, note_unused
from jobworker.handler_context import HandlerContext, current_call
from jobworker.handler_retry import Failure, did_not_return, raised

if TYPE_CHECKING:
    from jobworker.bot.talk import Talk

T = TypeVar("T")

log = logging.getLogger(__name__)

MOST_ASYNC = 200
# A handler that does not let the others run for this long is named.
BLOCKED_SECONDS = 1.0
# So many blocked loops end the process.
MOST_LOST_LOOPS = 5


class Awaited:
    """A call of a handler outside the pool: it ends, or is abandoned; then `ended` is called."""

    def __init__(
        self,
        talk: Talk,
        call: HandlerContext,
        handling: HandlerCall,
        *,
        ended: Callable[[], object],
    ) -> None:
        self.talk = talk
        self.call = call
        self.handling = handling
        self.at_end = ExitStack()
        """Closed by the run that takes the result."""
        self.is_begun = False
        """Whether it is not in line any more."""
        self.is_over = False
        self.outcome: Callable[[], Failure | None] = lambda: None
        """Returns why it failed elsewhere; raises its error. For the run that takes the result."""
        self.failure: Failure | None = None
        """Why it was abandoned."""
        self.coroutine: Any = None
        self._ended = ended

    def begin(self) -> None:
        """It has a place: its time limit begins."""
        self.handling.since = time.monotonic()
        self.is_begun = True

    def end(self) -> None:
        """It has returned; without effect if it was abandoned."""
        if not self.handling.is_abandoned:
            self.is_over = True
            self._ended()

    def fail(self, failure: Failure) -> None:
        """It cannot begin."""
        self.outcome = lambda: failure
        if self.handling.end():
            self.end()

    def abandon(self, failure: Failure | None = None) -> bool:
        """Abandon it, by default because it did not return; False if it has ended before."""
        failure = failure or did_not_return(self.stack, has_sent=self.call.has_sent)
        if not self.handling.abandon():
            return False
        self.failure, self.is_over = failure, True
        self._ended()
        return True

    def abandon_if_overdue(self, limit_seconds: float, now: float) -> None:
        """Abandon it if it has exceeded its own limit, or else this one."""
        if self.is_begun and self.handling.is_overdue(limit_seconds, now) and self.abandon():
            told = "handler did not return, abandoned event_id=%s thread=%s seconds=%.1f"
            seconds = now - self.handling.since
            log.error(told, self.talk.event_id, self.call.thread, seconds)

    @property
    def stack(self) -> str:
        """Where it awaits, in the form of a traceback."""
        frames: list[traceback.FrameSummary] = []
        coroutine = self.coroutine
        while (frame := getattr(coroutine, "cr_frame", None)) is not None:
            frames += traceback.extract_stack(frame, limit=1)
            coroutine = coroutine.cr_await
        return "".join(traceback.format_list(frames))


class Threads(ThreadPoolExecutor):
    """For `asyncio.to_thread`: a daemon thread for each call. Python waits at its end for the
    threads of other executors, and a call may hang.
    """

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future = Future[T]()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001 - its caller gets it
                future.set_exception(error)

        threading.Thread(target=run, name="async-call", daemon=True).start()
        return future


def a_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop for handlers."""
    loop = asyncio.new_event_loop()
    loop.set_default_executor(Threads())
    loop.set_exception_handler(_log_error)
    return loop


def _task_of_call(loop: Any, coroutine: Any, **more: Any) -> Any:
    """Each task knows its call: one that a handler began may block the loop as well."""
    task: Any = asyncio.Task(coroutine, loop=loop, **more)
    task.call = current_call()
    return task


class _Loop(threading.Thread):
    """An event loop and its thread, with `most` places."""

    def __init__(self, most: int) -> None:
        super().__init__(name="async", daemon=True)
        self.loop = a_loop()
        self.loop.set_task_factory(_task_of_call)
        self.calls: set[Awaited] = set()
        """All that have not returned, among them those in line and the abandoned ones."""
        self.is_named = False
        self._places = asyncio.Semaphore(most)
        self._is_ended = False
        # Monotonic time of the question that is not answered yet.
        self._asked_at: float | None = None

    def run(self) -> None:
        asyncio.set_event_loop(self.loop)
        while not self._is_ended:
            # Raised by a task that a handler began, which gets it as well.
            with suppress(SystemExit, KeyboardInterrupt):
                self.loop.run_forever()
        self.loop.close()

    async def handle(self, handler: Callable[..., Any], event: Any, one: Awaited) -> None:
        task: Any = asyncio.current_task()
        task.call = one.call
        try:
            async with self._places:
                one.begin()
                with one.call.under(one.handling):
                    one.coroutine = handler(event, one.talk)
                    note_unused(handler, await one.coroutine)
        except BaseException as found:  # noqa: BLE001 - a bot's own code; the turn raises it
            one.outcome = partial(_raise, found)
        self.calls.discard(one)
        one.end()

    def seconds_blocked(self, now: float) -> float:
        """How long it has not answered; it is asked once more if it has."""
        if self._asked_at is not None:
            return now - self._asked_at
        self._asked_at, self.is_named = now, False
        self.loop.call_soon_threadsafe(self._answer)
        return 0.0

    def _answer(self) -> None:
        self._asked_at = None

    def blocking(self) -> tuple[Awaited | None, str]:
        """The handler that runs now, as far as known, and its line."""
        frame = sys._current_frames().get(self.ident or 0)
        place = "-" if frame is None else deepest(traceback.extract_stack(frame))
        call = getattr(asyncio.current_task(self.loop), "call", None)
        return next((one for one in list(self.calls) if one.call is call), None), place

    async def end(self) -> None:
        """Cancel what still runs, then end."""
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for one in others:
            one.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        self._is_ended = True
        self.loop.stop()


class AsyncHandlers:
    """The async handlers of a process: `most` run at a time, the others wait in line."""

    def __init__(self, most: int = MOST_ASYNC) -> None:
        self.most = most
        self._loop = _Loop(most)
        self._lost: list[_Loop] = []

    def start(self) -> None:
        """Begin; without it no handler runs."""
        self._loop.start()

    def begin(self, handler: Callable[..., Any], event: Any, one: Awaited) -> None:
        """Run a handler as soon as there is a place."""
        loop = self._loop
        one.call.thread, one.talk.is_async = loop.name, True
        loop.calls.add(one)
        one.handling.when_abandoned(self._submit(loop, loop.handle(handler, event, one)).cancel)
        if loop is not self._loop:
            # It was lost meanwhile.
            one.abandon(_blocked(one))

    def run(self, handler: Callable[..., Any], event: Any, talk: Talk) -> object:
        """Run a handler now, and wait for its end on this thread; returns its value. Raises its
        errors.
        """
        talk.is_async = True
        result = self._submit(self._loop, handler(event, talk))
        if (call := current_call()) is not None:
            call.when_abandoned(result.cancel)
        return result.result()

    def _submit(self, loop: _Loop, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, loop.loop)

    def is_blocked(self, limit_seconds: float = 60.0) -> bool:
        """Look once a second whether the loop answers; after the limit another one begins."""
        now, loop = time.monotonic(), self._loop
        seconds = loop.seconds_blocked(now)
        if seconds < BLOCKED_SECONDS:
            return False
        if not loop.is_named or seconds > limit_seconds:
            loop.is_named = True
            one, place = loop.blocking()
            log.error(
                "a handler blocks the event loop event_id=%s at=%s seconds=%.1f",
                *("-" if one is None else one.talk.event_id, place, seconds),
            )
            if seconds > limit_seconds:
                self._lose(loop, one)
        return True

    def _lose(self, loop: _Loop, culprit: Awaited | None) -> None:
        self._lost = [*(one for one in self._lost if one.is_alive()), loop]
        self._loop = _Loop(self.most)
        self._loop.start()
        for one in list(loop.calls):
            one.abandon(None if one is culprit else _blocked(one))
        self._submit(loop, loop.end())

    @property
    def has_places_left(self) -> bool:
        """Whether fewer abandoned handlers than places still run, and few loops are lost."""
        hanging = sum(one.handling.is_abandoned for one in list(self._loop.calls))
        lost = sum(one.is_alive() for one in self._lost)
        return hanging < self.most and lost < MOST_LOST_LOOPS

    def close(self) -> None:
        """Cancel what still runs."""
        if self._loop.is_alive():
            self._submit(self._loop, self._loop.end())
            self._loop.join(1.0)


def _raise(error: BaseException) -> None:
    raise error


def _blocked(one: Awaited) -> Failure:
    """Another handler has blocked the loop: this one begins again, unless it would send twice."""
    sent = one.call.has_sent
    return Failure("event_loop_blocked", "-", "", lasting=sent, passing=True, has_sent=sent)


def _log_error(loop: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
    """The error of a task that a handler began; its text may quote a user."""
    error = context.get("exception")
    failure = None if error is None else raised(error)
    what, place = ("-", "-") if failure is None else (failure.what, failure.place)
    log.error("a task of an async handler failed error=%s at=%s", what, place)

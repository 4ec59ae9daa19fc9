"""A Python bot in a worker process: its handlers run on the worker's own threads."""

from __future__ import annotations

import hashlib
import inspect
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

from dispatcher.conversations.mailbox import HandlerCall
from jobworker.async_handlers import MOST_ASYNC, AsyncHandlers, Awaited
from jobworker.bot.bot import Bot
from jobworker.bot.messages import MessageCheck, refuse_wrong
from jobworker.handler_context import HandlerContext
from jobworker.handler_retry import Failure, raised
from jobworker.remote.actions import NotingTalk
from jobworker.remote.job import NOT_UNDERSTOOD, Job, decide, decided, event_of, failed, talk_of
from jobworker.remote.rules import rules_of
from jobworker.remote.values import to_json, to_line
from linedesk.runtime import PACKAGES
from linedesk.store.records.events import ACCEPT_TIME, EVENT_ID

INSTALLED = {"site-packages", "dist-packages"}
NOT_OWN = {*PACKAGES, *sys.stdlib_module_names, "__main__"}


class PythonBot:
    """The bot of a worker process, as `ProgramBot`. Its talks get `settings` and `secrets`."""

    def __init__(
        self,
        bot: Bot,
        *,
        settings: Mapping[str, Any],
        secrets: Mapping[str, str],
        masked: Callable[[str], str] = str,
        check: MessageCheck = refuse_wrong,
        most_async: int = MOST_ASYNC,
    ) -> None:
        self.rules, self._by_name = rules_of(bot)
        self.handlers = AsyncHandlers(most_async) if bot.is_async else None
        self._settings = settings
        self._secrets = secrets
        self._masked = masked
        self._check = check
        self.is_outdated = False

    @cached_property
    def version(self) -> str:
        """A hash of its rules, of its settings, and of the source of its modules."""
        found = hashlib.sha256(to_line(self.rules))
        found.update(repr(sorted(self._settings.items())).encode())
        for name, module in sorted(_modules(rule.handler for rule in self._by_name.values())):
            found.update(name.encode() + b"\0" + _source(module))
        return found.hexdigest()[:12]

    def open(self) -> PythonBot:
        """Return itself: all threads share it."""
        return self

    def begin(
        self, job: Job, received: float, ended: Callable[[dict[str, Any]], object]
    ) -> Awaited | None:
        """Run an async handler on the event loop, which calls `ended` with the decision; None if
        the job has none.
        """
        rule = None if job.message.get("choose") else self._by_name.get(job.rule)
        if self.handlers is None or rule is None or not rule.is_async:
            return None
        try:
            talk, events = self._talk(job, received)
        except NOT_UNDERSTOOD:
            return None
        before = to_json(talk.data)
        document = {EVENT_ID: talk.event_id, "key": talk.key, ACCEPT_TIME: talk.accepted}
        call = HandlerContext({**document, "event": talk.raw})
        one = Awaited(
            talk,
            call,
            HandlerCall(job.limit_seconds),
            ended=lambda: ended(self._decision(job, outcome)),
        )

        def outcome() -> dict[str, Any]:
            if (failure := one.failure or one.outcome()) is not None:
                return failed(job.attempt, failure)
            return decided(job, talk, before)

        self.handlers.begin(rule.handler, event_of(job, events), one)
        return one

    def run(self, job: Job, received: float) -> dict[str, Any]:
        names = job.message.get("choose") or [job.rule]
        rules = [(name, rule) for name in names if (rule := self._by_name.get(name)) is not None]
        if len(rules) < len(names):
            told = f"no rule {job.rule!r:.40} in this version of the bot"
            return failed(job.attempt, Failure(told, "-", "", lasting=False))
        return self._decision(job, lambda: decide(job, rules, *self._talk(job, received)))

    def _talk(self, job: Job, received: float) -> tuple[NotingTalk, list[Any]]:
        elapsed = lambda: time.monotonic() - received  # noqa: E731
        return talk_of(job, self._settings, self._secrets, self._check, elapsed)

    def _decision(self, job: Job, decide: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        try:
            return decide()
        except BaseException as error:  # noqa: BLE001 - a bot's own code
            return failed(job.attempt, raised(error, masked=self._masked))

    def abandon(self) -> None:
        """Does nothing: Python cannot end a thread."""

    def close(self) -> None:
        """Does nothing: there is nothing to close."""


def _modules(handlers: Iterable[Callable[..., object]]) -> Iterator[tuple[str, ModuleType]]:
    """The handlers' modules, and all loaded modules in the bot's folders."""
    given = filter(None, (inspect.getmodule(inspect.unwrap(one)) for one in handlers))
    own = {module.__name__: module for module in given}
    folders = tuple({folder for one in own.values() if (folder := _folder(one))})
    for name, module in list(sys.modules.items()):
        file = str(getattr(module, "__file__", None) or "")
        if name in own or _is_own(name, file, folders):
            yield name, module


def _is_own(name: str, file: str, folders: tuple[str, ...]) -> bool:
    if name.partition(".")[0] in NOT_OWN or not file.endswith(".py"):
        return False
    # The bot's folder may contain a virtual environment.
    return any(
        file.startswith(one) and INSTALLED.isdisjoint(Path(file.removeprefix(one)).parts)
        for one in folders
    )


def _folder(module: ModuleType) -> str | None:
    """The folder of the module's top-level package; of an installed one the package itself."""
    top, *inner = module.__name__.split(".")
    if top in NOT_OWN or not module.__file__:
        return None
    file = Path(module.__file__)
    folder = file.parents[len(inner) + (file.name == "__init__.py")]
    return f"{folder / top if folder.name in INSTALLED else folder}/"


def _source(module: ModuleType) -> bytes:
    try:
        return Path(module.__file__ or "").read_bytes()
    except OSError:
        return b""

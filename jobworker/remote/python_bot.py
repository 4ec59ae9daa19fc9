"""A Python bot in a worker process: its handlers run on the worker's own threads."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from jobworker.bot.bot import Bot, Rule
from jobworker.handler_retry import Failure
from jobworker.remote.job import Job, failed, run_handler
from jobworker.remote.rules import rules_of
from jobworker.remote.values import to_line


class PythonBot:
    """See `jobworker.remote.worker.Bot`. `settings` and `secrets` are what its talks give."""

    def __init__(
        self,
        bot: Bot,
        *,
        settings: Mapping[str, Any],
        secrets: Mapping[str, str],
        masked: Callable[[str], str] = str,
    ) -> None:
        self.rules, self._by_name = rules_of(bot)
        self._settings = settings
        self._secrets = secrets
        self._masked = masked
        self.is_outdated = False

    @cached_property
    def version(self) -> str:
        """A hash of its rules, of its settings, and of the source of its handlers' modules."""
        found = hashlib.sha256(to_line(self.rules))
        found.update(repr(sorted(self._settings.items())).encode())
        modules = {
            inspect.getmodule(inspect.unwrap(rule.handler)) for rule in self._by_name.values()
        }
        for module in sorted(filter(None, modules), key=lambda one: one.__name__):
            found.update(_source(module))
        return found.hexdigest()[:12]

    def open(self) -> PythonBot:
        """The same for every thread."""
        return self

    def run(self, job: Job, received: float) -> dict[str, Any]:
        rule: Rule | None = self._by_name.get(job.rule)
        if rule is None:
            told = f"no rule {job.rule!r:.40} in this version of the bot"
            return failed(job.attempt, Failure(told, "-", "", lasting=False))
        return run_handler(
            job,
            rule.handler,
            settings=self._settings,
            secrets=self._secrets,
            masked=self._masked,
            received=received,
        )

    def abandon(self) -> None:
        """Python cannot end a thread."""

    def close(self) -> None:
        """Nothing is open."""


def _source(module: Any) -> bytes:
    try:
        return inspect.getsource(module).encode()
    except (OSError, TypeError):
        return str(getattr(module, "__name__", "")).encode()

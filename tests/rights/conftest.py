"""A mongod with authorization, as in deploy/mongod.conf, with users made by `linedesk init`.

The `init` was killed after each step.
"""

import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from linedesk.settings.settings import Settings, load_settings
from linedesk.setup import init, users
from linedesk.setup.private_mongod import EmbeddedMongod
from linedesk.store.client import Client, connect
from tests.servers import data_folder, throwaway_mongod

CAPPED_MB = 8


class Killed(BaseException):
    """Simulates a kill -9: no product code catches it."""


@dataclass
class Guarded:
    """The server, and the folder with its users' URIs."""

    server: EmbeddedMongod
    folder: Path
    deaths: list[str] = field(default_factory=list)
    stack: ExitStack = field(default_factory=ExitStack)

    def init(self, *, uri: str | None = None, **options: Any) -> None:
        """`linedesk init --users` by the user of the URI; by default the URI has none."""
        settings = self.settings(uri or self.server.uri)
        options = {"users": self.folder, **options}
        init.init_database(settings, capped_mb=CAPPED_MB, **options)

    def settings(self, uri: str) -> Settings:
        return load_settings({"MONGODB_URI": uri})

    def uri_of(self, who: str) -> str:
        return (self.folder / who / "MONGODB_URI").read_text("utf-8").strip()

    def client_of(self, who: str) -> Client:
        """A client of this user, closed at the end of all tests."""
        return self.stack.enter_context(connect(self.uri_of(who), app_name="tests"))


STEPS = ["write_for_owner", "_make_user", "_change", "_write_role"]


def die_after(monkeypatch: pytest.MonkeyPatch, nth: int, died: Callable[[str], None]) -> None:
    """Abort as soon as the nth durable step is done; the steps are recorded by name."""
    done = 0

    def dying(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **options: Any) -> Any:
            nonlocal done
            found = real(*args, **options)
            done += 1
            if done == nth:
                died(name)
                raise Killed
            return found

        return step

    for name in STEPS:
        monkeypatch.setattr(users, name, dying(name, getattr(users, name)))


@pytest.fixture(scope="session")
def guarded(mongod: EmbeddedMongod) -> Iterator[Guarded]:
    with data_folder("rights") as folder, ExitStack() as stack:
        key = folder / "key"
        key.touch(0o600)
        key.write_text(secrets.token_hex(100))
        options = ("--keyFile", str(key), "--oplogSize", "50")
        server = stack.enter_context(throwaway_mongod(*options))
        one = Guarded(server, folder / "credentials", stack=stack)
        make_killed_at_each_step(one)
        yield one


def make_killed_at_each_step(one: Guarded) -> None:
    """Each try takes one step more than the one before, and dies: the steps of the administrator
    and of the first other user, since the rest repeats them.
    """
    while one.deaths.count("_make_user") < 2:
        with pytest.MonkeyPatch.context() as patch:
            die_after(patch, 1, one.deaths.append)
            with pytest.raises(Killed):
                one.init()
    one.init()

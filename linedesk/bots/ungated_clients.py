"""Finds the SDK's own messaging clients in an SDK bot's code: they would send past the gate.

The SDK's other modules (insight, audience and more) have clients of the same name. These send no
messages, and linedesk has no replacement for them.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType

from linebot.v3.messaging import ApiClient, AsyncApiClient

from linedesk.runtime import PACKAGES

CLIENTS = (ApiClient, AsyncApiClient)
NAMES = {client.__name__ for client in CLIENTS}
MESSAGING = "linebot.v3.messaging"


def modules_of(bot: ModuleType, *, before: Collection[str]) -> list[ModuleType]:
    """The bot's module, and the modules of its folder or package imported since `before`."""
    package = sys.modules.get(bot.__name__.partition(".")[0], bot)
    folder = Path(package.__file__ or bot.__file__ or "").parent
    return [bot] + [
        module
        for name, module in sys.modules.items()
        if name not in before and module is not bot and _is_own(name, module, folder)
    ]


def _is_own(name: str, module: ModuleType, folder: Path) -> bool:
    file = getattr(module, "__file__", None)
    if not file or name.partition(".")[0] in PACKAGES:
        return False
    path = Path(file)
    return path.is_relative_to(folder) and "site-packages" not in path.relative_to(folder).parts


def ungated_names(module: ModuleType) -> list[str]:
    """The names of the SDK's own clients in the module, including its functions."""
    held = {name for name, value in vars(module).items() if _is_ungated(value)}
    with suppress(OSError, SyntaxError):
        held |= set(_named_in_source(module))
    return sorted(held)


def _named_in_source(module: ModuleType) -> Iterator[str]:
    """The names and dotted names that the source imports or uses; in functions, too."""
    nodes = list(ast.walk(ast.parse(inspect.getsource(module))))
    imported: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            imported |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
        elif isinstance(node, ast.Import):
            imported |= {one.asname: one.name for one in node.names if one.asname}
    used = [ast.unparse(node) for node in nodes if isinstance(node, ast.Attribute)]
    for name in (*imported, *used):
        first, dot, rest = name.partition(".")
        full = f"{imported.get(first, first)}{dot}{rest}"
        if full.startswith(f"{MESSAGING}.") and full.rpartition(".")[2] in NAMES:
            yield name


def _is_ungated(value: object) -> bool:
    """Whether it is the SDK's client or its class; ours is a subclass."""
    # By identity: a proxy in the module, such as Flask's `request`, may raise on other access.
    return any(value is client or type(value) is client for client in CLIENTS)

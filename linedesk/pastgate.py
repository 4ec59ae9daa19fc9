"""What of an SDK bot's own code would call LINE past the gate: the SDK's own clients in it."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType

from linebot.v3.messaging import ApiClient, AsyncApiClient

from linedesk.logs import ROOMS

CLIENTS = (ApiClient, AsyncApiClient)
NAMES = {client.__name__ for client in CLIENTS}


def modules_of(bot: ModuleType, *, before: Collection[str]) -> list[ModuleType]:
    """The bot's module, and those of its folder or package that came with it after `before`."""
    package = sys.modules.get(bot.__name__.partition(".")[0], bot)
    folder = Path(package.__file__ or bot.__file__ or "").parent
    return [bot] + [
        module
        for name, module in sys.modules.items()
        if name not in before and module is not bot and _is_own(name, module, folder)
    ]


def _is_own(name: str, module: ModuleType, folder: Path) -> bool:
    file = getattr(module, "__file__", None)
    if not file or name.partition(".")[0] in ROOMS:
        return False
    path = Path(file)
    return path.is_relative_to(folder) and "site-packages" not in path.relative_to(folder).parts


def ungated_names(module: ModuleType) -> list[str]:
    """By which names the module has the SDK's own clients, in functions, too."""
    held = {name for name, value in vars(module).items() if _is_ungated(value)}
    with suppress(OSError, SyntaxError):
        held |= set(_named_in_source(module))
    return sorted(held)


def _named_in_source(module: ModuleType) -> Iterator[str]:
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("linebot"):
            yield from (one.asname or one.name for one in node.names if one.name in NAMES)
        elif isinstance(node, ast.Attribute) and _is_ungated(_value_of(node, module)):
            yield ast.unparse(node)


def _value_of(node: ast.expr, module: ModuleType) -> object:
    """What `a.b.c` is, where its parts are modules; else None."""
    if isinstance(node, ast.Name):
        return vars(module).get(node.id)
    if isinstance(node, ast.Attribute):
        owner = _value_of(node.value, module)
        return vars(owner).get(node.attr) if type(owner) is ModuleType else None
    return None


def _is_ungated(value: object) -> bool:
    """Whether it is a client of the SDK's or its class; ours is a subclass of that."""
    # By identity: a proxy in the module, such as Flask's `request`, may raise when it is asked.
    return any(value is client or type(value) is client for client in CLIENTS)

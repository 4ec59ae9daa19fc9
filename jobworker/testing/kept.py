"""What a bot keeps outside of its conversations: values in its modules, closures, defaults and
attributes.

Seen are numbers, texts, lists, dicts and the like, and objects of the bot's own classes with what
is in them. Not seen is what lies in other libraries' objects, caches by functools among them.
"""

from __future__ import annotations

import inspect
import itertools
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from types import FunctionType, ModuleType
from typing import Any

Handler = Callable[..., Any]
Place = tuple[str, str]
"""A module or function, and the name of what is kept there."""

MOST_LEVELS = 6
# A table with more entries is known by its length, so that it does not slow the test down.
MOST_ENTRIES = 2_000
PLAIN = (str, bytes, int, type(None))


class _Unseen:
    """Stands for what is not looked into: the same as everything."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


UNSEEN = _Unseen()


def modules_of(handler: Handler) -> list[ModuleType]:
    """The handler's module, and what it uses of the modules in the same folder."""
    name = inspect.unwrap(handler).__module__
    folder = _folder(sys.modules.get(name))
    found: dict[str, ModuleType] = {}
    left = [name]
    while left:
        name = left.pop()
        module = sys.modules.get(name)
        if module is not None and name not in found:
            found[name] = module
            left += [
                other for other in _used_by(module) if _folder(sys.modules.get(other)) == folder
            ]
    return list(found.values())


def _folder(module: ModuleType | None) -> str | None:
    file = getattr(module, "__file__", None)
    return os.path.dirname(file) if file else None


def _used_by(module: ModuleType) -> Iterator[str]:
    """The names of the modules whose functions and classes it has, and of those it has whole."""
    for value in [*vars(module).values()]:
        if isinstance(value, ModuleType):
            yield value.__name__
        elif isinstance(value, (type, FunctionType)):
            yield value.__module__


def snapshot(handler: Handler, modules: Sequence[ModuleType]) -> dict[Place, Any]:
    """All that is seen now in the modules; to be compared with a later one."""
    look = Look({module.__name__ for module in modules})
    places = itertools.chain(_of_function(handler), *(look.inside(module) for module in modules))
    return {place: look.at(value) for place, value in places}


def changed(before: Mapping[Place, Any], after: Mapping[Place, Any]) -> list[Place]:
    """Where something is not as it was, or is new."""
    return [
        place
        for place, value in after.items()
        if (before[place] != value if place in before else value is not UNSEEN)
    ]


class Look:
    """Reads values of modules that are the bot's `own`, by name."""

    def __init__(self, own: set[str]) -> None:
        self._own = own

    def inside(self, module: ModuleType) -> Iterator[tuple[Place, Any]]:
        """Every value of a module, with those of its functions and classes."""
        for name, value in [*vars(module).items()]:
            if name.startswith("__") or isinstance(value, ModuleType):
                continue
            yield (module.__name__, name), value
            if getattr(value, "__module__", None) not in self._own:
                continue
            if isinstance(value, FunctionType):
                yield from _of_function(value)
            elif isinstance(value, type):
                yield from self._of_class(value)

    def at(self, value: Any, levels: int = MOST_LEVELS) -> Any:
        """Something that equals what is read from the same value as long as nothing changes."""
        if isinstance(value, PLAIN):
            return type(value), value
        if isinstance(value, (float, complex, bytearray, itertools.count)):
            # By its words, since nan is not equal to itself and a count tells how far it is.
            return type(value), repr(value)
        if levels == 0:
            return UNSEEN
        if isinstance(value, Mapping):
            pairs = [] if len(value) > MOST_ENTRIES else [*value.items()]
            return len(value), self._all((part for pair in pairs for part in pair), levels)
        if isinstance(value, (list, tuple, deque)):
            return len(value), self._all([] if len(value) > MOST_ENTRIES else value, levels)
        if isinstance(value, (set, frozenset)):
            entries: Iterable[Any] = [] if len(value) > MOST_ENTRIES else value
            return len(value), frozenset(self._all(entries, levels))
        if type(value).__module__ in self._own and hasattr(value, "__dict__"):
            return self.at(_kept_by(value), levels - 1)
        return UNSEEN

    def _all(self, values: Iterable[Any], levels: int) -> tuple[Any, ...]:
        return tuple(self.at(value, levels - 1) for value in [*values])

    def _of_class(self, kind: type) -> Iterator[tuple[Place, Any]]:
        where = f"{kind.__module__}.{kind.__qualname__}"
        for name, value in [*vars(kind).items()]:
            if not name.startswith("__"):
                yield (where, name), value
            if isinstance(value, FunctionType):
                yield from _of_function(value)


def _of_function(handler: Handler) -> Iterator[tuple[Place, Any]]:
    """What a function holds; of a decorated one each layer's."""
    function: Any = handler
    while isinstance(function, FunctionType):
        where = f"{function.__module__}.{function.__qualname__}"
        wrapped = vars(function).get("__wrapped__")
        for name, value in [*vars(function).items()]:
            if name != "__wrapped__":
                yield (where, name), value
        yield (where, "__defaults__"), (function.__defaults__, function.__kwdefaults__)
        names = function.__code__.co_freevars
        for name, cell in zip(names, function.__closure__ or (), strict=True):
            yield (where, name), _content(cell)
        function = wrapped


def _kept_by(value: Any) -> dict[str, Any]:
    """What an object holds, but for what it only remembers having reckoned."""
    known = vars(type(value))
    return {
        name: part
        for name, part in vars(value).items()
        if not isinstance(known.get(name), cached_property)
    }


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        # Not bound yet.
        return UNSEEN

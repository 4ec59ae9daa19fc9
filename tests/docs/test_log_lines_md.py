"""docs/reference/log-lines.md has each log line of the packages with its level, and no other.

A message that is no constant of its call is put together here, from the constants in its module.
Where a new one cannot be put together, the test names its place: add it to `VARIED`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from jobworker.record.dead_letters import NO_LETTER, NO_ROW

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "log-lines.md").read_text("utf-8")
TOP = ("frontdesk", "dispatcher", "jobworker", "linedesk")
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
LOGGERS = ("log", "self._log")
METHODS = ("log", "exception", *map(str.lower, LEVELS))
TRYING = "%s, trying again error=%s"

# The package that the log shows, the level, and the message.
Line = tuple[str, str, str]


# --- the page


def lines_of_the_page() -> Iterator[Line]:
    """Each row with the package of its section."""
    for section in re.split(r"^Package ", PAGE, flags=re.MULTILINE)[1:]:
        package = section[1 : section.index("`", 1)]
        rows = re.findall(r"^\| ([A-Z]+) \| (`+) ?(.+?) ?\2 \|(.*)$", section, re.MULTILINE)
        for level, _, message, rest in rows:
            assert level in LEVELS
            assert rest.count("|") == 2, f"{message}: a meaning and an action"
            assert level in ("DEBUG", "INFO") or not rest.endswith(" | |"), f"{message}: an action"
            yield package, level, message


# --- the code


@cache
def tree_of(file: str) -> ast.Module:
    """The syntax tree of a module."""
    return ast.parse((ROOT / file).read_text("utf-8"))


def text_of(node: ast.AST) -> str | None:
    """A constant text, with `…` for what an f-string puts in; None for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part) or "…" for part in node.values)
    return None


def arguments(file: str, name: str, place: int | str) -> list[str]:
    """The texts that calls of `name`, or `partial(…name, …)`, pass at a place or by a keyword."""
    found: list[str | None] = []
    for call in [one for one in ast.walk(tree_of(file)) if isinstance(one, ast.Call)]:
        called, passed = call.func, call.args
        if isinstance(called, ast.Name) and called.id == "partial":
            called, passed = call.args[0], call.args[1:]
        if name in (getattr(called, "attr", None), getattr(called, "id", None)):
            named = [one.value for one in call.keywords if one.arg == place]
            found += map(text_of, passed[place : place + 1] if isinstance(place, int) else named)
    return [one for one in found if one is not None]


def assigned(tree: ast.AST, target: ast.expr) -> list[str]:
    """The texts that are assigned to a name or an attribute within a module or function."""
    assignments = [one for one in ast.walk(tree) if isinstance(one, ast.Assign)]
    same = [one for one in assignments if ast.unparse(target) in map(ast.unparse, one.targets)]
    return [text for one in same if (text := text_of(one.value)) is not None]


def of_outboxes() -> list[str]:
    """The steps that the outbox and the batches repeat until MongoDB confirms them."""
    outbox, outcomes = (f"jobworker/sending/{name}.py" for name in ("outbox", "outcomes"))
    in_box = [f"{text} conversation=…" for text in arguments(outcomes, "_confirm", 2)]
    steps = arguments(outbox, "by_step", 1)
    of_batches = arguments(outcomes, "until_confirmed", 1)
    return [*steps, *in_box, *(one for one in of_batches if not one.startswith("…"))]


# Messages that hold a text of elsewhere: the module, the message, the texts.
VARIED: dict[tuple[str, str], Callable[[], list[str]]] = {
    ("dispatcher/status.py", TRYING): lambda: arguments("dispatcher/status.py", "_tried", 0),
    ("jobworker/sending/outcomes.py", TRYING): of_outboxes,
    ("jobworker/record/dead_letters.py", "%s event_id=%s"): lambda: [NO_LETTER, NO_ROW],
    ("jobworker/line/profiles.py", "answering without a name, %s key=%s"): lambda: arguments(
        "jobworker/line/profiles.py", "_without", 0
    ),
}
# Where the level is not the method's name.
CHOSEN = {
    ("dispatcher/control.py", "orders not read"): ("WARNING", "ERROR"),
    ("dispatcher/feed/reader.py", "recvq scanned"): ("INFO", "WARNING"),
    ("dispatcher/timers.py", "timers cannot be fired"): ("WARNING", "ERROR"),
}
# It calls `log.warning` or `log.error` by this name.
CHOOSER = ("dispatcher/timers.py", "say")
# These write it by the loggers of others.
LENT = {
    "linedesk/runtime/metrics.py": ("frontdesk", "console"),
    "linedesk/compose/process/metrics_server.py": ("runtime",),
    "linedesk/compose/process/systemd.py": ("runtime",),
    "linedesk/setup/neighbours.py": ("store",),
}
VALUE = r"%(?:[-.\d]*[a-z])"


def on_the_page(message: str) -> str:
    """The message as the page has it: without values."""
    without = re.sub(rf'="?(?:{VALUE})+"?(?=\s|$)', "=", message)
    return re.sub(VALUE, "…", without)


def packages_of(file: str) -> tuple[str, ...]:
    """The packages that the log shows for a module."""
    first, second, *_ = Path(file).with_suffix("").parts
    return LENT.get(file, (second if first == "linedesk" else first,))


def templates(file: str, scope: ast.AST, node: ast.expr) -> list[str]:
    """The messages of a call's first argument; `%s` at its begin is put in where it is known."""
    if (file, ast.unparse(node)) in VARIED:
        return VARIED[file, ast.unparse(node)]()
    text = text_of(node)
    if text is not None:
        return [text]
    return assigned(scope, node) or assigned(tree_of(file), node)


def put_in(file: str, scope: ast.AST, call: ast.Call, message: str) -> list[str]:
    """The message with each text that is known for its `%s`."""
    if (file, message) in VARIED:
        return [message.replace("%s", text, 1) for text in VARIED[file, message]()]
    if message.startswith("%s"):
        known = assigned(scope, call.args[1]) or assigned(tree_of(file), call.args[1])
        assert known, f"{file}:{call.lineno}: the texts of {message!r} are not known"
        return [message.replace("%s", text, 1) for text in known]
    return [message]


def calls_of(file: str) -> Iterator[tuple[ast.AST, ast.Call, str]]:
    """Each call of a logger with its function and the method's name."""
    for scope in ast.walk(tree_of(file)):
        if not isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for call in ast.walk(scope):
            if isinstance(call, ast.Call):
                logger, _, method = ast.unparse(call.func).rpartition(".")
                if (logger in LOGGERS and method in METHODS) or (file, method) == CHOOSER:
                    yield scope, call, method


def levels_of(file: str, method: str, message: str) -> tuple[str, ...]:
    """The level or levels of a call."""
    if method == "log" or (file, method) == CHOOSER:
        [levels] = [
            one for (of, text), one in CHOSEN.items() if of == file and message.startswith(text)
        ]
        return levels
    return ("ERROR" if method == "exception" else method.upper(),)


def lines_of_the_code() -> Iterator[Line]:
    """Each message of each call, once for each of its levels and packages."""
    files = [path for top in TOP for path in (ROOT / top).rglob("*.py")]
    for file in sorted(str(path.relative_to(ROOT)) for path in files):
        for scope, call, method in calls_of(file):
            first = call.args[1 if method == "log" else 0]
            found = templates(file, scope, first)
            assert found, f"{file}:{call.lineno}: the message of this call is not known"
            for message in found:
                for level in levels_of(file, method, message):
                    for text in put_in(file, scope, call, message):
                        for package in packages_of(file):
                            yield package, level, on_the_page(text)


# --- the tests


def test_it_has_each_log_line_with_its_level_and_no_other() -> None:
    code, page = set(lines_of_the_code()), list(lines_of_the_page())
    assert len(code) > 200
    assert sorted(code - set(page)) == [], "lines that the page does not have"
    assert sorted(set(page) - code) == [], "lines of the page that no call writes"
    assert len(page) == len(set(page)), "a line twice"


@pytest.mark.parametrize(("file", "message"), VARIED)
def test_each_message_of_several_texts_is_still_in_its_module(file: str, message: str) -> None:
    assert message in (ROOT / file).read_text("utf-8").replace("\\", "")
    assert VARIED[file, message]()

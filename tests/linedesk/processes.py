"""Inspects processes from outside, like ps."""

from pathlib import Path


def is_alive(pid: int) -> bool:
    """Whether it runs; a zombie counts as ended."""
    try:
        return _stat(pid)[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def children_of(pid: int) -> dict[int, str]:
    """The living children of a process with their command lines."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                state, parent = _stat(int(entry.name))[:2]
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(parent) == pid and state != "Z":
                found[int(entry.name)] = command
    return found


def child_of(pid: int, words: str) -> int | None:
    """The running child whose command line has these words."""
    return next((child for child, line in children_of(pid).items() if words in line), None)


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()

"""`<namespace> <module> arguments`: runs a module as `python -m` does, in a network namespace.

The nursery (tests/fork_server.py) forks it, so it starts in milliseconds.
"""

import ctypes
import runpy
import sys

# setns(2): network namespaces only.
CLONE_NEWNET = 0x40000000


def main() -> None:
    """Enter the namespace before any thread starts, then become the module."""
    name, *rest = sys.argv[1:]
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/run/netns/{name}", "rb") as namespace:
        if libc.setns(namespace.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"the namespace {name} cannot be entered")
    sys.argv = rest
    runpy.run_module(rest[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()

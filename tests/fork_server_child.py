"""The module that the tests of the fork server start."""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading


def tell() -> None:
    seen = {
        "environ": dict(os.environ),
        "arguments": sys.argv[1:],
        "pid": os.getpid(),
        "group": os.getpgid(0),
        "name": __name__,
        # The last one is the listing's own.
        "descriptors": sorted(map(int, os.listdir("/proc/self/fd")))[:-1],
        "stdin": sys.stdin.read(),
    }
    print(json.dumps(seen))
    print("to stderr", file=sys.stderr)
    atexit.register(lambda: print("at exit", file=sys.stderr))
    sys.exit(3)


def wait() -> None:
    print("waiting", flush=True)
    threading.Event().wait(60)


if __name__ == "__main__":
    if sys.argv[1] == "raise":
        raise ValueError("planted")
    {"tell": tell, "wait": wait}[sys.argv[1]]()

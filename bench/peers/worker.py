"""Becomes the worker of one peer: `python -m bench.peers.worker MODULE`."""

from __future__ import annotations

import os
import sys

from bench.peers.names import module_of


def main(module: str) -> None:
    """Run the command of its own documentation in this process."""
    command = module_of(module).worker()
    os.execv(command[0], command)


if __name__ == "__main__":
    main(*sys.argv[1:])

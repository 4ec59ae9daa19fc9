"""Packages that some benches need and the tests do not, all of requirements/bench.txt."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

from bench.processes import to_its_end

REQUIREMENTS = Path(__file__).resolve().parent.parent / "requirements" / "bench.txt"


def ensure(*names: str) -> None:
    """Install all of that file, by its hashes, if one of these is missing. Raises BenchFailed."""
    missing = sorted(name for name in names if not _is_installed(name))
    if not missing:
        return
    print(f"installing {', '.join(missing)} (requirements/bench.txt)")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--require-hashes", "--only-binary", ":all:", "--requirement", str(REQUIREMENTS)]
    to_its_end(command, f"installing {', '.join(missing)}")


def _is_installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True

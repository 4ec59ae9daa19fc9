"""scripts/demo and scripts/test set themselves up: installations, repetitions, skipped steps and
missing requirements.

A fake Python records its calls, so that no package is really installed.
"""

import shutil
from pathlib import Path

import pytest

from tests.waiting import Ended, ran

ROOT = Path(__file__).parents[2]
TOOLS = ("bash", "basename", "cat", "cp", "cut", "dirname", "env", "flock", "mkdir", "rm")
TOOLS += ("sha256sum", "touch")
ASKED_FOR = ("pyproject.toml", "requirements/run.txt", "requirements/demo.txt")

# Makes `-m venv` put a copy of itself into .venv, as the real one does.
PYTHON = """#!/bin/bash
echo "$@" >>"$CALLS"
case "$*" in
  *ensurepip*) ;;
  "-m venv .venv") mkdir -p .venv/bin && cp "$0" .venv/bin/python ;;
  *pip*) [[ -z ${INTERRUPTED:-} ]] ;;
  -) [[ -z ${WITHOUT_MONGOD:-} ]] || { echo "no mongod for this system: get one" >&2; exit 1; } ;;
esac
"""


class Checkout:
    """A copy of the scripts with a PATH that has only their requirements."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "checkout"
        self.venv = self.folder / ".venv"
        self._bin = folder / "bin"
        self._calls = folder / "calls"
        shutil.copytree(ROOT / "scripts", self.folder / "scripts")
        (self.folder / "requirements").mkdir()
        for name in ASKED_FOR:
            (self.folder / name).write_text("first\n")
        self._bin.mkdir()
        for tool in TOOLS:
            (self._bin / tool).symlink_to(shutil.which(tool) or pytest.fail(f"no {tool} here"))
        (self._bin / "python3").write_text(PYTHON)
        (self._bin / "python3").chmod(0o755)

    def run(self, *arguments: str, **environ: str) -> Ended:
        return ran(
            [self.folder / "scripts" / "demo", *arguments],
            env={"PATH": str(self._bin), "CALLS": str(self._calls)} | environ,
            cwd="/",
        )

    def calls(self) -> list[str]:
        """How Python was called, without the questions about itself."""
        lines = self._calls.read_text().splitlines()
        return [line for line in lines if not line.startswith("-c")]

    def installs(self) -> int:
        return sum("requirements/run.txt" in line for line in self.calls())


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_the_first_run_makes_the_venv_and_the_arguments_pass_through(checkout: Checkout) -> None:
    answer = checkout.run("--once")
    assert answer.returncode == 0, answer.stderr
    made, *installed, _, started = checkout.calls()
    assert made == "-m venv .venv"
    locked = [one for one in installed if "--require-hashes --only-binary :all: " in one]
    files = {word for one in locked for word in one.split() if word.startswith("requirements/")}
    assert files == {f"requirements/{name}.txt" for name in ("build", "run", "demo")}
    (itself,) = (one for one in installed if one not in locked)
    assert itself.endswith("--no-deps --no-build-isolation --editable .")
    assert started == "-m linedesk demo --once"


@pytest.mark.parametrize("name", ASKED_FOR)
def test_changed_dependencies_are_installed_into_what_is_there(
    name: str, checkout: Checkout
) -> None:
    checkout.run()
    (checkout.venv / "kept").touch()
    (checkout.folder / name).write_text("second\n")
    checkout.run()
    assert checkout.installs() == 2
    assert (checkout.venv / "kept").exists()


def test_a_half_made_venv_is_made_anew(checkout: Checkout) -> None:
    assert checkout.run(INTERRUPTED="yes").returncode == 1
    (checkout.venv / "half").touch()
    assert checkout.run().returncode == 0
    assert not (checkout.venv / "half").exists()
    assert checkout.installs() == 2
    assert checkout.run().returncode == 0
    assert checkout.installs() == 2


def test_a_missing_mongod_is_said_and_nothing_starts(checkout: Checkout) -> None:
    answer = checkout.run(WITHOUT_MONGOD="yes")
    assert answer.returncode == 1
    assert "no mongod for this system" in answer.stderr
    assert not any("linedesk demo" in call for call in checkout.calls())

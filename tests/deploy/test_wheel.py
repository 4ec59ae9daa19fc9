"""The package as users install it: by uv, by pip, and as a wheel in an empty environment.

No index is needed: the wheels of all dependencies are made from what is installed here.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import pytest

from tests.docs.test_readme import PACKAGES, ROOT, block

SHARES = ("build", "run", "demo")
EMPTY = '{"type": "text", "text": ""}'


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The locked packages of these shares, and pytest for an author's tests."""
    folder = tmp_path_factory.mktemp("wheels")
    lock = "".join((ROOT / f"requirements/{name}.txt").read_text("utf-8") for name in SHARES)
    for name in (*re.findall(r"^([\w.-]+)==", lock, re.MULTILINE), "pytest", "iniconfig"):
        with suppress(PackageNotFoundError):  # of another platform
            pack(distribution(name), folder)
    yield folder
    shutil.rmtree(folder)


def pack(installed: Distribution, folder: Path) -> None:
    """Make the wheel from which it was installed, without its scripts."""
    tags = re.findall(r"^Tag: (\S+)-(\S+)-(\S+)$", installed.read_text("WHEEL") or "", re.MULTILINE)
    tag = "-".join(".".join(dict.fromkeys(part)) for part in zip(*tags, strict=True))
    name = f"{installed.name.replace('-', '_')}-{installed.version}-{tag}.whl"
    with zipfile.ZipFile(folder / name, "w") as wheel:
        for file in installed.files or ():
            if file.parts[0] != ".." and file.suffix != ".pyc":
                wheel.write(str(file.locate()), str(file))


class Home:
    """A user's home, where the environment has PATH, HOME and LANG only."""

    def __init__(self, folder: Path, wheels: Path) -> None:
        self.folder = folder
        (folder / "bin").mkdir()
        (folder / "bin/uv").symlink_to(Path(sys.executable).with_name("uv"))
        (folder / "bin/python3").symlink_to(Path(sys.executable).resolve())
        path = f"{folder}/.venv/bin:{folder}/bin:/usr/bin:/bin"
        self._environ = {"PATH": path, "HOME": str(folder), "LANG": "C"}
        self._offline = {f"{tool}_FIND_LINKS": str(wheels) for tool in ("PIP", "UV")}
        self._offline |= {f"{tool}_NO_INDEX": "1" for tool in ("PIP", "UV")}
        self._offline |= {"UV_OFFLINE": "1", "PIP_NO_COMPILE": "1"}

    def run(self, command: str, *, folder: Path | None = None) -> str:
        return self._run(command, folder or self.folder, self._environ)

    def install(self, command: str, *, folder: Path | None = None) -> str:
        """Run it, where pip and uv know no index."""
        return self._run(command, folder or self.folder, self._environ | self._offline)

    def _run(self, command: str, folder: Path, environ: dict[str, str]) -> str:
        done = subprocess.run(
            ["bash", "-e", "-c", command],
            cwd=folder,
            env=environ,
            capture_output=True,
            encoding="utf-8",
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture
def home(tmp_path: Path, wheels: Path) -> Iterator[Home]:
    yield Home(tmp_path, wheels)
    shutil.rmtree(tmp_path)


def readme(word: str) -> str:
    """The README's commands with this word; its demo plays one conversation and ends."""
    return block("README.md", "console", word).strip().replace("demo", "demo --once")


def test_a_wheel_in_an_empty_environment_is_whole(home: Home) -> None:
    home.install(f"{readme('uv build')} --out-dir {home.folder}", folder=ROOT)
    (wheel,) = home.folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        packed = set(opened.namelist())
    files = {path for name in PACKAGES for path in (ROOT / name).rglob("*") if path.is_file()}
    assert {str(one.relative_to(ROOT)) for one in files if one.suffix != ".pyc"} <= packed
    assert {f"{name}/py.typed" for name in PACKAGES} <= packed

    home.install(f"uv venv; uv pip install --python .venv pytest '{wheel}[embedded]'")
    home.install("uv pip check --python .venv")
    assert "Commands:" in home.run("linedesk --help")
    assert "wrong" in home.run(f"echo '{EMPTY}' | linedesk check - || [[ $? == 1 ]]")
    home.run("linedesk new kitten")
    assert "2 passed" in home.run("pytest", folder=home.folder / "kitten")
    assert home.run("linedesk demo --once").endswith("Each was answered once.\n")


@pytest.mark.long
@pytest.mark.parametrize("tool", ["uv tool run", "pip install"])
def test_the_readme_s_commands_install_and_run_it(home: Home, tool: str) -> None:
    home.run("python3 -m venv .venv")
    assert home.install(readme(tool), folder=ROOT).endswith("Each was answered once.\n")

"""The package as users install it: by uv, by pip, and as a wheel in an empty environment.

No index is needed: the wheels of all dependencies are made from what is installed here.
"""

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
import requests

from linedesk.setup.private_mongod import free_port
from tests.docs.test_readme import PACKAGES, ROOT, block
from tests.waiting import ran

SHARES = ("build", "run", "demo")
OF_LINESIM = ("LICENSE", "README.md", "linesim.pth", "pyproject.toml")
PYTHON = "python -m linesim"
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

    def answers(self, command: str) -> bool:
        """Whether the simulator that it starts has its page, until it is stopped."""
        with subprocess.Popen(
            [*command.split(), "--port", str(free_port())],
            executable=self.folder / ".venv/bin" / command.split()[0],
            cwd=self.folder,
            env=self._environ,
            stdout=subprocess.PIPE,
            text=True,
        ) as started:
            assert started.stdout is not None
            url = started.stdout.readline().removeprefix("Chat page: ").strip()
            page = requests.get(url, timeout=10).text if url else ""
            started.terminate()
        return started.returncode == 0 and '<html lang="ja">' in page

    def where(self, package: str) -> str:
        """The folder of its folder; empty if it is not there."""
        find = f"from importlib.util import find_spec; print(find_spec('{package}'))"
        found = re.search(r"origin='.*/(.+)/.+/__init__.py'", self.run(f'python -c "{find}"'))
        return found[1] if found else ""

    def _run(self, command: str, folder: Path, environ: dict[str, str]) -> str:
        done = ran(["bash", "-e", "-c", command], cwd=folder, env=environ, encoding="utf-8")
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
    # What makes linesim a distribution of its own.
    files -= {ROOT / "linesim" / name for name in OF_LINESIM}
    assert {str(one.relative_to(ROOT)) for one in files if one.suffix != ".pyc"} <= packed
    assert not {f"linesim/{name}" for name in OF_LINESIM} & packed
    assert {f"{name}/py.typed" for name in PACKAGES} <= packed

    home.install(f"uv venv; uv pip install --python .venv pytest '{wheel}[embedded]'")
    home.install("uv pip check --python .venv")
    assert "Commands:" in home.run("linedesk --help")
    assert "wrong" in home.run(f"echo '{EMPTY}' | linedesk check - || [[ $? == 1 ]]")
    home.run("linedesk new kitten")
    assert "2 passed" in home.run("pytest", folder=home.folder / "kitten")
    assert home.run("linedesk demo --once").endswith("Each was answered once.\n")


ALONE = """
import linesim, requests
from linemessages import check_messages
from linesim.model.media import sample
with linesim.running() as sim:
    head = {"authorization": f"Bearer {sim.token}"}
    hana = sim.add_user("Hana").user_id
    print(requests.get(f"{sim.url}/v2/bot/profile/{hana}", headers=head).json()["displayName"])
    print(check_messages([{"type": "text", "text": ""}])[0].property, sample("image").size > 1000)
"""


def content(wheel: Path, folder: str) -> tuple[str, set[str], set[str]]:
    """The version, what it requires, and its files of linesim and linemessages below a folder."""
    with zipfile.ZipFile(wheel) as opened:
        names = opened.namelist()
        (told,) = (opened.read(one).decode() for one in names if one.endswith("/METADATA"))
    (version,) = re.findall(r"^Version: (.+)$", told, re.MULTILINE)
    files = {one.removeprefix(folder) for one in names if re.match(f"{folder}line(sim|mess)", one)}
    return version, set(re.findall(r"^Requires-Dist: (.+)$", told, re.MULTILINE)), files


@pytest.mark.long
def test_linesim_alone_and_beside_linedesk_in_any_order(home: Home) -> None:
    for folder in (".", "linesim"):
        home.install(f"uv build --wheel --out-dir {home.folder} {folder}", folder=ROOT)
    (linesim,), (linedesk,) = (home.folder.glob(f"{name}-*") for name in ("linesim", "linedesk"))
    version, needs, files = content(linesim, "_linesim/")
    assert version == content(linedesk, "")[0]
    assert needs <= content(linedesk, "")[1]
    assert files == {one for one in content(linedesk, "")[2] if "dist-info" not in one}

    page = block("docs/how-to/test-any-line-bot.md", "console", "./linesim").splitlines()[0]
    home.install(f"python3 -m venv {home.folder}/.venv; {page}; pip check", folder=ROOT)
    (home.folder / "alone.py").write_text(ALONE, "utf-8")
    assert home.run("python alone.py") == "Hana\nmessages[0].text True\n"
    assert home.answers("linesim")
    assert home.where("linedesk") == ""

    install, remove = "pip install --no-deps --force-reinstall", "pip uninstall --yes"
    for step, command, place in (
        (f"{install} {linedesk}; {install} {linesim}", "linesim", "site-packages"),
        (f"{remove} linedesk", "linesim", "_linesim"),
        (f"{install} {linedesk}; {install} {linedesk}; {remove} linesim", PYTHON, "site-packages"),
        (f"{install} {linesim}; {remove} linedesk", "linesim", "_linesim"),
    ):
        home.install(step)
        assert (home.where("linesim"), home.where("linemessages")) == (place, place)
        assert home.answers(command), step
        assert bool(home.where("linedesk")) == (place == "site-packages")


@pytest.mark.long
@pytest.mark.parametrize("tool", ["uv tool run", "pip install"])
def test_the_readme_s_commands_install_and_run_it(home: Home, tool: str) -> None:
    home.run("python3 -m venv .venv")
    assert home.install(readme(tool), folder=ROOT).endswith("Each was answered once.\n")

"""What docs/operate.md tells an operator to type, and to look for, is there.

The commands were run on a booted machine, as the page says; this keeps it from lying later.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from linedesk.cli.main import linedesk
from linedesk.settings.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "operate.md").read_text("utf-8")
SYSTEMD = ROOT / "deploy" / "systemd"
PACKAGES = ("frontdesk", "dispatcher", "jobworker", "linedesk")


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^ *```{kind}\n(.*?)^ *```$", PAGE, re.MULTILINE | re.DOTALL)


def lines() -> Iterator[str]:
    """Each command of the console blocks; one that goes on in the next line is one."""
    for block in blocks("console"):
        for line in block.replace("\\\n", " ").splitlines():
            if line.strip():
                yield line.strip()


def inline() -> Iterator[str]:
    prose = re.sub(r"^ *```.*?^ *```$", "", PAGE, flags=re.MULTILINE | re.DOTALL)
    yield from (" ".join(code.split()) for code in re.findall(r"`([^`]+)`", prose))


def commands(name: str) -> list[str]:
    found = [one for one in (*lines(), *inline()) if one == name or one.startswith(f"{name} ")]
    return sorted(set(found))


@pytest.mark.parametrize("line", commands("linedesk"))
def test_each_command_of_linedesk_parses(line: str) -> None:
    words = shlex.split(line)[1:]
    command: click.Command = linedesk
    while isinstance(command, click.Group) and words:
        command = command.commands[words.pop(0)]
    if words or line in lines():
        command.make_context(line, words)


def test_each_option_of_the_installer_is_one() -> None:
    usage = (ROOT / "deploy" / "install.sh").read_text("utf-8").partition("END\n}")[0]
    installs = [line for line in (*lines(), *inline()) if line.startswith("deploy/install.sh")]
    options = {word for line in installs for word in line.split() if word.startswith("--")}
    options |= {code.split()[0] for code in inline() if re.match("--(wheels|secrets|capped)", code)}
    assert len(options) > 4
    assert all(option in usage for option in options), options


def test_the_installers_exit_codes_are_all_there() -> None:
    says = (ROOT / "deploy" / "install.d" / "says.bash").read_text("utf-8")
    codes = {"0", *re.findall(r"^EXIT_\w+=(\d+)$", says, re.MULTILINE)}
    table = PAGE.partition("| exit code of install.sh | |")[2].partition("\n\n")[0]
    assert set(re.findall(r"^\| (\d+) \|", table, re.MULTILINE)) == codes


def test_each_unit_is_one() -> None:
    named = set(re.findall(r"linedesk-\w+\.(?:service|socket|timer)|linedesk\.target", PAGE))
    for line in lines():
        if line.startswith("systemctl"):
            bare = re.findall(r"linedesk-[a-z]+(?![\w.*-])", line)
            named |= {f"{name}.service" for name in bare}
    assert len(named) > 5
    assert all((SYSTEMD / name).is_file() for name in named), named


def test_each_units_watchdog_is_the_one_that_it_has() -> None:
    told = dict(re.findall(r"^\| `(linedesk-\w+\.service)` \|.*\| (\d+) s \|$", PAGE, re.MULTILINE))
    has = {
        path.name: found[1]
        for path in SYSTEMD.glob("*.service")
        if (found := re.search(r"^WatchdogSec=(\d+)$", path.read_text(), re.MULTILINE))
    }
    assert told == has


def test_each_path_of_the_checkout_exists() -> None:
    paths = set(re.findall(r"(?<![\w/-])(?:\.\./)?((?:deploy|scripts|bench)/[\w./-]*\w)", PAGE))
    assert len(paths) > 8
    assert [path for path in paths if not (ROOT / path).exists()] == []
    tests = set(re.findall(r"`([\w/]+/test_\w+\.py)`", PAGE))
    assert [path for path in tests if not (ROOT / path).exists()] == []


def test_each_setting_is_one() -> None:
    named = {name for block in blocks("toml") for name in re.findall(r"^(\w+) =", block, re.M)}
    named |= {code.split(" = ")[0] for code in inline() if re.fullmatch(r"[A-Z_]+ = .*", code)}
    assert len(named) > 3
    assert named <= {name.upper() for name in Settings.model_fields}


def test_each_line_of_the_log_is_written_somewhere() -> None:
    files = (path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    source = "".join(path.read_text("utf-8") for path in files)
    quoted = re.findall(r"(?:Log|log): ((?:`[^`]+`(?:, | and )?)+)", PAGE)
    phrases = [code for one in quoted for code in re.findall(r"`([^`]+)`", one)]
    assert len(phrases) > 6
    for phrase in phrases:
        words = re.split(r" \w+=| …", phrase)[0]
        assert words in source, phrase


def test_each_link_within_the_page_goes_somewhere() -> None:
    titles = re.findall(r"^#+ (.*)$", PAGE, re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
    assert set(re.findall(r"\]\(#([\w-]+)\)", PAGE)) <= anchors


def test_each_link_to_a_file_goes_to_one() -> None:
    files = [path for path in re.findall(r"\]\(([^)#]+)", PAGE) if "://" not in path]
    assert any(path.endswith(".png") for path in files)
    assert [path for path in files if not (ROOT / "docs" / path).exists()] == []

"""The how-to pages, in English and Japanese: each command, unit and setting exists.

The commands were run on a booted machine, as docs/explanation/systemd-proof.md says; this test
keeps the pages true later.
"""

import contextlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from linedesk.launch.main import linedesk
from linedesk.settings.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
HOW_TO, JAPANESE = DOCS / "how-to", DOCS / "ja" / "how-to"
BESIDE = [
    DOCS / "reference" / "doctor.md",
    DOCS / "reference" / "files-and-services.md",
    DOCS / "explanation" / "systemd-proof.md",
]
PAGES = [*sorted(HOW_TO.glob("*.md")), *BESIDE, *sorted(JAPANESE.glob("*.md"))]
FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
# A setting in the environment of one command, or a user's right for it.
BEFORE = re.compile(r"^(?:(?:[A-Z_]+=\S* |sudo )+)")

each_page = pytest.mark.parametrize(
    "page", PAGES, ids=lambda path: str(path.relative_to(DOCS).with_suffix(""))
)


def text_of(page: Path) -> str:
    return page.read_text("utf-8")


def blocks(page: Path, kind: str) -> list[str]:
    return [block for found, block in FENCE.findall(text_of(page)) if found == kind]


def lines(page: Path) -> Iterator[str]:
    """Each command of the console blocks; one that continues on the next line is one.

    Where a block has prompts, the lines without one are output.
    """
    for block in blocks(page, "console"):
        joined = [line.strip() for line in block.replace("\\\n", " ").splitlines()]
        prompted = [line[2:] for line in joined if line.startswith("$ ")]
        yield from (line for line in prompted or joined if line and not line.startswith("#"))


def inline(page: Path) -> Iterator[str]:
    prose = FENCE.sub("", text_of(page))
    yield from (" ".join(code.split()) for code in re.findall(r"`([^`]+)`", prose))


def commands(page: Path, name: str) -> set[str]:
    """The commands that begin with the name, up to a pipe or a redirection."""
    given = (BEFORE.sub("", one) for one in (*lines(page), *inline(page)))
    bare = (re.split(r" (?:\\?[|>&]|2>)|;| +# ", one)[0].strip() for one in given)
    return {one for one in bare if one == name or one.startswith(f"{name} ")}


@each_page
def test_each_command_of_linedesk_parses(page: Path) -> None:
    typed = {BEFORE.sub("", line) for line in lines(page)}
    for line in sorted(commands(page, "linedesk")):
        command, words = command_of(line)
        if isinstance(command, click.Group):
            continue
        # Prose may name a command or an option without its argument.
        lenient = () if line in typed else (click.BadOptionUsage, click.MissingParameter)
        with contextlib.suppress(*lenient):
            command.make_context(line, words)


def command_of(line: str) -> tuple[click.Command, list[str]]:
    """The command of the program that a line runs, with its arguments."""
    words = shlex.split(line)[1:]
    command: click.Command = linedesk
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        assert words[0] in command.commands, line
        command = command.commands[words.pop(0)]
    return command, words


@each_page
def test_each_option_of_the_installer_each_unit_and_each_setting_is_one(page: Path) -> None:
    usage = (ROOT / "deploy" / "install.sh").read_text("utf-8").partition("END\n}")[0]
    typed = " ".join(commands(page, "deploy/install.sh")).split()
    assert [word for word in typed if word.startswith("--") and word not in usage] == []

    units = set(
        re.findall(r"linedesk-\w+\.(?:service|socket|timer)|linedesk\.target", text_of(page))
    )
    for line in commands(page, "systemctl"):
        bare = re.findall(r"(?<![\w@./-])linedesk-[a-z]+(?![\w.*-])", line)
        units |= {f"{name}.service" for name in bare}
    assert [name for name in units if not (ROOT / "deploy" / "systemd" / name).is_file()] == []

    tops = (block.partition("\n[")[0] for block in blocks(page, "toml"))
    named = {name for block in tops for name in re.findall(r"^ *([A-Z]\w+) =", block, re.M)}
    named |= {code.split(" = ")[0] for code in inline(page) if re.fullmatch(r"[A-Z_]+ = .*", code)}
    assert named - {name.upper() for name in Settings.model_fields} == set()


@pytest.mark.parametrize("folder", [HOW_TO, JAPANESE], ids=["en", "ja"])
def test_the_installers_exit_codes_are_all_there(folder: Path) -> None:
    says = (ROOT / "deploy" / "install.d" / "says.bash").read_text("utf-8")
    codes = {"0", *re.findall(r"^EXIT_\w+=(\d+)$", says, re.MULTILINE)}
    table = re.findall(r"^\| (\d+) \|", text_of(folder / "install.md"), re.MULTILINE)
    assert sorted(table) == sorted(codes)


@pytest.mark.parametrize("page", sorted(HOW_TO.glob("*.md")), ids=lambda path: path.stem)
def test_both_languages_have_the_same_commands_and_settings(page: Path) -> None:
    twin = JAPANESE / page.name
    for kind in ("console", "toml", "ini", "nginx", "python", "javascript", "js"):
        assert stripped(blocks(twin, kind)) == stripped(blocks(page, kind)), kind


def stripped(found: list[str]) -> list[str]:
    """Without the indentation of the list that a block stands in, and without comments."""
    return [
        "\n".join(re.sub(r" *# .*", "", line).strip() for line in block.splitlines())
        for block in found
    ]

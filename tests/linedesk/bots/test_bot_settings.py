"""BOT_SETTINGS: the operator's values, and the bot's view of them."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest

from linedesk import Bot
from linedesk.bots.load import read_bot_secrets, read_bot_settings
from linedesk.runtime.logging import masking
from linedesk.settings.errors import SettingsError
from linedesk.settings.settings import load_settings

DEFAULTS = {"greeting": "こんにちは", "times": 10, "again_seconds": 600.0, "loud": False}


def read(text: str, bot: Bot | None = None) -> Mapping[str, Any]:
    given = load_settings({"BOT_SETTINGS": text}).bot_settings
    return read_bot_settings(bot or Bot(settings=DEFAULTS), given)


def refusal(text: str, bot: Bot | None = None) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        read(text, bot)
    return list(caught.value.problems)


def test_values_are_read_by_the_types_of_the_defaults() -> None:
    told = read(" greeting = a = b ,times=3,again_seconds=5, loud=TRUE,")
    assert told == {"greeting": "a = b", "times": 3, "again_seconds": 5.0, "loud": True}
    assert isinstance(told["again_seconds"], float)


def test_a_table_of_the_file_is_read_alike(tmp_path: Path) -> None:
    config = tmp_path / "line.toml"
    config.write_text(
        '[bot_settings]\ngreeting = "a, b"\ntimes = 3\nagain_seconds = 5\nloud = true\n', "utf-8"
    )
    given = load_settings({}, config_path=config).bot_settings
    told = read_bot_settings(Bot(settings=DEFAULTS), given)
    assert told == {"greeting": "a, b", "times": 3, "again_seconds": 5.0, "loud": True}


KEY = "k3y/of+weather"


def test_secrets_come_by_a_credential_or_the_environment(tmp_path: Path) -> None:
    (tmp_path / "BOT_SECRETS").write_text(f"# ours\n\nWEATHER_KEY = {KEY}\nOTHER=a=b=cdef\n")
    bot = Bot(secrets=["WEATHER_KEY", "OTHER"])
    given = load_settings({"CREDENTIALS_DIRECTORY": str(tmp_path)})
    assert read_bot_secrets(bot, given.bot_secrets) == {"WEATHER_KEY": KEY, "OTHER": "a=b=cdef"}
    only = load_settings({"BOT_SECRETS": f"WEATHER_KEY={KEY}\nUNUSED=unused"})
    assert read_bot_secrets(Bot(secrets="WEATHER_KEY"), only.bot_secrets) == {"WEATHER_KEY": KEY}


def test_a_bot_whose_secret_is_missing_does_not_start() -> None:
    with pytest.raises(SettingsError, match=r"^BOT_SECRETS has no WEATHER_KEY: the bot needs"):
        read_bot_secrets(Bot(secrets=["WEATHER_KEY"]), load_settings({}).bot_secrets)


@pytest.mark.parametrize(
    "text", [f"WEATHER_KEY\n{KEY}", f"A B={KEY}", "A=short", f"A={KEY}\nA={KEY}"]
)
def test_wrong_secrets_are_refused_and_not_shown(text: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings({"BOT_SECRETS": text})
    (problem,) = caught.value.problems
    assert problem.startswith("BOT_SECRETS must be lines NAME=VALUE")
    assert KEY not in problem


def test_secrets_show_in_no_settings_and_in_no_log() -> None:
    settings = load_settings({"BOT_SECRETS": f"WEATHER_KEY={KEY}"})
    assert KEY not in f"{settings!r} {settings.model_dump()}"
    masked = masking(settings.secret_values)
    assert masked(f"GET /?key={quote(KEY, safe='')}&key={KEY}") == "GET /?key=***&key=***"


@pytest.mark.parametrize("key", ["k3y/of+weather==", r"wet\h3r's \"éclair\""])
@pytest.mark.parametrize("shown", [str, quote, quote_plus, repr, str.encode, json.dumps])
def test_a_secret_is_masked_as_errors_quote_it(key: str, shown: Callable[[str], Any]) -> None:
    masked = masking(load_settings({"BOT_SECRETS": f"KEY={key}"}).secret_values)
    assert masked(f"GET {shown(key)}").strip("GETb '\"") == "***"


@pytest.mark.parametrize("value", ["[1, 2]", "2026-11-21"])
def test_a_table_holds_no_lists_tables_or_dates(value: str, tmp_path: Path) -> None:
    config = tmp_path / "line.toml"
    config.write_text(f"[bot_settings]\ngreeting = {value}\n", "utf-8")
    with pytest.raises(SettingsError, match=r"^BOT_SETTINGS must be names and values such as"):
        load_settings({}, config_path=config)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("times=x", "BOT_SETTINGS: times must be a whole number, not 'x'"),
        ("again_seconds=nan", "BOT_SETTINGS: again_seconds must be a number, not 'nan'"),
        ("loud=yes", "BOT_SETTINGS: loud must be true or false, not 'yes'"),
        (
            "agian_seconds=5",
            "BOT_SETTINGS has an unknown name: agian_seconds (did you mean again_seconds?)",
        ),
    ],
)
def test_what_is_wrong_is_named_with_what_would_be_right(text: str, words: str) -> None:
    assert refusal(text) == [words]


def test_the_bot_s_own_check_has_the_last_word() -> None:
    def check(settings: Mapping[str, Any]) -> None:
        if settings["times"] > 10:
            raise ValueError("times must be 10 at most")

    bot = Bot(settings=DEFAULTS, check_settings=check)
    assert read("times=10", bot)["times"] == 10
    assert refusal("times=11", bot) == ["BOT_SETTINGS: times must be 10 at most"]

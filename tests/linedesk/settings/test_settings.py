"""Settings: defaults, sources, and for each a table of bad values with what the refusal says."""

from pathlib import Path

import pytest

from linedesk.settings import sources
from linedesk.settings.errors import SettingsError
from linedesk.settings.settings import Settings, load_settings, require, require_server

SECRET = "8c570fa6dd201bb328f1c1eac23a96d8"
NEW_SECRET = "0123456789abcdef0123456789ABCDEF"
TOKEN = "token+with/signs=="

# A few for each kind of setting.
BAD = [
    ("LINE_CHANNEL_SECRET", ["two words", SECRET[1:], f"{SECRET}0", f"{SECRET},x"]),
    ("LINE_CHANNEL_ACCESS_TOKEN", ["two words", "line\nend", "トークン"]),
    ("LINE_CHANNEL", ["a/b", "x" * 33, "本店"]),
    ("LINE_ACCESS_INTERVAL_MS", ["-1", "60001", "1.5", "100ms", "nan", "true"]),
    (
        "LINE_API_BASE",
        [
            "api.line.me",
            "ftp://api.line.me",
            "https://user:word@api.line.me",
            "https://api.line.me?x=1",
            "http://127.0.0.1:99999",
            "http://[::1",
        ],
    ),
    ("AMQP_URL", ["127.0.0.1:5672", "http://127.0.0.1", "amqp://h/a/b", "amqp://h/?a=b", ","]),
    (
        "MONGODB_URI",
        [
            "localhost:27017",
            "mongodb+srv://",
            "mongodb://user:pa@ss@127.0.0.1/",
            "mongodb://127.0.0.1/?nosuchoption=1",
            "mongodb://127.0.0.1/?readConcernLevel=majority&w=-1",
        ],
    ),
    ("MONGODB_DATABASE", ["a.b", "a/b", "$x", "x" * 64, "admin"]),
    ("FRONTDESK_PORT", ["0", "65536", "http"]),
    ("FRONTDESK_PATH", ["callback", "/a?b", "/フック", "/healthz"]),
    ("HANDLER_LIMIT_SECONDS", ["0", "3601", "nan", "inf", "60s"]),
    ("SLOW_ANSWERS", ["BUTTON", "reply"]),
    ("LOADING_ANIMATION", ["sometimes", "2"]),
    ("CONSOLE_URL", ["desk.example", "https://desk.example/?a=1"]),
    ("CONSOLE_PASSWORD", ["eleven-long", "has a blank in it"]),
    ("BOT_SETTINGS", ["timezone", "again_seconds=5, loud", "a=1, a=2"]),
    ("BOT_SECRETS", ["KEY", "KEY=short", "A B=abcdef", "A=abcdef\nA=abcdef"]),
    ("SIM_CLOCK", ["http://127.0.0.1:9000/sim/clock?after=0", "/sim/clock"]),
    ("BOT", ["linedesk.bots.parrot", ":bot", "linedesk/bots/parrot.py:bot", "1a:b"]),
]


def refusal(environ: dict[str, str], config_path: Path | None = None) -> str:
    with pytest.raises(SettingsError) as caught:
        load_settings(environ, config_path=config_path)
    return str(caught.value)


@pytest.mark.parametrize("path", ["/nowhere/at/all.pem", "/" + "x" * 300, "/etc"])
def test_a_file_that_cannot_be_read_is_a_wrong_setting(path: str) -> None:
    assert refusal({"FRONTDESK_TLS_KEY": path}).startswith("FRONTDESK_TLS_KEY must be a file")


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in BAD for value in values]
)
def test_a_wrong_value_is_refused_with_its_name_and_rule(name: str, value: str) -> None:
    text = refusal({name: value})
    rule = Settings.model_fields[name.lower()].description
    assert text.startswith(f"{name} must be {rule}")
    assert text.count("\n") == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LINE_CHANNEL_SECRET", f"{SECRET},hunter2\n"),
        ("LINE_CHANNEL_ACCESS_TOKEN", "hunter2 hunter2"),
        ("MONGODB_URI", "mongodb://user:hunter2/hunter2@127.0.0.1/"),
        ("MONGODB_URI", "user:hunter2@127.0.0.1"),
    ],
)
def test_a_refused_secret_is_not_repeated(name: str, value: str) -> None:
    text = refusal({name: value, "FRONTDESK_PORT": "x"})
    assert "hunter2" not in text
    assert SECRET not in text


def test_all_bad_settings_are_named_at_once() -> None:
    text = refusal({"FRONTDESK_PORT": "x", "DISPATCHER_THREADS": "1", "BOT": "parrot"})
    assert [line.split()[0] for line in text.splitlines()] == [
        "FRONTDESK_PORT",
        "DISPATCHER_THREADS",
        "BOT",
    ]
    assert "'parrot'" in text


def test_calls_leave_a_thread_for_other_work() -> None:
    given = {"LINE_CONCURRENCY": "20", "DISPATCHER_THREADS": "20"}
    assert "LINE_CONCURRENCY must be below DISPATCHER_THREADS" in refusal(given)
    assert load_settings({**given, "DISPATCHER_THREADS": "21"}).line_concurrency == 20


@pytest.mark.parametrize("given", ["FRONTDESK_TLS_CERT", "FRONTDESK_TLS_KEY"])
def test_certificate_and_key_come_together(given: str, tmp_path: Path) -> None:
    file = tmp_path / "file.pem"
    file.touch()
    assert "set both FRONTDESK_TLS_CERT and FRONTDESK_TLS_KEY" in refusal({given: str(file)})


def test_several_secrets_are_split_at_commas_newest_first() -> None:
    settings = load_settings({"LINE_CHANNEL_SECRET": f" {NEW_SECRET} , {SECRET},"})
    assert settings.channel_secrets == (NEW_SECRET, SECRET)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("LINE_API_BASE", "http://127.0.0.1:9000/", "http://127.0.0.1:9000"),
        ("LINE_ACCESS_INTERVAL_MS", "0", 0),
        ("LOG_LEVEL", "DEBUG", "debug"),
        ("FRONTDESK_HOST", "::", "::"),
        ("FRONTDESK_PATH", "/", "/"),
        ("MONGODB_URI", "embedded", "embedded"),
        ("MONGODB_URI", "mongodb+srv://cluster.example", "mongodb+srv://cluster.example"),
        ("BOT", "shop.bots:welcome", "shop.bots:welcome"),
        ("HANDLER_LIMIT_SECONDS", "0.5", 0.5),
    ],
)
def test_good_values(name: str, value: str, expected: object) -> None:
    assert getattr(load_settings({name: value}), name.lower()) == expected


def test_an_empty_value_counts_as_not_set() -> None:
    assert load_settings({"FRONTDESK_PORT": "", "FRONTDESK_TLS_CERT": " "}) == load_settings({})


def test_nothing_secret_shows_in_repr() -> None:
    settings = load_settings(
        {
            "LINE_CHANNEL_SECRET": SECRET,
            "LINE_CHANNEL_ACCESS_TOKEN": TOKEN,
            "MONGODB_URI": "mongodb://bot:p%40ssword@127.0.0.1/",
        }
    )
    for text in (repr(settings), str(settings)):
        assert not any(secret in text for secret in settings.secret_values)
    assert {SECRET, TOKEN, "p%40ssword", "p@ssword"} <= set(settings.secret_values)


def test_the_environment_overrides_credentials_and_these_the_file(tmp_path: Path) -> None:
    config = tmp_path / "line.toml"
    config.write_text(
        f'LINE_CHANNEL_SECRET = "{SECRET}"\nLINE_CHANNEL_ACCESS_TOKEN = "file"\n'
        'frontdesk_port = 8001\nBOT = "file:bot"\n'
    )
    (tmp_path / "LINE_CHANNEL_SECRET").write_text(f"{SECRET}\n")
    (tmp_path / "LINE_CHANNEL_ACCESS_TOKEN").write_text("credential\n")
    environ = {"CREDENTIALS_DIRECTORY": str(tmp_path), "LINE_CHANNEL_SECRET": NEW_SECRET}
    settings = load_settings(environ, config_path=config)
    assert settings.channel_secrets == (NEW_SECRET,)
    assert settings.access_token == "credential"
    assert (settings.frontdesk_port, settings.bot) == (8001, "file:bot")


@pytest.mark.parametrize("name", sources.REMOVED)
@pytest.mark.parametrize("source", ["environment", "file", "credential"])
def test_a_setting_of_an_earlier_release_has_no_effect_and_a_sentence(
    name: str, source: str, tmp_path: Path
) -> None:
    """Whatever its value: an upgrade does not stop at it."""
    config = tmp_path / "line.toml"
    config.write_text(f'{name} = "any"\n' if source == "file" else "")
    environ = {"CREDENTIALS_DIRECTORY": str(tmp_path)}
    if source == "credential":
        (tmp_path / name.upper()).write_text("any\n")
    elif source == "environment":
        environ[name.upper()] = "any"
    assert load_settings(environ, config_path=config).removed == {
        name.upper(): sources.REMOVED[name]
    }
    assert load_settings({}).removed == {}
    assert name not in Settings.model_fields


def test_an_unknown_name_in_the_file_is_refused_with_the_nearest_one(tmp_path: Path) -> None:
    config = tmp_path / "line.toml"
    config.write_text("FRONTDESK_PROT = 8001\nnonsense = 1\n")
    text = refusal({}, config)
    assert "unknown setting: FRONTDESK_PROT (did you mean FRONTDESK_PORT?)" in text
    assert "unknown setting: nonsense" in text


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"FRONTDESK_PORT = ", "is not a TOML file"),
        (b"BOT = '\xff'", "is not UTF-8 text"),
        (b"FRONTDESK_PORT = true", "FRONTDESK_PORT must be a port number"),
        (b"[BOT]\nmodule = 'x'", "BOT must be module:name"),
    ],
)
def test_a_bad_file_is_refused(content: bytes, words: str, tmp_path: Path) -> None:
    config = tmp_path / "line.toml"
    config.write_bytes(content)
    assert words in refusal({}, config)


def test_a_missing_value_is_refused_by_name_where_it_is_needed() -> None:
    settings = load_settings({"LINE_CHANNEL_SECRET": SECRET})
    require(settings, "line_channel_secret")
    with pytest.raises(SettingsError, match=r"^LINE_CHANNEL_ACCESS_TOKEN is not set"):
        require(settings, "line_channel_secret", "line_channel_access_token")


def test_embedded_is_refused_where_a_server_is_needed() -> None:
    require_server(load_settings({}))
    with pytest.raises(SettingsError, match="MONGODB_URI is embedded, which only `linedesk up`"):
        require_server(load_settings({"MONGODB_URI": "embedded"}))

"""Every setting: its name, default, range, and the rule that an error shows.

Settings are read once, from a mapping and two kinds of files, into a frozen object. Its repr shows
no secret. Packages below `linedesk.launch` receive plain values.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import quote, quote_plus

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    ValidationError,
    model_validator,
)

from linedesk.runtime.language import gettext as _
from linedesk.runtime.language import mark
from linedesk.settings import rules, sources
from linedesk.settings.errors import SettingsError

EMBEDDED = "embedded"

Port = Annotated[int, Field(ge=1, le=65_535)]
Seconds = Annotated[float, Field(gt=0, le=3_600, allow_inf_nan=False)]
BaseUrl = Annotated[str, AfterValidator(rules.base_url)]
ReadableFile = Annotated[Path, AfterValidator(rules.readable_file)]
Secret = Annotated[SecretStr, AfterValidator(rules.header_safe)]
Password = Annotated[Secret, Field(min_length=12)]
ChannelSecret = Annotated[SecretStr, AfterValidator(rules.channel_secret)]
ChannelSecrets = Annotated[tuple[ChannelSecret, ...], BeforeValidator(rules.comma_separated)]
MongodbUri = Annotated[str, AfterValidator(rules.mongodb_uri)]
AmqpUrls = Annotated[SecretStr, AfterValidator(rules.amqp_urls)]
DatabaseName = Annotated[str, AfterValidator(rules.database_name)]
ChannelName = Annotated[str, AfterValidator(rules.channel_name)]
UrlPath = Annotated[str, AfterValidator(rules.url_path)]
ModuleAndName = Annotated[str, AfterValidator(rules.module_and_name)]
NamedSecrets = Annotated[dict[str, SecretStr], BeforeValidator(rules.secret_lines)]
NamedValues = Annotated[dict[str, str], BeforeValidator(rules.named_values)]
LogLevel = Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(str.lower)]


def _setting(default: Any, must_be: str, **limits: Any) -> Any:
    return Field(default, description=must_be, **limits)


class Settings(BaseModel):
    """The settings of one process; a field's description ends the sentence "NAME must be ..."."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    line_channel_secret: ChannelSecrets = _setting(
        (),
        mark(
            "the channel secret, 32 hexadecimal digits from Basic settings in LINE's console ("
            "several, comma-separated, while one is being replaced)"
        ),
    )
    line_channel_access_token: Secret | None = _setting(None, mark("the channel access token"))
    line_api_base: BaseUrl = _setting(
        "https://api.line.me", mark("a URL such as https://api.line.me, without a query")
    )
    line_api_data_base: BaseUrl = _setting(
        "https://api-data.line.me", mark("a URL such as https://api-data.line.me, without a query")
    )
    line_access_interval_ms: int = _setting(
        100, mark("a whole number of milliseconds, 0 to 60000"), ge=0, le=60_000
    )
    line_concurrency: int = _setting(
        1, mark("a whole number from 1 to 500, below DISPATCHER_THREADS"), ge=1, le=500
    )
    line_channel: ChannelName = _setting(
        "main", mark("a name of at most 32 letters, digits, '-' and '_'")
    )
    reply_unknown: Literal["push", "drop"] = _setting("push", mark("push or drop"))
    late_replies_a_day: int = _setting(20, mark("a whole number, 0 to 100000"), ge=0, le=100_000)
    loading_animation: bool = _setting(True, mark("true or false"))
    send_check: Literal["on", "off"] = _setting("on", mark("on or off"))
    slow_answers: Literal["push", "button"] = _setting("push", mark("push or button"))

    mongodb_uri: MongodbUri = _setting(
        "mongodb://127.0.0.1:27017/?replicaSet=rs0",
        mark(
            "a URI such as mongodb://127.0.0.1:27017/?replicaSet=rs0, with known options only and "
            "user name and password percent-encoded; or embedded"
        ),
        repr=False,
    )
    mongodb_database: DatabaseName = _setting(
        "line_bot",
        mark("a name of at most 63 letters, digits, '-' and '_', and not admin, local or config"),
    )

    frontdesk_host: str = _setting("127.0.0.1", mark("an IP address or a host name"))
    frontdesk_port: Port = _setting(8000, mark("a port number, 1 to 65535"))
    frontdesk_path: UrlPath = _setting(
        "/callback",
        mark("a path such as /callback that begins with '/', but not /healthz or /readyz"),
    )
    frontdesk_tls_cert: ReadableFile | None = _setting(None, mark("a file that this user can read"))
    frontdesk_tls_key: ReadableFile | None = _setting(None, mark("a file that this user can read"))
    spool_path: Path = _setting(Path("/var/lib/linedesk/spool.db"), mark("the path of a file"))
    spool_max_mb: int = _setting(
        1024, mark("a whole number of megabytes, 1 to 1048576"), ge=1, le=1_048_576
    )
    max_body_kb: int = _setting(
        1024, mark("a whole number of kilobytes, 1 to 8192"), ge=1, le=8_192
    )

    dispatcher_threads: int = _setting(20, mark("a whole number, 2 to 1000"), ge=2, le=1_000)
    dispatcher_workers: Literal["local", "amqp"] = _setting("local", mark("local or amqp"))
    amqp_url: AmqpUrls | None = _setting(
        None,
        mark(
            "a URL such as amqp://linedesk-worker:PASSWORD@127.0.0.1:5672/linedesk, "
            "amqps with TLS, without a query (several nodes of a cluster, comma-separated)"
        ),
        repr=False,
    )
    async_handlers: int = _setting(200, mark("a whole number, 1 to 10000"), ge=1, le=10_000)
    worker_threads: int = _setting(20, mark("a whole number, 1 to 1000"), ge=1, le=1_000)
    dispatcher_feed: Literal["changestream", "oplog"] = _setting(
        "changestream", mark("changestream or oplog")
    )
    handler_tries: int = _setting(6, mark("a whole number, 1 to 100"), ge=1, le=100)
    handler_limit_seconds: Seconds = _setting(60.0, mark("a number above 0, at most 3600"))
    dead_letter_days: int = _setting(
        90, mark("a whole number of days, 8 to 36500"), ge=8, le=36_500
    )
    audit_days: int = _setting(400, mark("a whole number of days, 8 to 36500"), ge=8, le=36_500)
    drain_seconds: Seconds = _setting(20.0, mark("a number above 0, at most 3600"))
    bot: ModuleAndName = _setting(
        "linedesk.bots.parrot:bot", mark("module:name, such as linedesk.bots.parrot:bot")
    )
    bot_settings: NamedValues = _setting(
        {},
        mark(
            "names and values such as timezone=Asia/Tokyo, again_seconds=5; in the file a table of "
            "texts, numbers, true and false"
        ),
        repr=False,
    )
    bot_secrets: NamedSecrets = _setting(
        {},
        mark("lines NAME=VALUE: names of letters, digits and '_', values of at least 6 characters"),
        repr=False,
    )
    sim_clock: BaseUrl | None = _setting(
        None,
        mark(
            "the URL of a simulator's clock, such as http://127.0.0.1:9000/sim/clock; never set in "
            "production"
        ),
    )
    metrics_host: str = _setting("127.0.0.1", mark("an IP address or a host name"))
    frontdesk_metrics_port: Port | None = _setting(None, mark("a port number, 1 to 65535"))
    dispatcher_metrics_port: Port | None = _setting(None, mark("a port number, 1 to 65535"))
    worker_metrics_port: Port | None = _setting(None, mark("a port number, 1 to 65535"))
    console_host: str = _setting("127.0.0.1", mark("an IP address or a host name"))
    console_port: Port = _setting(8010, mark("a port number, 1 to 65535"))
    console_url: BaseUrl | None = _setting(
        None, mark("the URL of the console behind a proxy, such as https://desk.example")
    )
    console_password: Password | None = _setting(
        None, mark("a password of at least 12 printable characters without blanks")
    )
    console_token: Password | None = _setting(
        None, mark("a token of at least 12 printable characters without blanks")
    )
    console_text: bool = _setting(False, mark("true or false"))
    log_level: LogLevel = _setting("info", mark("debug, info, warning or error"))

    _removed: Mapping[str, str] = PrivateAttr({})

    @property
    def removed(self) -> Mapping[str, str]:
        """The settings of earlier releases that are still given, each with what to do instead."""
        return self._removed

    @model_validator(mode="after")
    def _certificate_with_key(self) -> Settings:
        if (self.frontdesk_tls_cert is None) != (self.frontdesk_tls_key is None):
            raise ValueError(
                _("set both FRONTDESK_TLS_CERT and FRONTDESK_TLS_KEY, or none of them")
            )
        return self

    @model_validator(mode="after")
    def _threads_beside_the_calls(self) -> Settings:
        # Each call holds a thread until LINE answers.
        if self.line_concurrency >= self.dispatcher_threads:
            raise ValueError(
                _("LINE_CONCURRENCY must be below DISPATCHER_THREADS: each call holds a thread")
            )
        return self

    @property
    def channel_secrets(self) -> tuple[str, ...]:
        """The channel secrets in plain text, newest first."""
        return tuple(secret.get_secret_value() for secret in self.line_channel_secret)

    @property
    def access_token(self) -> str:
        """The channel access token in plain text; empty if none is set."""
        token = self.line_channel_access_token
        return token.get_secret_value() if token else ""

    @property
    def amqp_urls(self) -> tuple[str, ...]:
        """The URLs of RabbitMQ's nodes in plain text; empty if none is set."""
        return rules.between_commas(self.amqp_url.get_secret_value()) if self.amqp_url else ()

    @property
    def secret_values(self) -> tuple[str, ...]:
        """All values that a log must not show, without those that are too short to be masked."""
        console = (self.console_password, self.console_token)
        values = (
            *self.channel_secrets,
            self.access_token,
            *(
                word
                for uri in (self.mongodb_uri, *self.amqp_urls)
                for word in rules.passwords_in(uri)
            ),
            *(one.get_secret_value() for one in console if one is not None),
            *self._shown_bot_secrets(),
        )
        return tuple(value for value in values if len(value) >= rules.SHORTEST_SECRET)

    def _shown_bot_secrets(self) -> Iterator[str]:
        """The bot's secrets in plain text, and as URLs, JSON and reprs contain them."""
        for secret in self.bot_secrets.values():
            text = secret.get_secret_value()
            yield from (text, quote(text), quote(text, safe=""), quote_plus(text))
            quoted = (repr(text), repr(text.encode())[1:], json.dumps(text))
            yield from (one[1:-1] for one in (*quoted, json.dumps(text, ensure_ascii=False)))


def load_settings(environ: Mapping[str, str], *, config_path: Path | None = None) -> Settings:
    """Read the settings: the environment overrides systemd's credentials, these the TOML file.

    An empty value counts as not set. Raises SettingsError, which names every wrong setting.
    """
    given = sources.gather(environ, config_path=config_path, known=tuple(Settings.model_fields))
    removed = {name.upper(): told for name, told in sources.REMOVED.items() if given.pop(name, "")}
    try:
        settings = Settings.model_validate(given)
    except ValidationError as error:
        problems = [_problem(one["loc"], one["msg"], given) for one in error.errors()]
        raise SettingsError(list(dict.fromkeys(problems))) from None
    settings._removed = removed
    return settings


def require(settings: Settings, *names: str) -> None:
    """Raise SettingsError for each of these settings (by attribute name) that has no value."""
    missing = [name for name in names if not getattr(settings, name)]
    if missing:
        told = _("{name} is not set: it must be {rule}")
        raise SettingsError([told.format(name=name.upper(), rule=_rule(name)) for name in missing])


def require_pika() -> None:
    """Raise SettingsError unless the extra `amqp` is installed, without importing it."""
    if find_spec("pika") is None:
        told = _(
            "handlers in workers need the package pika, which is not installed: run "
            "`pip install 'linedesk[amqp]'`; on a machine that deploy/install.sh has "
            "installed, set DISPATCHER_WORKERS to amqp in linedesk.toml and run it again"
        )
        raise SettingsError([told])


def require_server(settings: Settings) -> None:
    """Raise SettingsError if MONGODB_URI is embedded: a single process has no mongod of its own."""
    if settings.mongodb_uri == EMBEDDED:
        told = _(
            "MONGODB_URI is embedded, which only `linedesk up` and `linedesk demo` can "
            "start: for a single process set it to the URI of a running MongoDB"
        )
        raise SettingsError([told])


def _problem(location: tuple[int | str, ...], message: str, given: Mapping[str, Any]) -> str:
    if not location:
        return message.removeprefix("Value error, ")
    name = str(location[0])
    if name in sources.CREDENTIALS:
        return _("{name} must be {rule}").format(name=name.upper(), rule=_rule(name))
    told = _("{name} must be {rule}, not {value!r}")
    return told.format(name=name.upper(), rule=_rule(name), value=given[name])


def _rule(name: str) -> str:
    rule = Settings.model_fields[name].description
    return _(rule) if rule else ""

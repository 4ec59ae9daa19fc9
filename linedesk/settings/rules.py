"""Rules for settings beyond type and range. Each check returns the value or raises ValueError.

The errors have no text: the field's description names the rule.
"""

import os
import re
from pathlib import Path
from urllib.parse import unquote, unquote_plus, urlsplit

from pydantic import SecretStr
from pymongo.errors import PyMongoError
from pymongo.uri_parser import parse_uri

# A shorter secret would also be masked inside ordinary words of a log.
SHORTEST_SECRET = 6
_HEADER_SAFE = re.compile(r"[!-~]+")
# As LINE's console shows it, and LINE's API reference in its examples.
_CHANNEL_SECRET = re.compile(r"[0-9a-fA-F]{32}")
_CHANNEL = re.compile(r"[A-Za-z0-9_-]{1,32}")
_DATABASE = re.compile(r"[A-Za-z0-9_-]{1,63}")
_SECRET_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PATH = re.compile(r"/[A-Za-z0-9._~/-]*")
_OWN_PATHS = frozenset({"/healthz", "/readyz"})
_MONGODB_DATABASES = frozenset({"admin", "local", "config"})
_MONGODB_CREDENTIALS = re.compile(r"//.*@")
_MONGODB_SECRET_OPTIONS = re.compile(
    r"(tlsCertificateKeyFilePassword|authMechanismProperties)=[^&;]*", re.IGNORECASE
)


def comma_separated(value: object) -> object:
    """Split a text at its commas, without blanks."""
    return between_commas(value) if isinstance(value, str) else value


def header_safe(secret: SecretStr) -> SecretStr:
    """Refuse characters that an HTTP header cannot have, such as a copied line end."""
    _match(_HEADER_SAFE, secret.get_secret_value())
    return secret


def channel_secret(secret: SecretStr) -> SecretStr:
    """Accept the form of a channel secret. A part of one would be easy to guess."""
    _match(_CHANNEL_SECRET, secret.get_secret_value())
    return secret


def base_url(url: str) -> str:
    """Accept scheme, host, port and path of an http URL; a slash at its end is dropped."""
    parts = urlsplit(url)
    _demand(parts.scheme in {"http", "https"} and bool(parts.hostname))
    _demand(
        parts.username is None
        and not parts.query
        and not parts.fragment
        and url.isprintable()
        and " " not in url
    )
    _demand(parts.port is None or parts.port > 0)
    return url.rstrip("/")


def url_path(path: str) -> str:
    """Accept the path of a URL, but none that the front desk uses itself."""
    _demand(path not in _OWN_PATHS)
    return _match(_PATH, path)


def channel_name(name: str) -> str:
    """Accept a name that can be the part before the '/' of a conversation's `_id`."""
    return _match(_CHANNEL, name)


def database_name(name: str) -> str:
    """Accept a name that MongoDB allows on every system and does not use itself."""
    _demand(name not in _MONGODB_DATABASES)
    return _match(_DATABASE, name)


def readable_file(path: Path) -> Path:
    """Accept a file that this process can read."""
    _demand(os.access(path, os.R_OK) and path.is_file())
    return path


def module_and_name(value: str) -> str:
    """Accept `package.module:name`."""
    module, _, name = value.partition(":")
    _demand(all(part.isidentifier() for part in (*module.split("."), name)))
    return value


def named_values(value: object) -> object:
    """Split a text such as `a=1, b=x` into names and values; a TOML table's become texts."""
    if isinstance(value, str):
        pairs = [part.partition("=") for part in between_commas(value)]
        _demand(all(sign for _, sign, _ in pairs))
        names = [name.strip() for name, _, _ in pairs]
        _demand(len(set(names)) == len(names))
        return {name: told.strip() for name, (_, _, told) in zip(names, pairs, strict=True)}
    if isinstance(value, dict):
        _demand(all(isinstance(told, (str, int, float)) for told in value.values()))
        return {name: str(told) for name, told in value.items()}
    return value


def secret_lines(value: object) -> object:
    """Split lines NAME=VALUE; empty lines and those that begin with # are left out.

    A value has at least six characters: a shorter one could not be masked in logs.
    """
    if not isinstance(value, str):
        return value
    lines = [line.strip() for line in value.splitlines()]
    pairs = [line.partition("=") for line in lines if line and not line.startswith("#")]
    named = {name.strip(): told.strip() for name, _, told in pairs}
    _demand(len(named) == len(pairs))
    for name, told in named.items():
        _match(_SECRET_NAME, name)
        _demand(len(told) >= SHORTEST_SECRET)
    return named


def mongodb_uri(uri: str) -> str:
    """Accept `embedded` and each URI that pymongo's parser accepts.

    Of a mongodb+srv URI only the form is checked, since parsing it needs the DNS.
    """
    if uri == "embedded":
        return uri
    if uri.startswith("mongodb+srv://"):
        _demand(bool(urlsplit(uri).hostname))
        return uri
    try:
        parse_uri(uri)
    except PyMongoError as error:
        raise ValueError from error
    return uri


def passwords_in(uri: str) -> tuple[str, ...]:
    """The password of a URI of MongoDB or RabbitMQ, as written and decoded; empty without one."""
    credentials = uri.partition("//")[2].rpartition("@")[0]
    password = credentials.partition(":")[2]
    return (password, unquote(password), unquote_plus(password)) if password else ()


def without_credentials(uri: str) -> str:
    """A MongoDB URI without its secrets."""
    return _MONGODB_SECRET_OPTIONS.sub(r"\1=***", _MONGODB_CREDENTIALS.sub("//***@", uri))


def between_commas(text: str) -> tuple[str, ...]:
    """The parts of a text, without blanks around them and without empty ones."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _match(pattern: re.Pattern[str], value: str) -> str:
    _demand(pattern.fullmatch(value) is not None)
    return value


def _demand(claim: bool) -> None:
    if not claim:
        raise ValueError


def amqp_urls(urls: SecretStr) -> SecretStr:
    """Accept URLs of RabbitMQ, comma-separated, each with a host and at most one virtual host."""
    found = between_commas(urls.get_secret_value())
    _demand(bool(found))
    for url in found:
        parts = urlsplit(url)
        _demand(parts.scheme in {"amqp", "amqps"} and bool(parts.hostname))
        # Raises ValueError for an invalid port.
        _demand(parts.port is None or 1 <= parts.port <= 65_535)
        # pika would read a query as options.
        _demand(not parts.query and not parts.fragment and parts.path.count("/") <= 1)
    return urls

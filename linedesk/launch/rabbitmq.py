"""The virtual host, exchange and users of RabbitMQ that `linedesk init --amqp` describes.

One import of the definitions by `rabbitmqctl` creates all of it and may be repeated. The passwords
are in files for the processes; the definitions have salted hashes of them.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import click
from pydantic import SecretStr

from jobworker.remote.amqp import EXCHANGE, LEADER_QUEUE, WORKER_QUEUE
from linedesk.settings import rules
from linedesk.settings.errors import SettingsError
from linedesk.settings.settings import Settings
from linedesk.setup.users import at_work_in, new_password, write_for_owner

FILE = "AMQP_URL"
DEFAULT_URL = "amqp://127.0.0.1:5672/linedesk"
DEFINITIONS = "rabbitmq-definitions.json"
HASH = "rabbit_password_hashing_sha256"

# The shell reads the file, since RabbitMQ's user may not.
IMPORT = (
    "Run this now, on RabbitMQ's machine: it makes or corrects all of them\n"
    "  rabbitmqctl import_definitions < {path}"
)
RESTART = (
    "then restart linedesk-dispatcher and linedesk-worker soon; open connections stay until then"
)


# Each user's rights in the virtual host, as RabbitMQ's regular expressions.
# Publishing to a queue by its name is a write to the default exchange, `amq.default` here.
# A worker cannot reach other workers or the dispatcher's queue: those are also exclusive.
WHO: Mapping[str, Mapping[str, str]] = {
    "dispatcher": {
        "configure": f"^({re.escape(EXCHANGE)}$|{re.escape(LEADER_QUEUE)})",
        "write": f"^(amq\\.default$|{re.escape(LEADER_QUEUE)})",
        "read": f"^({re.escape(EXCHANGE)}$|{re.escape(LEADER_QUEUE)})",
    },
    "worker": {
        "configure": f"^{re.escape(WORKER_QUEUE)}",
        "write": f"^{re.escape(EXCHANGE)}$",
        "read": f"^{re.escape(WORKER_QUEUE)}",
    },
}


def init_rabbitmq(settings: Settings, folder: Path, *, new_passwords: bool) -> None:
    """Write the users' files and the definitions, and print what to do. Raises SettingsError."""
    with at_work_in(folder):
        kept = {who: _kept(folder / who / FILE) for who in WHO}
        nodes = settings.amqp_urls or next(filter(None, kept.values()), (DEFAULT_URL,))
        passwords = {
            who: new_password() if new_passwords else _password_in(kept[who]) or new_password()
            for who in WHO
        }
        vhost = _vhost(nodes)
        urls = {who: _with_user(nodes, user_of(vhost, who), passwords[who]) for who in WHO}
        for who in WHO:
            write_for_owner(folder / who / FILE, ",".join(urls[who]) + "\n")
        described = json.dumps(definitions(vhost, passwords), indent=2)
        write_for_owner(folder / DEFINITIONS, f"{described}\n")
    click.echo(f"rabbitmq    {', '.join(_host(urlsplit(one).netloc) for one in nodes)}")
    click.echo(f"vhost       {vhost}")
    click.echo(f"exchange    {EXCHANGE}")
    for who in WHO:
        click.echo(f"user        {user_of(vhost, who)}: {folder / who / FILE}")
    click.echo(IMPORT.format(path=folder / DEFINITIONS))
    if new_passwords:
        click.echo(RESTART)


def user_of(vhost: str, who: str) -> str:
    """The name of a user: RabbitMQ's users are common to all virtual hosts."""
    return f"{'linedesk' if vhost == '/' else vhost}-{who}"


def definitions(vhost: str, passwords: Mapping[str, str]) -> dict[str, Any]:
    """The virtual host, users, rights and exchange in the form of RabbitMQ's definitions."""
    rights = [
        {"vhost": vhost, "user": user_of(vhost, who), **allowed} for who, allowed in WHO.items()
    ]
    users = [
        {"name": user_of(vhost, who), "hashing_algorithm": HASH, "tags": []}
        | {"password_hash": _hashed(passwords[who])}
        for who in WHO
    ]
    exchange: dict[str, Any] = {"name": EXCHANGE, "vhost": vhost, "type": "fanout", "arguments": {}}
    exchange |= {"durable": True, "auto_delete": False, "internal": False}
    return {
        "vhosts": [{"name": vhost}],
        "users": users,
        "permissions": rights,
        "exchanges": [exchange],
    }


def _hashed(password: str) -> str:
    """As RabbitMQ stores it: a salt of four bytes before the hash of salt and password."""
    salt = os.urandom(4)
    return base64.b64encode(salt + hashlib.sha256(salt + password.encode()).digest()).decode()


def _kept(path: Path) -> tuple[str, ...]:
    """The URLs in a file; empty if it is missing or empty. Raises SettingsError, OSError."""
    try:
        text = path.read_text("utf-8").strip()
        if text:
            rules.amqp_urls(SecretStr(text))
        return rules.between_commas(text)
    except FileNotFoundError:
        return ()
    except ValueError:
        told = (
            "{file} contains no URL of RabbitMQ: remove it, then `linedesk init --amqp` creates a "
            "new one"
        )
        raise SettingsError([told.format(file=path)]) from None


def _password_in(urls: Sequence[str]) -> str:
    return unquote(urlsplit(urls[0]).password or "") if urls else ""


def _vhost(urls: Sequence[str]) -> str:
    """The virtual host of the first URL; RabbitMQ's default is `/`."""
    return unquote(urlsplit(urls[0]).path[1:]) or "/"


def _with_user(urls: Sequence[str], user: str, password: str) -> tuple[str, ...]:
    login = f"{quote(user, safe='')}:{quote(password, safe='')}"
    parts = [urlsplit(url) for url in urls]
    return tuple(one._replace(netloc=f"{login}@{_host(one.netloc)}").geturl() for one in parts)


def _host(netloc: str) -> str:
    return netloc.rpartition("@")[2]

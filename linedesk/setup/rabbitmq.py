"""The virtual host, exchange and users of RabbitMQ that `linedesk init --amqp` makes.

One import of definitions by `rabbitmqctl` creates all of it and may be repeated. The passwords are
in files for the processes; RabbitMQ gets salted hashes of them on standard input.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import click
import pika
from pydantic import SecretStr

from jobworker.remote.amqp import EXCHANGE, LEADER_QUEUE, LOST, WORKER_QUEUE, parameters
from linedesk.settings import rules
from linedesk.settings.errors import SettingsError
from linedesk.settings.settings import Settings
from linedesk.setup.users import at_work_in, new_password, write_for_owner
from linedesk.store.errors import SetupError

FILE = "AMQP_URL"
DEFAULT_URL = "amqp://127.0.0.1:5672/linedesk"
DEFINITIONS = "rabbitmq-definitions.json"
HASH = "rabbit_password_hashing_sha256"
CONTROL = "rabbitmqctl"
CONTROL_SECONDS = 60.0

BY_HAND = (
    "{control} is not on this machine. Copy {path} to RabbitMQ's machine and run there: `{control} "
    "import_definitions {name}`. Then run this command again: it checks the result"
)
NOT_OPENED = (
    "RabbitMQ at {hosts} refuses the user {user}, although {control} has created it: set AMQP_URL "
    "to the RabbitMQ of this machine, such as {example}"
)
RESTART = "new password for {who}: restart {units} soon; open connections stay until then"


@dataclass(frozen=True)
class BrokerUser:
    """A user's rights in the virtual host, as RabbitMQ's regular expressions."""

    configure: str
    write: str
    read: str


def _literal(name: str) -> str:
    return name.replace(".", r"\.")


# Publishing to a queue by its name is a write to the default exchange, `amq.default` here.
# A worker cannot reach other workers or the dispatcher's queue: those are also exclusive.
WHO: Mapping[str, BrokerUser] = {
    "dispatcher": BrokerUser(
        configure=f"^({_literal(EXCHANGE)}$|{_literal(LEADER_QUEUE)})",
        write=f"^(amq\\.default$|{_literal(LEADER_QUEUE)})",
        read=f"^({_literal(EXCHANGE)}$|{_literal(LEADER_QUEUE)})",
    ),
    "worker": BrokerUser(
        configure=f"^{_literal(WORKER_QUEUE)}",
        write=f"^{_literal(EXCHANGE)}$",
        read=f"^{_literal(WORKER_QUEUE)}",
    ),
}


def init_rabbitmq(settings: Settings, folder: Path, *, new_passwords: bool) -> None:
    """Create everything that is missing and print it. Raises SettingsError, SetupError."""
    with at_work_in(folder):
        kept = {who: _kept(folder / who / FILE) for who in WHO}
        nodes = settings.amqp_urls or next(filter(None, kept.values()), (DEFAULT_URL,))
        passwords = {
            who: new_password() if new_passwords else _password_in(kept[who]) or new_password()
            for who in WHO
        }
        vhost = _vhost(nodes)
        urls = {who: _with_user(nodes, user_of(vhost, who), passwords[who]) for who in WHO}
        renewed = [who for who in WHO if kept[who] and _password_in(kept[who]) != passwords[who]]
        for who in WHO:
            write_for_owner(folder / who / FILE, ",".join(urls[who]) + "\n")
        _import(definitions(vhost, passwords), folder, urls)
        _require_open(urls)
    click.echo(f"rabbitmq    {', '.join(_host(urlsplit(one).netloc) for one in nodes)}")
    click.echo(f"vhost       {vhost}")
    click.echo(f"exchange    {EXCHANGE}")
    for who in WHO:
        click.echo(f"user        {user_of(vhost, who)}: {folder / who / FILE}")
    if renewed:
        units = ", ".join(f"linedesk-{who}" for who in renewed)
        click.echo(RESTART.format(who=", ".join(renewed), units=units))


def user_of(vhost: str, who: str) -> str:
    """The name of a user: RabbitMQ's users are common to all virtual hosts."""
    return f"{'linedesk' if vhost == '/' else vhost}-{who}"


def definitions(vhost: str, passwords: Mapping[str, str]) -> dict[str, Any]:
    """The virtual host, users, rights and exchange in the form of RabbitMQ's definitions."""
    rights = [
        {"vhost": vhost, "user": user_of(vhost, who)}
        | {"configure": one.configure, "write": one.write, "read": one.read}
        for who, one in WHO.items()
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


def _can_open(urls: Sequence[str]) -> bool:
    """Whether a node accepts the URL's user."""
    for url in urls:
        with suppress(*LOST):
            pika.BlockingConnection(parameters(url, "init")).close()
            return True
    return False


def _import(wanted: Mapping[str, Any], folder: Path, urls: Mapping[str, Sequence[str]]) -> None:
    """Import by `rabbitmqctl`, each time again, since rights may have been changed by hand."""
    control = shutil.which(CONTROL)
    if control is None:
        if all(map(_can_open, urls.values())):
            return
        path = folder / DEFINITIONS
        write_for_owner(path, json.dumps(wanted, indent=2) + "\n")
        raise SetupError(BY_HAND.format(control=CONTROL, name=DEFINITIONS, path=path))
    try:
        done = subprocess.run(
            [control, "--quiet", "import_definitions"],
            input=json.dumps(wanted),
            capture_output=True,
            text=True,
            timeout=CONTROL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        told = "{command} does not end within {seconds:.0f} s"
        raise SetupError(told.format(command=CONTROL, seconds=CONTROL_SECONDS)) from None
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).split())[:300]
        told = "{command} ended with exit code {code}: {output}"
        command = f"{CONTROL} import_definitions"
        raise SetupError(told.format(command=command, code=done.returncode, output=said))


def _require_open(urls: Mapping[str, Sequence[str]]) -> None:
    for nodes in urls.values():
        if not _can_open(nodes):
            hosts = ", ".join(_host(urlsplit(one).netloc) for one in nodes)
            user = unquote(urlsplit(nodes[0]).username or "")
            told = NOT_OPENED.format(hosts=hosts, user=user, control=CONTROL, example=DEFAULT_URL)
            raise SetupError(told)

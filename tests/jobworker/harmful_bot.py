"""A bot that does what goes well in a test and badly in production: one harm a text.

The line that a warning has to name ends with a comment that names the harm.
"""

from __future__ import annotations

import itertools
import logging
import socket
import subprocess
import sys
import time
from contextlib import suppress
from time import sleep as nap
from typing import Any

from jobworker import Bot, Talk

bot = Bot()
log = logging.getLogger(__name__)

heard: list[str] = []
total = 0
numbers = itertools.count()
kept_for_later = logging.LoggerAdapter(log, {})


class Memory:
    """State in an object, and in its class."""

    shared: dict[str, str] = {}  # noqa: RUF012

    def __init__(self) -> None:
        self.last = ""


memory = Memory()


@bot.default()  # talk, arguments
def text(event: Any, talk: Talk) -> None:
    HARMS[event.message.text](talk)
    talk.reply("はい")


def in_a_list(talk: Talk) -> None:
    heard.append(talk.event_id)  # list


def in_a_number(talk: Talk) -> None:
    global total
    total += 1  # number


def in_a_count(talk: Talk) -> None:
    next(numbers)  # count


def in_a_class(talk: Talk) -> None:
    talk.data["shared"] = True
    Memory.shared[talk.event_id] = "x"  # class


def in_an_object(talk: Talk) -> None:
    memory.last = talk.event_id  # object


def in_an_attribute(talk: Talk) -> None:
    in_an_attribute.talk = talk.event_id  # type: ignore[attr-defined]  # attribute


def in_arguments(talk: Talk, known: list[str] = []) -> None:  # noqa: B006
    known.append(talk.event_id)


def by_the_talk(talk: Talk) -> None:
    kept_for_later.extra = {"talk": talk}


def by_a_sleep(talk: Talk) -> None:
    time.sleep(0.001)  # sleep


def by_a_nap(talk: Talk) -> None:
    nap(0.001)  # nap


def by_the_network(talk: Talk) -> None:
    with suppress(OSError):
        socket.create_connection(("127.0.0.1", 1), timeout=1)  # network


def by_a_program(talk: Talk) -> None:
    subprocess.run([sys.executable, "-V"], capture_output=True, check=True)  # program


HARMS = {
    "list": in_a_list,
    "number": in_a_number,
    "count": in_a_count,
    "class": in_a_class,
    "object": in_an_object,
    "attribute": in_an_attribute,
    "arguments": in_arguments,
    "talk": by_the_talk,
    "sleep": by_a_sleep,
    "nap": by_a_nap,
    "network": by_the_network,
    "program": by_a_program,
}

"""`linedesk timers set`: a timer for all friends, ordered from the leading dispatcher."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
from click import option

from linedesk.commands.failure import Command
from linedesk.commands.options import json_option, to_act, why_option
from linedesk.commands.orders import CAME_SECONDS, within
from linedesk.operate.format import echo_json, visible
from linedesk.runtime.exit_codes import Exit

if TYPE_CHECKING:
    from linedesk.commands.options import Opened


@click.group()
def timers() -> None:
    """Set a timer in many conversations."""


@timers.command("set", cls=Command, examples=('timers set news --all-friends --at "月 12:00"',))
@click.argument("name")
@option("--all-friends", is_flag=True, required=True, help="For all users who are known.")
@option("--at", "when", required=True, metavar="WHEN", help="2027-01-03T18:00, or a rule.")
@option("--tz", default="Asia/Tokyo", show_default=True, help="The time zone of WHEN.")
@why_option
@json_option
@to_act
def timers_set(
    own: Opened, name: str, when: str, tz: str, why: str, as_json: bool, **_: Any
) -> int:
    """Set the timer NAME in the conversation of each known user who has not blocked the bot.

    The bot needs a handler for it (`@bot.timer`). A rule is one of `talk.every`, such as "7:30",
    "月・木 12:00", "平日 7:30", "毎月1日 9:00" or a cron line. It replaces a timer of that name.
    What the handler pushes counts towards the quota, once for each user.

    The dispatcher sets about 200 timers a second. Exit code 1 if it has not finished in 10 s.
    """
    from linedesk.operate.text import known

    acts = own.acts
    order = acts.set_timers(name, _timer(name, when, tz), why=why)
    came = within(CAME_SECONDS, lambda: acts.came(order))
    if as_json:
        echo_json({"timer": name, "came": came})
    else:
        not_yet = "ordered; the leading dispatcher sets it in one conversation after another"
        click.echo(visible(known(came)) if came else not_yet)
    is_set = isinstance(came, dict) and came.get("code") == "timers_set"
    return Exit.OK if is_set else Exit.FAILED


def _timer(name: str, when: str, tz: str) -> dict[str, Any]:
    """The timer of an order, as in `schedule`. Raises UsageError."""
    from linedesk.store.recurrence import Recurrence
    from linedesk.store.timers import check_name

    moment = None
    with suppress(ValueError):
        moment = datetime.fromisoformat(when)
    try:
        check_name(name)
        rule = Recurrence.parse("0:00" if moment else when, tz, now=datetime.now(UTC))
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if moment is not None:
        moment = moment if moment.tzinfo else moment.replace(tzinfo=rule.zone)
    elif rule.after(datetime.now(UTC)) is None:
        raise click.UsageError(f"not a time that comes: {when!r}")
    return {"runAt": moment, "every": None if moment else rule.as_document(), "data": {}}

"""The commands of `linedesk conversation`: their options. Other modules do the work."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from click import option

from linedesk.commands.failure import Command
from linedesk.commands.options import with_settings

if TYPE_CHECKING:
    from linedesk.settings.settings import Settings


@click.group()
def conversation() -> None:
    """Show one conversation with the bot."""


@conversation.command("show", cls=Command)
@click.argument("who", metavar="USER")
@option("--text", is_flag=True, help="Also show the texts of waiting sends.")
@option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@with_settings
def conversation_show(settings: Settings, who: str, text: bool, as_json: bool) -> None:
    """Show state, data, timers and outbox of one conversation.

    USER is the id of a user, group or room, a unique start of the id, <channel>/<id>, or a name in
    LINE.

    A change of its document in the mongo shell has to increment `n` in the same update,
    $inc: {n: 1}; otherwise it may take effect ten seconds later.
    """
    from linedesk.commands.conversation import show_conversation

    show_conversation(settings, who, text=text, as_json=as_json)


@conversation.command("recent", cls=Command, examples=("conversation recent 花子",))
@click.argument("who", metavar="USER")
@option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@with_settings
def conversation_recent(settings: Settings, who: str, as_json: bool) -> None:
    """Show the newest events and calls of one conversation. USER is as for `show`."""
    from linedesk.commands.trace import show_recent

    show_recent(settings, who, as_json=as_json)

"""The command `linesim`; `linedesk sim` has its options, and serves by the same function."""

import logging
import shlex
import sys
from pathlib import Path
from typing import Any

import click

from linesim.http.server import serve
from linesim.http.webhook_settings import is_http
from linesim.model.errors import StateError
from linesim.people.sim import Sim

INTERRUPTED = 130

EXAMPLE = """\b
To make LINE fail, give the simulator rules. DELETE removes all of them:
  curl http://127.0.0.1:9000/sim/misbehave -H 'content-type: application/json' \\
    -d '{"rules": [{"outcome": "server_error", "endpoint": "push"}]}'
  curl -X DELETE http://127.0.0.1:9000/sim/misbehave

\b
outcome      server_error, html_error, garbage, too_many, monthly_limit,
             too_many_to_one, too_many_at_once, unauthorized, bad_request,
             bad_member, close or late
endpoint     reply, push, multicast, profile, ... (default: all)
probability  0 to 1 (default: 1)
count        how often the rule applies (default: without limit)
seconds      delay of an answer with the outcome late
"""


class CannotServe(click.ClickException):
    exit_code = 69


def _checked(context: click.Context, option: click.Parameter, url: str | None) -> str | None:
    if url is not None and not is_http(url):
        raise click.BadParameter(f"{url!r} is not an HTTP or HTTPS URL")
    return url


PORT = click.IntRange(1, 65_535)
OPTIONS: list[click.Parameter] = [
    click.Option(["--port"], type=PORT, default=9000, show_default=True, help="Port to listen on."),
    click.Option(
        ["--webhook", "webhook_url"],
        metavar="URL",
        callback=_checked,
        help="The bot's webhook URL.",
    ),
    click.Option(["--quota"], type=click.IntRange(0), help="Monthly limit of counted messages."),
    click.Option(
        ["--rate-limits/--no-rate-limits"], default=True, help="Apply LINE's rate limits."
    ),
    click.Option(
        ["--state"],
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Keep users, chats, media and menus over restarts in this file.",
    ),
]


NAMES = {"help_option_names": ["-h", "--help"]}


@click.command(params=[*OPTIONS], epilog=EXAMPLE, context_settings=NAMES)
@click.option("--channel-id", help="Channel ID. Default: a new one.")
@click.option("--secret", help="Channel secret. Default: a new one.")
@click.option("--token", help="Channel access token. Default: a new one.")
@click.option("-v", "--verbose", is_flag=True, help="Also log webhooks that were accepted.")
def linesim(verbose: bool, **options: Any) -> int:
    """Run the LINE platform for a bot in any language, with a chat page, on this machine.

    Prints what the bot's environment needs, then one line for each call of the bot.
    """
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    if verbose:
        logging.getLogger("linesim").setLevel(logging.DEBUG)
    given = {name: value for name, value in options.items() if value is not None}
    try:
        return serve(when_serving=_introduce, **given)
    except StateError as error:
        raise click.BadParameter(str(error), param_hint="--state") from error
    except OSError as error:
        raise CannotServe(f"cannot use port {options['port']}: {error.strerror}") from error


def _introduce(sim: Sim) -> None:
    environment = {
        "LINE_CHANNEL_ID": sim.channel_id,
        "LINE_CHANNEL_SECRET": sim.secret,
        "LINE_CHANNEL_ACCESS_TOKEN": sim.token,
    }
    environment |= {"LINE_API_BASE": sim.url, "LINE_API_DATA_BASE": sim.url}
    click.echo(f"Chat page: {sim.url}/")
    click.echo(f"Webhooks go to: {sim.webhook_url or 'no URL yet; --webhook URL sets it'}\n")
    click.echo("For the bot's environment:")
    for name, value in environment.items():
        click.echo(f"export {name}={shlex.quote(value)}")
    click.echo()


def main() -> None:
    """Each error is one line."""
    try:
        sys.exit(linesim.main(standalone_mode=False))
    except click.ClickException as error:
        click.echo(f"linesim: {error.format_message()}", err=True)
        sys.exit(error.exit_code)
    except click.Abort:
        sys.exit(INTERRUPTED)

"""`python -m linesim`: the simulator as a process of its own."""

import argparse
import logging
import os
import sys
from collections.abc import Mapping, Sequence

from linesim.http.process import serve

SECRET = "LINE_CHANNEL_SECRET"
TOKEN = "LINE_CHANNEL_ACCESS_TOKEN"

CANNOT_SERVE = 69

EXAMPLE = """\
example:
  export LINE_CHANNEL_SECRET=... LINE_CHANNEL_ACCESS_TOKEN=...
  python -m linesim --webhook http://127.0.0.1:8000/callback
and open http://127.0.0.1:9000/ in a browser.
"""


def main(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    parser = _parser()
    given = parser.parse_args(arguments)
    secret = given.secret or environ.get(SECRET, "").split(",")[0].strip()
    token = given.token or environ.get(TOKEN, "")
    if not secret or not token:
        parser.error(f"set {SECRET} and {TOKEN}, the same as the bot server's")
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    try:
        return serve(
            secret=secret,
            token=token,
            host=given.host,
            port=given.port,
            webhook_url=given.webhook,
            reply_token_seconds=given.reply_token_seconds,
            quota=given.quota,
            latency_ms=given.latency_ms,
            rate_limits=given.rate_limits == "on",
        )
    except OSError as error:
        where = f"{given.host}:{given.port}"
        sys.stderr.write(f"linesim: cannot serve on {where}: {error.strerror}\n")
        return CANNOT_SERVE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="linesim",
        description="The LINE platform on your own machine: API, webhooks and a chat page.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="address to serve on (default: %(default)s)")
    add("--port", type=int, default=9000, help="port to serve on, 0 for any (default: %(default)s)")
    add("--webhook", metavar="URL", help="the bot server's callback")
    add("--secret", help=f"channel secret; better in {SECRET}: arguments show in the process list")
    add("--token", help=f"channel access token; better in {TOKEN}, for the same reason")
    add(
        "--reply-token-seconds",
        type=float,
        default=60.0,
        help="life of a reply token (default: 60)",
    )
    add("--quota", type=int, help="counted messages a month (default: no limit)")
    add("--latency-ms", type=float, default=0.0, help="time that LINE takes to answer (default: 0)")
    add("--rate-limits", choices=("on", "off"), default="on", help="LINE's own (default: on)")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))

"""`python -m frontdesk` is `linedesk frontdesk`."""

from linedesk.cli.main import frontdesk

frontdesk(prog_name="python -m frontdesk")

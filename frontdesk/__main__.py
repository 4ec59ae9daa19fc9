"""`python -m frontdesk` is `linedesk frontdesk`."""

from linedesk.launch.main import frontdesk

frontdesk(prog_name="python -m frontdesk")

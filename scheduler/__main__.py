"""`python -m scheduler` is `linedesk scheduler`."""

from linedesk.cli import scheduler

scheduler(prog_name="python -m scheduler")

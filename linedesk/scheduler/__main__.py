"""`python -m linedesk.scheduler` is `linedesk scheduler`."""

from linedesk.cli.main import scheduler

scheduler(prog_name="python -m linedesk.scheduler")

"""`python -m dispatcher` is `linedesk dispatcher`."""

from linedesk.cli.main import dispatcher

dispatcher(prog_name="python -m dispatcher")

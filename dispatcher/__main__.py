"""`python -m dispatcher` is `linedesk dispatcher`."""

from linedesk.cli import dispatcher

dispatcher(prog_name="python -m dispatcher")

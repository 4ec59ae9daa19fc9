"""`python -m dispatcher` is `linedesk dispatcher`."""

from linedesk.launch.main import dispatcher

dispatcher(prog_name="python -m dispatcher")

"""A dispatcher with the suite's points, where no bot that could bring them runs in it."""

from linedesk.launch.main import dispatcher
from tests.chaos import points

if __name__ == "__main__":
    points.install()
    dispatcher(prog_name="python -m dispatcher")

"""The LINE platform on your own machine: its API, its webhooks, and a chat page to talk to your
bot.
"""

from linesim.clock import HandClock, SystemClock
from linesim.endpoints import Rate
from linesim.options import Options
from linesim.process import serve
from linesim.server import running
from linesim.sim import Sim

__all__ = ["HandClock", "Options", "Rate", "Sim", "SystemClock", "running", "serve"]

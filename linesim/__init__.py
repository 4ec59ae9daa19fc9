"""The LINE platform on your own machine: its API, its webhooks, a chat page to talk to your bot,
faults, and a checker that judges a run.
"""

from linesim.checker import check
from linesim.clock import HandClock, ShiftedClock
from linesim.endpoints import Rate
from linesim.faults import Close, Late, Status
from linesim.history import text_of
from linesim.load import Load
from linesim.options import Options
from linesim.process import serve
from linesim.report import Report
from linesim.rules import Rule
from linesim.server import running
from linesim.sim import Sim
from linesim.timers import Timer

__all__ = [
    "Close",
    "HandClock",
    "Late",
    "Load",
    "Options",
    "Rate",
    "Report",
    "Rule",
    "ShiftedClock",
    "Sim",
    "Status",
    "Timer",
    "check",
    "running",
    "serve",
    "text_of",
]

"""The LINE platform on your own machine: its API, its webhooks, a chat page to talk to your bot,
faults, and a checker that judges a run.
"""

from linesim.http.process import serve
from linesim.http.server import running
from linesim.judge.checker import check
from linesim.judge.history import text_of
from linesim.judge.report import Report
from linesim.judge.timers import Timer
from linesim.model.clock import HandClock, ShiftedClock
from linesim.model.endpoints import Rate
from linesim.model.errors import StateError
from linesim.model.faults import BadMember, Close, Late, Rule, Status
from linesim.model.options import Options
from linesim.people.load import Load
from linesim.people.sim import Sim

__all__ = [
    "BadMember",
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
    "StateError",
    "Status",
    "Timer",
    "check",
    "running",
    "serve",
    "text_of",
]

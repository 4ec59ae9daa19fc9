"""The LINE platform on your own machine: its API, its webhooks, a chat page to talk to your bot,
faults, and a checker that judges a run.
"""

from linesim.http.server import running as running
from linesim.http.server import serve as serve
from linesim.judge.checker import check as check
from linesim.judge.conduct import Timer as Timer
from linesim.judge.history import text_of as text_of
from linesim.judge.report import Report as Report
from linesim.model.clock import HandClock as HandClock
from linesim.model.clock import ShiftedClock as ShiftedClock
from linesim.model.endpoints import Rate as Rate
from linesim.model.errors import StateError as StateError
from linesim.model.faults import BadMember as BadMember
from linesim.model.faults import Close as Close
from linesim.model.faults import Late as Late
from linesim.model.faults import Rule as Rule
from linesim.model.faults import Status as Status
from linesim.model.options import Options as Options
from linesim.people.load import Load as Load
from linesim.people.sim import Sim as Sim

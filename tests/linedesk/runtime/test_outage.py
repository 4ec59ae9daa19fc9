"""An outage of MongoDB in the log: two lines, whichever parts fail and however often."""

import logging

import pytest
from pymongo.errors import AutoReconnect, DuplicateKeyError

from linedesk.runtime.outage import FORGOTTEN_SECONDS, Outage
from linedesk.store.errors import RecvqClosed, StoreUnavailable, WriteRefused, is_outage
from tests.waiting import Now


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno > logging.DEBUG]


def test_an_outage_is_two_lines(now: Now, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="linedesk")
    mongodb = Outage(now)
    mongodb.works("feed")
    mongodb.fails("feed", "no answer")
    for _ in range(3):
        now.seconds += 1
        mongodb.fails("feed", "no answer")
        mongodb.fails("lease", "no primary")
    mongodb.works("feed")
    assert said(caplog) == ["MongoDB cannot be used: feed, trying again error=no answer"]
    told = [one.getMessage() for one in caplog.records]
    assert "lease, trying again error=no primary" in told
    mongodb.works("lease")
    mongodb.works("feed")
    assert said(caplog)[1:] == ["MongoDB can be used again seconds=3.0"]


def test_a_part_that_never_tried_again_hides_no_later_outage(
    now: Now, caplog: pytest.LogCaptureFixture
) -> None:
    mongodb = Outage(now)
    mongodb.fails("a look at the ages", "no answer")
    now.seconds += FORGOTTEN_SECONDS + 1
    mongodb.fails("feed", "no answer")
    assert said(caplog)[1:] == ["MongoDB cannot be used: feed, trying again error=no answer"]


def test_what_may_stay_for_good_is_no_outage() -> None:
    """It would hide a real one."""
    assert is_outage(AutoReconnect("no primary"))
    assert is_outage(StoreUnavailable("not confirmed"))
    for error in (RecvqClosed("full"), WriteRefused(121), DuplicateKeyError("a")):
        assert not is_outage(error)

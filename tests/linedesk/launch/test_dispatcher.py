"""The dispatcher's use of its settings."""

from __future__ import annotations

import pytest

from jobworker.remote import leader
from linedesk.launch.dispatcher import workers_stop_seconds


@pytest.mark.parametrize(("drain", "stop"), [(20.0, 18.0), (3_600.0, 3_598.0), (1.0, 0.0)])
def test_handlers_in_workers_get_the_drain_but_for_what_threads_need_to_end(
    drain: float, stop: float
) -> None:
    assert workers_stop_seconds(drain) == stop
    assert drain - stop > leader.LOOK_SECONDS or not stop

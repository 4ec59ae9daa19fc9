"""The leader's reports about its workers: rows for `status`, and figures."""

from __future__ import annotations

import threading
from typing import Any

from pymongo.database import Database

from linedesk import Bot
from linedesk.commands.listing import WIDTH, page_lines
from linedesk.commands.screen import sections
from linedesk.operate.overview import Read, put_together
from linesim import Sim
from tests.jobworker.remote.remote_room import a_room
from tests.jobworker.worker_harness import Room
from tests.linedesk.operate.hand import NOW, a_desk, a_dispatcher
from tests.rabbitmq import RabbitMQ
from tests.waiting import eventually


def shown(room: Room) -> str:
    row = a_dispatcher(broker=room.desk.broker(), workers=room.desk.workers())
    read = Read(rows=[a_desk(), row], pauses=[], calls=[], letters=[])
    return "\n".join(
        line.plain for line in page_lines(sections(put_together(read, now=NOW)), WIDTH)
    )


def test_a_leader_reports_its_workers_their_jobs_and_the_broker(
    shared_rabbitmq: RabbitMQ, database: Database[Any], sim: Sim
) -> None:
    may_end, user = threading.Event(), sim.add_user("花子")
    bot = Bot()
    bot.default()(lambda event, talk: may_end.wait(20))
    with a_room(shared_rabbitmq, database, sim, bot) as room:
        figures = room.figures()
        assert (figures["workers"], figures["workersWithoutJobs"]) == (1, 0)
        assert (figures["workerThreads"], figures["workerJobsOut"], figures["brokerUp"]) == (
            4,
            0,
            1,
        )
        document = room.says(user, "やあ")
        eventually(lambda: room.figures()["workerJobsOut"] == 1)
        text = shown(room)
        assert "box/0 (1, bot " in text
        assert "1 of 4 threads busy" in text
        assert f"main/{user.user_id}  {document['eventId']}" in text
        may_end.set()
        room.until_quiet()
        assert room.desk._workers is not None
        room.desk._workers.broker.stop()
        eventually(lambda: room.figures()["brokerUp"] == 0)
        assert "Critical: workers: connecting to RabbitMQ" in shown(room)

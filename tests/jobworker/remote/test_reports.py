"""The leader's reports about its workers: rows for `status`, and figures."""

from __future__ import annotations

import threading
from typing import Any

from prometheus_client import CollectorRegistry
from pymongo.database import Database

from linedesk import Bot
from linedesk.commands.listing import WIDTH, page_lines
from linedesk.commands.screen import sections
from linedesk.operate.overview import Read, put_together
from linesim import Sim
from tests.jobworker.remote.remote_room import a_room, a_worker, amqp, are_working, leave
from tests.jobworker.worker_harness import Room
from tests.linedesk.operate.hand import NOW, a_desk, a_dispatcher
from tests.rabbitmq import RabbitMQ
from tests.waiting import eventually


def shown(room: Room) -> str:
    row = a_dispatcher(broker=room.desk.broker(), workers=room.desk.workers())
    read = Read(rows=[a_desk(), row], pauses=[], calls=[])
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
        assert "1 of 1 get jobs, 4 threads, 1 job out" in shown(room)
        [worker] = room.desk.workers() or ()
        [job] = worker["jobs"]
        assert (job["key"], job["eventId"]) == (f"main/{user.user_id}", document["eventId"])
        may_end.set()
        room.until_quiet()
        assert room.desk._workers is not None
        room.desk._workers.broker.stop()
        eventually(lambda: room.figures()["brokerUp"] == 0)
        assert "Critical: workers: connecting to RabbitMQ" in shown(room)


def test_handlers_on_the_dispatchers_threads_have_no_such_figures(
    database: Database[Any], sim: Sim
) -> None:
    with a_room(None, database, sim, Bot()) as local:
        assert local.desk.broker() is None
        assert not {"workers", "brokerUp"} & set(local.figures())


def test_a_worker_counts_its_handlers(
    shared_rabbitmq: RabbitMQ, database: Database[Any], sim: Sim
) -> None:
    registry, bot = CollectorRegistry(), Bot()

    @bot.default()
    def handler(event: Any, talk: Any) -> None:
        if event.message.text == "失敗":
            raise ValueError

    value = registry.get_sample_value
    with a_room(shared_rabbitmq, database, sim, bot, workers=0, tries=1) as room:
        worker = a_worker(bot, amqp(shared_rabbitmq, "test"), registry=registry)
        worker.start()
        try:
            eventually(lambda: are_working(room, 1))
            for text in ("一", "失敗"):
                room.says(sim.add_user(text), text)
            room.until_decided()
            assert value("linedesk_worker_handler_seconds_count") == 2
            assert value("linedesk_worker_failed_handlers_total") == 1
            assert value("linedesk_worker_abandoned_threads_total") == 0
        finally:
            leave(worker)

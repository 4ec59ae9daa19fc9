"""The terms on which RabbitMQ (`jobworker.remote.amqp`) carries messages of leader and workers.

Correctness does not depend on a broker: a message may be lost, repeated or late. Jobs that no
worker names are handed out again, and decisions are repeated until the leader has them.
"""

from __future__ import annotations

from collections.abc import Callable

LEADERS = "leaders"
"""To every leader: usually one, and for a while also a replaced one that has not noticed it."""
MOST_BYTES = 16 * 1024 * 1024
"""The size of a message to leaders; larger ones are not delivered."""
OnMessage = Callable[[bytes], None]

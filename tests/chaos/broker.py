"""RabbitMQ, with a separate connection for each worker process that can be cut."""

from collections.abc import Mapping
from pathlib import Path

from tests.chaos.proxy import Mode, Proxy
from tests.rabbitmq import RabbitMQ, declare, free_ports


class Broker:
    """One node and the lines to it: one for each worker, the last for dispatchers."""

    def __init__(self, folder: Path, *, workers: int) -> None:
        self.node = RabbitMQ(folder / "rabbitmq")
        self._lines = free_ports(workers + 1)
        self._proxy: Proxy | None = None

    @property
    def places(self) -> range:
        """Its lines."""
        return range(len(self._lines))

    @property
    def settings(self) -> Mapping[str, str]:
        """The environment of the processes; a worker has its own URL."""
        return {
            "DISPATCHER_WORKERS": "amqp",
            "AMQP_URL": self.url_of(len(self._lines) - 1),
            "WORKER_THREADS": "6",
            # A handler of the suite fails once in each process, and there are many.
            "HANDLER_TRIES": "20",
        }

    def url_of(self, place: int) -> str:
        return self.node.url.replace(f":{self.node.port}/", f":{self._lines[place]}/")

    def start(self) -> None:
        """Start it, and create linedesk's exchange and users."""
        self.node.start()
        declare(self.node)
        self._proxy = Proxy([(line, self.node.port) for line in self._lines])

    def cut(self, place: int, mode: Mode) -> None:
        assert self._proxy is not None, "started"
        self._proxy.switch(place, mode)

    def stop(self) -> None:
        self.node.thaw()
        self.node.kill()
        self.node.end_port_mapper()
        if self._proxy is not None:
            self._proxy.stop()

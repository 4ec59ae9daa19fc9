"""line-bot-sdk's ApiClient through the gate: an SDK bot's calls of LINE use it.

The SDK (3.27) waits without limit, repeats GETs and keeps the last answer's body. This client does
none of that.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from linebot.v3.messaging import ApiClient as SdkApiClient
from linebot.v3.messaging import ApiException, Configuration
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError

from jobworker.effects import SendMethod
from jobworker.errors import GateClosed
from jobworker.handler_context import HandlerContext, current_call
from jobworker.line.answer import LineAnswer, is_no_verdict, reason_of
from jobworker.line.call_log import CallLog
from jobworker.line.client import CALL_SECONDS, tell
from jobworker.line.deadline import make_timed, within
from jobworker.line.hosts import Host, Hosts
from jobworker.line.rate_limits import RateLimits
from linedesk.store.records.calls import CallRecord

# urllib3's errors for a request that was never sent.
NEVER_LEFT = (NewConnectionError, ConnectTimeoutError)
# The SDK reads a whole photo or video before it returns.
DATA_CALL_SECONDS = 30.0
# POSTs that read, show or set, by the templates of their paths: made twice they have the same
# effect as once. Others send a message or create an object.
HARMLESS = (
    "/v2/bot/message/validate/",
    "/v2/bot/message/markAsRead",
    "/v2/bot/chat/",
    "/v2/bot/user/",
    "/v2/bot/group/",
    "/v2/bot/room/",
    "/v2/bot/richmenu/",
    "/v2/bot/channel/",
)


def configured(base: str, token: str, *, connections: int) -> Any:
    """Return the SDK's configuration of a client that repeats nothing by itself."""
    configuration = Configuration(host=base.rstrip("/"), access_token=token)
    configuration.retries = False
    configuration.connection_pool_maxsize = connections
    return configuration


class GatedApiClient(SdkApiClient):  # type: ignore[misc]  # the SDK has no types
    """The SDK's client of one host: through its gate, with a time limit, logged, nothing repeated.

    A handler waits for its turn on its own thread. All threads share its connections. Its calls
    count against LINE's rate limits and are not held back by them: the handler gets the 429.
    """

    def __init__(
        self,
        host: Host,
        token: str,
        *,
        calls: CallLog,
        connections: int,
        rate_limits: RateLimits | None = None,
        limit_seconds: float = CALL_SECONDS,
    ) -> None:
        # guard: answer-of-its-own-thread -> self._of_thread = lambda: None
        self._of_thread = threading.local()
        super().__init__(configured(host.base, token, connections=connections))
        make_timed(self.rest_client.pool_manager)
        self._host = host
        self._calls = calls
        self._rate_limits = rate_limits or RateLimits()
        self._limit_seconds = limit_seconds

    @property
    def last_response(self) -> Any:
        """The last answer of this thread: the SDK keeps one for all of them."""
        return getattr(self._of_thread, "last_response", None)

    @last_response.setter
    def last_response(self, response: Any) -> None:
        self._of_thread.last_response = response

    def close(self) -> None:
        """Close the pooled connections."""
        self.rest_client.pool_manager.clear()
        super().close()

    def call_api(self, resource_path: str, method: str, *args: Any, **kwargs: Any) -> Any:
        """Call like the SDK's, but gated and with a limit for the whole call: the caller's time-out
        if it is one number, otherwise the client's own. Also raises GateClosed.
        """
        limit = kwargs.get("_request_timeout") or self._limit_seconds
        # The turn ends with this method, so no work may remain in a thread of the SDK.
        kwargs |= {"_request_timeout": limit, "async_req": None}
        current = current_call()
        sending = _Sending(
            current if is_send(method, resource_path) else None,
            works_once=resource_path == SendMethod.REPLY.path,
        )
        to = _recipient(kwargs.get("body"))
        if resource_path == SendMethod.PUSH.path and self._calls.groups.is_due(to):
            with sending.withheld_is_noted(), self._host.gate.turn():
                self._calls.groups.ask(to, key=to)
        with (
            sending.withheld_is_noted(),
            self._host.gate.turn(),
            sending,
            self._noted(method, resource_path, current, to) as row,
            within(limit if isinstance(limit, (int, float)) else self._limit_seconds),
        ):
            self._rate_limits.count(resource_path)
            call = _UnderWay(row, current.context["key"] if current else resource_path)
            try:
                with self._told(call):
                    return super().call_api(resource_path, method, *args, **kwargs)
            finally:
                sending.status = row.status

    def _noted(
        self, method: str, path: str, current: HandlerContext | None, to: Any
    ) -> AbstractContextManager[CallRecord]:
        context = current.context if current else {}
        return self._calls.noted(method, path, context, host=self._host.name, to=to)

    @contextmanager
    def _told(self, call: _UnderWay) -> Iterator[None]:
        """Report the end of the call inside to the row and to the breaker."""
        self.last_response = None
        try:
            yield
        except ApiException as error:
            self._note(call, error.status, error.headers)
            call.row.reason = reason_of(LineAnswer(error.status or 0, error.body or ""))
            raise
        except UnicodeDecodeError as error:
            # The refusal, which the error in reading its body hides.
            if isinstance(error.__context__, ApiException):
                self._note(call, error.__context__.status, None)
            raise
        except (HTTPError, OSError):
            self._host.breaker.failed(call.whose, began=call.began)
            raise
        finally:
            # Also if the SDK cannot read LINE's answer.
            if (told := self.last_response) is not None:
                self._note(call, told.status, told.getheaders())
            # It would keep a whole video in memory until the next call.
            self.last_response = None

    def _note(self, call: _UnderWay, status: int | None, headers: Mapping[str, str] | None) -> None:
        # The SDK's status 0 means no answer.
        call.row.status = status or None
        call.row.request_id = (headers or {}).get("x-line-request-id")
        tell(self._host.breaker, status or 0, call.whose, began=call.began)


@dataclass(frozen=True)
class _UnderWay:
    """A call that has begun: its row, its owner, and its monotonic start."""

    row: CallRecord
    whose: str
    began: float = field(default_factory=time.monotonic)


def _recipient(body: Any) -> Any:
    """Return the recipient in a body: a model of the SDK, or the bot's own object."""
    return body.get("to") if isinstance(body, Mapping) else getattr(body, "to", None)


def is_send(method: str, path: str) -> bool:
    """Whether a call made twice would have its effect twice."""
    return method == "POST" and not path.startswith(HARMLESS)


class _Sending:
    """A send of the handler `current`, noted unless LINE certainly did nothing.

    A call that `works_once` is noted only if LINE accepted it. Repeated after an unknown outcome,
    it is either accepted or refused, as the reply token is used once.
    """

    def __init__(self, current: HandlerContext | None, *, works_once: bool) -> None:
        self.status: int | None = None
        self._current = current
        self._works_once = works_once
        self._mark: object = None

    @contextmanager
    def withheld_is_noted(self) -> Iterator[None]:
        try:
            yield
        except GateClosed:
            if self._current is not None:
                self._current.withheld = True
            raise

    def __enter__(self) -> None:
        if self._current is not None:
            self._mark = self._current.begin_send()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        never_left = kind is not None and issubclass(kind, NEVER_LEFT)
        may_go_again = self._works_once and (self.status is None or self.status >= 300)
        if self._current is not None and (never_left or may_go_again or _is_refusal(self.status)):
            self._current.forget_send(self._mark)


def _is_refusal(status: int | None) -> bool:
    """Whether LINE has certainly done nothing; a 409 means that it did so before."""
    return status is not None and status >= 400 and status != 409 and not is_no_verdict(status)


@dataclass(frozen=True)
class SdkClients:
    """A worker's clients of LINE's hosts."""

    api: GatedApiClient
    data: GatedApiClient

    @classmethod
    def of(
        cls,
        hosts: Hosts,
        token: str,
        *,
        calls: CallLog,
        connections: int,
        rate_limits: RateLimits | None = None,
    ) -> SdkClients:
        """Return a client for each host, with the same token."""

        client = partial(
            GatedApiClient,
            token=token,
            calls=calls,
            connections=connections,
            rate_limits=rate_limits,
        )
        return cls(client(hosts.api), client(hosts.data, limit_seconds=DATA_CALL_SECONDS))

    def close(self) -> None:
        """Close their connections."""
        self.api.close()
        self.data.close()

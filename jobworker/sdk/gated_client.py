"""line-bot-sdk's ApiClient through the gate: an SDK bot's calls of LINE use it.

The SDK (3.27) waits without limit, repeats GETs and keeps the last answer's body. This client does
none of that.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
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
from jobworker.line.client import CALL_SECONDS
from jobworker.line.deadline import make_timed, within
from jobworker.line.hosts import Host
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
        rate_limits: RateLimits,
        limit_seconds: float = CALL_SECONDS,
    ) -> None:
        # guard: answer-of-its-own-thread -> self._of_thread = lambda: None
        self._of_thread = threading.local()
        configuration = Configuration(host=host.base, access_token=token)
        configuration.retries = False
        configuration.connection_pool_maxsize = connections
        super().__init__(configuration)
        make_timed(self.rest_client.pool_manager)
        self._host = host
        self._calls = calls
        self._rate_limits = rate_limits
        self._limit_seconds = limit_seconds

    @property
    def last_response(self) -> Any:
        """The last answer of this thread: the SDK keeps one for all of them."""
        return getattr(self._of_thread, "last_response", None)

    @last_response.setter
    def last_response(self, response: Any) -> None:
        self._of_thread.last_response = response

    def close(self) -> None:
        self.rest_client.pool_manager.clear()
        super().close()

    def call_api(self, resource_path: str, method: str, *args: Any, **kwargs: Any) -> Any:
        """Call like the SDK's, but gated and with a limit for the whole call: the caller's time-out
        if it is one number, otherwise the client's own. Also raises GateClosed.
        """
        limit = kwargs.get("_request_timeout") or self._limit_seconds
        # The turn ends with this method, so no work may remain in a thread of the SDK.
        kwargs |= {"_request_timeout": limit, "async_req": None}
        current, to = current_call(), _recipient(kwargs.get("body"))
        context = current.context if current else {}
        sender = current if is_send(method, resource_path) else None
        call = partial(super().call_api, resource_path, method, *args, **kwargs)
        try:
            if resource_path == SendMethod.PUSH.path and self._calls.groups.is_due(to):
                with self._host.gate.turn():
                    self._calls.groups.ask(to, key=to)
            with (
                self._host.gate.turn(),
                _noted_send(sender, works_once=resource_path == SendMethod.REPLY.path) as told,
                self._calls.noted(
                    method, resource_path, context, host=self._host.name, to=to
                ) as row,
                within(limit if isinstance(limit, (int, float)) else self._limit_seconds),
            ):
                told.append(row)
                self._rate_limits.count(resource_path)
                return self._made(call, row, context.get("key", resource_path))
        except GateClosed:
            if sender is not None:
                sender.withheld = True
            raise

    def _made(self, call: Callable[[], Any], row: CallRecord, whose: str) -> Any:
        """Make the call; report its end to the row and to the breaker."""
        began = time.monotonic()

        def note(status: int | None, headers: Mapping[str, str] | None) -> None:
            # The SDK's status 0 means no answer.
            row.status = status or None
            row.request_id = (headers or {}).get("x-line-request-id")
            self._host.gate.breaker.ended(status or 0, whose, began=began)

        self.last_response = None
        try:
            return call()
        except ApiException as error:
            note(error.status, error.headers)
            row.reason = reason_of(LineAnswer(error.status or 0, error.body or ""))
            raise
        except UnicodeDecodeError as error:
            # The refusal, which the error in reading its body hides.
            if isinstance(error.__context__, ApiException):
                note(error.__context__.status, None)
            raise
        except (HTTPError, OSError):
            self._host.gate.breaker.ended(0, whose, began=began)
            raise
        finally:
            # Also if the SDK cannot read LINE's answer.
            if (told := self.last_response) is not None:
                note(told.status, told.getheaders())
            # It would keep a whole video in memory until the next call.
            self.last_response = None


def _recipient(body: Any) -> Any:
    """Return the recipient in a body: a model of the SDK, or the bot's own object."""
    return body.get("to") if isinstance(body, Mapping) else getattr(body, "to", None)


def is_send(method: str, path: str) -> bool:
    """Whether a call made twice would have its effect twice."""
    return method == "POST" and not path.startswith(HARMLESS)


@contextmanager
def _noted_send(sender: HandlerContext | None, *, works_once: bool) -> Iterator[list[CallRecord]]:
    """Note a send of a handler, unless LINE certainly did nothing; the list gets its row.

    A call that `works_once` is noted only if LINE accepted it. Repeated after an unknown outcome,
    it is either accepted or refused, as the reply token is used once.
    """
    told: list[CallRecord] = []
    if sender is None:
        yield told
        return
    mark, never_left = sender.begin_send(), False
    try:
        yield told
    except NEVER_LEFT:
        never_left = True
        raise
    finally:
        status = told[0].status if told else None
        may_go_again = works_once and (status is None or status >= 300)
        if never_left or may_go_again or _is_refusal(status):
            sender.forget_send(mark)


def _is_refusal(status: int | None) -> bool:
    """Whether LINE has certainly done nothing; a 409 means that it did so before."""
    return status is not None and status >= 400 and status != 409 and not is_no_verdict(status)


@dataclass(frozen=True)
class SdkClients:
    """A worker's clients of LINE's hosts."""

    api: GatedApiClient
    data: GatedApiClient

"""The ApiClient that a bot uses instead of line-bot-sdk's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from linebot.v3.messaging import ApiClient as SdkApiClient
from linebot.v3.messaging import Configuration

from jobworker.sdk.bound_clients import bound

# The SDK's name of its data host.
DATA_HOST = "api-data.line.me"


class ApiClient(SdkApiClient):  # type: ignore[misc]  # the SDK has no types
    """Replaces `linebot.v3.messaging.ApiClient`, for a bot that calls LINE itself.

    Each call waits for its turn at the gate, has a time-out, is made once and leaves a row in
    `calls`. Host, token and connections are those of the settings, whatever the Configuration says.
    Any number of clients may therefore be made at any time. LINE can be called once the worker has
    begun. Raises NotRunning before that, GateClosed at a stop, LineAway while LINE fails.
    """

    def __init__(
        self,
        configuration: Any = None,
        header_name: str | None = None,
        header_value: str | None = None,
        cookie: str | None = None,
        pool_threads: int = 1,
    ) -> None:
        # Not the SDK's own: it needs a token, and opens a pool of connections.
        self.configuration = configuration or Configuration()
        self.client_side_validation = self.configuration.client_side_validation
        self.pool_threads = pool_threads
        self.cookie = cookie
        self.last_response = None
        self.default_headers = {} if header_name is None else {header_name: header_value}

    def call_api(
        self,
        resource_path: str,
        method: str,
        path_params: Any = None,
        query_params: Any = None,
        header_params: Any = None,
        *args: Any,
        async_req: Any = None,
        _host: str | None = None,
        _request_auth: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Call like the SDK's; with `async_req` the call has ended when this returns."""
        clients = bound()
        headers = {**self.default_headers, **(header_params or {})}
        if self.cookie:
            headers["Cookie"] = self.cookie
        client = clients.data if DATA_HOST in (_host or "") else clients.api
        answer = client.call_api(
            resource_path, method, path_params, query_params, headers, *args, **kwargs
        )
        return _done(answer) if async_req else answer

    @classmethod
    def set_default(cls, default: Any) -> None:
        """Make `MessagingApi()` without a client use this one."""
        SdkApiClient.set_default(default)

    @classmethod
    def get_default(cls) -> Any:
        """Return the client of `set_default`, otherwise a new one."""
        if SdkApiClient._default is None:
            SdkApiClient.set_default(cls())
        return SdkApiClient._default


def _done(answer: Any) -> Any:
    """The result of a call in the form of `async_req`."""
    return SimpleNamespace(
        get=lambda timeout=None: answer,
        wait=lambda timeout=None: None,
        ready=lambda: True,
        successful=lambda: True,
    )

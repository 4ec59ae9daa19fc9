"""LINE's refusals of a call, with its texts, and linesim's own errors.

The texts are those of LINE's reference (error messages); a client may have no other way to
distinguish two of them.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from linemessages import Finding


class LineError(Exception):
    """A refusal as LINE would send it: status, message, details and headers."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        details: Sequence[Mapping[str, str]] | None = None,
        sent_messages: Sequence[Mapping[str, str]] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(f"{status} {message}")
        self.status = status
        self.message = message
        self.details = details
        self.sent_messages = sent_messages
        self.headers = dict(headers or {})

    def body(self) -> dict[str, Any]:
        body: dict[str, Any] = {"message": self.message}
        if self.details is not None:
            body["details"] = [dict(detail) for detail in self.details]
        if self.sent_messages:
            body["sentMessages"] = [dict(sent) for sent in self.sent_messages]
        return body


class OAuthError(LineError):
    """A refusal of a call for channel access tokens, in the form of OAuth."""

    def __init__(self, error: str, description: str | None) -> None:
        super().__init__(400, description or error)
        self._error = {"error": error}
        if description:
            self._error["error_description"] = description

    def body(self) -> dict[str, Any]:
        return self._error


class UnknownChat(LookupError):
    """A user, group, room, message or medium was named that the simulator does not have."""


class NotPossible(ValueError):
    """An action that LINE does not allow, such as a message from a user who has blocked the bot."""


class StateError(Exception):
    """A saved state that cannot be read or written; the text is for the user."""


def invalid_body(*found: Finding, status: int = 400) -> LineError:
    details = [one.as_detail() for one in found]
    return LineError(status, f"The request body has {len(details)} error(s)", details=details)


def invalid_property(name: str) -> LineError:
    """As in the reference's example for a multicast: `The property, to[1], in the request ...`."""
    told = f"The property, {name}, in the request body is invalid (line: -, column: -)"
    return LineError(400, told)


def invalid_parameter(name: str) -> LineError:
    """Of the path or the query."""
    return LineError(400, f"The value for the '{name}' parameter is invalid")


not_sent = partial(LineError, 400, "Failed to send messages")
"""A push to a user, group or room that LINE does not know; it names no property."""
invalid_reply_token = partial(LineError, 400, "Invalid reply token")
"""The same message for a token that is unknown, used or expired."""


def not_json(line: int | str, column: int | str) -> LineError:
    told = f"The request body could not be parsed as JSON (line: {line}, column: {column})"
    return LineError(400, told)


def not_authenticated(reason: str) -> LineError:
    return LineError(
        401,
        f"Authentication failed due to the following reason: {reason}. "
        "Confirm that the access token in the authorization header is valid.",
    )


no_access = partial(LineError, 403, "Access to this API is not available for your account")
not_found = partial(LineError, 404, "Not found")
no_webhook_endpoint = partial(LineError, 404, "Webhook endpoint not found")
invalid_webhook_endpoint = partial(LineError, 400, "Invalid webhook endpoint URL")
retry_key_not_supported = partial(LineError, 400, "The retry key is not supported by this API")
retry_key_malformed = partial(LineError, 400, "The retry key must be a UUID in hexadecimal format")
retry_key_changed = partial(LineError, 400, "The retry key was used for another request")
"""LINE documents no answer ("retry may not work as you expect"), so this one is linesim's."""


def already_accepted(request_id: str, sent_messages: Sequence[Mapping[str, str]]) -> LineError:
    told, headers = "The retry key is already accepted", {"x-line-accepted-request-id": request_id}
    return LineError(409, told, sent_messages=sent_messages, headers=headers)


content_not_found = partial(LineError, 404, "not found")
gone = partial(LineError, 410, "The content is gone")
too_large = partial(LineError, 413, "The request body exceeds the size limit of 2 MB")


def media_type_not_supported(content_type: str) -> LineError:
    return LineError(415, f"The content type, {content_type}, is not supported")


rate_limited = partial(LineError, 429, "The API rate limit has been exceeded. Try again later.")
"""The bucket of this endpoint is empty."""
monthly_limit = partial(LineError, 429, "You have reached your monthly limit.")
"""Also if a call merely exceeds the rest, or a delivery of LINE's console reserves messages
(reference, "Send narrowcast message").
"""
too_many_to_one = partial(LineError, 429, "You have sent too many messages to the same user.")
"""Of pushes only ("A large number of messages were sent to the same user"). The reference
gives the condition and not the message.
"""
too_many_at_once = partial(
    LineError, 429, "The limit on the number of concurrent operations has been exceeded."
)
"""Of audience uploads only (reference, "Limit on the number of concurrent operations"), with
linesim's own message.
"""

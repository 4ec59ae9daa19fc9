"""LINE's refusals of a call, with its texts, and linesim's own errors.

The texts are those of LINE's reference (error messages); a client may have no other way to
distinguish two of them.
"""

from collections.abc import Mapping, Sequence
from typing import Any


class LineError(Exception):
    """A refusal as LINE would send it: status, message, details and headers."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        details: Sequence[Mapping[str, str]] = (),
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
        if self.details:
            body["details"] = [dict(detail) for detail in self.details]
        if self.sent_messages:
            body["sentMessages"] = [dict(sent) for sent in self.sent_messages]
        return body


class UnknownChat(LookupError):
    """A user, group, room, message or medium was named that the simulator does not have."""


class NotPossible(ValueError):
    """An action that LINE does not allow, such as a message from a user who has blocked the bot."""


def invalid_body(details: Sequence[Mapping[str, str]]) -> LineError:
    return LineError(400, f"The request body has {len(details)} error(s)", details=details)


def invalid_property(name: str) -> LineError:
    """As in the reference's example for a multicast: `The property, to[1], in the request ...`."""
    return LineError(
        400, f"The property, {name}, in the request body is invalid (line: -, column: -)"
    )


def not_sent() -> LineError:
    """A push to a user, group or room that LINE does not know; it names no property."""
    return LineError(400, "Failed to send messages")


def invalid_reply_token() -> LineError:
    """The same message for a token that is unknown, used or expired."""
    return LineError(400, "Invalid reply token")


def not_json(line: int | str, column: int | str) -> LineError:
    return LineError(
        400, f"The request body could not be parsed as JSON (line: {line}, column: {column})"
    )


def not_authenticated(reason: str) -> LineError:
    return LineError(
        401,
        f"Authentication failed due to the following reason: {reason}. "
        "Confirm that the access token in the authorization header is valid.",
    )


def not_found() -> LineError:
    return LineError(404, "Not found")


def retry_key_not_supported() -> LineError:
    return LineError(400, "The retry key is not supported by this API")


def retry_key_malformed() -> LineError:
    return LineError(400, "The retry key must be a UUID in hexadecimal format")


def retry_key_changed() -> LineError:
    """LINE documents no answer ("retry may not work as you expect"), so this one is linesim's."""
    return LineError(400, "The retry key was used for another request")


def already_accepted(request_id: str, sent_messages: Sequence[Mapping[str, str]]) -> LineError:
    return LineError(
        409,
        "The retry key is already accepted",
        sent_messages=sent_messages,
        headers={"x-line-accepted-request-id": request_id},
    )


def gone() -> LineError:
    return LineError(410, "The message has been unsent")


def too_large() -> LineError:
    return LineError(413, "The request body exceeds the size limit of 2 MB")


def media_type_not_supported(content_type: str) -> LineError:
    return LineError(415, f"The content type, {content_type}, is not supported")


def rate_limited() -> LineError:
    """The bucket of this endpoint is empty."""
    return LineError(429, "The API rate limit has been exceeded. Try again later.")


def monthly_limit() -> LineError:
    """Also if a call merely exceeds the rest, or a delivery of LINE's console reserves messages
    (reference, "Send narrowcast message").
    """
    return LineError(429, "You have reached your monthly limit.")


def too_many_to_one() -> LineError:
    """Of pushes only ("A large number of messages were sent to the same user"). The reference
    gives the condition and not the message.
    """
    return LineError(429, "You have sent too many messages to the same user.")


def too_many_at_once() -> LineError:
    """Of audience uploads only (reference, "Limit on the number of concurrent operations"), with
    linesim's own message.
    """
    return LineError(429, "The limit on the number of concurrent operations has been exceeded.")

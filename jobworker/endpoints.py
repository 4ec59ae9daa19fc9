"""Which end point of LINE's a call is counted under: the template of its path, never an id."""

from __future__ import annotations

import re

OTHER = "other"
# The words of which LINE's reference makes the paths of its Messaging API.
_REFERENCE = """
    v2 bot acquire aggregation alias all audienceGroup batch broadcast bulk byFile channel chat
    click close consumption content control count coupon daily delivery demographic detach
    endpoint event followers group ids imp info insight leave link linkToken list loading
    markAsRead member members membership message multicast narrowcast pnp preview profile
    progress push quota release reply richmenu room shared start subscription summary templated
    test transcoding unlink updateDescription upload user users validate webhook
    """
_WORDS = frozenset(_REFERENCE.split())
_FILLED_IN = re.compile(r"\{\w*\}")


def endpoint_of(path: str) -> str:
    """The label of a path or its template; OTHER for what LINE's reference does not know.

    A bot may call any path, with an id in it, and each would be a series of its own.
    """
    template = _FILLED_IN.sub("{}", path)
    parts = template.strip("/").split("/")
    if parts[0] == "v2" and all(part == "{}" or part in _WORDS for part in parts):
        return template
    return OTHER

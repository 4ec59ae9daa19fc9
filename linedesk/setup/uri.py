"""A parsed MongoDB URI, in which the user or the server can be replaced.

Only pymongo's parser validates URIs; nothing here uses the network.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from urllib.parse import quote_plus, unquote_plus

# Options of the user; compared case-insensitively, as in MongoDB.
OF_THE_USER = frozenset({"authsource", "authmechanism", "authmechanismproperties"})
OF_THE_SET = frozenset({"replicaset", "directconnection", "loadbalanced"})
HAS_PORT = re.compile(r":\d+\Z")


@dataclass(frozen=True)
class Uri:
    """`scheme://user:password@hosts/database?options`; its repr shows no password."""

    scheme: str
    hosts: str
    user: str = ""
    password: str = field(default="", repr=False)
    database: str = ""
    options: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, text: str) -> Uri:
        """Parse a URI that pymongo has accepted."""
        scheme, _, rest = text.strip().partition("://")
        place, _, query = rest.partition("?")
        credentials, _, place = place.rpartition("@")
        hosts, _, database = place.partition("/")
        user, _, password = credentials.partition(":")
        pairs = (pair.partition("=") for pair in query.replace(";", "&").split("&") if pair)
        return cls(
            scheme,
            hosts,
            unquote_plus(user),
            unquote_plus(password),
            database,
            tuple((name, value) for name, _, value in pairs),
        )

    def __str__(self) -> str:
        secret = f":{quote_plus(self.password)}" if self.password else ""
        credentials = f"{quote_plus(self.user)}{secret}@" if self.user else ""
        query = "&".join(f"{name}={value}" for name, value in self.options)
        return f"{self.scheme}://{credentials}{self.hosts}/{self.database}" + (
            f"?{query}" if query else ""
        )

    @property
    def source(self) -> str:
        """The user's authentication database."""
        return self.option("authSource") or self.database or "admin"

    @property
    def servers(self) -> frozenset[str]:
        """Its hosts, for comparison with another URI."""
        hosts = (host.lower() for host in self.hosts.split(","))
        if self.scheme != "mongodb":
            return frozenset(hosts)
        return frozenset(host if HAS_PORT.search(host) else f"{host}:27017" for host in hosts)

    def option(self, name: str) -> str | None:
        """The value of an option; None if it is absent."""
        found = (value for key, value in self.options if key.lower() == name.lower())
        return next(found, None)

    def without_user(self) -> Uri:
        """The same servers without a user."""
        return replace(self, user="", password="", options=self._without(OF_THE_USER))

    def with_user(self, user: str, password: str, *, source: str) -> Uri:
        """The same servers with this user, whose authentication database is `source`."""
        options = (*self._without(OF_THE_USER), ("authSource", source))
        return replace(self, user=user, password=password, database="", options=options)

    def at(self, host: str) -> Uri:
        """The same user with only the server at `host:port`, regardless of its set."""
        options = self._without(OF_THE_SET)
        if self.scheme != "mongodb" and self.option("tls") is None:
            # Implied by a mongodb+srv URI.
            options = (*options, ("tls", "true"))
        if self.user and self.option("authSource") is None:
            options = (*options, ("authSource", self.source))
        return replace(self, scheme="mongodb", hosts=host, database="", options=options)

    def _without(self, names: frozenset[str]) -> tuple[tuple[str, str], ...]:
        return tuple(pair for pair in self.options if pair[0].lower() not in names)

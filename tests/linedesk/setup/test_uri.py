"""A MongoDB URI taken apart and put together again, as pymongo reads it."""

import pytest
from pymongo.uri_parser import parse_uri

from linedesk.setup.uri import Uri

PLAIN = "mongodb://127.0.0.1:27017/?replicaSet=rs0"
FULL = "mongodb://linedesk%2Bx:p%40ss%3Aword%2F@a:1,b:2/line_bot?replicaSet=rs0&tls=true"


@pytest.mark.parametrize("text", [PLAIN, FULL, "mongodb://h", "mongodb://u@h/?authMechanism=X"])
def test_it_means_the_same_afterwards(text: str) -> None:
    if "authMechanism" in text:
        assert str(Uri.parse(text)) == text
    else:
        assert parse_uri(str(Uri.parse(text))) == parse_uri(text)


def test_another_user_for_the_same_servers() -> None:
    uri = Uri.parse(f"{FULL}&authMechanism=SCRAM-SHA-1").with_user("me", "a/b", source="users")
    found = parse_uri(str(uri))
    assert (found["username"], found["password"]) == ("me", "a/b")
    assert found["nodelist"] == [("a", 1), ("b", 2)]
    assert found["database"] is None
    assert found["options"] == {"replicaSet": "rs0", "tls": True, "authSource": "users"}


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("mongodb://a,b:2/?replicaSet=rs0", "mongodb://u:p@B:2,a:27017/x", True),
        ("mongodb://[::1]/", "mongodb://[::1]:27017/", True),
        ("mongodb://a:1/", "mongodb://a:2/", False),
        ("mongodb://a,b/", "mongodb://a/", False),
        ("mongodb+srv://a/", "mongodb+srv://A/", True),
        ("mongodb+srv://a/", "mongodb://a/", False),
    ],
)
def test_whether_two_name_the_same_servers(one: str, other: str, same: bool) -> None:
    assert (Uri.parse(one).servers == Uri.parse(other).servers) is same


def test_one_server_alone_for_the_same_user() -> None:
    found = parse_uri(str(Uri.parse(FULL).at("b:2")))
    assert found["nodelist"] == [("b", 2)]
    assert found["options"] == {"tls": True, "authSource": "line_bot"}
    assert found["password"] == "p@ss:word/"
    uri = Uri.parse("mongodb+srv://u:p@cluster.example/?retryWrites=true").at("n1:27017")
    assert str(uri) == "mongodb://u:p@n1:27017/?retryWrites=true&tls=true&authSource=admin"

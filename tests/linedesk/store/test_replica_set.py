"""A server without a change stream is refused with instructions; a new one is initiated."""

from collections.abc import Callable

import pytest

from linedesk.setup.replica_set import add_members, ensure_replica_set
from linedesk.store.client import Client, connect
from linedesk.store.errors import NotReplicaSet, StoreUnavailable
from linedesk.store.replica_set import require_replica_set

HELPFUL = r"replSetName in mongod.conf.*--replSet rs0.*linedesk init"


@pytest.fixture
def standalone(raw_mongod: Callable[..., str]) -> str:
    return raw_mongod()


def test_a_standalone_server_is_refused_with_instructions(standalone: str) -> None:
    with connect(f"mongodb://{standalone}/", app_name="tests") as client:
        with pytest.raises(NotReplicaSet, match=HELPFUL) as refusal:
            require_replica_set(client)
        assert standalone in str(refusal.value)
    uri = f"mongodb://{standalone}/?replicaSet=rs0"
    # The URI of the default settings, with which the driver does not even talk to the server.
    with (
        connect(uri, app_name="tests", server_selection_seconds=0.5) as client,
        pytest.raises(NotReplicaSet, match=HELPFUL),
    ):
        require_replica_set(client)
    with pytest.raises(NotReplicaSet, match=HELPFUL):
        ensure_replica_set(uri)


def test_a_replica_set_passes_and_is_left_as_it_is(client: Client, mongo_uri: str) -> None:
    require_replica_set(client)
    before = client.admin.command("replSetGetConfig")["config"]
    assert ensure_replica_set(mongo_uri) == "replica set rs0 exists"
    assert client.admin.command("replSetGetConfig")["config"] == before


def test_a_new_server_becomes_a_replica_set_under_its_own_name(
    raw_mongod: Callable[..., str],
) -> None:
    where = raw_mongod("--replSet", "shop")
    uri = f"mongodb://{where}/?replicaSet=shop"
    assert ensure_replica_set(uri) == f"replica set shop initiated with one node, {where}"
    assert ensure_replica_set(uri) == "replica set shop exists"
    with connect(uri, app_name="tests") as client:
        require_replica_set(client)
        assert client.admin.command("hello")["isWritablePrimary"] is True


@pytest.mark.long
def test_every_server_of_the_uri_becomes_a_member_and_a_second_run_changes_nothing(
    raw_mongod: Callable[..., str],
) -> None:
    servers = [raw_mongod("--replSet", "rs0") for _ in range(3)]
    uri = f"mongodb://{','.join(servers)}/?replicaSet=rs0"

    assert ensure_replica_set(uri) == f"replica set rs0 initiated with one node, {servers[0]}"
    with connect(uri, app_name="tests") as client:
        assert add_members(client, uri) == servers[1:]
        members = client.admin.command("replSetGetConfig")["config"]["members"]
        assert [member["host"] for member in members] == servers
        # By any of them, also where the first one is empty or away.
        other = f"mongodb://127.0.0.1:1,{servers[2]},{servers[1]},{servers[0]}/?replicaSet=rs0"
        assert ensure_replica_set(other) == "replica set rs0 exists"
        assert add_members(client, other) == []


@pytest.mark.long
def test_no_second_set_is_made_while_a_server_that_may_be_a_member_is_away(
    raw_mongod: Callable[..., str],
) -> None:
    empty = raw_mongod("--replSet", "rs0")
    with pytest.raises(StoreUnavailable):
        ensure_replica_set(f"mongodb://{empty},127.0.0.1:1/?replicaSet=rs0")
    with connect(f"mongodb://{empty}/", app_name="tests", directConnection=True) as client:
        assert "setName" not in client.admin.command("hello")

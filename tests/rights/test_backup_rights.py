"""The reading user can make an export, and the dispatcher's user can import it."""

from pathlib import Path

from linedesk.backup.export import export_database
from linedesk.backup.restore import import_export
from linedesk.store.documents import CONVERSATIONS, Document
from tests.rights.conftest import Guarded

OWN: Document = {"channel": "main", "key": "U-backup", "n": 1, "epoch": 1, "applied": []}
ID = "main/U-backup"


def test_an_operator_exports_and_the_dispatchers_user_imports(
    guarded: Guarded, tmp_path: Path
) -> None:
    conversations = guarded.client_of("admin")["line_bot"][CONVERSATIONS]
    conversations.insert_one({"_id": ID, **OWN})
    path, before = tmp_path / "export.gz", tmp_path / "before.gz"
    export_database(guarded.settings(guarded.uri_of("operator")), path)
    conversations.update_one({"_id": ID}, {"$set": {"n": 9}})
    try:
        as_dispatcher = guarded.settings(guarded.uri_of("dispatcher"))
        import_export(as_dispatcher, path, replace=before, take_over=False)
        found = conversations.find_one({"_id": ID})
    finally:
        conversations.delete_one({"_id": ID})
    assert found is not None
    assert found["n"] == 1
    assert found["epoch"] > OWN["epoch"]

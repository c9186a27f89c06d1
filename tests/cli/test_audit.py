"""The audit log from a terminal: on the database itself, also without a server."""

import csv
import io
import json
import sqlite3
from pathlib import Path

import pytest

from parley.stores.sqlite import FILE
from tests.cli.test_cli import parley

pytestmark = pytest.mark.slow


async def test_commands_are_recorded_and_the_log_is_listed_exported_verified_and_erased(tmp_path: Path) -> None:
    data = ("--data-dir", str(tmp_path / "data"))
    none = await parley("audit", "list", *data)
    assert none.code != 0
    assert "There is no database" in none.err
    made = await parley("keys", "create", "ci", "--role", "operator", "--group", "on-call", *data, "--json")
    view = json.loads(made.out)
    assert (view["role"], view["groups"]) == ("operator", ["on-call"])
    await parley("keys", "revoke", "ci", *data)

    entries = json.loads((await parley("audit", "list", *data, "--json")).out)["entries"]
    assert [(one["action"], one["actor"], one["target"], one["address"]) for one in entries] == [
        ("key.revoked", "local", "ci", "command line"),
        ("key.created", "local", "ci", "command line"),
    ]
    assert "key.revoked" in (await parley("audit", "list", "--action", "key.revoked", *data)).out
    assert (await parley("audit", "list", "--actor", "user:ann", *data)).out == "No matching entries.\n"

    lines = (await parley("audit", "export", *data, "--json")).out.splitlines()
    assert [json.loads(line)["seq"] for line in lines] == [1, 2]
    rows = list(csv.DictReader(io.StringIO((await parley("audit", "export", *data)).out)))
    assert [row["action"] for row in rows] == ["key.created", "key.revoked"]

    verified = json.loads((await parley("audit", "verify", *data, "--json")).out)
    assert (verified["checked"], verified["hash"], verified["broken"]) == (2, entries[0]["hash"], None)
    assert json.loads((await parley("audit", "erase", "local", *data, "--json")).out) == {"erased": 2}
    assert "3 entries verified" in (await parley("audit", "verify", *data)).out

    with sqlite3.connect(tmp_path / "data" / FILE) as connection:
        connection.execute("UPDATE audit SET target = 'other' WHERE seq = 1")
    connection.close()
    broken = await parley("audit", "verify", *data)
    assert (broken.code, "BROKEN at 1" in broken.out) == (1, True)

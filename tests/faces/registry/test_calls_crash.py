"""Servers are killed while nodes work for them: what was delegated is done once, whoever is left."""

from pathlib import Path

import httpx2
import pytest

from parley.testing.processes import ServerProcess, replicas, until
from parley.testing.servers import Server
from tests.faces.registry.fleet import Fleet, Node
from tests.faces.registry.targets import Gate, at, delegate, ended

pytestmark = pytest.mark.slow


async def begun(fleet: Fleet, target: Server, gate: Gate) -> tuple[Node, list[str]]:
    """One delegation that the target works on, and one that waits behind it."""
    boss, holder = await fleet.online("Boss"), await at(fleet, target, "holder")
    ids = [(await delegate(boss, holder, text)).json()["delegation_id"] for text in ("one", "two")]
    await until(lambda: gate.begun == ["one"])
    return boss, ids


async def completed(boss: Node, ids: list[str], gate: Gate) -> None:
    gate.open.set()
    for id_, text in zip(ids, ("one", "two"), strict=True):
        done = await ended(boss, id_, 30)
        assert (done["status"], done["response"]) == ("completed", f"let go of {text}")
    assert gate.begun == ["one", "two"]


async def test_a_killed_server_takes_up_what_nodes_do_for_it(
    tmp_path: Path, http: httpx2.AsyncClient, target: Server, gate: Gate
) -> None:
    server = await ServerProcess.start(["parley.demo"], tmp_path / "data")
    boss, ids = await begun(Fleet(http, server.url), target, gate)
    await server.kill()
    server = await ServerProcess.start(["parley.demo"], tmp_path / "data")
    try:
        boss.at = server.url
        await completed(boss, ids, gate)
    finally:
        await server.stop()


async def test_another_replica_takes_up_what_nodes_did_for_one_that_died(
    tmp_path: Path, http: httpx2.AsyncClient, target: Server, gate: Gate, database: str
) -> None:
    async with replicas(2, ["parley.demo"], tmp_path, database, PARLEY_LEASE_S="1") as (one, two):
        boss, ids = await begun(Fleet(http, one.url), target, gate)
        await one.kill()
        boss.at = two.url
        await completed(boss, ids, gate)

"""A server that is killed keeps what it has acknowledged."""

import asyncio
from pathlib import Path

import httpx2
import pytest

from parley.testing.databases import fresh_database
from parley.testing.processes import ServerProcess, until
from tests.faces.actions.desk import Desk

AGENTS = "writer.yaml"


@pytest.mark.slow
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
async def test_an_acknowledged_edit_survives_kill_9(
    request: pytest.FixtureRequest, tmp_path: Path, store: str
) -> None:  # fmt: skip
    (tmp_path / AGENTS).write_text("driver: llm\nmodel: offline\n")
    env = {"PARLEY_STORE": store}
    if store == "postgres":
        env["PARLEY_POSTGRES_URL"] = await fresh_database(request.getfixturevalue("postgres"))
    server = await ServerProcess.start([tmp_path / AGENTS], tmp_path / "data", env=env)
    acknowledged: dict[str, str] = {}
    async with httpx2.AsyncClient(base_url=server.url, timeout=20) as http:
        desk = await Desk.open(http)
        conversation, first, second = await desk.planned()

        async def edit(number: int) -> None:
            for count in range(10_000):
                text = f"client {number}, edit {count}"
                answer = await desk.ask(conversation, "plan", "edit", editedContent=text)
                acknowledged[answer.task] = text

        editors = [asyncio.ensure_future(edit(number)) for number in range(8)]
        await until(lambda: len(acknowledged) >= 40)
        await server.kill()
        await asyncio.gather(*editors, return_exceptions=True)
    again = await ServerProcess.start([tmp_path / AGENTS], tmp_path / "data", env=env)
    try:
        async with httpx2.AsyncClient(base_url=again.url, timeout=20) as http:
            desk = await Desk.open(http)
            for id_, text in acknowledged.items():
                kept = (await desk.ask(conversation, "plan", "read", versionId=id_)).result
                assert kept["currentVersion"]["content"] == text
            page = (await desk.ask(conversation, "plan", "list", limit=200)).result
            assert page["total"] >= len(acknowledged) + 2
            shown = [one["versionNumber"] for one in page["versions"]]
            assert shown == list(range(page["total"], page["total"] - len(shown), -1))
            assert [one["isCurrent"] for one in page["versions"]] == [True] + [False] * (len(shown) - 1)
            assert (await desk.task(first)).body["status"] == "completed"
            assert (await desk.task(second)).result["version"]["versionNumber"] == 2
    finally:
        await again.stop()

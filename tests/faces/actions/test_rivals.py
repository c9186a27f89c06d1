"""Many who edit one plan at once: nothing that was acknowledged is lost, and nobody is refused."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import httpx2
import pytest

from parley.testing.databases import fresh_database
from parley.testing.processes import replicas
from tests.faces.actions.desk import Desk, Json

pytestmark = pytest.mark.asyncio(loop_scope="module")

CLIENTS = 50
EDITS = 4


async def all_versions(desk: Desk, conversation: str) -> list[Json]:
    found: list[Json] = []
    while True:
        page = (await desk.ask(conversation, "plan", "list", limit=60, offset=len(found))).result
        found += page["versions"]
        if not page["hasMore"]:
            assert len(found) == page["total"]
            return found


@pytest.mark.slow
async def test_fifty_clients_edit_one_plan(desk: Desk) -> None:
    await edited_by_many([desk])


@pytest.mark.slow
async def test_fifty_clients_edit_one_plan_by_two_replicas(tmp_path: Path, postgres: str) -> None:
    (tmp_path / "writer.yaml").write_text("driver: llm\nmodel: offline\n")
    url = await fresh_database(postgres)
    async with replicas(2, [tmp_path / "writer.yaml"], tmp_path, url) as servers, AsyncExitStack() as stack:
        desks: list[Desk] = []
        for server in servers:
            http = httpx2.AsyncClient(base_url=server.url, timeout=20, limits=httpx2.Limits(max_connections=None))
            desks.append(await Desk.open(await stack.enter_async_context(http)))
        await edited_by_many(desks)


async def test_eight_first_uses_at_once_begin_one_conversation(desk: Desk) -> None:
    await begun_by_many([desk])


@pytest.mark.slow
async def test_eight_first_uses_at_once_of_two_replicas(tmp_path: Path, postgres: str) -> None:
    (tmp_path / "writer.yaml").write_text("driver: llm\nmodel: offline\n")
    url = await fresh_database(postgres)
    async with replicas(2, [tmp_path / "writer.yaml"], tmp_path, url) as servers, AsyncExitStack() as stack:
        desks: list[Desk] = []
        for server in servers:
            http = httpx2.AsyncClient(base_url=server.url, timeout=20, limits=httpx2.Limits(max_connections=None))
            desks.append(await Desk.open(await stack.enter_async_context(http)))
        await begun_by_many(desks)


async def begun_by_many(desks: list[Desk]) -> None:
    """If eight callers create a conversation at once, one gets 201, and all get the same conversation."""
    for name in ("first", "second", "third"):
        body = {"agentSlug": "writer", "id": name}
        answers = await asyncio.gather(
            *(desks[number % len(desks)].send("POST", "/conversations", body) for number in range(8))
        )
        assert sorted(one.status for one in answers) == [200] * 7 + [201]
        assert len({one.result["conversation"]["startedAt"] for one in answers}) == 1
    asked = {"message": "Tides"}
    made = await asyncio.gather(
        *(desks[number % len(desks)].ask("fourth", "plan", "create", **asked) for number in range(8))
    )
    assert [one.status for one in made] == [200] * 8
    assert (await desks[0].ask("fourth", "plan", "list")).result["total"] == 8


async def edited_by_many(desks: list[Desk]) -> None:
    """Every acknowledged version is there, the numbers have no gaps, and exactly one is current."""
    desk = desks[0]
    conversation, _, _ = await desk.planned()

    async def client(number: int) -> list[tuple[str, str]]:
        made: list[tuple[str, str]] = []
        for edit in range(EDITS):
            text = f"client {number}, edit {edit}"
            answer = await desks[number % len(desks)].ask(conversation, "plan", "edit", editedContent=text)
            assert answer.status == 200, answer.body
            assert answer.result["version"]["content"] == text
            made.append((answer.task, text))
        return made

    answered = await asyncio.gather(*map(client, range(CLIENTS)))
    acknowledged = dict(one for made in answered for one in made)
    versions = await all_versions(desk, conversation)
    assert [one["versionNumber"] for one in versions] == list(range(2 + CLIENTS * EDITS, 0, -1))
    kept = {one["id"]: one["contentPreview"] for one in versions}
    assert {id_: kept.get(id_) for id_ in acknowledged} == acknowledged
    current = [one for one in versions if one["isCurrent"]]
    assert [one["versionNumber"] for one in current] == [2 + CLIENTS * EDITS]


async def test_rivals_about_which_version_holds_agree_in_the_end(desk: Desk) -> None:
    conversation, first, second = await desk.planned()
    calls = [
        *(desk.ask(conversation, "plan", "set_current", versionId=id_) for id_ in [first, second] * 6),
        *(desk.ask(conversation, "plan", "edit", editedContent=f"edit {number}") for number in range(4)),
    ]
    answers = await asyncio.gather(*calls)
    assert {answer.status for answer in answers} == {200}
    versions = await all_versions(desk, conversation)
    current = (await desk.ask(conversation, "plan", "read")).result["plan"]["currentVersionId"]
    assert [one["id"] for one in versions if one["isCurrent"]] == [current]
    assert sorted(one["versionNumber"] for one in versions) == list(range(1, 7))


async def test_rivals_with_one_key_make_one_version(desk: Desk) -> None:
    conversation, _, _ = await desk.planned()
    key = {"Idempotency-Key": f"rivals-{conversation}"}
    calls = (desk.ask(conversation, "plan", "edit", editedContent="once", headers=key) for _ in range(10))
    answers = await asyncio.gather(*calls)
    assert {(answer.status, answer.task) for answer in answers} == {(200, answers[0].task)}
    assert len(await all_versions(desk, conversation)) == 3

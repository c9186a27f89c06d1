"""Events of nodes: resumed without a gap, seen only by those who may reach the node, from whichever replica."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import httpx2
import pytest

from parley.testing.servers import serving
from tests.faces.registry.fleet import Fleet, Node, following

ALL = "/workspaces/events/stream"


async def test_a_stream_goes_on_where_another_one_broke_off(small: Fleet) -> None:
    node = await small.online("One")
    async with following(small.http, small.at + ALL, {}, after=0) as stream:
        first = await stream.until("WORKSPACE_ONLINE")
        for number in range(3):
            await small.ask("PATCH", f"/workspaces/{node.id}", {"x": float(number + 1)})
        live = [await stream.next(), await stream.next()]
    ids = [event["id"] for event in (*first, *live)]
    assert ids == sorted(set(ids))
    async with following(small.http, small.at + ALL, {}, after=live[0]["id"]) as stream:
        again = [await stream.next(), await stream.next()]
    assert again[0] == live[1]
    assert again[1]["payload"] == {"x": 3.0}
    assert set(again[1]) == {"event", "workspace_id", "timestamp", "payload", "id"}
    for wrong in ("x", "-1", "999999"):
        reply = await small.http.get(small.at + ALL, headers={"Last-Event-ID": wrong})
        assert reply.status_code == 400
        assert "Last-Event-ID" in reply.json()["error"]


async def test_heartbeats_pass_by_without_a_number(small: Fleet) -> None:
    node = await small.online("One")
    async with following(small.http, f"{small.at}/workspaces/{node.id}/events/stream", node.headers) as stream:
        await node.beat(active_tasks=3)
        told = await stream.next()
        assert (told["event"], told["id"], told["payload"]["active_tasks"]) == ("WORKSPACE_HEARTBEAT", None, 3)
        await node.beat(current_task="Now")
        assert [event["event"] for event in [await stream.next(), await stream.next()]] in (
            ["TASK_UPDATED", "WORKSPACE_HEARTBEAT"], ["WORKSPACE_HEARTBEAT", "TASK_UPDATED"],
        )  # fmt: skip


async def test_a_node_sees_only_those_that_it_may_talk_to(small: Fleet) -> None:
    team, other = await small.online("Team"), await small.online("Other")
    one, two, far = await small.online("1", team), await small.online("2", team), await small.online("3", other)
    async with following(small.http, small.at + ALL, one.headers, after=0) as stream:
        seen = await stream.until("WORKSPACE_ONLINE")
        while seen[-1]["workspace_id"] != two.id:
            seen.append(await stream.next())
        await far.beat(current_task="secret")
        await small.ask("PATCH", f"/workspaces/{two.id}", {"parent_id": other.id})
        moved = (await stream.until("WORKSPACE_MOVED"))[-1]
        assert moved["payload"] == {"parent_id": other.id, "previous_parent_id": team.id}
        await two.beat(current_task="secret")
        await small.ask("DELETE", f"/workspaces/{two.id}")
        await team.beat(current_task="hello")
        rest = await stream.until("TASK_UPDATED")
    assert [event["payload"] for event in rest] == [{"current_task": "hello", "active_tasks": 0}]
    assert {event["workspace_id"] for event in seen} <= {team.id, one.id, two.id}
    hidden = await one.get(f"/workspaces/{far.id}/events/stream")
    assert hidden.status_code == 404


async def test_a_stream_ends_with_its_token(small: Fleet) -> None:
    one, two = await small.online("One"), await small.online("Two")
    async with following(small.http, small.at + ALL, one.headers) as stream:
        await small.ask("DELETE", f"/workspaces/{one.id}/tokens")
        await two.beat(current_task="hello")
        with pytest.raises(EOFError):
            await stream.next()


@pytest.fixture
async def pair(database: str, tmp_path: Path, http: httpx2.AsyncClient) -> AsyncIterator[tuple[Fleet, Fleet]]:
    """Two servers on one database."""
    shared = {"store": "postgres", "postgres_url": database, "secret_key_file": tmp_path / "secret.key"}
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(serving(tmp_path / name, [], **shared)) for name in "ab"]
        yield Fleet(http, servers[0].url), Fleet(http, servers[1].url)


async def test_what_happens_at_one_replica_is_known_at_the_other(pair: tuple[Fleet, Fleet]) -> None:
    here, there = pair
    one, two = await here.online("One"), await here.online("Two")
    one.at = there.at
    assert (await one.beat(active_tasks=1)).status_code == 200
    found = (await one.discover(two)).json()
    assert (await two.post("/registry/introspect", {"token": found["token"]})).json()["active"] is True
    async with following(there.http, there.at + ALL, {}) as stream:
        asking = asyncio.get_running_loop().time()
        await two.beat(current_task="hello")
        assert (await stream.until("TASK_UPDATED"))[-1]["workspace_id"] == two.id
        assert asyncio.get_running_loop().time() - asking < 0.9
        await two.register("http://127.0.0.1:9005")
        assert (await one.discover(two)).json()["url"] == "http://127.0.0.1:9005"
        await here.ask("PATCH", f"/workspaces/{two.id}", {"parent_id": one.id})
        await stream.until("WORKSPACE_MOVED")
    await here.ask("DELETE", f"/workspaces/{two.id}")
    assert (await one.discover(two)).status_code == 410
    assert (await Node(there.http, there.at, two.id, two.token).beat()).status_code == 401


async def test_two_replicas_make_no_circle_of_two_moves(pair: tuple[Fleet, Fleet]) -> None:
    here, there = pair
    one, two = await here.online("One"), await here.online("Two")
    replies = await asyncio.gather(
        here.ask("PATCH", f"/workspaces/{one.id}", {"parent_id": two.id}),
        there.ask("PATCH", f"/workspaces/{two.id}", {"parent_id": one.id}),
    )
    assert sorted(reply.status_code for reply in replies) == [200, 400]

"""The kill switch over HTTP: it cancels what is unfinished, refuses new work, and holds on every replica."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest

from parley import NeedInput, Text, Turn, agent
from parley.testing.servers import Server, serving
from parley.testing.waiting import until
from tests.permissions.house import bearer

Headers = dict[str, str]


@agent("asker")
async def asker(turn: Turn):
    """Asks, so that its task stays open."""
    yield NeedInput("And now?")


@agent("worker")
async def worker(turn: Turn):
    """Asks another agent, and never ends."""
    yield Text((await turn.ask("asker", turn.text)).text)
    await asyncio.Event().wait()


KEYS: dict[str, dict[str, Any]] = {
    "ops": {"role": "operator"}, "ann": {"groups": ["blue"]}, "bob": {"groups": ["blue"]}, "eve": {},
}  # fmt: skip


class House:
    def __init__(self, servers: list[Server], http: httpx2.AsyncClient, keys: dict[str, Headers]) -> None:
        self.servers = servers
        self.http = http
        self.keys = keys

    async def send(self, who: str, slug: str = "asker", task: str | None = None, at: int = 0) -> httpx2.Response:
        message = {"messageId": f"m{id(object())}", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
        body = {
            "message": {**message, **({"taskId": task} if task else {})},
            "configuration": {"returnImmediately": True},
        }
        url = f"{self.servers[at].url}/agents/{slug}/message:send"
        return await self.http.post(url, json=body, headers={**self.keys[who], "A2A-Version": "1.0"})

    async def task(self, who: str, slug: str = "asker", at: int = 0) -> str:
        reply = await self.send(who, slug, at=at)
        assert reply.status_code == 200, reply.text
        return reply.json()["task"]["id"]

    async def states(self, *tasks: str) -> list[str]:
        reply = await self.http.get(f"{self.servers[0].url}/admin/runs", headers=self.keys["ops"])
        found = {run["id"]: run["state"] for run in reply.json()["runs"]}
        return [found[task] for task in tasks]

    async def stop(self, kind: str, name: str) -> dict[str, Any]:
        reply = await self.http.post(
            f"{self.servers[0].url}/admin/stops", json={"kind": kind, "name": name}, headers=self.keys["ops"]
        )
        assert reply.status_code == 201, reply.text
        return reply.json()

    async def allow(self, kind: str, name: str) -> httpx2.Response:
        return await self.http.delete(f"{self.servers[0].url}/admin/stops/{kind}/{name}", headers=self.keys["ops"])


@pytest.fixture
async def house(tmp_path: Path, database: str) -> AsyncIterator[House]:
    given = {"store": "postgres", "postgres_url": database}
    keys: dict[str, Headers] = {}
    async with serving(tmp_path, [asker], **given) as server, httpx2.AsyncClient(base_url=server.url) as http:
        for name, rights in KEYS.items():
            keys[name] = bearer((await http.post("/admin/keys", json={"name": name, **rights})).json()["token"])
    async with AsyncExitStack() as stack:
        servers = [
            await stack.enter_async_context(serving(tmp_path / str(number), [asker, worker], auth="required", **given))
            for number in range(2)
        ]
        http = await stack.enter_async_context(httpx2.AsyncClient(timeout=20))
        yield House(servers, http, keys)


def refusal(reply: httpx2.Response) -> tuple[int, str, str]:
    error = reply.json()["error"]
    return reply.status_code, error["details"][0]["reason"], error["message"]


async def test_a_stopped_principal_has_no_unfinished_tasks_and_begins_none(house: House) -> None:
    await house.task("ann")
    parent, other = await house.task("ann", "worker", at=1), await house.task("eve")

    async def asked() -> bool:
        reply = await house.http.get(f"{house.servers[0].url}/admin/runs", headers=house.keys["ops"])
        return any(run["parent"] == parent and run["state"] == "input_required" for run in reply.json()["runs"])

    await until(asked)
    stopped = await house.stop("principal", "service:ann")
    assert (stopped["by"], stopped["canceled"] >= 2) == ("service:ops", True)

    async def canceled() -> bool:
        """Return whether both tasks and the one that the second started are canceled."""
        reply = await house.http.get(
            f"{house.servers[0].url}/admin/runs", params={"principal": "service:ann"}, headers=house.keys["ops"]
        )
        return [run["state"] for run in reply.json()["runs"]] == ["canceled"] * 3

    await until(canceled)
    assert await house.states(other) == ["input_required"]
    status, reason, message = refusal(await house.send("ann"))
    assert (status, reason) == (403, "WORK_STOPPED")
    assert "until an operator allows it again" in message
    assert (await house.send("eve", task=other)).status_code == 200
    assert (await house.allow("principal", "service:ann")).status_code == 200
    assert (await house.send("ann")).status_code == 200
    assert (await house.allow("principal", "service:ann")).status_code == 404


@pytest.mark.slow
async def test_a_stop_holds_on_every_replica(house: House) -> None:
    await house.stop("agent", "asker")

    async def refused_there() -> bool:
        return (await house.send("eve", at=1)).status_code == 403

    await until(refused_there)

    async def nothing_is_left() -> bool:
        # What the other replica let in before it knew is canceled too.
        reply = await house.http.get(f"{house.servers[0].url}/admin/runs", headers=house.keys["ops"])
        return all(run["state"] == "canceled" for run in reply.json()["runs"])

    await until(nothing_is_left)
    assert (await house.send("ann")).status_code == 403


async def test_a_stopped_group_is_all_its_members(house: House) -> None:
    tasks = [await house.task(who) for who in ("ann", "bob", "eve")]
    assert (await house.stop("group", "blue"))["canceled"] == 2
    assert await house.states(*tasks) == ["canceled", "canceled", "input_required"]
    assert refusal(await house.send("bob"))[2].startswith("Work of group blue is stopped")
    listed = await house.http.get(f"{house.servers[0].url}/admin/stops", headers=house.keys["ops"])
    assert [(one["kind"], one["name"]) for one in listed.json()["stops"]] == [("group", "blue")]


async def test_wrong_stops_are_refused(house: House) -> None:
    for body in ({"kind": "all", "name": "x"}, {"kind": "agent", "name": ""}, {"kind": "agent", "name": "x" * 300}):
        reply = await house.http.post(f"{house.servers[0].url}/admin/stops", json=body, headers=house.keys["ops"])
        assert reply.status_code == 400, body
    refused = await house.http.post(
        f"{house.servers[0].url}/admin/stops", json={"kind": "agent", "name": "asker"}, headers=house.keys["ann"]
    )
    assert refused.status_code == 403

"""Two processes with one token, as with a copied profile: each holds what it pulled, and nothing else."""

import asyncio
from typing import Any

import httpx2
import pytest

from parley.client import Client
from parley.testing.servers import Server
from tests.faces.pairing.conftest import Site
from tests.faces.pairing.runtime import Raw, Work, error_of, paired
from tests.faces.pairing.test_work import begin


async def two(server: Server, http: httpx2.AsyncClient) -> tuple[Raw, Raw, Work]:
    """A process that works on a task, and a copy of it."""
    runtime = await paired(http, server.url, "far")
    copy = Raw(http, server.url, runtime.attached)
    runtime.instance, copy.instance = "process-1", "process-2"
    async with Client(server.agent("far")) as client:
        await begin(client)
    return runtime, copy, await runtime.one()


@pytest.mark.parametrize("named", [True, False], ids=["with its lease id", "without"])
@pytest.mark.parametrize(
    ("what", "body"),
    [
        ("release", {}), ("progress", {}), ("progress", {"text": "mine"}), ("complete", {"output": {"text": "mine"}}),
        ("fail", {"output": {"error": "mine"}}), ("artifacts", {"filename": "a.md", "content_text": "mine"}),
    ],
)  # fmt: skip
async def test_a_copy_cannot_report_on_a_task_of_another_process(
    site: Site, http: httpx2.AsyncClient, what: str, body: dict[str, Any], named: bool
) -> None:
    runtime, copy, work = await two(await site.open(), http)
    given = {**work.lease, **body} if named else body
    assert error_of(await copy.post(f"/task-runs/{work.id}/{what}", given)) == (409, "lease_lost")
    assert (await runtime.complete(work, text="done"))["status"] == "completed"


async def test_a_copy_neither_renews_nor_ends_the_lease_of_another_process(
    site: Site, http: httpx2.AsyncClient
) -> None:
    runtime, copy, work = await two(await site.open(), http)
    assert (await copy.heartbeat(work))["lost_task_run_ids"] == [work.id]
    assert (await copy.post("/agent-runtimes/runtime/detach")).status_code == 200
    assert await copy.pull() == []
    assert [one["task_run_id"] for one in (await runtime.heartbeat(work))["task_runs"]] == [work.id]
    assert (await runtime.post("/agent-runtimes/runtime/detach")).status_code == 200
    assert (await copy.one()).id == work.id


async def test_a_runtime_that_does_not_name_its_process_works_as_before(site: Site, http: httpx2.AsyncClient) -> None:
    runtime, copy, work = await two(await site.open(), http)
    copy.instance = None
    assert (await copy.post("/agent-runtimes/runtime/detach")).status_code == 200
    assert [one["task_run_id"] for one in (await runtime.heartbeat(work))["task_runs"]] == [work.id]
    assert (await copy.complete(work, text="done"))["status"] == "completed"


async def test_two_processes_that_pull_at_once_each_keep_what_they_got(
    pair_of_replicas: tuple[Server, Server], http: httpx2.AsyncClient
) -> None:
    one, other = pair_of_replicas
    first = await paired(http, one.url, "far")
    second = Raw(http, other.url, first.attached)
    first.instance, second.instance = "process-1", "process-2"
    async with Client(one.agent("far")) as client:
        for number in range(20):
            await begin(client, str(number))

    async def work(runtime: Raw) -> int:
        done = 0
        while works := await runtime.pull(limit=3):
            for one in works:
                assert (await runtime.complete(one, text="done"))["status"] == "completed"
                done += 1
        return done

    assert sum(await asyncio.gather(work(first), work(second))) == 20


@pytest.mark.parametrize("name", ["", "two words", "x" * 65, "\u00e4"])
async def test_the_name_of_a_process_is_short_and_plain(site: Site, http: httpx2.AsyncClient, name: str) -> None:
    server = await site.open()
    runtime = await paired(http, server.url, "far")
    headers = {b"X-Runtime-Token": runtime.token.encode(), b"X-Runtime-Instance": name.encode()}
    reply = await http.post(f"{server.url}/agent-accounts/far/task-runs/pull", json={}, headers=headers)
    assert error_of(reply) == (400, "invalid_input")

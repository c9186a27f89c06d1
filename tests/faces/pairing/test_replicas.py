"""Several servers on one database: a task is sent to one, pulled from another, and completed at a third."""

import asyncio
from collections import Counter
from pathlib import Path

import httpx2
import pytest

from parley.client import Client
from parley.ids import RunId
from parley.runs.log import verify_run
from parley.runs.streams import read_all
from parley.testing.processes import ServerProcess, replicas, until
from parley.testing.servers import Server
from tests.faces.pairing.conftest import Site, edge
from tests.faces.pairing.runtime import Raw, attach, code_for, error_of, paired
from tests.faces.pairing.test_work import SOON, begin

TASKS = 200
DEFINITION = "driver: edge\nname: Far\n"


async def test_a_task_sent_to_one_replica_is_pulled_from_another(
    pair_of_replicas: tuple[Server, Server], http: httpx2.AsyncClient
) -> None:
    a, b = pair_of_replicas
    runtime = await paired(http, a.url, "far")
    async with Client(a.agent("far")) as client:
        for place in (b.url, a.url, b.url):
            waiting = asyncio.create_task(runtime.pull(20_000, at=place))
            await asyncio.sleep(0.05)
            asked = asyncio.create_task(client.send("over there"))
            (work,) = await asyncio.wait_for(waiting, SOON)
            await runtime.about(work, "progress", at=b.url, text="on it")
            await runtime.complete(work, at=a.url if place == b.url else b.url, text="done")
            task = (await asyncio.wait_for(asked, SOON))["task"]
            assert task["status"]["state"] == "TASK_STATE_COMPLETED"
            assert (await runtime.complete(work, at=b.url, text="done"))["idempotent"]


async def test_a_cancel_at_one_replica_reaches_a_runtime_that_asks_another(
    pair_of_replicas: tuple[Server, Server], http: httpx2.AsyncClient
) -> None:
    a, b = pair_of_replicas
    runtime = await paired(http, b.url, "far")
    async with Client(a.agent("far")) as client:
        task = await begin(client)
        work = await runtime.one()
        told = asyncio.create_task(runtime.control(work, wait_ms=25_000))
        await asyncio.sleep(0.05)
        canceling = asyncio.create_task(client.cancel(task["id"]))
        assert (await asyncio.wait_for(told, SOON))["cancel_task_run_ids"] == [work.id]
        await runtime.about(work, "fail", output={"error": "Stopped."})
        assert (await canceling)["status"]["state"] == "TASK_STATE_CANCELED"


async def test_a_code_works_once_on_all_replicas_together(
    pair_of_replicas: tuple[Server, Server], http: httpx2.AsyncClient
) -> None:
    a, b = pair_of_replicas
    code = await code_for(http, a.url, "far")
    replies = await asyncio.gather(*(attach(http, place.url, code) for place in (a, b) * 5))
    assert sorted(reply.status_code for reply in replies) == [200] + [401] * 9


async def test_a_runtime_that_was_replaced_is_told_so_on_every_replica(
    pair_of_replicas: tuple[Server, Server], http: httpx2.AsyncClient
) -> None:
    a, b = pair_of_replicas
    old = await paired(http, a.url, "far")
    waiting = asyncio.create_task(old.post("/agent-accounts/far/task-runs/pull", {"wait_ms": 25_000}, at=b.url))
    await asyncio.sleep(0.1)
    await paired(http, a.url, "far")
    assert error_of(await asyncio.wait_for(waiting, SOON)) == (401, "runtime_revoked")


async def test_of_two_pulls_for_one_task_one_gets_it(site: Site, http: httpx2.AsyncClient) -> None:
    server = await site.open()
    runtime = await paired(http, server.url, "far")
    async with Client(server.agent("far")) as client:
        for _ in range(5):
            pulls = [asyncio.create_task(runtime.pull(300)) for _ in range(4)]
            await asyncio.sleep(0.02)
            task = await begin(client)
            got = [work for pull in await asyncio.gather(*pulls) for work in pull]
            got = got or [await runtime.one()]  # they had given up when a slow disk acknowledged it
            assert [work.id for work in got] == [task["id"]]
            await runtime.complete(got[0], text="done")


@pytest.mark.slow
async def test_two_runtimes_with_many_pulls_do_every_task_once(site: Site, http: httpx2.AsyncClient) -> None:
    server = await site.open(edge("far"), edge("away"))
    places = [server.url]
    if site.shared:
        places.append((await site.open(edge("far"), edge("away"))).url)
    runtimes = [await paired(http, server.url, slug) for slug in ("far", "away")]
    done: Counter[str] = Counter()
    acknowledged: Counter[str] = Counter()
    async with asyncio.timeout(100):
        workers = [
            asyncio.create_task(_work(one, places[n % len(places)], done, acknowledged))
            for one in runtimes
            for n in range(6)
        ]
        async with Client(server.agent("far")) as far, Client(server.agent("away")) as away:
            sent = [await begin(client, str(number)) for number in range(TASKS) for client in (far, away)]
            await until(lambda: sum(acknowledged.values()) >= 2 * TASKS, 100)
    for worker in workers:
        worker.cancel()
    await asyncio.gather(*workers, return_exceptions=True)
    assert done == Counter(task["id"] for task in sent)
    for task in sent:
        await verify_run(server.exchange.store, RunId(task["id"]))
        events = await read_all(server.exchange.store, RunId(task["id"]))
        assert [event.type for event in events] == ["submitted", "input", "started", "artifact", "completed"]


async def _work(runtime: Raw, place: str, done: "Counter[str]", acknowledged: "Counter[str]") -> None:
    while True:
        for work in await runtime.pull(5_000, limit=3, at=place):
            done[work.id] += 1
            await runtime.complete(work, at=place, text=work.text)
            acknowledged[work.id] += 1


@pytest.mark.slow
async def test_kill_9_of_a_replica_loses_nothing_and_does_nothing_twice(
    tmp_path: Path, database: str, http: httpx2.AsyncClient
) -> None:
    agents = tmp_path / "agents"
    agents.mkdir()
    (agents / "far.yaml").write_text(DEFINITION)
    async with replicas(3, [agents], tmp_path, database, PARLEY_LEASE_S="1") as (a, b, c):
        runtime = await paired(http, a.url, "far")
        async with Client(f"{a.url}/agents/far") as client:
            tasks = [(await begin(client, str(number)))["id"] for number in range(6)]
        held = await runtime.pull(limit=3, at=a.url)
        await a.kill()
        assert [work.id for work in held] == tasks[:3]
        assert (await runtime.complete(held[0], at=b.url, text="done"))["status"] == "completed"
        kept = await runtime.heartbeat(held[1], held[2], at=c.url)
        assert [one["task_run_id"] for one in kept["task_runs"]] == tasks[1:3]
        rest = await runtime.pull(5_000, limit=10, at=c.url)
        assert [work.id for work in rest] == tasks[3:]
        await asyncio.sleep(2.5)
        assert await runtime.pull(at=b.url) == []
        for work in (*held[1:], *rest):
            assert not (await runtime.complete(work, at=c.url, text="done"))["idempotent"]
        assert (await runtime.complete(held[0], at=c.url, text="done"))["idempotent"]
        async with Client(f"{b.url}/agents/far") as client:
            for task in tasks:
                seen = await client.get(task)
                assert seen["status"]["state"] == "TASK_STATE_COMPLETED"
                assert len(seen["artifacts"]) == 1


@pytest.mark.slow
async def test_a_runtime_goes_on_when_the_platform_was_killed_and_is_back(
    tmp_path: Path, http: httpx2.AsyncClient
) -> None:  # fmt: skip
    agents = tmp_path / "agents"
    agents.mkdir()
    (agents / "far.yaml").write_text(DEFINITION)
    server = await ServerProcess.start([agents], tmp_path / "data")
    runtime = await paired(http, server.url, "far")
    async with Client(f"{server.url}/agents/far") as client:
        held_task, waiting_task = [(await begin(client, text))["id"] for text in ("held", "waiting")]
    work = await runtime.one()
    assert work.id == held_task
    for _ in range(2):
        await server.kill()
        server = await ServerProcess.start([agents], tmp_path / "data", port=int(server.url.rpartition(":")[2]))
        assert [one["task_run_id"] for one in (await runtime.heartbeat(work))["task_runs"]] == [held_task]
    await runtime.about(work, "progress", text="still here")
    assert (await runtime.complete(work, text="done"))["status"] == "completed"
    assert (await runtime.one()).id == waiting_task
    async with Client(f"{server.url}/agents/far") as client:
        assert (await client.get(held_task))["status"]["state"] == "TASK_STATE_COMPLETED"
    assert await server.stop() == 0


@pytest.mark.slow
async def test_a_silent_runtime_loses_its_lease_over_the_wire(site: Site, http: httpx2.AsyncClient) -> None:
    server = await site.open(edge(), edge_lease_s=0.6)
    runtime = await paired(http, server.url, "far")
    assert runtime.attached["lease_seconds"] == 0.6
    assert runtime.attached["heartbeat_interval_seconds"] == 0.3
    async with Client(server.agent("far")) as client:
        task = await begin(client)
        attempts = [await runtime.one() for _ in range(3)]
        assert [work.wire["attempt"] for work in attempts] == [1, 2, 3]
        assert {work.id for work in attempts} == {task["id"]}
        assert (await runtime.control(attempts[2], wait_ms=10_000))["lost_task_run_ids"] == [task["id"]]
        status = (await client.get(task["id"]))["status"]
    assert status["message"]["metadata"] == {"code": "edge_attempts_exhausted"}
    assert error_of(await runtime.about(attempts[0], "complete", output={})) == (409, "lease_lost")
    assert error_of(await runtime.about(attempts[0], "progress", text="x")) == (409, "lease_lost")
    assert error_of(await runtime.about(attempts[2], "complete", output={})) == (409, "task_run_ended")


@pytest.mark.slow
async def test_heartbeats_and_progress_keep_the_lease(site: Site, http: httpx2.AsyncClient) -> None:
    server = await site.open(edge(), edge_lease_s=0.8)
    runtime = await paired(http, server.url, "far")
    async with Client(server.agent("far")) as client:
        await begin(client, "beats")
        await begin(client, "says")
    beats, says = await runtime.pull(limit=2)
    for number in range(8):
        await asyncio.sleep(0.3)
        assert (await runtime.heartbeat(beats))["lost_task_run_ids"] == []
        words = {"text": f"{number}"} if number % 2 else {}
        assert (await runtime.about(says, "progress", **words)).status_code == 200
    for work in (beats, says):
        assert (await runtime.complete(work, text="done"))["status"] == "completed"


async def test_what_was_taken_for_one_who_hung_up_goes_back(site: Site, http: httpx2.AsyncClient) -> None:
    server = await site.open()
    runtime = await paired(http, server.url, "far")
    async with Client(server.agent("far")) as client:
        for _ in range(5):
            waiting = asyncio.create_task(runtime.pull(20_000))
            await asyncio.sleep(0.05)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            task = await begin(client)
            work = await runtime.one()
            assert (work.id, work.wire["attempt"]) == (task["id"], 1)
            await runtime.complete(work, text="done")

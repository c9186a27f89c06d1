"""Many at once, crashes, and several replicas: numbers stay without gaps, and each frame has its effect once."""

import asyncio
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from parley.client.control import Owner, RuntimeClient
from parley.security.signatures import sign
from parley.testing.processes import ServerProcess, replicas
from parley.testing.processes import until as until_true
from parley.testing.servers import Server
from tests.faces.control.wire import SECRET, THREAD, Json, Shown, Wire, claims_of, error_of, kinds, until, until_done

AGENTS = [Path(__file__).parents[2] / "replica_agents.py"]
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""One empty context for all: reading the certificates anew for each client would take longer than the test."""
PATIENCE_S = 60.0

pytestmark = pytest.mark.slow


@asynccontextmanager
async def clients(url: str, count: int) -> AsyncIterator[list[RuntimeClient]]:
    """Each with connections of its own."""
    async with AsyncExitStack() as stack:
        made = [
            RuntimeClient(url, SECRET, owner=Owner(user_id=42), http=httpx2.AsyncClient(verify=NO_TLS, timeout=30))
            for _ in range(count)
        ]
        yield [await stack.enter_async_context(client) for client in made]


def consumed(shown: Shown) -> list[str]:
    return [data["payload"]["frame_id"] for _, data in shown if data.get("eventType") == "run.frame_consumed"]


def assert_contiguous(shown: Shown, after: int = 0) -> None:
    assert [seq for seq, _ in shown] == list(range(after + 1, after + 1 + len(shown)))


async def test_readers_from_anywhere_see_what_late_producers_write(server: Server, wire: Wire) -> None:
    run = await wire.new_run()
    async with clients(server.url, 25) as group, asyncio.timeout(PATIENCE_S):
        readers, producers = group[:20], group[20:]
        for number in range(5):
            await producers[0].say(run, THREAD, f"early {number}")
        latest = (await until(producers[0], run, "run.input_required"))[-1][0]
        cursors = [number % (latest + 1) for number in range(len(readers))]
        reading = [asyncio.ensure_future(until_done(one, run, at)) for one, at in zip(readers, cursors, strict=True)]
        await until_true(lambda: bool(server.exchange.streams.followed))
        await asyncio.gather(*(produce(one, run, f"late {number}") for number, one in enumerate(producers)))
        await producers[0].finish(run, THREAD)
        seen = await asyncio.gather(*reading)
        everything = await until_done(producers[0], run)
    assert_contiguous(everything)
    assert len(consumed(everything)) == 5 + 5 * 10
    for cursor, shown in zip(cursors, seen, strict=True):
        assert shown == everything[cursor:]


async def produce(client: RuntimeClient, run: str, words: str) -> None:
    for number in range(10):
        await client.say(run, THREAD, f"{words} {number}")


async def test_a_burst_of_frames_is_numbered_without_gaps(server: Server, wire: Wire) -> None:
    run = await wire.new_run()
    async with clients(server.url, 20) as group, asyncio.timeout(PATIENCE_S):
        names = [f"frame-{number}" for number in range(200)]
        sent = [
            group[number % len(group)].frame(run, THREAD, payload={"text": name}, id_=name)
            for number, name in enumerate(names)
        ]
        replies = await asyncio.gather(*sent)
        assert not any(reply["idempotentReplay"] for reply in replies)
        await group[0].finish(run, THREAD)
        shown = await until_done(group[0], run)
    assert_contiguous(shown)
    assert Counter(consumed(shown)) == Counter(names)
    said = "".join(data["delta"] for _, data in shown if data["type"] == "text-delta")
    assert all(said.count(name) >= 1 for name in names)
    assert shown[-1][1]["meta"]["status"] == "succeeded"


async def test_cancels_and_frames_at_once_leave_one_end(server: Server, wire: Wire) -> None:
    run = await wire.new_run(agent="sleeper")
    async with clients(server.url, 10) as group, asyncio.timeout(PATIENCE_S):
        await group[0].say(run, THREAD, "sleep")
        await until(group[0], run, "run.progress")
        frames = [one.say(run, THREAD, str(number)) for number in range(5) for one in group]
        cancels = [one.cancel(run, THREAD) for _ in range(5) for one in group]
        mixed = [each for pair in zip(frames, cancels, strict=True) for each in pair]
        replies = await asyncio.gather(*mixed)
        shown = await until_done(group[0], run)
    assert_contiguous(shown)
    assert kinds(shown).count("run.cancel_requested") == 1
    assert kinds(shown).count("finish") == 1
    assert kinds(shown)[-1] == "finish"
    first = [reply for reply in replies if "cancelRequested" in reply and not reply["idempotentReplay"]]
    assert len(first) == 1


async def test_whoever_follows_a_run_through_kill_9_sees_every_number(tmp_path: Path) -> None:
    server = await ServerProcess.start(AGENTS, tmp_path)
    port = int(server.url.rpartition(":")[2])
    async with clients(server.url, 2) as (writer, reader), asyncio.timeout(PATIENCE_S):
        run = await begun(writer, "walker")
        following = asyncio.ensure_future(until_done(reader, run))
        await reached(writer, run, "step 5")
        await server.kill()
        server = await ServerProcess.start(AGENTS, tmp_path, port=port)
        shown = await following
        again = await until_done(writer, run)
    assert await server.stop() == 0
    assert_contiguous(shown)
    assert shown == again
    assert kinds(shown).count("run.executor_lost") == 1
    assert kinds(shown).count("run.frame_consumed") == 1
    assert shown[-1][1]["meta"]["status"] == "succeeded"


async def begun(client: RuntimeClient, agent: str) -> str:
    """A run at work that ends when its agent is done with what it was given."""
    run = (await client.create_run(THREAD, agent=agent))["runId"]
    await client.say(run, THREAD, "go")
    await client.finish(run, THREAD)
    return run


async def reached(client: RuntimeClient, run: str, words: str) -> None:
    async with aclosing(client.follow(run, THREAD)) as events:
        async for _, data in events:
            if data.get("payload", {}).get("text") == words:
                return


async def test_a_frame_on_one_replica_is_read_on_the_other(tmp_path: Path, database: str) -> None:
    async with (
        replicas(2, AGENTS, tmp_path, database) as (a, b), clients(a.url, 1) as (here,), clients(b.url, 1) as (there,),
        asyncio.timeout(PATIENCE_S),
    ):  # fmt: skip
        run = (await here.create_run(THREAD, agent="walker"))["runId"]
        following = asyncio.ensure_future(until_done(there, run))
        await here.say(run, THREAD, "go")
        await there.finish(run, THREAD)
        shown = await following
        assert await until_done(here, run) == shown
    assert_contiguous(shown)
    assert shown[-1][1]["meta"]["status"] == "succeeded"


async def test_a_run_goes_on_elsewhere_when_its_replica_is_killed(tmp_path: Path, database: str) -> None:
    async with (
        replicas(2, AGENTS, tmp_path, database, PARLEY_LEASE_S="1") as (a, b),
        clients(a.url, 1) as (here,), clients(b.url, 1) as (there,), asyncio.timeout(PATIENCE_S),
    ):  # fmt: skip
        run = await begun(here, "walker")
        following = asyncio.ensure_future(until_done(there, run))
        await reached(there, run, "step 5")
        await a.kill()
        shown = await following
    assert_contiguous(shown)
    assert kinds(shown).count("run.executor_lost") == 1
    assert shown[-1][1]["meta"]["status"] == "succeeded"


async def test_the_same_frame_to_both_replicas_counts_once(tmp_path: Path, database: str) -> None:
    async with (
        replicas(2, AGENTS, tmp_path, database) as (a, b), Wire(a.url) as one, Wire(b.url) as two,
        clients(a.url, 1) as (client,), asyncio.timeout(PATIENCE_S),
    ):  # fmt: skip
        run = await one.new_run(agent="walker")
        for number in range(20):
            sides = [side.frame(run, {"frame_id": f"f{number}"}) for side in (one, two) for _ in range(5)]
            replies = await asyncio.gather(*sides)
            assert sorted(reply.status_code for reply in replies) == [200] * 9 + [202]
        await client.finish(run, THREAD)
        shown = await until_done(client, run)
    assert_contiguous(shown)
    assert Counter(consumed(shown)) == Counter(f"f{number}" for number in range(20))


async def test_the_same_nonce_to_both_replicas_passes_once(tmp_path: Path, database: str) -> None:
    async with (
        replicas(2, AGENTS, tmp_path, database) as (a, b), Wire(a.url) as one, Wire(b.url) as two,
        asyncio.timeout(PATIENCE_S),
    ):  # fmt: skip
        for _ in range(20):
            token = sign(SECRET, claims_of("/health"))
            replies = await asyncio.gather(*(side.get("/health", token=token) for side in (one, two) for _ in range(3)))
            refused = [error_of(reply) for reply in replies if reply.status_code != 200]
            assert refused == [(401, "unauthorized", "token nonce already used")] * 5


async def test_the_same_run_is_begun_once_on_two_replicas(tmp_path: Path, database: str) -> None:
    body: Json = {"run_id": "run_1", "thread_id": THREAD, "agent": "walker"}
    async with replicas(2, AGENTS, tmp_path, database) as (a, b), Wire(a.url) as one, Wire(b.url) as two:
        replies = await asyncio.gather(*(side.post("/runs", body) for side in (one, two) for _ in range(5)))
    assert sorted(reply.status_code for reply in replies) == [200] * 9 + [202]

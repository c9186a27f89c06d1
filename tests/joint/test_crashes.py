"""Rivals and crashes along the chain: what is asked is done once, or again where nobody could say that it was done."""

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from parley.client import Client, Json
from parley.testing.processes import replicas
from tests.joint.chain import agent_of, balanced, begun, cloned, ended, paired, state, words, working
from tests.joint.conftest import Place

pytestmark = pytest.mark.slow

TASKS = 200


async def all_ended(client: Client, tasks: list[str]) -> list[Json]:
    """Each of them, as it is at its end."""
    limit = asyncio.Semaphore(16)

    async def one(task: str) -> Json:
        async with limit:
            return await ended(client, task)

    async with asyncio.timeout(90):
        return await asyncio.gather(*map(one, tasks))


async def test_two_runtimes_that_race_do_every_task_once(place: Place) -> None:
    server, local = await place.serve(), await place.local_agent()
    await paired(server, "far", home := place.folder / "one", local.endpoint)
    twin = cloned(home, place.folder / "two")
    async with agent_of(server, "far") as client, AsyncExitStack() as stack:
        rivals = [await stack.enter_async_context(working(one, "--concurrency", "4")) for one in (home, twin)]
        tasks = list(await asyncio.gather(*(begun(client, str(number)) for number in range(TASKS))))
        done = await all_ended(client, tasks)
        shares = [len(rival.seen("task.completed")) for rival in rivals]
    assert [(state(task), words(task)) for task in done] == [
        ("completed", [f"It is {number}."]) for number in range(TASKS)
    ]
    assert Counter(one.run for one in local.asked) == Counter(tasks)
    assert min(shares) > 0


async def test_a_newer_pairing_takes_over_in_the_middle(place: Place) -> None:
    """Only what the older one had in its hands is done again."""
    server, local = await place.serve(), await place.local_agent()
    await paired(server, "far", old := place.folder / "one", local.endpoint)
    async with agent_of(server, "far") as client, working(old, "--concurrency", "4") as older:
        texts = [f"{number} after 0.05" for number in range(TASKS // 2)]
        tasks = list(await asyncio.gather(*(begun(client, text) for text in texts)))
        await older.says("task.completed", 10)
        await paired(server, "far", young := place.folder / "two", local.endpoint)
        assert (await older.ended()).code == 4
        async with working(young, "--concurrency", "4"):
            done = await all_ended(client, tasks)
    assert [words(task) for task in done] == [[f"It is {number}."] for number in range(TASKS // 2)]
    times = Counter(one.run for one in local.asked)
    assert set(times) == set(tasks)
    assert times.total() <= len(tasks) + 4


@asynccontextmanager
async def watched(client: Client, text: str) -> AsyncGenerator[tuple[str, "asyncio.Task[list[Json]]"], None]:
    """A task, and all that one single open stream shows of it."""
    first: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def watch() -> list[Json]:
        seen: list[Json] = []
        params = {"message": {"messageId": text, "role": "ROLE_USER", "parts": [{"text": text}]}}
        async for _, reply in client.events("SendStreamingMessage", params):
            seen.append(reply["result"])
            if not first.done():
                first.set_result(reply["result"]["task"]["id"])
        return seen

    watching = asyncio.create_task(watch())
    yield await first, watching
    watching.cancel()


@pytest.mark.parametrize("successor", ["the same profile", "a new pairing", "a twin that waits"])
async def test_what_a_killed_runtime_worked_on_is_done_by_the_next_before_the_eyes_of_its_caller(
    place: Place, successor: str
) -> None:
    """A twin gets it when the lease has run out; the others take it over at once, although the lease is long."""
    lease_s = "1.5" if "twin" in successor else "60"
    server, local = await place.serve(PARLEY_EDGE_LEASE_S=lease_s), await place.local_agent()
    home = place.folder / "one"
    await paired(server, "far", home, local.endpoint)
    async with agent_of(server, "far") as client:
        async with working(home) as program, watched(client, "blue after 1") as (task, watching):
            await local.asked_for(task)
            program.signal(signal.SIGKILL)
            await program.ended()
            match successor:
                case "a new pairing":
                    await paired(server, "far", home := place.folder / "two", local.endpoint)
                case "a twin that waits":
                    home = cloned(home, place.folder / "two")
                case _:
                    pass
            async with working(home):
                seen = await asyncio.wait_for(watching, 20)
        assert state(seen[-1]["statusUpdate"]) == "completed"
        done = await client.get(task)
    assert words(done) == ["It is blue."]
    assert len([one for one in local.asked if one.run == task]) == 2


async def test_a_runtime_that_was_away_too_long_does_not_disturb_the_one_that_took_over(place: Place) -> None:
    server, local = await place.serve(PARLEY_EDGE_LEASE_S="1.5"), await place.local_agent()
    await paired(server, "far", home := place.folder / "one", local.endpoint)
    twin = cloned(home, place.folder / "two")
    async with agent_of(server, "far") as client, working(home) as sleeper:
        task = await begun(client, "blue after 2.5")
        await local.asked_for(task)
        sleeper.signal(signal.SIGSTOP)
        async with working(twin) as other:
            await local.asked_for(task, times=2)
            sleeper.signal(signal.SIGCONT)
            await sleeper.says("task.lost")
            done = await ended(client, task)
            await other.says("task.completed")
    assert (state(done), words(done)) == ("completed", ["It is blue."])


async def test_kill_9_of_the_platform_again_and_again_loses_nothing(place: Place) -> None:
    """Callers, runtime and tasks all go on where they were."""
    lease = {"PARLEY_EDGE_LEASE_S": "2"}
    server, local = await place.serve(**lease), await place.local_agent()
    port = int(server.url.rpartition(":")[2])
    await paired(server, "far", place.folder / "one", local.endpoint)
    async with working(place.folder / "one", "--concurrency", "4") as program, agent_of(server, "far") as client:
        callers = [asyncio.create_task(followed(client, f"{number} after 0.2")) for number in range(40)]
        for round_ in range(1, 3):
            await program.says("task.completed", 5 * round_)
            await server.kill()
            await program.says("platform.away", round_)
            server = await place.serve(port=port, **lease)
        tasks = await asyncio.wait_for(asyncio.gather(*callers), 60)
    async with agent_of(server, "far") as client:
        assert [words(await client.get(task)) for task in tasks] == [[f"It is {number}."] for number in range(40)]


async def followed(client: Client, text: str) -> str:
    """As a caller who does not give up; the task, which has come to its end."""
    task, last = "", {}
    async for step in client.stream(text):
        task = task or step.get("task", {}).get("id", "")
        last = step.get("statusUpdate", last)
    assert state(last) == "completed"
    return task


async def test_two_replicas_behind_one_address_one_of_them_killed(place: Place, database: str, tmp_path: Path) -> None:
    local = await place.local_agent()
    async with (
        replicas(2, [place.agents], tmp_path, database, PARLEY_LEASE_S="1") as servers,
        balanced([server.url for server in servers]) as balancer,
    ):
        await paired(servers[0], "far", home := place.folder / "one", local.endpoint)
        async with (
            working(home, "--api-base", balancer.url, "--concurrency", "4") as program,
            Client(f"{balancer.url}/agents/far") as client,
        ):
            callers = [asyncio.create_task(followed(client, f"{number} after 0.2")) for number in range(30)]
            await program.says("task.completed", 5)
            await servers[0].kill()
            tasks = await asyncio.wait_for(asyncio.gather(*callers), 60)
        async with agent_of(servers[1], "far") as client:
            assert [words(await client.get(task)) for task in tasks] == [[f"It is {number}."] for number in range(30)]
    assert len(balancer.used) == 2

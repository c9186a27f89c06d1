"""Cancels, leases and tokens: what the platform takes back."""

import asyncio
import json
from typing import Any

from edge.tests import platform as platforms
from edge.tests.conftest import Pair, write_profile
from edge.tests.platform import Platform
from edge.tests.programs import LocalAgent, local_agent, runtime
from edge.tests.wire import Asked, Drop, Said


async def forever(asked: Asked) -> Said:
    await asked.hung_up.wait()
    raise Drop


async def asked(agent: LocalAgent, number: int = 1) -> Asked:
    async with asyncio.timeout(15):
        while len(agent.asked) < number:
            agent.arrived.clear()
            await agent.arrived.wait()
    return agent.asked[number - 1]


async def test_a_cancel_closes_the_connection_to_the_agent(platform: Platform, paired: Pair) -> None:
    async with local_agent(answering=forever) as agent, runtime(await paired(agent.endpoint)) as program:
        task = platform.ask("hello")
        request = await asked(agent)
        platform.cancel(task)
        await asyncio.wait_for(request.hung_up.wait(), 5)
        await program.says("task.canceled")
    assert task.output == {"error": "The task was canceled.", "code": "CANCELED"}
    assert platform.called("/complete") == []


async def test_a_cancel_of_one_leaves_the_others(platform: Platform, paired: Pair) -> None:
    done = asyncio.Event()

    async def work(request: Asked) -> Said:
        if json.loads(request.body)["input"]["text"] == "long":
            return await forever(request)
        await done.wait()
        return Said(body=b'{"text": "ok"}')

    async with (
        local_agent(answering=work) as agent,
        runtime(await paired(agent.endpoint), "--concurrency", "2") as program,
    ):
        first, second = platform.ask("long"), platform.ask("short")
        await asked(agent, 2)
        platform.cancel(first)
        await program.says("task.canceled")
        done.set()
        assert (await platform.ended(second)).state == "completed"


async def test_a_cancel_is_heard_for_a_task_that_began_while_listening_for_another(
    platform: Platform, paired: Pair
) -> None:
    async with (
        local_agent(answering=forever) as agent,
        runtime(await paired(agent.endpoint), "--concurrency", "2") as program,
    ):
        first = platform.ask("one")
        await asked(agent)
        await platform.until(lambda: platform.called("/control"))
        second = platform.ask("two")
        await asked(agent, 2)
        await platform.until(
            lambda: any(second.id in call.body["task_run_ids"] for call in platform.called("/control"))
        )
        platform.cancel(second)
        await program.says("task.canceled")
        assert first.state == "claimed"


async def test_a_cancel_by_heartbeat_is_heard_where_control_fails(home: Any) -> None:
    async with platforms.platform(lease_s=2.0) as platform, local_agent(answering=forever) as agent:
        write_profile(home, platform, agent.endpoint)
        platform.fault("/control", times=999, status=503)
        async with runtime(home) as program:
            task = platform.ask("hello")
            request = await asked(agent)
            platform.cancel(task)
            await asyncio.wait_for(request.hung_up.wait(), 5)
            await program.says("task.canceled")


async def test_a_lost_lease_ends_the_work_without_a_word(platform: Platform, paired: Pair) -> None:
    async with local_agent(answering=forever) as agent, runtime(await paired(agent.endpoint)) as program:
        task = platform.ask("hello")
        request = await asked(agent)
        task.state, task.lease = "elsewhere", "somebody else's"
        platform.cancel(task)
        await asyncio.wait_for(request.hung_up.wait(), 5)
        await program.says("task.lost")
    assert platform.called("/complete") == platform.called("/fail") == platform.called("/release") == []


async def test_leases_are_renewed_in_time_also_when_they_are_shorter_than_at_pairing(home: Any) -> None:
    """The platform was told to lease for a shorter time after this runtime was paired."""
    async with platforms.platform(lease_s=1.0, heartbeat_s=30.0) as platform, local_agent(answering=forever) as agent:
        platform.clock_off = 3600.0
        write_profile(home, platform, agent.endpoint)
        async with runtime(home):
            task = platform.ask("hello")
            await asked(agent)
            first = task.lease_until

            def renewed() -> bool:
                named = [call for call in platform.called("/heartbeat") if call.body["task_runs"]]
                return len(named) >= 3 and task.lease_until > first

            await platform.until(renewed)
            beats = [call for call in platform.called("/heartbeat") if call.body["task_runs"]]
            assert beats[0].body == {"task_runs": [{"task_run_id": task.id, "lease_id": task.lease}], "status": "ready"}


async def test_a_result_that_comes_too_late_is_dropped(platform: Platform, paired: Pair) -> None:
    go_on = asyncio.Event()

    async def work(request: Asked) -> Said:
        await go_on.wait()
        return Said(body=b'{"text": "late"}')

    async with local_agent(answering=work) as agent, runtime(await paired(agent.endpoint)) as program:
        task = platform.ask("hello")
        await asked(agent)
        task.lease = "somebody else's"
        go_on.set()
        await program.says("task.lost")
        assert task.output is None
        again = await platform.ended(platform.ask("another"))
        assert again.state == "completed"


async def test_work_goes_on_under_a_new_lease(platform: Platform, paired: Pair) -> None:
    """Its lease ran out while the platform did not hear from it, and it pulled the same task again."""
    go_on = asyncio.Event()

    async def work(request: Asked) -> Said:
        await go_on.wait()
        return Said(body=b'{"text": "once"}')

    platform.fault("/control", times=999, status=503)
    platform.fault("/heartbeat", times=999, status=503, skip=1)
    async with local_agent(answering=work) as agent, runtime(await paired(agent.endpoint), "--concurrency", "2"):
        task = platform.ask("hello")
        await asked(agent)
        platform.expire(task)
        await platform.until(lambda: task.attempt == 2)
        go_on.set()
        assert (await platform.ended(task)).output == {"text": "once"}
    assert len(agent.asked) == 1


async def test_a_newer_pairing_stops_the_runtime_with_a_clear_word(platform: Platform, paired: Pair) -> None:
    async with local_agent(answering=forever) as agent, runtime(await paired(agent.endpoint)) as program:
        platform.ask("hello")
        request = await asked(agent)
        platform.revoke()
        ended = await program.ended()
        await asyncio.wait_for(request.hung_up.wait(), 5)
    assert ended.code == 4
    said = json.loads(ended.err)["error"]
    assert said["code"] == "runtime_revoked"
    assert platform.url in said["message"]
    assert "pair" in said["hint"]


async def test_an_unknown_token_stops_the_runtime(platform: Platform, paired: Pair) -> None:
    async with local_agent({"text": "ok"}) as agent:
        home = await paired(agent.endpoint)
        platform.token = "another"
        async with runtime(home) as program:
            ended = await program.ended()
    assert ended.code == 4
    assert json.loads(ended.err)["error"]["code"] == "unauthenticated"


async def test_another_agents_work_is_not_to_be_had(platform: Platform, paired: Pair) -> None:
    async with local_agent({"text": "ok"}) as agent:
        home = await paired(agent.endpoint)
        file = home / "runtime.json"
        file.write_text(file.read_text().replace('"agent_id": "worker"', '"agent_id": "other"'))
        async with runtime(home) as program:
            ended = await program.ended()
    assert ended.code == 1
    assert json.loads(ended.err)["error"]["code"] == "permission_denied"

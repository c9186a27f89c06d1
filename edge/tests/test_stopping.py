"""A runtime that is told to stop: nothing is lost, nothing is left behind."""

import asyncio
import json
import signal

import pytest

from edge.tests.conftest import Pair
from edge.tests.platform import Platform, Run
from edge.tests.programs import LocalAgent, Runtime, local_agent, run, runtime
from edge.tests.test_outages import Gate, hang, kept


async def begun(platform: Platform, agent: LocalAgent) -> Run:
    task = platform.ask("hello")
    async with asyncio.timeout(15):
        await agent.arrived.wait()
    return task


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_an_idle_runtime_stops_and_detaches(platform: Platform, paired: Pair, number: int) -> None:
    async with local_agent({}) as agent, runtime(await paired(agent.endpoint)) as program:
        await platform.until(lambda: platform.called("/pull"))
        program.signal(number)
        assert (await program.ended()).code == 0
    assert platform.detached == 1


async def test_what_is_worked_on_is_finished_and_nothing_else_is_begun(platform: Platform, paired: Pair) -> None:
    gate = Gate()
    async with local_agent(answering=gate) as agent, runtime(await paired(agent.endpoint)) as program:
        task = await begun(platform, agent)
        later = platform.ask("later")
        program.signal()
        await program.says("stopping")
        await platform.until(lambda: platform.called("/heartbeat")[-1].body["status"] == "draining")
        gate.open.set()
        assert (await platform.ended(task)).output == {"text": "done"}
        assert (await program.ended()).code == 0
    assert later.state == "queued"
    assert platform.detached == 1


async def test_what_is_not_finished_in_time_is_handed_back(platform: Platform, paired: Pair) -> None:
    async with local_agent(answering=hang) as agent:
        home = await paired(agent.endpoint)
        async with runtime(home, "--grace", "0.2") as program:
            task = await begun(platform, agent)
            assert (await program.stop()).code == 0
            await asyncio.wait_for(agent.asked[0].hung_up.wait(), 5)
    assert len(platform.called("/release")) == 1
    assert (task.state, task.attempt) == ("queued", 0)
    assert kept(home) == []


async def test_a_second_signal_hands_back_at_once(platform: Platform, paired: Pair) -> None:
    async with local_agent(answering=hang) as agent, runtime(await paired(agent.endpoint)) as program:
        task = await begun(platform, agent)
        program.signal()
        await program.says("stopping")
        program.signal()
        assert (await program.ended()).code == 0
    assert task.state == "queued"


async def test_a_third_signal_ends_the_process(platform: Platform, paired: Pair) -> None:
    async with local_agent(answering=hang) as agent:
        home = await paired(agent.endpoint)
        async with runtime(home) as program:
            await begun(platform, agent)
            await insist(platform, program)
            assert (await program.ended()).code == 130
    assert platform.detached == 0


async def insist(platform: Platform, program: Runtime) -> None:
    """The platform does not answer the last calls."""
    waits = asyncio.Event()
    platform.hold("/release", waits)
    program.signal()
    await program.says("stopping")
    program.signal()
    await platform.until(lambda: platform.called("/release"))
    program.signal()


async def test_an_undelivered_result_is_kept_and_not_detached_from(platform: Platform, paired: Pair) -> None:
    gate = Gate()
    async with local_agent(answering=gate) as agent:
        home = await paired(agent.endpoint)
        async with runtime(home, "--grace", "0.2") as program:
            task = await begun(platform, agent)
            platform.fault("/complete", times=99, status=503)
            gate.open.set()
            await program.says("delivery.waits")
            assert (await program.stop()).code == 0
            await program.says("task.kept")
        assert platform.detached == 0
        assert len(kept(home)) == 1
        platform.faults.clear()
        async with runtime(home):
            assert (await platform.ended(task)).output == {"text": "done"}


async def test_the_same_profile_is_not_started_twice(platform: Platform, paired: Pair) -> None:
    async with local_agent({}) as agent, runtime(home := await paired(agent.endpoint)) as program:
        await program.says("platform.connected")
        again = await run(home, "start", "--json")
        assert again.code == 1
        said = json.loads(again.err)["error"]
        assert said["code"] == "already_running"
        assert str(program.pid) in said["message"]
        removed = await run(home, "profiles", "remove", "default")
        assert removed.code == 2
        await program.stop()
        assert (await run(home, "profiles", "remove", "default")).code == 0


async def test_a_log_that_nobody_reads_any_more_does_not_stop_the_work(platform: Platform, paired: Pair) -> None:
    async with local_agent({"text": "ok"}) as agent, runtime(await paired(agent.endpoint)) as program:
        await program.says("platform.connected")
        program.hang_up()
        for number in range(3):
            assert (await platform.ended(platform.ask(f"task {number}"))).state == "completed"

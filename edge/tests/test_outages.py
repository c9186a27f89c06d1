"""The platform goes away, or this process does: finished work is delivered all the same, and once."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from edge.tests.conftest import Pair
from edge.tests.platform import Platform, Run
from edge.tests.programs import LocalAgent, local_agent, runtime
from edge.tests.wire import Asked, Drop, Said

Json = dict[str, Any]


class Gate:
    """A local agent that answers when it is let."""

    def __init__(self) -> None:
        self.open = asyncio.Event()

    async def __call__(self, asked: Asked) -> Said:
        await self.open.wait()
        return Said(body=b'{"text": "done"}')


async def begun(platform: Platform, agent: LocalAgent) -> Run:
    run = platform.ask("hello")
    async with asyncio.timeout(15):
        await agent.arrived.wait()
    return run


def kept(home: Path) -> list[Json]:
    return [json.loads(path.read_bytes()) for path in (home / "runs" / "default").glob("*.json")]


@pytest.mark.parametrize("ending", ["/complete", "/fail"])
@pytest.mark.parametrize("fault", [{"status": 500}, {"status": 503}, {}, {"after": True}, {"status": 429}])
async def test_an_end_is_told_until_it_is_acknowledged(
    platform: Platform, paired: Pair, ending: str, fault: Json
) -> None:
    answer = {"text": "ok"} if ending == "/complete" else {"success": False, "error": "no"}
    platform.fault(ending, times=2, **fault)
    async with local_agent(answer) as agent, runtime(await paired(agent.endpoint)) as program:
        run = platform.ask("hello")
        await program.says("task.completed" if ending == "/complete" else "task.failed")
    assert run.output == ({"text": "ok"} if ending == "/complete" else {"error": "no"})
    assert len(platform.called(ending)) == 3
    assert len({json.dumps(call.body) for call in platform.called(ending)}) == 1
    assert len(agent.asked) == 1


async def test_a_refused_result_fails_the_task_with_the_platforms_words(platform: Platform, paired: Pair) -> None:
    platform.fault("/complete", status=413)
    async with local_agent({"text": "ok"}) as agent, runtime(await paired(agent.endpoint)):
        run = await platform.ended(platform.ask("hello"))
    assert run.output == {"error": "The platform refused the result: A defect.", "code": "RESULT_REFUSED"}


async def test_pulling_goes_on_when_the_platform_is_back(platform: Platform, paired: Pair) -> None:
    async with local_agent({"text": "ok"}) as agent, runtime(await paired(agent.endpoint)) as program:
        await platform.ended(platform.ask("before"))
        await platform.wire.stop()
        await program.says("platform.away")
        await platform.wire.start()
        assert (await platform.ended(platform.ask("after"))).state == "completed"
        await program.says("platform.back")


async def test_a_runtime_that_starts_first_waits_for_the_platform(platform: Platform, paired: Pair) -> None:
    async with local_agent({"text": "ok"}) as agent:
        home = await paired(agent.endpoint)
        await platform.wire.stop()
        async with runtime(home) as program:
            await program.says("platform.away")
            await platform.wire.start()
            assert (await platform.ended(platform.ask("hello"))).state == "completed"


async def test_a_result_outlives_an_outage_of_the_platform(platform: Platform, paired: Pair) -> None:
    gate = Gate()
    async with local_agent(answering=gate) as agent, runtime(home := await paired(agent.endpoint)) as program:
        run = await begun(platform, agent)
        await platform.wire.stop()
        gate.open.set()
        await program.says("delivery.waits")
        assert [one["complete"] for one in kept(home)] == [{"text": "done"}]
        await platform.wire.start()
        assert (await platform.ended(run)).output == {"text": "done"}
        await program.says("task.completed")
        assert kept(home) == []
    assert len(agent.asked) == 1


async def test_a_result_outlives_the_runtime(platform: Platform, paired: Pair) -> None:
    """The platform is away when the work is finished, and the runtime is killed before it is back."""
    gate = Gate()
    async with local_agent(answering=gate) as agent:
        home = await paired(agent.endpoint)
        async with runtime(home) as program:
            run = await begun(platform, agent)
            await platform.wire.stop()
            gate.open.set()
            await program.says("delivery.waits")
            await program.kill()
        await platform.wire.start()
        async with runtime(home) as program:
            assert (await platform.ended(run)).output == {"text": "done"}
            await program.says("task.recovered")
            await program.says("task.completed")
    assert len(agent.asked) == 1
    assert kept(home) == []


async def test_files_too_are_delivered_by_the_next_process_and_once(platform: Platform, paired: Pair) -> None:
    artifacts = [{"filename": name, "content_text": name} for name in ("a.md", "b.md")]
    platform.fault("/artifacts", times=99, status=503, skip=1)
    async with local_agent({"text": "ok", "artifacts": artifacts}) as agent:
        home = await paired(agent.endpoint)
        async with runtime(home) as program:
            run = platform.ask("hello")
            await program.says("delivery.waits")
            await program.kill()
        platform.faults.clear()
        async with runtime(home):
            await platform.ended(run)
    assert [one["filename"] for one in run.artifacts] == ["a.md", "b.md"]
    assert run.state == "completed"


async def test_a_stored_result_whose_lease_was_lost_is_dropped(platform: Platform, paired: Pair) -> None:
    gate = Gate()
    async with local_agent(answering=gate) as agent:
        home = await paired(agent.endpoint)
        async with runtime(home) as program:
            run = await begun(platform, agent)
            await platform.wire.stop()
            gate.open.set()
            await program.says("delivery.waits")
            await program.kill()
        run.lease = "somebody else's"
        await platform.wire.start()
        async with runtime(home) as program:
            await program.says("task.lost")
        assert run.output is None
        assert kept(home) == []


async def test_what_a_killed_runtime_worked_on_is_given_back_at_the_next_start(
    platform: Platform, paired: Pair
) -> None:
    gate = Gate()
    async with local_agent(answering=gate) as agent:
        home = await paired(agent.endpoint)
        async with runtime(home) as program:
            run = await begun(platform, agent)
            await program.kill()
        gate.open.set()
        async with runtime(home) as program:
            await program.says("task.given_back")
            assert (await platform.ended(run)).output == {"text": "done"}
    assert run.attempt == 1
    assert len(agent.asked) == 2


async def test_what_was_claimed_under_an_earlier_pairing_is_dropped(platform: Platform, paired: Pair) -> None:
    gate = Gate()
    async with local_agent(answering=gate) as agent:
        home = await paired(agent.endpoint)
        async with runtime(home) as program:
            await begun(platform, agent)
            await program.kill()
        file = home / "runtime.json"
        attached = platform.attach(platform.code())
        said = json.loads(file.read_text())
        said["profiles"]["default"].update(runtime_token=attached["runtime_token"], runtime_id=attached["runtime_id"])
        file.write_text(json.dumps(said))
        gate.open.set()
        async with runtime(home) as program:
            await program.says("task.dropped")
            await program.says("task.completed")
    assert platform.called("/release") == []


async def test_a_broken_entry_of_the_ledger_is_set_aside(platform: Platform, paired: Pair) -> None:
    async with local_agent({"text": "ok"}) as agent:
        home = await paired(agent.endpoint)
        folder = home / "runs" / "default"
        folder.mkdir(parents=True)
        (folder / "half.json").write_text('{"task_run_id"')
        async with runtime(home) as program:
            platform.ask("hello")
            await program.says("task.completed")
    assert [path.name for path in folder.iterdir()] == ["half.broken"]


async def test_the_ledger_is_for_its_owner_alone(platform: Platform, paired: Pair) -> None:
    gate = Gate()
    async with local_agent(answering=gate) as agent, runtime(home := await paired(agent.endpoint)):
        await begun(platform, agent)
        modes = {path.name: path.stat().st_mode & 0o777 for path in (home / "runs").rglob("*")}
        assert modes.pop("default") == 0o700
        assert set(modes.values()) == {0o600}
        assert platform.token is not None
        assert platform.token not in json.dumps(kept(home))


async def test_an_answer_of_something_else_is_not_taken_for_the_platforms(platform: Platform, paired: Pair) -> None:
    """A proxy's page during a deployment, say: it is waited out, not believed."""
    async with local_agent(b"<html>404</html>", status=404, media_type="text/html") as proxy:
        home = await paired(f"{proxy.wire.origin}/run-task")
        async with runtime(home, "--api-base", proxy.wire.origin) as program:
            said = await program.says("platform.away")
            assert "not a platform" in said["reason"]
            assert (await program.stop()).code == 0


async def test_a_dropped_pull_is_asked_again(platform: Platform, paired: Pair) -> None:
    platform.fault("/pull", times=2)
    async with local_agent({"text": "ok"}) as agent, runtime(await paired(agent.endpoint)):
        assert (await platform.ended(platform.ask("hello"))).state == "completed"


async def test_the_wait_that_the_platform_asks_for_is_kept(platform: Platform, paired: Pair) -> None:
    platform.fault("/complete", status=503, headers={"Retry-After": "1"})
    async with local_agent({"text": "ok"}) as agent, runtime(await paired(agent.endpoint)):
        await platform.ended(platform.ask("hello"))
    first, second = platform.called("/complete")
    assert second.at - first.at >= 1.0


async def hang(asked: Asked) -> Said:
    await asked.hung_up.wait()
    raise Drop

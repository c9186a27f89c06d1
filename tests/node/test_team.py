"""Nodes that talk to each other, over the wire: each is a process, and so is the platform."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from parley.client import RemoteError
from parley.node import A2A
from parley.telemetry.trace import entered, trace_of
from parley.testing.processes import until
from tests.faces.pairing.runtime import web
from tests.faces.registry.targets import say
from tests.node.team import Team, address, said, text_of

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def team(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Team]:
    async with web() as http:
        team = Team(http, tmp_path_factory.mktemp("team"))
        try:
            await team.open()
            yield team
        finally:
            await team.close()


async def test_a_node_asks_another_directly(team: Team) -> None:
    answer = await team.tell("lead", f"ask {team['one'].id} hello there")
    assert answer["status"] == "completed"
    assert text_of(answer) == "completed: hello there"


async def test_a_node_is_reached_through_the_platform_too(team: Team) -> None:
    for name, by in (("one", team.fleet), ("two", team.fleet), ("lead", team.tester)):
        await team.is_idle(name)
        task = await say(by, team[name].seat, "hello there")
        assert task["status"]["state"] == "completed"
        assert task["artifacts"][0]["parts"][0]["text"] == "hello there"


async def test_an_agent_is_told_whom_it_can_ask_and_when_that_changes(team: Team) -> None:
    one, two, stranger = team["one"], team["two"], team["stranger"]
    told = text_of(await team.tell("lead", "peers"))
    assert one.id in told
    assert two.id in told
    assert stranger.id not in told
    assert "Does what it is told." in told

    await team.ask("lead", one, "describe Paints in oil.")

    async def known() -> bool:
        return "Paints in oil." in text_of(await team.tell("lead", "peers"))

    await until(known)
    assert text_of(await team.ask("lead", two, "peers")).count("Paints in oil.") == 1


async def test_who_is_of_another_team_is_refused(team: Team) -> None:
    answer = await team.ask("lead", team["stranger"], "hello")
    assert answer["status"] == "failed"
    assert "not authorized" in answer["message"]
    # Whoever has the address still has no token for it.
    async with A2A(team["stranger"].process.url) as a2a:
        with pytest.raises(RemoteError) as refused:
            await a2a.get("/tasks/x")
        assert refused.value.status == 401
    for_one = await address(team["lead"].speaks(), team["one"].id)
    async with A2A(team["two"].process.url, token=for_one.token) as a2a:
        with pytest.raises(RemoteError, match="another target"):
            await a2a.get("/tasks/x")


@pytest.mark.parametrize("how", ["ask", "relay"])
async def test_a_question_comes_back_through_the_nodes_and_its_answer_goes_there(team: Team, how: str) -> None:
    asked = await team.tell("lead", f"{how} {team['one'].id} colour")
    assert (asked["status"], asked["message"]) == ("input-required", "Which colour?")
    answer = await team.tell("lead", "green", taskId=asked["id"])
    assert answer["status"] == "completed"
    assert text_of(answer).endswith("It is green.")


async def test_what_a_peer_says_is_streamed_through(team: Team, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    async with team.caller("lead") as a2a:
        heard: list[str] = []
        request = said(f"relay {team['two'].id} gate {gate}")
        async for event in a2a.subscribe({"method": "message/sendSubscribe", "params": {"message": request}}):
            heard.append(event["message"])
            if event["message"] == "waiting":
                gate.touch()
        assert event["status"] == "completed"
        assert heard.index("waiting") < heard.index("The gate is open.")


async def test_a_trace_reaches_the_peer(team: Team) -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with entered(trace_of(parent)):
        answer = await team.ask("lead", team["one"], "trace")
    assert text_of(answer) == f"completed: {parent}"


@pytest.mark.parametrize("how", ["ask", "relay"])
async def test_a_cancel_reaches_the_peer_that_works(team: Team, tmp_path: Path, how: str) -> None:
    asked = team["lead"].at(team["one"])
    before = await asked.all()
    async with team.caller("lead") as a2a:
        task = await team.begin(a2a, f"{how} {team['one'].id} gate {tmp_path / 'never'}")
        (theirs,) = await asked.since(before)
        assert (await a2a.send({"method": "tasks/cancel", "params": {"id": task}}))["status"] == "canceled"
    await asked.become(theirs, "CANCELED")


async def test_a_cancel_reaches_the_peer_that_waits_for_an_answer(team: Team) -> None:
    asked = team["lead"].at(team["two"])
    before = await asked.all()
    question = await team.ask("lead", team["two"], "colour")
    (theirs,) = await asked.since(before)
    async with team.caller("lead") as a2a:
        await a2a.send({"method": "tasks/cancel", "params": {"id": question["id"]}})
    await asked.become(theirs, "CANCELED")


async def test_what_a_node_does_is_in_its_heartbeat(team: Team, tmp_path: Path) -> None:
    async with team.caller("lead") as a2a:
        task = await team.begin(a2a, f"gate {tmp_path / 'never'}")

        async def shown() -> bool:
            seen = await team.fleet.show(team["lead"].seat)
            return seen["active_tasks"] == 1 and task in seen["current_task"] and seen["uptime_seconds"] > 0

        await until(shown)
        await a2a.send({"method": "tasks/cancel", "params": {"id": task}})


async def test_a_node_whose_agent_breaks_is_degraded(team: Team) -> None:
    for _ in range(3):
        await team.tell("stranger", "crash secret words", by=team.other)

    async def degraded() -> bool:
        return (await team.fleet.show(team["stranger"].seat))["status"] == "degraded"

    await until(degraded)
    sample = (await team.fleet.show(team["stranger"].seat))["last_sample_error"]
    assert sample == "a task failed: agent_error"

"""Tools of a run: whose it is, what its log says, and what a cancel stops."""

import asyncio
import json
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from parley.app import open_exchange, open_records
from parley.errors import ContextMismatch, NotCancelable
from parley.runs.log import Commands, verify_run
from parley.runs.rules.access import ALL_SCOPES, Principal
from parley.runs.rules.commands import Cancel
from parley.runs.rules.content import Message, text_part
from parley.runs.rules.events import ToolCalled, ToolReturned
from parley.runs.rules.state import Run, State
from parley.runs.service import Exchange
from parley.telemetry import attach
from parley.testing.processes import until
from tests.tools.conftest import OTHER, POLICY, USER, World, keeper, settings_for, summary
from tests.tools.github import TOKEN, GitHubServer, Reply

DENY, FAILED = "policy_denied.explicit_deny", "coding_failed.provider_error"


async def working(world: World) -> Run:
    """A run that its agent works on."""
    run = await world.run()
    outcome = await world.exchange.give(run, USER, Message("m", (text_part("work"),)), None)
    return outcome.run


async def test_a_call_and_its_result_are_in_the_log_of_its_run(world: World) -> None:
    run = await world.run()
    await world.tools.execute(world.ask(run_id=run.id, thread_id="thread_abc", tool_call_id="c1", api_key="hush"))
    called, returned = await world.entries(run.id)
    assert isinstance(called, ToolCalled)
    assert (called.call, called.tool) == ("c1", "get_issue")
    assert json.loads(bytes(called.input))["api_key"] == "[REDACTED]"
    assert isinstance(returned, ToolReturned)
    assert (returned.call, returned.tool, returned.status, returned.code) == ("c1", "get_issue", "succeeded", "")
    output = json.loads(bytes(returned.output))  # type: ignore[arg-type]
    assert output["data"]["user"]["email"] == "[REDACTED_EMAIL]"
    assert TOKEN not in str([event.body for event in await world.log(run.id)])
    await verify_run(world.exchange.store, run.id)
    assert (await world.exchange.visible(run.id, USER)).state is State.INPUT_REQUIRED


async def test_however_often_it_is_asked_for_it_is_in_the_log_once(world: World) -> None:
    run = await world.run()
    ask = world.ask(run_id=run.id)
    tools = [world.tools, world.another(), world.another()]
    await asyncio.gather(*(one.execute(ask) for one in tools * 3))
    assert [type(entry) for entry in await world.entries(run.id)] == [ToolCalled, ToolReturned]


@pytest.mark.parametrize(
    ("reply", "status"), [(Reply(404), "failed"), (Reply(cut=True), "failed"), (Reply(hold=True), "timed_out")]
)
async def test_what_failed_says_why_in_the_log(small: World, reply: Reply, status: str) -> None:
    run = await small.run()
    small.hub.always = reply
    await small.another(limit_s=0.05).execute(small.ask(run_id=run.id))
    returned = (await small.entries(run.id))[1]
    assert (returned.status, returned.code) == (status, FAILED)
    assert returned.reason


async def test_what_is_denied_is_in_the_log_too(small: World) -> None:
    run = await small.run()
    ask = small.ask("add_issue_comment", run_id=run.id, write_approved=False)
    await small.tools.execute(ask)
    await small.tools.execute(replace(ask, policy={**POLICY, "write_approved": True}))
    entries = await small.entries(run.id)
    assert [getattr(entry, "status", "") for entry in entries] == ["", "blocked", "", "succeeded"]
    assert entries[1].code == DENY


@pytest.mark.parametrize("size", [100_000, 900_000])
async def test_what_is_too_large_for_a_log_is_only_measured_there(small: World, size: int) -> None:
    run = await small.run()
    small.hub.always = Reply(200, {"body": "x" * size})
    outcome: Any = await small.tools.execute(small.ask("add_issue_comment", run_id=run.id, body="y" * 65_536))
    assert len(outcome.data["provider_result"]["data"]["body"]) == size
    called, returned = await small.entries(run.id)
    assert json.loads(bytes(called.input))["omitted_bytes"] > 65_536
    assert json.loads(bytes(returned.output))["omitted_bytes"] > size


@pytest.mark.parametrize(
    "changes", [{"principal": OTHER}, {"thread_id": "thread_x"}, {"principal": OTHER, "mode": "replay"}]
)
async def test_a_run_of_somebody_else_or_of_another_thread_is_forbidden(small: World, changes: dict[str, Any]) -> None:
    run = await small.run()
    with pytest.raises(ContextMismatch, match="run/thread does not belong to principal"):
        await small.tools.execute(small.ask(run_id=run.id, **changes))
    assert small.hub.asked == []
    assert await small.entries(run.id) == []


async def test_an_administrator_may_and_a_run_that_is_not_here_hinders_nobody(small: World) -> None:
    run = await small.run()
    root = Principal("user", "1", ALL_SCOPES)
    assert summary(await small.tools.execute(small.ask(run_id=run.id, principal=root)))[0] == "succeeded"
    assert summary(await small.tools.execute(small.ask(run_id="elsewhere")))[0] == "succeeded"


async def test_a_run_named_in_the_request_alone_counts_as_well(small: World) -> None:
    run = await small.run()
    ask = small.ask()
    await small.tools.execute(replace(ask, request={**ask.request, "run_id": run.id}))
    assert len(await small.entries(run.id)) == 2
    with pytest.raises(ContextMismatch):
        await small.tools.execute(replace(ask, principal=OTHER, request={**ask.request, "run_id": run.id}))


async def test_a_run_that_has_ended_or_is_being_canceled_starts_no_tool(world: World) -> None:
    ended, canceling = await world.run(), await working(world)
    await world.exchange.close_run(ended, USER)
    # As another replica records it: the agent has not been told yet.
    await Commands(world.exchange.store, lambda run, events: None).execute(canceling.id, Cancel("user:42"))
    for run in (ended, canceling):
        outcome = await world.tools.execute(world.ask(run_id=run.id))
        assert summary(outcome) == ("blocked", "denied", DENY)
        assert await world.entries(run.id) == []
    assert world.hub.asked == []
    with suppress(NotCancelable):  # when the agent spoke just then, it has learnt of the cancel and stopped
        await world.exchange.cancel(canceling.id, USER)


async def test_a_run_that_takes_no_more_input_may_finish_with_tools(small: World) -> None:
    run = await working(small)
    await small.exchange.close_run(run, USER)
    assert summary(await small.tools.execute(small.ask(run_id=run.id)))[0] == "succeeded"
    await small.exchange.cancel(run.id, USER)


@pytest.mark.parametrize("operation", ["get_issue", "add_issue_comment"])
async def test_a_cancel_breaks_off_a_call(world: World, operation: str) -> None:
    run = await working(world)
    world.hub.always = Reply(hold=True)
    call = asyncio.create_task(world.tools.execute(world.ask(operation, run_id=run.id)))
    await world.hub.began.wait()
    await world.exchange.cancel(run.id, USER, reason="enough")
    outcome = await asyncio.wait_for(call, 5)
    assert summary(outcome) == ("failed", "denied", FAILED)
    assert outcome.data["provider_result"]["state"] == "canceled"  # type: ignore[index,call-overload]
    await asyncio.wait_for(world.hub.hung_up.wait(), 5)
    await until(lambda: _ended(world, run))
    types = [event.type for event in await world.log(run.id)]
    assert types[-1] == "canceled"
    assert types.count("canceled") == 1


async def _ended(world: World, run: Run) -> bool:
    return (await world.exchange.visible(run.id, USER)).ended


async def test_a_late_result_cannot_reopen_a_run(small: World) -> None:
    told: list[str] = []
    detach = attach(lambda name, fields: told.append(name))
    run = await small.run()
    small.hub.replies.append(Reply(hold=True, done=True))
    call = asyncio.create_task(small.tools.execute(small.ask(run_id=run.id)))
    await small.hub.began.wait()
    await small.exchange.close_run(run, USER)
    small.hub.release.set()
    assert summary(await call)[0] == "succeeded"
    detach()
    assert [event.type for event in await small.log(run.id)][-1] == "completed"
    assert "tool.late" in told


async def test_what_a_crash_left_out_of_the_log_is_mended_by_asking_again(world: World) -> None:
    run = await world.run()
    ask = world.ask("add_issue_comment", run_id=run.id, policy={**POLICY, "budget": {"max_total_sats": 1}})
    dying = world.another()

    async def dies(*_: object) -> None:
        raise asyncio.CancelledError

    dying._concluded = dies  # type: ignore[method-assign]
    await asyncio.gather(dying.execute(ask), return_exceptions=True)
    assert len(await world.entries(run.id)) == 1
    outcome = await world.tools.execute(ask)
    assert (summary(outcome)[0], outcome.replayed) == ("succeeded", True)
    assert [type(entry) for entry in await world.entries(run.id)] == [ToolCalled, ToolReturned]
    assert len(world.hub.asked) == 1
    await world.tools.execute(ask)
    assert len(await world.entries(run.id)) == 2


async def test_a_cancel_on_another_replica_breaks_off_a_call(
    tmp_path: Path, hub: GitHubServer, request: pytest.FixtureRequest
) -> None:
    async with AsyncExitStack() as stack:
        settings = await settings_for("postgres", request, tmp_path)
        world = await World(settings, hub, stack).open()
        there: Exchange = await stack.enter_async_context(open_exchange(settings, [keeper]))
        records = await stack.enter_async_context(open_records(settings))
        run = await world.run()
        hub.always = Reply(hold=True)
        calls = [
            asyncio.create_task(tools.execute(world.ask(run_id=run.id)))
            for tools in (world.tools, world.tools_on(there, records))
        ]
        await until(lambda: len(hub.asked) == 2)
        await there.cancel(run.id, USER)
        for call in calls:
            assert (await asyncio.wait_for(call, 5)).data["provider_result"]["state"] == "canceled"  # type: ignore[index,call-overload]
        types = [event.type for event in await world.log(run.id)]
        assert types[-2:] == ["cancel_requested", "canceled"]

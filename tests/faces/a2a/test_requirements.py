"""Requirements of A2A 1.0.1 that no public kit tests, on three bindings and for 1.0 and 1.1 alike."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from dev.conformance.a2a11.wires import Refused, Wire, state_of, update_in, wires_of
from parley.client import message
from parley.ids import new_id
from parley.testing.conformance_agent import conformance
from parley.testing.processes import until
from parley.testing.receivers import receiving
from parley.testing.servers import serving

Json = dict[str, Any]
BINDINGS = ("JSON-RPC", "HTTP+JSON", "gRPC")
MEMBERS = {"task", "message", "statusUpdate", "artifactUpdate"}


@pytest.fixture(params=[(name, version) for name in BINDINGS for version in ("1.0", "1.1")], ids=" ".join)
async def wire(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Wire]:
    name, version = request.param
    async with serving(tmp_path / "data", [conformance()], grpc_port=0) as server:
        found = {one.name: one for one in await wires_of(server.agent("conformance"), version)}
        yield found[name]
        for one in found.values():
            await one.close()


async def test_history_length_0_leaves_the_history_out_in_every_place(wire: Wire) -> None:
    none = {"historyLength": 0}
    sent = (await wire.send(message("tck-multi-turn start"), none))["task"]
    assert "history" not in sent
    frames = [frame async for frame in wire.stream(message("done", task=sent["id"]), none)]
    assert "history" not in frames[0]["task"]
    assert "history" not in await wire.get(sent["id"], historyLength=0)
    assert [one for one in (await wire.list(historyLength=0))["tasks"] if "history" in one] == []
    assert len((await wire.get(sent["id"], historyLength=1))["history"]) == 1
    assert len((await wire.get(sent["id"]))["history"]) > 1


async def test_a_context_that_the_client_made_is_kept(wire: Wire) -> None:
    context = f"client-{new_id()}"
    first = (await wire.send(message("tck-multi-turn start", context=context)))["task"]
    second = (await wire.send(message("tck-complete-task", context=context)))["task"]
    assert (first["contextId"], second["contextId"]) == (context, context)
    assert first["id"] != second["id"]
    listed = await wire.list(contextId=context)
    assert {one["id"] for one in listed["tasks"]} == {first["id"], second["id"]}
    with pytest.raises(Refused):
        await wire.send(message("done", task=first["id"], context="another"))


async def test_the_size_of_a_page_has_bounds(wire: Wire) -> None:
    for _ in range(3):
        await wire.send(message("tck-complete-task"))
    page = await wire.list(pageSize=2)
    assert (len(page["tasks"]), page["pageSize"], page["totalSize"]) == (2, 2, 3)
    rest = await wire.list(pageSize=2, pageToken=page["nextPageToken"])
    assert len(rest["tasks"]) == 1
    assert not rest.get("nextPageToken")
    for size in (-1, 101):
        with pytest.raises(Refused):
            await wire.list(pageSize=size)
    with pytest.raises(Refused):
        await wire.list(pageToken="not a token")


async def test_tasks_are_listed_by_their_latest_status(wire: Wire) -> None:
    first = (await wire.send(message("tck-multi-turn start")))["task"]["id"]
    second = (await wire.send(message("tck-complete-task")))["task"]["id"]
    assert [one["id"] for one in (await wire.list())["tasks"]] == [second, first]
    await asyncio.sleep(0.005)
    await wire.send(message("done", task=first))
    assert [one["id"] for one in (await wire.list())["tasks"]] == [first, second]


async def test_unknown_fields_are_ignored(wire: Wire) -> None:
    if wire.name == "gRPC":
        pytest.skip("An unknown field of protobuf has a number and no name.")
    asked = {**message("tck-complete-task"), "novelty": {"deep": [1]}}
    assert (await wire.send(asked, {"novelty": 1}))["task"]["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_a_pushed_update_has_exactly_one_member_and_updates_come_in_order(wire: Wire) -> None:
    async with receiving() as receiver:
        hook = {"taskPushNotificationConfig": {"url": receiver.url("/hook"), "token": "secret"}}
        sent = await wire.send(message("tck-stream-chunked go"), hook)
        await until(lambda: any(state_of(post.json) == "TASK_STATE_COMPLETED" for post in receiver.posts))
        replayed = [frame async for frame in wire.subscribe(sent["task"]["id"], last_event_id="2")]
    for post in receiver.posts:
        assert len(MEMBERS & set(post.json)) == len(post.json) == 1
        assert post.headers["x-a2a-notification-token"] == "secret"
    assert [update_in(post.json)["taskId"] for post in receiver.posts] == [sent["task"]["id"]] * len(receiver.posts)
    shown = [frame for frame in replayed if update_in(frame)]
    assert [set(post.json) for post in receiver.posts] == [set(frame) for frame in shown]
    if wire.name != "gRPC":
        assert [post.json for post in receiver.posts] == shown


ACTS = {
    "tck-complete-task": "TASK_STATE_COMPLETED",
    "tck-input-required": "TASK_STATE_INPUT_REQUIRED",
    "tck-auth-required": "TASK_STATE_AUTH_REQUIRED",
    "tck-reject-task": "TASK_STATE_REJECTED",
    "tck-message-response": "",
    "tck-artifact-text": "TASK_STATE_COMPLETED",
    "tck-artifact-file": "TASK_STATE_COMPLETED",
    "tck-artifact-file-url": "TASK_STATE_COMPLETED",
    "tck-artifact-data": "TASK_STATE_COMPLETED",
    "tck-multi-turn": "TASK_STATE_INPUT_REQUIRED",
    "tck-stream-basic": "TASK_STATE_COMPLETED",
    "tck-stream-chunked": "TASK_STATE_COMPLETED",
    "tck-task-failure": "TASK_STATE_FAILED",
}
"""Behaviours of the A2A Conformance Test Specification, by the first words of a message, and the state after each."""


async def test_the_first_words_of_a_message_select_the_behaviour(wire: Wire) -> None:
    for words, state in ACTS.items():
        sent = await wire.send(message(f"{words} hello"))
        assert state_of(sent) == state, words
    for words in ("tck-long-running", "tck-cancel"):
        task = (await wire.send(message(f"{words} hello"), {"returnImmediately": True}))["task"]["id"]
        assert state_of({"task": await wire.cancel(task)}) == "TASK_STATE_CANCELED"

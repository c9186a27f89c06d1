"""Requirements of A2A 1.0.1 that no public kit tests, on three bindings and for 1.0 and 1.1 alike."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from dev.conformance.a2a11.wires import Refused, Wire, state_of, update_in, wires_of
from parley import ArtifactChunk, Turn, agent
from parley.client import Client, message
from parley.ids import new_id
from parley.testing import conformance_agent
from parley.testing.conformance_agent import REQUIRED_EXTENSION, conformance
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
    with pytest.raises(Refused):
        await wire.get(sent["id"], historyLength=-1)


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
    for unfit in ("two\nlines", "x" * 5000):
        with pytest.raises(Refused):
            await wire.send(message("tck-complete-task", context=unfit))
    assert len((await wire.list())["tasks"]) == 2, "A refused message makes no task."


async def test_the_size_of_a_page_has_bounds(wire: Wire) -> None:
    for _ in range(3):
        await wire.send(message("tck-complete-task"))
    page = await wire.list(pageSize=2)
    assert (len(page["tasks"]), page["pageSize"], page["totalSize"]) == (2, 2, 3)
    rest = await wire.list(pageSize=2, pageToken=page["nextPageToken"])
    assert len(rest["tasks"]) == 1
    assert not rest.get("nextPageToken")
    for size in (-1, 0, 101):
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


async def test_a_message_without_a_required_field_is_refused_and_makes_no_task(wire: Wire) -> None:
    whole = message("tck-complete-task")
    spoiled = [{**whole, "parts": []}, {**whole, "parts": [{}]}, {**whole, "role": "ROLE_UNSPECIFIED"}]
    spoiled += [{name: value for name, value in whole.items() if name != left} for left in whole]
    for one in spoiled:
        with pytest.raises(Refused):
            await wire.send(one)
        with pytest.raises(Refused):
            _ = [frame async for frame in wire.stream(one)]
    assert not (await wire.list()).get("tasks")


async def test_a_send_that_waits_returns_the_task_as_it_is_then(wire: Wire) -> None:
    sent = (await wire.send(message("tck-artifact-text")))["task"]
    assert sent["artifacts"]
    assert sent == await wire.get(sent["id"])


async def test_what_the_agent_says_names_the_context_and_the_task_if_there_is_one(wire: Wire) -> None:
    task = (await wire.send(message("tck-multi-turn start")))["task"]
    task = (await wire.send(message("here is more input", task=task["id"])))["task"]
    said = [task["status"]["message"], *(one for one in task["history"] if one["role"] == "ROLE_AGENT")]
    assert len(said) > 1
    assert {(one["contextId"], one["taskId"]) for one in said} == {(task["contextId"], task["id"])}
    reply = (await wire.send(message("tck-message-response")))["message"]
    assert reply["contextId"]
    assert "taskId" not in reply


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


async def test_a_further_message_needs_no_context_and_belongs_to_its_tasks(wire: Wire) -> None:
    first = (await wire.send(message("tck-multi-turn start")))["task"]
    second = (await wire.send(message("done", task=first["id"])))["task"]
    assert (second["id"], second["contextId"]) == (first["id"], first["contextId"])
    assert (await wire.send(message("tck-message-response")))["message"]["contextId"]


async def test_a_task_shows_its_artifacts_in_a_list_only_if_asked_for(wire: Wire) -> None:
    made = (await wire.send(message("tck-artifact-text")))["task"]["artifacts"]
    assert "artifacts" not in (await wire.list())["tasks"][0]
    shown = await wire.list(includeArtifacts=True)
    assert shown["tasks"][0]["artifacts"] == made
    if wire.name != "gRPC":
        assert shown["nextPageToken"] == "", "An empty text of protobuf is no member."


async def test_a_stream_of_a_direct_message_holds_nothing_else(wire: Wire) -> None:
    frames = [frame async for frame in wire.stream(message("tck-message-response"))]
    assert [set(frame) for frame in frames] == [{"message"}]


async def test_a_stream_begins_with_the_task_and_ends_where_the_task_ends_or_waits(wire: Wire) -> None:
    for words, state in (("tck-stream-chunked", "COMPLETED"), ("tck-input-required", "INPUT_REQUIRED")):
        frames = [frame async for frame in wire.stream(message(words))]
        assert "task" in frames[0]
        assert [frame for frame in frames[1:] if "task" in frame] == []
        assert state_of(frames[-1]) == f"TASK_STATE_{state}"


async def test_every_stream_has_the_same_events_in_order_and_none_ends_with_another(wire: Wire) -> None:
    task = (await wire.send(message("tck-multi-turn start")))["task"]["id"]
    streams = [wire.subscribe(task) for _ in range(3)]
    assert [state_of(await anext(stream)) for stream in streams] == ["TASK_STATE_INPUT_REQUIRED"] * 3
    await streams.pop().aclose()
    await wire.send(message("done", task=task))
    first, second = [[frame async for frame in stream] for stream in streams]
    assert first == second
    assert state_of(first[-1]) == "TASK_STATE_COMPLETED"


async def test_a_send_that_returns_at_once_shows_a_task_in_progress(wire: Wire) -> None:
    task = (await wire.send(message("tck-cancel"), {"returnImmediately": True}))["task"]
    assert task["status"]["state"] in ("TASK_STATE_SUBMITTED", "TASK_STATE_WORKING")
    await wire.cancel(task["id"])
    with pytest.raises(Refused) as refused:
        await wire.cancel(task["id"])
    assert refused.value.reason == "TASK_NOT_CANCELABLE"


async def test_required_authorization_is_explained(wire: Wire) -> None:
    asked = (await wire.send(message("tck-auth-required")))["task"]
    assert asked["status"]["message"]["parts"][0]["text"]


async def test_times_are_utc_and_names_are_those_of_json(wire: Wire) -> None:
    task = (await wire.send(message("tck-artifact-text")))["task"]
    times = [task["status"]["timestamp"], (await wire.get(task["id"]))["status"]["timestamp"]]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", time) for time in times)
    assert [name for name in (*task, *task["artifacts"][0], *task["history"][0]) if "_" in name] == []


async def test_patch_numbers_of_a_version_do_not_count(wire: Wire) -> None:
    version, wire.version = wire.version, f"{wire.version}.7"
    task = (await wire.send(message("tck-complete-task")))["task"]
    assert ("generation" in task) is (version == "1.1")
    wire.version = "9.9"
    with pytest.raises(Refused) as refused:
        await wire.send(message("tck-complete-task"))
    assert refused.value.reason == "VERSION_NOT_SUPPORTED"
    wire.version = ""
    with pytest.raises(Refused) as refused:
        await wire.get(task["id"])
    assert refused.value.reason == "VERSION_NOT_SUPPORTED"


def without_times(task: Json) -> Json:
    """Return a task in the form that all bindings share: protobuf writes times with another precision."""
    return {**task, "status": {**task["status"], "timestamp": ""}}


@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_bindings_show_the_same_tasks_and_the_same_refusals(tmp_path: Path, version: str) -> None:
    async with serving(tmp_path, [conformance()], grpc_port=0) as server:
        wires = await wires_of(server.agent("conformance"), version)
        for maker in wires:
            task = (await maker.send(message("tck-artifact-data")))["task"]
            shown = [without_times(await wire.get(task["id"])) for wire in wires]
            assert shown == [without_times(task)] * len(BINDINGS)
            reasons = [await refusals(wire, task["id"]) for wire in wires]
            assert reasons == [reasons[0]] * len(BINDINGS)
            assert all(reasons[0])
        lists = [[without_times(task) for task in (await wire.list())["tasks"]] for wire in wires]
        assert lists == [lists[0]] * len(BINDINGS)
        for wire in wires:
            await wire.close()


async def refusals(wire: Wire, ended: str) -> list[str]:
    """Return the reasons why requests are refused that cannot be served, for a task that has ended."""
    reasons: list[str] = []
    about = {"ifGenerationMatch": 1}
    for ask in (
        wire.get(new_id()),
        wire.cancel(ended),
        wire.send(message("more", task=ended), about),
        wire.send(message("more", task=new_id())),
        wire.list(pageSize=1000),
        wire.get(ended, historyLength=-1),
    ):
        with pytest.raises(Refused) as refused:
            await ask
        reasons.append(refused.value.reason)
    return reasons


async def test_every_binding_takes_the_same_credentials_and_nothing_without_them(tmp_path: Path) -> None:
    async with serving(tmp_path / "data", [conformance()]) as server, httpx2.AsyncClient(base_url=server.url) as http:
        made = await http.post("/admin/keys", json={"name": "ann"})
    known = [{"x_api_key": made.json()["token"]}, {"authorization": f"Bearer {made.json()['token']}"}]
    unknown: list[dict[str, str]] = [{}, {"x_api_key": "wrong"}, {"authorization": "Bearer wrong"}]
    async with serving(tmp_path / "data", [conformance()], grpc_port=0, auth="required") as server:
        for wire in await wires_of(server.agent("conformance")):
            for shown in known:
                sent = await wire.send(message("tck-complete-task"), **shown)
                assert await wire.call("GetTask", {"id": sent["task"]["id"]}, shown) == sent["task"]
            for method, params in (("GetTask", {"id": new_id()}), ("ListTasks", {}), ("CancelTask", {"id": new_id()})):
                for shown in unknown:
                    with pytest.raises(Refused) as refused:
                        await wire.call(method, params, shown)
                    assert refused.value.code in ("401", "UNAUTHENTICATED"), wire.name
            await wire.close()


@agent("hollow")
async def hollow(turn: Turn):
    """Makes an artifact without content."""
    yield ArtifactChunk(())


async def test_an_artifact_without_content_has_one_part(tmp_path: Path) -> None:
    nothing = [{"text": ""}]
    async with serving(tmp_path, [hollow], grpc_port=0) as server:
        for wire in await wires_of(server.agent("hollow"), "1.0"):
            task = (await wire.send(message("go")))["task"]
            assert [one["parts"] for one in task["artifacts"]] == [nothing]
            frames = [
                frame["artifactUpdate"] async for frame in wire.stream(message("go")) if "artifactUpdate" in frame
            ]
            assert [one["artifact"]["parts"] for one in frames] == [nothing]
            await wire.close()


async def test_our_own_client_names_its_version_in_every_operation(tmp_path: Path) -> None:
    versions: list[str] = []

    async def asked(request: httpx2.Request) -> None:
        versions.append(request.headers.get("A2A-Version", "none"))

    async with serving(tmp_path, [conformance()]) as server:
        for version in ("1.0", "1.1"):
            http = httpx2.AsyncClient(event_hooks={"request": [asked]})
            async with Client(server.agent("conformance"), version=version, http=http) as client:
                task = (await client.send("tck-multi-turn start"))["task"]["id"]
                await client.get(task)
                await client.list()
                _ = [frame async for frame in client.stream("done", task=task)]
            assert versions == [version] * 4
            versions.clear()


async def test_another_version_of_a_required_extension_does_not_count(tmp_path: Path) -> None:
    other = REQUIRED_EXTENSION + "/v2"
    async with serving(tmp_path, [conformance(required_extension=True)], grpc_port=0) as server:
        for wire in await wires_of(server.agent("conformance")):
            for spoken in ({}, {"a2a_extensions": other}, {"a2a_extensions": f"urn:x, {other}"}):
                with pytest.raises(Refused) as refused:
                    await wire.send(message("tck-complete-task"), **spoken)
                assert refused.value.reason == "EXTENSION_SUPPORT_REQUIRED"
            sent = await wire.send(message("tck-complete-task"), a2a_extensions=f"{other}, {REQUIRED_EXTENSION}")
            assert state_of(sent) == "TASK_STATE_COMPLETED"
            await wire.close()


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


async def test_a_conversation_by_turns_goes_on_until_it_is_done(wire: Wire) -> None:
    """Further messages do not repeat the words that select the behaviour."""
    task = (await wire.send(message("tck-multi-turn start")))["task"]["id"]
    answers = [await wire.send(message(words, task=task)) for words in ("here is more input", "done")]
    assert [state_of(one) for one in answers] == ["TASK_STATE_INPUT_REQUIRED", "TASK_STATE_COMPLETED"]


async def test_long_work_shows_that_it_works_and_makes_an_artifact(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conformance_agent, "LONG_S", 0.2)
    task = (await wire.send(message("tck-long-running start"), {"returnImmediately": True}))["task"]["id"]
    frames = [frame async for frame in wire.subscribe(task)]
    assert "task" in frames[0]
    assert state_of(frames[-1]) == "TASK_STATE_COMPLETED"
    assert (await wire.get(task))["artifacts"]


async def test_the_first_words_of_a_message_select_the_behaviour(wire: Wire) -> None:
    for words, state in ACTS.items():
        sent = await wire.send(message(f"{words} hello"))
        assert state_of(sent) == state, words
    for words in ("tck-long-running", "tck-cancel"):
        task = (await wire.send(message(f"{words} hello"), {"returnImmediately": True}))["task"]["id"]
        assert state_of({"task": await wire.cancel(task)}) == "TASK_STATE_CANCELED"

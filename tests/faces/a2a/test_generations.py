"""A2A 1.1 over the wire: the generation of a task, long polls and guarded sends, on three bindings."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from itertools import pairwise
from pathlib import Path
from typing import Any

import grpc
import httpx2
import pytest
from a2a.types import a2a_pb2 as pb2
from a2a.types import a2a_pb2_grpc
from google.protobuf import json_format

from dev.conformance.a2a11.wires import Refused, Wire, generations, state_of, update_in, wires_of
from parley import Reply, Status, Turn, agent
from parley.client import message
from parley.ids import RunId
from parley.runs.rules.state import is_update
from parley.runs.streams import read_all
from parley.testing.processes import until
from parley.testing.receivers import receiving
from parley.testing.servers import Server, serving
from tests.faces.conftest import AGENTS

Json = dict[str, Any]
BINDINGS = ("JSON-RPC", "HTTP+JSON", "gRPC")
AT_ONCE = {"returnImmediately": True}


@agent("gate", max_concurrent=1)
async def gate(turn: Turn):
    """Takes one task at a time, and works on it forever."""
    yield Status("begun")
    await asyncio.Event().wait()


@agent("blunt", replies="either")
async def blunt(turn: Turn):
    """Replies with a message after a while."""
    await asyncio.sleep(0.2)
    yield Reply("No.")


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with serving(tmp_path / "data", [*AGENTS, blunt], grpc_port=0, long_poll_s=0.6) as server:
        yield server


async def wires_at(server: Server, slug: str, version: str = "1.1") -> dict[str, Wire]:
    return {wire.name: wire for wire in await wires_of(server.agent(slug), version)}


@pytest.fixture(params=BINDINGS)
async def wire(request: pytest.FixtureRequest, server: Server) -> AsyncIterator[Wire]:
    """The agent `writer` on one of the bindings."""
    found = await wires_at(server, "writer")
    yield found[request.param]
    for one in found.values():
        await one.close()


async def begun(wire: Wire, **configuration: object) -> Json:
    """A task of `writer` that waits for an answer."""
    return (await wire.send(message("go"), {**configuration}))["task"]


async def test_a_card_offers_1_1_beside_the_other_versions(server: Server) -> None:
    async with httpx2.AsyncClient(base_url=server.agent("echo")) as http:
        cards = {
            version: (await http.get("/.well-known/agent-card.json", headers=headers)).json()
            for version, headers in (("", {}), ("1.0", {"A2A-Version": "1.0"}), ("1.1", {"A2A-Version": "1.1"}))
        }
    offered = {
        version: {(one["protocolBinding"], one["protocolVersion"]) for one in card["supportedInterfaces"]}
        for version, card in cards.items()
    }
    every = {(binding, version) for binding in ("JSONRPC", "HTTP+JSON", "GRPC") for version in ("0.3", "1.0", "1.1")}
    assert offered[""] == offered["1.1"] == every
    assert offered["1.0"] == {one for one in every if one[1] != "1.1"}
    assert cards[""]["supportedInterfaces"][0]["protocolVersion"] == "1.0"
    assert "protocolVersion" in cards[""]
    assert "protocolVersion" not in cards["1.1"]


async def test_a_version_that_is_not_known_is_refused_by_every_binding(server: Server) -> None:
    for wire in (await wires_at(server, "echo")).values():
        wire.version = "1.2"
        with pytest.raises(Refused) as refused:
            await wire.get("x")
        assert refused.value.reason == "VERSION_NOT_SUPPORTED"
        await wire.close()


async def test_a_stream_raises_the_generation_by_one_with_every_update(wire: Wire) -> None:
    frames = [frame async for frame in wire.stream(message("go"))]
    numbers = [update_in(frame)["generation"] for frame in frames]
    assert numbers == list(range(1, len(numbers) + 1))
    assert state_of(frames[-1]) == "TASK_STATE_INPUT_REQUIRED"
    task = frames[0]["task"]["id"]
    assert (await wire.get(task))["generation"] == numbers[-1]
    listed = (await wire.list())["tasks"]
    assert [one["generation"] for one in listed if one["id"] == task] == [numbers[-1]]
    answered = await generations(wire.stream(message("Ada", task=task)))
    assert answered == list(range(answered[0], answered[0] + len(answered)))
    assert (await wire.get(task))["generation"] == answered[-1]


async def test_a_resumed_stream_goes_on_with_the_same_generations(wire: Wire) -> None:
    task = await begun(wire)
    await wire.send(message("Ada", task=task["id"]))
    last = (await wire.get(task["id"]))["generation"]
    whole = [number for number in await generations(wire.subscribe(task["id"], last_event_id="0")) if number]
    assert whole == list(range(2, last + 1))
    for cursor in (1, 2, 5, 8):
        rest = [n for n in await generations(wire.subscribe(task["id"], last_event_id=str(cursor))) if n]
        assert rest == whole[len(whole) - len(rest) :]


async def test_a_follower_sees_the_input_that_ends_a_wait(wire: Wire) -> None:
    """1.0 shows only the turn that follows, so that the state changes without an update."""
    task = await begun(wire)
    async with aclosing(wire.subscribe(task["id"])) as frames:
        first = await anext(frames)
        sending = asyncio.ensure_future(wire.send(message("Ada", task=task["id"])))
        rest = [frame async for frame in frames]
        await sending
    assert first["task"]["generation"] == task["generation"]
    assert [update_in(frame)["generation"] for frame in rest] == list(
        range(task["generation"] + 1, task["generation"] + 1 + len(rest))
    )
    assert [state_of(frame) for frame in rest][:2] == ["TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"]


async def test_clients_of_1_0_see_no_generation(server: Server) -> None:
    found = await wires_at(server, "writer", "1.0")
    for wire in found.values():
        task = await begun(wire, ifGenerationMatch=99)
        shown = [task, await wire.get(task["id"], currentGeneration=99)]
        shown += [update_in(frame) async for frame in wire.stream(message("Ada", task=task["id"]))]
        shown += (await wire.list())["tasks"]
        assert [one for one in shown if "generation" in one] == []
        await wire.close()


async def test_replies_of_1_0_over_grpc_have_no_unknown_fields(server: Server) -> None:
    found = await wires_at(server, "echo", "1.0")
    async with grpc.aio.insecure_channel(found["gRPC"].url) as channel:
        stub: Any = a2a_pb2_grpc.A2AServiceStub(channel)
        sent = json_format.ParseDict({"message": message("hi"), "tenant": "echo"}, pb2.SendMessageRequest())
        reply = await stub.SendMessage(sent, metadata=(("a2a-version", "1.0"),))
        again = pb2.SendMessageResponse()
        json_format.ParseDict(json_format.MessageToDict(reply), again)
        assert again.SerializeToString(deterministic=True) == reply.SerializeToString(deterministic=True)
        newer = await stub.SendMessage(sent, metadata=(("a2a-version", "1.1"),))
        assert b"\x38" in newer.task.SerializeToString(), "Field 7 is unknown to the SDK, and kept."
    for wire in found.values():
        await wire.close()


async def test_a_read_waits_for_a_higher_generation(wire: Wire) -> None:
    task = await begun(wire)
    before = task["generation"]
    began = time.monotonic()
    assert (await wire.get(task["id"], currentGeneration=before - 1))["generation"] == before
    assert time.monotonic() - began < 0.4
    polling = asyncio.ensure_future(wire.get(task["id"], currentGeneration=before))
    await asyncio.sleep(0.1)
    assert not polling.done()
    await wire.send(message("Ada", task=task["id"]), AT_ONCE)
    assert (await polling)["generation"] > before
    assert time.monotonic() - began < 0.6


async def test_a_read_gives_up_waiting_after_a_while(wire: Wire) -> None:
    task = await begun(wire)
    began = time.monotonic()
    shown = await wire.get(task["id"], currentGeneration=task["generation"], historyLength=0)
    assert time.monotonic() - began >= 0.6
    assert (shown["generation"], shown.get("history")) == (task["generation"], None)


async def test_a_read_does_not_wait_for_a_task_that_has_ended(wire: Wire) -> None:
    task = await begun(wire)
    ended = (await wire.send(message("Ada", task=task["id"])))["task"]
    began = time.monotonic()
    assert (await wire.get(task["id"], currentGeneration=ended["generation"]))["generation"] == ended["generation"]
    assert time.monotonic() - began < 0.4


async def test_successive_polls_see_a_task_to_its_end(server: Server) -> None:
    for wire in (await wires_at(server, "writer")).values():
        task = (await wire.send(message("go"), AT_ONCE))["task"]
        seen = [task["generation"]]
        while task["status"]["state"] != "TASK_STATE_INPUT_REQUIRED":
            task = await wire.get(task["id"], currentGeneration=task["generation"])
            seen.append(task["generation"])
        assert all(first < then for first, then in pairwise(seen))
        await wire.close()


async def test_a_direct_reply_wakes_a_poll(server: Server) -> None:
    for wire in (await wires_at(server, "blunt")).values():
        task = (await wire.send(message("go"), AT_ONCE))["task"]
        while task["status"]["state"] != "TASK_STATE_COMPLETED":
            before = task["generation"]
            task = await wire.get(task["id"], currentGeneration=before)
            assert task["generation"] > before
        await wire.close()


async def test_a_cut_connection_frees_its_poll(wire: Wire, server: Server) -> None:
    task = await begun(wire)
    polling = asyncio.ensure_future(wire.get(task["id"], currentGeneration=task["generation"]))
    await until(lambda: server.exchange.streams.followers == 1)
    await asyncio.sleep(0.15)
    polling.cancel()
    began = time.monotonic()
    await until(lambda: server.exchange.streams.followers == 0)
    assert time.monotonic() - began < 0.3


async def test_polls_of_one_change_share_one_follower_and_what_is_read(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire = (await wires_at(server, "writer"))["JSON-RPC"]
    task = await begun(wire)
    arrived = reads = 0
    view, visible = server.exchange.view, server.exchange.visible

    async def seen(*args: Any, **more: Any) -> Any:
        nonlocal arrived
        arrived += 1
        return await visible(*args, **more)

    monkeypatch.setattr(server.exchange, "visible", seen)
    polls = [asyncio.ensure_future(wire.get(task["id"], currentGeneration=task["generation"])) for _ in range(20)]
    await until(lambda: arrived == 20)
    await until(lambda: server.exchange.streams.followers == 1)

    async def counted(*args: Any, **more: Any) -> Any:
        nonlocal reads
        reads += 1
        return await view(*args, **more)

    monkeypatch.setattr(server.exchange, "view", counted)
    await wire.cancel(task["id"])
    shown = await asyncio.gather(*polls)
    assert {one["status"]["state"] for one in shown} == {"TASK_STATE_CANCELED"}
    assert reads <= 3
    await wire.close()


async def test_polls_that_share_a_wait_have_times_and_ends_of_their_own(server: Server) -> None:
    wire = (await wires_at(server, "writer"))["HTTP+JSON"]
    task = await begun(wire)

    async def poll(pause_s: float) -> float:
        """Poll after a pause, and return the seconds that the answer took."""
        await asyncio.sleep(pause_s)
        began = time.monotonic()
        assert (await wire.get(task["id"], currentGeneration=task["generation"]))["generation"] == task["generation"]
        return time.monotonic() - began

    polls = [asyncio.ensure_future(poll(pause_s)) for pause_s in (0.0, 0.0, 0.1, 0.2)]
    await until(lambda: server.exchange.streams.followers == 1)
    polls.pop(0).cancel()
    assert min(await asyncio.gather(*polls)) >= 0.6
    await until(lambda: server.exchange.streams.followers == 0)
    await wire.close()


async def test_a_send_with_another_generation_is_refused(wire: Wire) -> None:
    task = await begun(wire)
    with pytest.raises(Refused) as refused:
        await wire.send(message("Ada", task=task["id"]), {"ifGenerationMatch": task["generation"] - 1})
    assert (refused.value.code, refused.value.reason) == (wire.mismatch, "TASK_GENERATION_MISMATCH")
    assert refused.value.metadata == {
        "taskId": task["id"],
        "expectedGeneration": str(task["generation"] - 1),
        "currentGeneration": str(task["generation"]),
    }
    with pytest.raises(Refused) as refused:
        await generations(wire.stream(message("Ada", task=task["id"]), {"ifGenerationMatch": 10**15}))
    assert refused.value.reason == "TASK_GENERATION_MISMATCH"
    ended = await wire.send(message("Ada", task=task["id"]), {"ifGenerationMatch": str(task["generation"])})
    assert ended["task"]["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_a_new_task_ignores_the_generation_of_its_send(wire: Wire) -> None:
    assert (await begun(wire, ifGenerationMatch=7))["generation"] > 1


async def test_a_repeated_send_is_a_replay_and_no_mismatch(wire: Wire) -> None:
    task = await begun(wire)
    answer, guard = message("Ada", task=task["id"]), {"ifGenerationMatch": task["generation"]}
    first = await wire.send(answer, guard, idempotency_key="once")
    assert await wire.send(answer, guard, idempotency_key="once") == first
    both = await asyncio.gather(*(wire.send(answer, guard, idempotency_key="once") for _ in range(4)))
    assert both == [first] * 4


async def test_of_racing_sends_with_one_generation_exactly_one_wins(wire: Wire) -> None:
    for _ in range(5):
        task = await begun(wire)
        guard = {"ifGenerationMatch": task["generation"], **AT_ONCE}
        sends = [wire.send(message(f"name {n}", task=task["id"]), guard) for n in range(8)]
        results = await asyncio.gather(*sends, return_exceptions=True)
        refused = [one for one in results if isinstance(one, Refused)]
        assert {one.reason for one in refused} == {"TASK_GENERATION_MISMATCH"}
        assert len(refused) == 7


async def test_one_racing_send_wins_also_while_the_agent_works_or_has_no_slot(tmp_path: Path) -> None:
    """Neither send begins a turn, so only the input itself can raise the generation."""
    async with serving(tmp_path, [gate]) as server:
        wire = (await wires_at(server, "gate"))["JSON-RPC"]
        working = (await wire.send(message("go"), AT_ONCE))["task"]["id"]
        queued = (await wire.send(message("go"), AT_ONCE))["task"]["id"]
        await asyncio.sleep(0.1)
        for task in (working, queued):
            guard = {"ifGenerationMatch": (await wire.get(task))["generation"], **AT_ONCE}
            sends = [wire.send(message("more", task=task), guard) for _ in range(3)]
            results = await asyncio.gather(*sends, return_exceptions=True)
            assert sum(isinstance(one, Refused) for one in results) == 2
        await wire.close()


@pytest.mark.parametrize("value", ["x", "", 1.5, True, "1e3", str(1 << 63), {}])
async def test_a_generation_that_is_no_whole_number_is_refused(server: Server, value: object) -> None:
    found = await wires_at(server, "writer")
    task = await begun(found["JSON-RPC"])
    with pytest.raises(Refused) as refused:
        await found["JSON-RPC"].get(task["id"], currentGeneration=value)
    assert refused.value.code == "-32602"
    for wire in found.values():
        await wire.close()


async def test_pushed_updates_have_the_generations_of_the_stream(wire: Wire) -> None:
    async with receiving() as receiver:
        hook = {"taskPushNotificationConfig": {"url": receiver.url("/hook")}, **AT_ONCE}
        task = (await wire.send(message("go"), hook))["task"]["id"]
        await until(lambda: any(state_of(post.json) == "TASK_STATE_INPUT_REQUIRED" for post in receiver.posts))
        await wire.send(message("Ada", task=task))
        await until(lambda: any(state_of(post.json) == "TASK_STATE_COMPLETED" for post in receiver.posts))
        posted = [update_in(post.json)["generation"] for post in receiver.posts]
    assert posted == list(range(2, 2 + len(posted)))
    assert posted[-1] == (await wire.get(task))["generation"]


async def test_the_generation_is_a_fold_of_the_log(server: Server, wire: Wire) -> None:
    task = await begun(wire)
    await wire.send(message("Ada", task=task["id"]))
    events = await read_all(server.exchange.store, RunId(task["id"]))
    counts = sum(is_update(event.payload, event.seq, open=False) for event in events if event.payload)
    assert (await wire.get(task["id"]))["generation"] == 1 + counts


async def test_a_fork_counts_on_from_its_copy(server: Server) -> None:
    wire = (await wires_at(server, "writer"))["HTTP+JSON"]
    task = await begun(wire)
    async with httpx2.AsyncClient(headers={"A2A-Version": "1.1"}) as http:
        url = f"{server.agent('writer')}/tasks/{task['id']}:fork"
        fork = (await http.post(url, json={"message": message("Ada")})).json()
    whole = [n for n in await generations(wire.subscribe(fork["id"], last_event_id="0")) if n]
    assert whole == list(range(2, 2 + len(whole)))
    assert fork["generation"] in whole
    await wire.close()

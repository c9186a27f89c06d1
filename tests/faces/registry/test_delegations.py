"""One node hands something to another and asks later what became of it."""

import asyncio
import json
import socket
from pathlib import Path

import httpx2
import pytest

from parley.ids import RunId
from parley.testing.processes import until
from parley.testing.servers import Server, serving
from tests.faces.registry.conftest import Site
from tests.faces.registry.fleet import Fleet, following
from tests.faces.registry.targets import Gate, asked, at, call, delegate, ended, message, shown


async def test_a_delegation_is_accepted_carried_out_and_told(fleet: Fleet, target: Server) -> None:
    boss = await fleet.online("Boss")
    echo = await at(fleet, target, "echo", parent=boss)
    reply = await delegate(boss, echo, "say it", idempotency_key="k")
    assert reply.status_code == 202, reply.text
    id_ = reply.json()["delegation_id"]
    assert reply.json() == {"delegation_id": id_, "status": "delegated", "target_id": echo.id}
    done = await ended(boss, id_)
    assert (done["status"], done["task"], done["response"]) == ("completed", "say it", "heard say it")
    again = await delegate(boss, echo, "say it", idempotency_key="k")
    assert (again.status_code, again.json()["delegation_id"], again.json()["idempotent_hit"]) == (200, id_, True)
    assert (await delegate(boss, echo, "another", idempotency_key="k")).status_code == 409
    (listed,) = (await boss.get(f"/workspaces/{boss.id}/delegations")).json()
    assert (listed["delegation_id"], listed["response_preview"]) == (id_, "heard say it")
    async with following(fleet.http, f"{fleet.at}/workspaces/{boss.id}/events/stream", {}, after=0) as stream:
        events = [event for event in await stream.until("DELEGATION_COMPLETE") if "DELEGATION" in event["event"]]
    assert events[0]["event"] == "DELEGATION_SENT"
    assert events[-1]["payload"]["response_preview"] == "heard say it"
    assert {event["payload"]["delegation_id"] for event in events} == {id_}
    (noted,) = (await boss.get(f"/workspaces/{boss.id}/activity?type=delegation")).json()
    assert (noted["target_id"], noted["status"]) == (echo.id, "ok")


async def test_a_delegation_goes_through_its_states_and_survives_a_restart(
    site: Site, fleet: Fleet, target: Server, gate: Gate
) -> None:
    boss, holder = await fleet.online("Boss"), await at(fleet, target, "holder")
    await holder.beat(active_tasks=1)
    id_ = (await delegate(boss, holder, "long")).json()["delegation_id"]
    assert (await shown(boss, id_))["status"] == "queued"
    await holder.beat(active_tasks=0)

    async def in_progress() -> bool:
        return (await shown(boss, id_))["status"] == "in_progress"

    await until(in_progress)
    await site.close()
    fleet.at = boss.at = holder.at = (await site.open()).url
    gate.open.set()
    done = await ended(boss, id_)
    assert (done["status"], done["response_preview"], gate.begun) == ("completed", "let go of long", ["long"])


async def test_a_cancel_of_a_delegation_reaches_the_target(small: Fleet, target: Server, gate: Gate) -> None:
    boss, holder = await small.online("Boss"), await at(small, target, "holder")
    id_ = (await delegate(boss, holder, "long")).json()["delegation_id"]
    await until(lambda: gate.begun == ["long"])
    reply = await boss.post(f"/workspaces/{boss.id}/delegations/{id_}/cancel", {})
    assert reply.status_code == 200
    await until(lambda: gate.stopped == ["long"])
    done = await ended(boss, id_)
    assert (done["status"], done["error_code"]) == ("failed", "canceled")


async def test_what_the_target_asks_is_answered_by_the_source_through_the_proxy(small: Fleet, target: Server) -> None:
    boss, asker = await small.online("Boss"), await at(small, target, "asker")
    id_ = (await delegate(boss, asker, "choose")).json()["delegation_id"]

    async def asks() -> bool:
        return (await shown(boss, id_))["input_required"]

    await until(asks)
    assert (await shown(boss, id_))["response_preview"] == "Which one?"
    answer = message("the red one", taskId=(await shown(boss, id_))["task_id"])
    assert (await call(boss, asker, asked("message/send", message=answer))).status_code == 200
    assert (await ended(boss, id_))["response"] == "took the red one"


async def answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """An agent that has no card, and one answer."""
    head = await reader.readuntil(b"\r\n\r\n")
    status, content = b"404 Not Found", b""
    if b"POST" in head:
        size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        said = {"kind": "message", "role": "agent", "messageId": "a", "parts": [{"kind": "text", "text": "back"}]}
        reply = {"jsonrpc": "2.0", "id": json.loads(await reader.readexactly(size))["id"], "result": said}
        status, content = b"200 OK", json.dumps(reply).encode()
    about = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d" % len(content)
    writer.write(b"HTTP/1.1 %b\r\n%b\r\n\r\n%b" % (status, about, content))
    await writer.drain()
    writer.close()


@pytest.mark.slow
async def test_a_delegation_that_finds_nobody_is_tried_once_more(tmp_path: Path, http: httpx2.AsyncClient) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    async with serving(tmp_path / "data", [], store="memory", delegation_retry_s=0.5) as server:
        fleet = Fleet(http, server.url)
        boss, gone = await fleet.online("Boss"), await fleet.create("Gone", max_concurrent_tasks=2)
        await gone.register(f"http://127.0.0.1:{port}")
        lost, kept = [(await delegate(boss, gone, text)).json()["delegation_id"] for text in ("1", "2")]

        async def waits() -> bool:
            runs = [await server.exchange.commands.state(RunId(id_)) for id_ in (lost, kept)]
            return all("again_at" in run.notes for run in runs)

        await until(waits)
        async with await asyncio.start_server(answered, "127.0.0.1", port):
            done = await ended(boss, kept)
        assert (done["status"], done["response"]) == ("completed", "back")
        late = (await delegate(boss, gone, "3")).json()["delegation_id"]
        done = await ended(boss, late)
        assert (done["status"], done["error_code"]) == ("failed", "remote_unreachable")


async def test_a_delegation_ends_after_its_time(
    tmp_path: Path, http: httpx2.AsyncClient, target: Server, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("parley.app.nodes.DELEGATIONS_S", 0.1)
    async with serving(tmp_path / "data", [], store="memory", delegation_timeout_s=0.5) as server:
        fleet = Fleet(http, server.url)
        boss, holder = await fleet.online("Boss"), await at(fleet, target, "holder")
        id_ = (await delegate(boss, holder, "long")).json()["delegation_id"]
        done = await ended(boss, id_)
        assert (done["status"], done["error_code"]) == ("failed", "timeout")
        await until(lambda: gate.stopped == ["long"])


async def test_a_delegation_carries_the_trace_of_who_asked(small: Fleet, target: Server) -> None:
    boss, echo = await small.online("Boss"), await at(small, target, "echo")
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    body = {"target_id": echo.id, "task": "x"}
    path = f"{boss.at}/workspaces/{boss.id}/delegate"
    reply = await boss.http.post(path, json=body, headers={**boss.headers, "traceparent": parent})
    await ended(boss, reply.json()["delegation_id"])
    (run_id,) = await target.exchange.store.run_ids("", 10)
    head = await target.exchange.store.head(run_id)
    assert head is not None
    assert head.run.trace is not None
    assert head.run.trace.trace_id == "0af7651916cd43dd8448eb211c80319c"


async def test_what_cannot_be_delegated_is_refused(small: Fleet) -> None:
    boss, other = await small.online("Boss"), await small.online("Other")
    below = await small.online("Below", other)
    mine = f"/workspaces/{boss.id}/delegate"
    for body, status, words in [
        ({"target_id": boss.id, "task": "x"}, 400, "self-delegation not permitted"),
        ({"target_id": below.id, "task": "x"}, 403, "access denied: workspaces cannot communicate per hierarchy rules"),
        ({"target_id": "1b4e28ba-2fa1-41d2-883f-0016d3cca427", "task": "x"}, 404, "workspace not found"),
        ({"target_id": "nobody", "task": "x"}, 400, "invalid workspace id"),
        ({"target_id": other.id, "task": ""}, 400, None),
        ({"target_id": other.id, "task": "x", "idempotency_key": ""}, 400, None),
    ]:  # fmt: skip
        reply = await boss.post(mine, body)
        assert reply.status_code == status, reply.text
        assert words in (None, reply.json()["error"])
    assert (await other.post(mine, {"target_id": other.id, "task": "x"})).status_code == 403
    missing = await boss.get(f"/workspaces/{boss.id}/delegations/nothing")
    assert (missing.status_code, missing.json()) == (404, {"error": "delegation not found"})


async def test_a_node_records_what_it_delegated_by_itself(fleet: Fleet) -> None:
    boss, other = await fleet.online("Boss"), await fleet.online("Other")
    path = f"/workspaces/{boss.id}/delegations"
    for id_, update, status, response in [
        ("d-1", {"status": "completed", "response_preview": "done"}, "completed", "done"),
        ("d-2", {"status": "failed", "error": "no paper"}, "failed", "no paper"),
    ]:
        body = {"target_id": other.id, "task": "by myself", "delegation_id": id_}
        for _ in range(2):
            reply = await boss.post(f"{path}/record", body)
            assert (reply.status_code, reply.json()["status"]) == (201, "dispatched")
        assert (await boss.post(f"{path}/record", {**body, "task": "else"})).status_code == 409
        assert (await boss.post(f"{path}/{id_}/update", {"status": "half"})).status_code == 400
        assert (await boss.post(f"{path}/{id_}/update", update)).json()["status"] == status
        assert (await shown(boss, id_))["response"] == response
    assert {one["delegation_id"] for one in (await boss.get(path)).json()} == {"d-1", "d-2"}
    assert (await other.get(f"/workspaces/{other.id}/delegations/d-1")).status_code == 404

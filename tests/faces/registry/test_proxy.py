"""Nodes spoken to through the server: A2A of any generation, each call a run in the log."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from parley.client import Client
from parley.client.cards import inspect
from parley.node.verifying import CALLER, PairGuarded, PairVerifier
from parley.nodes.rules import PLATFORM
from parley.security.cards import verify_card
from parley.testing.processes import until
from parley.testing.receivers import receiving
from parley.testing.servers import Server, hosting
from tests.drivers.remote.sdk_agent import sdk_server
from tests.faces.registry.conftest import Site
from tests.faces.registry.fleet import Fleet, Json, Node
from tests.faces.registry.targets import STEPS, Gate, asked, at, call, message, say


async def test_a_message_without_an_envelope_is_wrapped_and_answered(fleet: Fleet, target: Server) -> None:
    node = await at(fleet, target, "echo")
    reply = await call(fleet, node, {"method": "message/send", "params": {"message": message("hello")}})
    assert reply.status_code == 200, reply.text
    body = reply.json()
    assert body["jsonrpc"] == "2.0"
    assert len(body["id"]) == 36
    assert body["result"]["kind"] == "message"
    assert body["result"]["parts"] == [{"kind": "text", "text": "heard hello"}]


async def test_a_call_of_either_generation_is_a_run_in_the_log(fleet: Fleet, target: Server) -> None:
    node = await at(fleet, target, "count")
    new = {"role": "ROLE_USER", "parts": [{"text": "go"}], "messageId": "m-1"}
    reply = await call(fleet, node, asked("SendMessage", message=new))
    task = reply.json()["result"]["task"]
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert "".join(part["text"] for part in task["artifacts"][0]["parts"]).split() == [str(n) for n in range(STEPS)]
    old = (await call(fleet, node, asked("tasks/get", id=task["id"]))).json()["result"]
    assert (old["id"], old["status"]["state"]) == (task["id"], "completed")
    other = await at(fleet, target, "echo")
    assert (await call(fleet, other, asked("tasks/get", id=task["id"]))).json()["error"]["code"] == -32001


async def test_what_a_node_counted_of_ours_leaves_room_when_it_is_done(
    small: Fleet, target: Server, gate: Gate
) -> None:
    node = await at(small, target, "holder")
    first = await call(small, node, asked("message/send", message=message("1"), configuration={"blocking": False}))
    await until(lambda: gate.begun == ["1"])
    await node.beat(active_tasks=1)
    assert (await call(small, node, asked("message/send", message=message("2")))).status_code == 202
    gate.open.set()
    await settled(small, node, first.json()["result"]["id"])
    await until(lambda: gate.begun == ["1", "2"])
    await until(lambda: target.exchange.execution.busy["holder"] == 0)
    await node.beat(active_tasks=1)
    assert (await call(small, node, asked("message/send", message=message("3")))).status_code == 202


async def frames(fleet: Fleet, node: Node, body: Json, **headers: str) -> AsyncIterator[tuple[int, Json]]:
    url = f"{fleet.at}/workspaces/{node.id}/a2a"
    async with fleet.http.stream("POST", url, json=body, headers=headers) as reply:
        assert reply.status_code == 200, await reply.aread()
        seq = 0
        async for line in reply.aiter_lines():
            if line.startswith("id: "):
                seq = int(line[4:])
            elif line.startswith("data: "):
                yield seq, json.loads(line[6:])["result"]


def shown(frame: Json) -> str:
    """Meaning of a frame of A2A 0.3: a tick, a state or a piece."""
    if frame["kind"] == "artifact-update":
        return frame["artifact"]["parts"][0]["text"].strip()
    said = frame["status"].get("message")
    return said["parts"][0]["text"] if said else frame["status"]["state"]


async def test_a_stream_is_passed_on_with_our_numbers_and_goes_on_after_any_of_them(
    fleet: Fleet, target: Server
) -> None:
    node = await at(fleet, target, "count")
    body, key = asked("message/sendSubscribe", message=message("go", "m-1")), {"Idempotency-Key": "k"}
    seen = [frame async for frame in frames(fleet, node, body, **key)]
    numbers = [seq for seq, _ in seen]
    assert numbers == sorted(set(numbers))
    assert [shown(frame) for _, frame in seen if frame["kind"] == "artifact-update"] == [str(n) for n in range(STEPS)]
    assert seen[-1][1]["final"] is True
    assert shown(seen[-1][1]) == "counted"
    half = len(seen) // 2
    resumed = {"Last-Event-ID": str(seen[half][0])}
    assert [frame async for frame in frames(fleet, node, body, **key, **resumed)] == seen[half + 1 :]
    again = asked("tasks/resubscribe", id=seen[0][1]["id"])
    followed = [frame async for frame in frames(fleet, node, again, **resumed)]
    assert [(seq, shown(one)) for seq, one in followed] == [(seq, shown(one)) for seq, one in seen[half + 1 :]]


async def test_a_question_is_answered_through_the_proxy(fleet: Fleet, target: Server) -> None:
    node = await at(fleet, target, "asker")
    task = await say(fleet, node, "begin")
    assert (task["status"]["state"], shown(task)) == ("input-required", "Which one?")
    task = await say(fleet, node, "the red one", taskId=task["id"], contextId=task["contextId"])
    assert task["status"]["state"] == "completed"
    assert task["artifacts"][0]["parts"][0]["text"] == "took the red one"


async def test_a_cancel_reaches_the_target(fleet: Fleet, target: Server, gate: Gate) -> None:
    node = await at(fleet, target, "holder")
    later = {"blocking": False}
    body = asked("message/send", message=message("one"), configuration=later)
    task = (await call(fleet, node, body)).json()["result"]
    await until(lambda: gate.begun == ["one"])
    done = (await call(fleet, node, asked("tasks/cancel", id=task["id"]))).json()["result"]
    assert done["status"]["state"] == "canceled"
    await until(lambda: gate.stopped == ["one"])


@pytest.mark.slow
async def test_calls_of_a_busy_node_wait_and_begin_at_its_next_heartbeat_with_room_once_also_after_a_restart(
    site: Site, fleet: Fleet, target: Server, gate: Gate
) -> None:
    node = await at(fleet, target, "holder")
    await node.beat(active_tasks=1)
    body = asked("message/send", message=message("first", "m-1"))
    reply = await call(fleet, node, body)
    assert reply.status_code == 202, reply.text
    queued = reply.json()
    assert (queued["queued"], queued["queue_depth"]) == (True, 1)
    assert queued["message"]
    again = await call(fleet, node, body)
    assert (again.status_code, again.json()["queue_id"]) == (202, queued["queue_id"])
    task = (await call(fleet, node, asked("tasks/get", id=queued["queue_id"]))).json()["result"]
    assert task["status"]["state"] == "submitted"

    await site.close()
    fleet.at = node.at = (await site.open()).url
    await node.beat(active_tasks=1)
    gate.open.set()
    await node.beat(active_tasks=0)
    await until(lambda: gate.begun == ["first"])
    await until(lambda: target.exchange.execution.busy["holder"] == 0)
    for _ in range(3):
        await node.beat(active_tasks=0)
    task = await settled(fleet, node, queued["queue_id"])
    assert (task["status"]["state"], gate.begun) == ("completed", ["first"])
    assert (await say(fleet, node, "second"))["status"]["state"] == "completed"


async def test_a_call_that_waits_tells_its_webhook_all_the_same(fleet: Fleet, target: Server, gate: Gate) -> None:
    node = await at(fleet, target, "holder")
    await node.beat(active_tasks=1)
    async with receiving() as receiver:
        told = {"pushNotificationConfig": {"url": receiver.url()}}
        body = asked("message/send", message=message("first", "m-1"), configuration=told)
        assert [(await call(fleet, node, body)).status_code for _ in range(2)] == [202, 202]
        gate.open.set()
        await node.beat(active_tasks=0)
        await until(lambda: bool(receiver.posts) and receiver.posts[-1].json["status"]["state"] == "completed")
        seen = [post.seq for post in receiver.posts]
        assert seen == sorted(set(seen))


async def settled(fleet: Fleet, node: Node, task: str) -> Json:
    while True:
        found = (await call(fleet, node, asked("tasks/get", id=task))).json()["result"]
        if found["status"]["state"] not in ("submitted", "working"):
            return found
        await asyncio.sleep(0.05)


async def test_one_of_ours_under_way_fills_a_node_that_takes_one_at_a_time(
    small: Fleet, target: Server, gate: Gate
) -> None:
    node = await at(small, target, "holder")
    first = await call(small, node, asked("message/send", message=message("1"), configuration={"blocking": False}))
    assert first.status_code == 200
    await until(lambda: gate.begun == ["1"])
    replies = [await call(small, node, asked("message/send", message=message(text))) for text in ("2", "3")]
    assert [(reply.status_code, reply.json()["queue_depth"]) for reply in replies] == [(202, 1), (202, 2)]
    gate.open.set()
    for reply in replies:
        assert (await settled(small, node, reply.json()["queue_id"]))["status"]["state"] == "completed"
    assert gate.begun == ["1", "2", "3"]


async def test_a_stream_goes_on_where_it_was_when_the_proxy_was_restarted(
    site: Site, fleet: Fleet, target: Server, gate: Gate
) -> None:
    node = await at(fleet, target, "holder")
    body, key = asked("message/stream", message=message("long", "m-1")), {"Idempotency-Key": "k"}
    seen: list[tuple[int, Json]] = []
    stream = frames(fleet, node, body, **key)
    async for frame in stream:
        seen.append(frame)
        if shown(frame[1]) == "holding":
            break
    await cast(AsyncGenerator[object, None], stream).aclose()
    await site.close()
    fleet.at = node.at = (await site.open()).url
    gate.open.set()
    rest = [one async for one in frames(fleet, node, body, **key, **{"Last-Event-ID": str(seen[-1][0])})]
    assert shown(rest[-1][1]) == "let go of long"
    assert "holding" not in [shown(one) for _, one in rest]
    assert rest[0][0] > seen[-1][0]
    assert gate.begun == ["long"]


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("method", ["message/send", "SendMessage"])
async def test_a_node_on_the_official_sdk_is_spoken_to(small: Fleet, streaming: bool, method: str) -> None:
    async with sdk_server(streaming=streaming) as (url, executor):
        node = await small.create("Sdk")
        await node.register(url)
        task = await say(small, node, "ask")
        assert task["status"]["state"] == "input-required"
        said = message("answer", "m-2", taskId=task["id"])
        if method == "SendMessage":
            said = {"role": "ROLE_USER", "parts": [{"text": "answer"}], "messageId": "m-2", "taskId": task["id"]}
        done = (await call(small, node, asked(method, message=said))).json()["result"]
        assert done.get("task", done)["artifacts"][0]["parts"][0]["text"] == "answered"
        assert (await say(small, node, "reply"))["parts"][0]["text"] == "a direct answer"
        assert executor.begun == 1


async def test_a_node_that_speaks_only_the_old_generation_is_spoken_to_in_it(small: Fleet, target: Server) -> None:
    """Its card names an address that holds elsewhere only, and nothing of 1.0."""
    node = await small.create("Old")
    card = {"name": "Old", "url": "http://inside:8000/", "protocolVersion": "0.3.0", "capabilities": {}}
    async with old_server() as (url, methods):
        await node.register(url, agent_card=card)
        done = (await call(small, node, asked("SendMessage", message=NEW))).json()["result"]
        assert done["message"]["parts"] == [{"text": "old answer"}]
        assert methods == ["message/send"]


NEW = {"role": "ROLE_USER", "parts": [{"text": "go"}], "messageId": "m-1"}


@asynccontextmanager
async def old_server() -> AsyncIterator[tuple[str, list[str]]]:
    """JSON-RPC at one address and nothing else, as nodes were before cards."""
    methods: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        status, content = 404, b""
        if scope["method"] == "POST":
            request = json.loads((await receive())["body"])
            methods.append(request["method"])
            parts = [{"kind": "text", "text": "old answer"}]
            said = {"kind": "message", "role": "agent", "messageId": "a", "parts": parts}
            status, content = 200, json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": said}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(content))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    async with hosting(app) as url:
        yield url, methods


async def test_a_guarded_node_lets_the_platform_in_and_knows_for_whom_it_asks(small: Fleet, target: Server) -> None:
    node, other = await small.create("Guarded"), await small.online("Other")
    callers: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and CALLER in scope:
            callers.append(scope[CALLER])
        await target.app(
            {**scope, "headers": [one for one in scope["headers"] if one[0] != b"authorization"]}, receive, send
        )

    token = ""
    verifier: PairVerifier | None = None

    async def guarded(scope: Any, receive: Any, send: Any) -> None:
        assert verifier is not None
        await PairGuarded(app, verifier, ("/agents/echo/.well-known/",))(scope, receive, send)

    async with hosting(guarded) as url:
        await node.register(f"{url}/agents/echo")
        token = node.token
        verifier = PairVerifier(small.at, node.id, token=token)
        assert (await small.http.post(f"{url}/agents/echo", json={})).status_code == 401
        assert (await say(small, node, "one"))["parts"][0]["text"] == "heard one"
        assert (await say(other, node, "two"))["parts"][0]["text"] == "heard two"
        assert callers == [PLATFORM, other.id]
        await verifier.close()


async def test_the_card_of_a_node_leads_to_the_proxy_and_is_signed_by_us(small: Fleet, target: Server) -> None:
    node = await small.create("Echo", role="Repeats")
    told = (await small.http.get(f"{target.agent('echo')}/.well-known/agent-card.json")).json()
    await node.register(target.agent("echo"), agent_card=told)
    url = f"{small.at}/workspaces/{node.id}/a2a"
    for path in ("agent-card.json", "agent.json"):
        found = (await small.http.get(f"{url}/.well-known/{path}")).json()
        assert {one["url"] for one in found["supportedInterfaces"]} == {found["url"], url}
        assert (found["name"], found["skills"]) == (told["name"], told["skills"])
        jwks = (await small.http.get(f"{small.at}/.well-known/jwks.json")).json()
        assert verify_card(found, jwks)
    report = await inspect(url)
    assert report.valid, report
    modern = (await small.http.get(f"{url}/.well-known/agent-card.json", headers={"A2A-Version": "1.0"})).json()
    assert "protocolVersion" not in modern
    async with Client(url) as client:
        assert (await client.send("hi"))["message"]["parts"][0]["text"] == "heard hi"


async def test_every_call_is_noted_with_the_node(small: Fleet, target: Server) -> None:
    node, other = await at(small, target, "echo"), await small.online("Other")
    await say(other, node, "hello")
    await call(small, node, asked("tasks/get", id="nothing"))

    async def noted() -> bool:
        return len(await activities()) == 2

    async def activities() -> list[Json]:
        return (await small.ask("GET", f"/workspaces/{node.id}/activity?type=a2a_receive")).json()

    await until(noted)
    later, first = await activities()
    assert (first["source_id"], first["method"], first["status"]) == (other.id, "message/send", "ok")
    assert first["request_body"].keys() == {"id", "message_id", "bytes"}
    assert first["response_body"].keys() == {"bytes"}
    assert (later.get("source_id"), later["method"]) == (None, "tasks/get")
    assert later["request_body"]["task_id"] == "nothing"


@pytest.mark.parametrize("version", ["0.3", "1.0"])
async def test_a_call_is_noted_without_what_was_said_and_without_credentials(
    small: Fleet, target: Server, version: str
) -> None:
    node = await at(small, target, "asker")
    hook = {
        "url": "http://127.0.0.1:9/hook", "token": "push-token-4417",
        "authentication": {"schemes": ["Bearer"], "scheme": "Bearer", "credentials": "push-credentials-4417"},
    }  # fmt: skip
    params = asked("message/send", message=message("words-4417"))["params"]
    if version == "0.3":
        begun = await call(small, node, asked("message/send", **params, configuration={"pushNotificationConfig": hook}))
        task = begun.json()["result"]["id"]
        again = asked("tasks/pushNotificationConfig/set", taskId=task, pushNotificationConfig=hook)
    else:
        modern = {"message": {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "words-4417"}]}}
        begun = await call(
            small, node, asked("SendMessage", **modern, configuration={"taskPushNotificationConfig": hook})
        )
        task = begun.json()["result"]["task"]["id"]
        again = asked("CreateTaskPushNotificationConfig", taskId=task, **hook)
    assert (await call(small, node, again)).status_code == 200

    async def activities() -> list[Json]:
        return (await small.ask("GET", f"/workspaces/{node.id}/activity?type=a2a_receive")).json()

    async def noted() -> bool:
        return len(await activities()) == 2

    await until(noted)
    later, first = await activities()
    assert "4417" not in json.dumps([later, first])
    assert first["response_body"]["task_id"] == later["request_body"]["task_id"] == task
    assert first["request_body"]["bytes"] > 100

"""A2A 1.0 over JSON-RPC, over the wire."""

import asyncio
import base64
import json
import re
from typing import Any

import httpx2
import pytest

from parley.client import Client, Json, RemoteError, message
from parley.faces.a2a import streams
from parley.runs.log import all_runs
from parley.testing.processes import until
from parley.testing.servers import Server, serving
from tests.faces.conftest import AGENTS, Clients

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[57][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
TIME = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")

Step = tuple[int | None, Json]


def plain(value: Any, names: dict[str, str] | None = None) -> Any:
    """A reply with its ids numbered and its times named, to be compared as a whole."""
    names = {} if names is None else names
    if isinstance(value, dict):
        return {key: plain(inner, names) for key, inner in value.items()}
    if isinstance(value, list):
        return [plain(inner, names) for inner in value]
    if isinstance(value, str):
        if TIME.match(value):
            return "TIME"
        return UUID.sub(lambda found: names.setdefault(found[0], f"ID{len(names) + 1}"), value)
    return value


async def stream(client: Client, params: Json, method: str = "SendStreamingMessage", **headers: str) -> list[Step]:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return [(id_, reply.get("result", reply)) async for id_, reply in client.events(method, params, given)]


async def count_runs(server: Server) -> int:
    return len([run async for run in all_runs(server.exchange.store)])


async def test_a_send_returns_the_finished_task(clients: Clients) -> None:
    result = await clients.echo.call("SendMessage", {"message": message("hello", id_="m-1")})
    assert plain(result) == {
        "task": {
            "id": "ID1",
            "contextId": "ID2",
            "status": {"state": "TASK_STATE_COMPLETED", "timestamp": "TIME"},
            "artifacts": [{"artifactId": "response-1", "parts": [{"text": "hello"}], "name": "response"}],
            "history": [
                {
                    "messageId": "m-1",
                    "role": "ROLE_USER",
                    "parts": [{"text": "hello"}],
                    "contextId": "ID2",
                    "taskId": "ID1",
                }
            ],
        }
    }


async def test_a_stream_is_the_task_and_then_what_happens(clients: Clients) -> None:
    steps = await stream(clients.echo, {"message": message("hello", id_="m-1")})
    names: dict[str, str] = {}
    ids = {"taskId": "ID1", "contextId": "ID2"}
    assert [(id_, plain(result, names)) for id_, result in steps] == [
        (
            2,
            {
                "task": {
                    "id": "ID1",
                    "contextId": "ID2",
                    "status": {"state": "TASK_STATE_SUBMITTED", "timestamp": "TIME"},
                    "history": [{"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "hello"}], **ids}],
                }
            },
        ),
        (3, {"statusUpdate": {**ids, "status": {"state": "TASK_STATE_WORKING", "timestamp": "TIME"}}}),
        (
            4,
            {
                "artifactUpdate": {
                    **ids,
                    "artifact": {"artifactId": "response-1", "parts": [{"text": "hello"}], "name": "response"},
                    "lastChunk": True,
                }
            },
        ),
        (5, {"statusUpdate": {**ids, "status": {"state": "TASK_STATE_COMPLETED", "timestamp": "TIME"}}}),
    ]


async def test_a_question_is_answered_in_the_same_task(clients: Clients) -> None:
    first = (await clients.writer.send("begin"))["task"]
    assert first["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    assert first["status"]["message"]["parts"] == [{"text": "Which name?"}]
    assert first["artifacts"][0]["parts"] == [{"text": "one two three"}]
    second = (await clients.writer.send("Ada", task=first["id"]))["task"]
    assert (second["id"], second["contextId"]) == (first["id"], first["contextId"])
    assert second["status"]["message"]["parts"] == [{"text": "Bye, Ada."}]
    said = [(one["role"], one["parts"][0]["text"]) for one in second["history"]]
    assert said == [
        ("ROLE_USER", "begin"),
        ("ROLE_AGENT", "thinking"),
        ("ROLE_AGENT", "Which name?"),
        ("ROLE_USER", "Ada"),
    ]
    assert second["artifacts"][1]["parts"] == [{"data": {"name": "Ada", "count": 42}}]
    assert await clients.writer.get(first["id"]) == second


async def uncut(client: Client) -> tuple[str, list[Step]]:
    """A whole task with a question, as somebody saw it who subscribed at once and stayed."""
    begun = await client.send("begin", configuration={"returnImmediately": True})
    task = begun["task"]["id"]
    subscription = asyncio.ensure_future(stream(client, {"id": task}, "SubscribeToTask"))
    await client.send("wait", task=task)
    return task, await subscription


async def test_a_stream_cut_at_every_event_and_resumed_equals_the_uncut_one(clients: Clients) -> None:
    task, whole = await uncut(clients.writer)
    (first_id, first), updates = whole[0], whole[1:]
    assert "task" in first
    assert len(updates) >= 5
    assert first_id is not None
    cursors = [first_id, *(id_ for id_, _ in updates)]
    assert cursors == sorted(set(cursors))
    for position, cursor in enumerate(cursors):
        resumed = await stream(clients.writer, {"id": task}, "SubscribeToTask", last_event_id=str(cursor))
        assert resumed == updates[position:]


async def test_a_live_stream_cut_again_and_again_equals_the_uncut_one(server: Server, clients: Clients) -> None:
    """One frame per connection, while the task runs and others watch all of it."""
    begun = await clients.writer.send("begin", configuration={"returnImmediately": True})
    task = begun["task"]["id"]
    whole = asyncio.ensure_future(stream(clients.writer, {"id": task}, "SubscribeToTask", last_event_id="2"))
    seen: list[Step] = []
    cursor = 2
    while not (seen and "COMPLETED" in json.dumps(seen[-1])):
        events = clients.writer.events("SubscribeToTask", {"id": task}, {"Last-Event-ID": str(cursor)})
        async for id_, reply in events:
            assert id_ is not None
            seen.append((id_, reply["result"]))
            cursor = id_
            break
        await events.aclose()  # type: ignore[attr-defined]
        if "INPUT_REQUIRED" in json.dumps(seen[-1]):
            await clients.writer.send("Ada", task=task)
    assert seen == await whole


async def test_a_stream_goes_on_after_a_restart(tmp_path: Any) -> None:
    async with serving(tmp_path, AGENTS) as server, Client(server.agent("writer")) as client:
        before = await stream(client, {"message": message("begin")})
        task = before[0][1]["task"]["id"]
    async with serving(tmp_path, AGENTS) as server, Client(server.agent("writer")) as client:
        cursor = before[2][0]
        follow = asyncio.ensure_future(stream(client, {"id": task}, "SubscribeToTask", last_event_id=str(cursor)))
        await client.send("Ada", task=task)
        after = await follow
    assert after[: len(before) - 3] == before[3:]
    assert after[-1][1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_a_sent_stream_is_resumed_with_its_key(clients: Clients) -> None:
    params = {"message": message("begin")}
    whole = await stream(clients.writer, params, idempotency_key="k1")
    for position, (id_, _) in enumerate(whole):
        resumed = await stream(clients.writer, params, idempotency_key="k1", last_event_id=str(id_))
        assert resumed == whole[position + 1 :]
    again = await stream(clients.writer, params, idempotency_key="k1")
    assert again[0][1]["task"]["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    assert len(again) == 1


@pytest.mark.parametrize("headers", [{"last_event_id": "3"}, {"last_event_id": "3", "idempotency_key": "new"}])
async def test_a_sent_stream_is_not_resumed_without_its_key(
    server: Server, clients: Clients, headers: dict[str, str]
) -> None:
    with pytest.raises(RemoteError) as refused:
        await stream(clients.echo, {"message": message("hi")}, **headers)
    assert refused.value.rpc == -32602
    assert await count_runs(server) == 0


async def test_a_repeated_send_with_the_same_key_is_the_same_task(server: Server, clients: Clients) -> None:
    wire = message("hello")
    first = await clients.echo.call("SendMessage", {"message": wire}, {"Idempotency-Key": "k"})
    configured = {"message": wire, "configuration": {"historyLength": 5}}
    assert await clients.echo.call("SendMessage", configured, {"Idempotency-Key": "k"}) == first
    assert await count_runs(server) == 1
    with pytest.raises(RemoteError) as refused:
        await clients.echo.call("SendMessage", {"message": message("other")}, {"Idempotency-Key": "k"})
    assert (refused.value.rpc, refused.value.reason) == (-32602, "IDEMPOTENCY_KEY_REUSED")
    assert await count_runs(server) == 1
    # Another agent is another scope; and without a key nothing is compared.
    await clients.writer.call("SendMessage", {"message": wire}, {"Idempotency-Key": "k"})
    await clients.echo.call("SendMessage", {"message": wire})
    assert await count_runs(server) == 3


async def test_return_immediately_does_not_wait(clients: Clients) -> None:
    result = await clients.sleeper.send("zzz", configuration={"returnImmediately": True})
    assert result["task"]["status"]["state"] in ("TASK_STATE_SUBMITTED", "TASK_STATE_WORKING")


async def test_a_cancel_returns_the_canceled_task_and_ends_its_streams(server: Server, clients: Clients) -> None:
    begun = await clients.sleeper.send("zzz", configuration={"returnImmediately": True})
    task = begun["task"]["id"]
    watching = asyncio.ensure_future(stream(clients.sleeper, {"id": task}, "SubscribeToTask"))
    await until(lambda: server.exchange.streams.followers == 1)
    canceled = await clients.sleeper.call("CancelTask", {"id": task, "metadata": {"reason": "enough"}})
    assert canceled["status"]["state"] == "TASK_STATE_CANCELED"
    assert (await watching)[-1][1]["statusUpdate"]["status"]["state"] == "TASK_STATE_CANCELED"
    with pytest.raises(RemoteError) as refused:
        await clients.sleeper.cancel(task)
    assert (refused.value.rpc, refused.value.reason) == (-32002, "TASK_NOT_CANCELABLE")


async def test_a_subscription_stays_open_while_the_task_waits(clients: Clients) -> None:
    task = (await clients.writer.send("begin"))["task"]["id"]
    events = clients.writer.events("SubscribeToTask", {"id": task})
    _, first = await anext(events)
    assert first["result"]["task"]["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    following = asyncio.ensure_future(_rest(events))
    assert (await clients.writer.send("Ada", task=task))["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
    states = [step["result"].get("statusUpdate", {}).get("status", {}).get("state") for _, step in await following]
    assert states == ["TASK_STATE_WORKING", None, "TASK_STATE_COMPLETED"]


async def _rest(events: Any) -> list[Any]:
    return [step async for step in events]


async def test_a_finished_task_has_nothing_to_subscribe_to_but_its_past(clients: Clients) -> None:
    task = (await clients.echo.send("hi"))["task"]["id"]
    with pytest.raises(RemoteError) as refused:
        await stream(clients.echo, {"id": task}, "SubscribeToTask")
    assert (refused.value.rpc, refused.value.reason) == (-32004, "UNSUPPORTED_OPERATION")
    past = await stream(clients.echo, {"id": task}, "SubscribeToTask", last_event_id="0")
    assert [id_ for id_, _ in past] == [3, 4, 5]
    assert await stream(clients.echo, {"id": task}, "SubscribeToTask", last_event_id="5") == []


async def test_a_terminal_task_takes_no_further_messages(clients: Clients) -> None:
    task = (await clients.echo.send("hi"))["task"]["id"]
    with pytest.raises(RemoteError) as refused:
        await clients.echo.send("more", task=task)
    assert refused.value.rpc == -32004


async def test_a_direct_reply_is_one_message(clients: Clients) -> None:
    answer = await clients.greeter.send("Ada")
    assert plain(answer.result)["message"] == {
        "messageId": "ID1.4", "role": "ROLE_AGENT", "parts": [{"text": "Hello, Ada."}], "contextId": "ID2",
    }  # fmt: skip
    steps = await stream(clients.greeter, {"message": message("Ada")})
    assert len(steps) == 1
    assert "message" in steps[0][1]


async def test_a_rejected_task_says_why(clients: Clients) -> None:
    status = (await clients.picky.send("please"))["task"]["status"]
    assert status["state"] == "TASK_STATE_REJECTED"
    assert status["message"]["parts"] == [{"text": "Not today."}]
    assert status["message"]["metadata"] == {"code": "not_today"}


async def test_bytes_come_back_as_they_were(clients: Clients) -> None:
    content = bytes(range(256)) * 400
    wire = message("x")
    wire["parts"] = [{"raw": base64.b64encode(content).decode(), "filename": "a.bin", "mediaType": "application/x"}]
    task = (await clients.file.call("SendMessage", {"message": wire}))["task"]
    same, large = task["artifacts"]
    assert same["parts"] == wire["parts"]
    assert base64.b64decode(large["parts"][0]["raw"]) == b"\x00" * 100_000
    assert task["history"][0]["parts"] == wire["parts"]
    updates = await stream(clients.file, {"id": task["id"]}, "SubscribeToTask", last_event_id="3")
    assert updates[0][1]["artifactUpdate"]["artifact"]["parts"] == wire["parts"]


async def test_data_keeps_its_numbers_and_unknown_fields_are_ignored(server: Server) -> None:
    data = '{"int":42,"float":42.0,"big":123456789012345678901234567890,"exp":1E+2,"nested":[null,{"a":1}]}'
    body = (
        '{"jsonrpc":"2.0","id":1,"method":"SendMessage","surprise":1,"params":{"extra":[],"message":{"messageId":"m",'
        f'"role":"ROLE_USER","unknown":true,"metadata":{data},"parts":[{{"data":{data},"blob":{{"sha256":"x","size":1}}}}]}}}}}}'
    )
    async with httpx2.AsyncClient() as http:
        reply = await http.post(server.agent("echo"), content=body, headers={"A2A-Version": "1.0"})
    assert reply.text.count(data) == 2
    assert "blob" not in reply.text


async def test_history_length_is_honoured(clients: Clients) -> None:
    task = (await clients.writer.send("begin"))["task"]["id"]
    await clients.writer.send("Ada", task=task)
    for length, expected in ((0, 0), (1, 1), (3, 3), (100, 4)):
        found = await clients.writer.call("GetTask", {"id": task, "historyLength": length})
        assert len(found.get("history", [])) == expected
    assert "history" not in await clients.writer.call("GetTask", {"id": task, "historyLength": 0})


async def test_the_root_reads_any_task_and_sends_to_the_default_agent(server: Server, clients: Clients) -> None:
    task = (await clients.writer.send("begin"))["task"]["id"]
    async with Client(server.url + "/") as root:
        assert (await root.get(task))["id"] == task
        assert (await root.send("hi"))["task"]["artifacts"][0]["parts"] == [{"text": "hi"}]
    with pytest.raises(RemoteError) as refused:
        await clients.echo.get(task)
    assert refused.value.rpc == -32001


async def test_silence_is_filled_with_comments(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "KEEP_ALIVE_S", 0.02)
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": {"message": message("x")}}
    comments = 0
    async with (
        httpx2.AsyncClient() as http,
        http.stream("POST", server.agent("sleeper"), json=body, headers={"A2A-Version": "1.0"}) as reply,
    ):
        async for line in reply.aiter_lines():
            comments += line.startswith(":")
            if comments == 3:
                break
    await until(lambda: not server.exchange.streams._watches)


async def test_the_card_says_where_and_how(server: Server, clients: Clients) -> None:
    card = await clients.echo.card()
    assert card["name"] == "Echo"
    assert card["supportedInterfaces"] == [
        {"url": server.agent("echo"), "protocolBinding": binding, "protocolVersion": version}
        for version in ("1.0", "1.1", "0.3")
        for binding in ("JSONRPC", "HTTP+JSON")
    ]
    assert (card["url"], card["protocolVersion"], card["preferredTransport"]) == (
        server.agent("echo"), "0.3.0", "JSONRPC",
    )  # fmt: skip
    assert card["capabilities"]["streaming"] is True
    async with httpx2.AsyncClient() as http:
        assert (await http.get(server.url + "/.well-known/agent-card.json")).json() == card
        assert (await http.get(server.agent("nobody") + "/.well-known/agent-card.json")).status_code == 404
        index = (await http.get(server.url)).json()
        assert [entry["slug"] for entry in index["agents"]][:2] == ["echo", "writer"]
        assert (await http.get(server.url + "/healthz")).json() == {"status": "ok"}
        assert (await http.get(server.url + "/readyz")).json() == {"status": "ok"}
        assert (await http.get(server.url + "/nothing")).status_code == 404
        assert (await http.get(server.agent("echo"))).json() == index["agents"][0]


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Host": "127.0.0.1.evil.example"},
    ],
)
async def test_a_web_page_cannot_reach_a_local_server(server: Server, headers: dict[str, str]) -> None:
    async with httpx2.AsyncClient() as http:
        reply = await http.post(server.agent("echo"), json={}, headers=headers)
        assert reply.status_code == 403
        assert reply.json()["error"]["code"] == "foreign_origin"
        assert (await http.get(server.url, headers={"Origin": "http://localhost:3000"})).status_code == 200


def rpc(method: str = "SendMessage", params: Any = None, **more: Any) -> Json:
    return {"jsonrpc": "2.0", "id": 7, "method": method, "params": params, **more}


def send_params(**changes: Any) -> Json:
    return {"message": {**message("hi"), **changes}}


BAD: dict[str, tuple[bytes | Json, int, str]] = {
    "not JSON": (b"{nope", -32700, "INVALID_JSON"),
    "empty": (b"", -32700, "INVALID_JSON"),
    "not UTF-8": (b'{"jsonrpc":"2.0","id":7,"method":"\xff"}', -32700, "INVALID_JSON"),
    "not UTF-8 inside": (
        b'{"jsonrpc":"2.0","id":7,"method":"GetTask","params":{"id":"x","y":"\xff\xfe"}}', -32700, "INVALID_JSON"),
    "an array": (b"[]", -32600, "INVALID_REQUEST"),
    "a number": (b"42", -32600, "INVALID_REQUEST"),
    "no method": ({"jsonrpc": "2.0", "id": 7}, -32600, "INVALID_REQUEST"),
    "wrong jsonrpc": ({"jsonrpc": "1.0", "id": 7, "method": "GetTask"}, -32600, "INVALID_REQUEST"),
    "an object as id": ({"jsonrpc": "2.0", "id": {}, "method": "GetTask"}, -32600, "INVALID_REQUEST"),
    "unknown method": (rpc("Nonsense"), -32601, "UNKNOWN_METHOD"),
    "no params": ({"jsonrpc": "2.0", "id": 7, "method": "SendMessage"}, -32602, "INVALID_INPUT"),
    "params null": (rpc(), -32602, "INVALID_INPUT"),
    "params array": (rpc(params=[]), -32602, "INVALID_INPUT"),
    "no message": (rpc(params={}), -32602, "INVALID_INPUT"),
    "no messageId": (rpc(params={"message": {"role": "ROLE_USER", "parts": [{"text": "x"}]}}), -32602, "INVALID_INPUT"),
    "empty messageId": (rpc(params=send_params(messageId="")), -32602, "INVALID_INPUT"),
    "role of an agent": (rpc(params=send_params(role="ROLE_AGENT")), -32602, "INVALID_INPUT"),
    "no parts": (rpc(params=send_params(parts=[])), -32602, "INVALID_INPUT"),
    "a part of nothing": (rpc(params=send_params(parts=[{}])), -32602, "INVALID_INPUT"),
    "a part of two": (rpc(params=send_params(parts=[{"text": "a", "url": "b"}])), -32602, "INVALID_INPUT"),
    "parts of a wrong type": (rpc(params=send_params(parts=[{"text": 1}])), -32602, "INVALID_INPUT"),
    "not base64": (rpc(params=send_params(parts=[{"raw": "%%%"}])), -32602, "INVALID_INPUT"),
    "metadata of a wrong type": (rpc(params=send_params(metadata=[1])), -32602, "INVALID_INPUT"),
    "contextId of a wrong form": (rpc(params=send_params(contextId="a b")), -32602, "INVALID_INPUT"),
    "negative history": (
        rpc(params={**send_params(), "configuration": {"historyLength": -1}}), -32602, "INVALID_INPUT"),
    "unknown task": (rpc("GetTask", {"id": "nope"}), -32001, "TASK_NOT_FOUND"),
    "a task id of a wrong form": (rpc("GetTask", {"id": "a b\n"}), -32001, "TASK_NOT_FOUND"),
    "unknown task to cancel": (rpc("CancelTask", {"id": "nope"}), -32001, "TASK_NOT_FOUND"),
    "unknown task to follow": (rpc("SubscribeToTask", {"id": "nope"}), -32001, "TASK_NOT_FOUND"),
    "unknown task to answer": (rpc(params=send_params(taskId="nope")), -32001, "TASK_NOT_FOUND"),
    "a payload over the limit": (
        rpc(params=send_params(parts=[{"data": {"x": "x" * 160_000}}])), -32602, "PAYLOAD_TOO_LARGE"),
    "a body over the limit": (rpc(params=send_params(parts=[{"text": "x" * 300_000}])), -32602, "PAYLOAD_TOO_LARGE"),
    "a stream that is refused": (
        rpc("SendStreamingMessage", send_params(parts=[])), -32602, "INVALID_INPUT"),
    "nested too deep": (
        b'{"jsonrpc":"2.0","id":7,"method":"SendMessage","params":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
        -32600, "NESTED_TOO_DEEP"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
async def test_bad_input_gets_its_own_error_and_nothing_is_written(server: Server, case: str) -> None:
    body, code, reason = BAD[case]
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with httpx2.AsyncClient() as http:
        reply = await http.post(server.agent("echo"), content=content, headers={"A2A-Version": "1.0"})
    error = reply.json()["error"]
    assert (error["code"], error["data"][0]["reason"]) == (code, reason)
    assert error["message"]
    assert "Traceback" not in reply.text
    assert reply.status_code == (413 if case == "a body over the limit" else 200)
    assert await count_runs(server) == 0


CURSORS = {
    "beyond the end": ("99", "CURSOR_BEYOND_END"),
    "negative": ("-1", "INVALID_CURSOR"),
    "not a number": ("abc", "INVALID_CURSOR"),
    "absurd": ("9" * 40, "INVALID_CURSOR"),
}


@pytest.mark.parametrize("case", CURSORS)
async def test_a_bad_cursor_gets_its_own_error(clients: Clients, case: str) -> None:
    cursor, reason = CURSORS[case]
    task = (await clients.writer.send("begin"))["task"]["id"]
    with pytest.raises(RemoteError) as refused:
        await stream(clients.writer, {"id": task}, "SubscribeToTask", last_event_id=cursor)
    assert (refused.value.rpc, refused.value.reason) == (-32602, reason)


@pytest.mark.parametrize(
    ("version", "accepted"), [("1.0", True), (None, False), ("0.3", False), ("2.0", False), ("x", False)]
)
async def test_the_version_must_be_one_that_is_served(server: Server, version: str | None, accepted: bool) -> None:
    body = rpc(params=send_params())
    headers = {"A2A-Version": version} if version else {}
    async with httpx2.AsyncClient() as http:
        replies = [await http.post(server.agent("echo"), json=body, headers=headers)]
        if version:
            replies.append(await http.post(server.agent("echo") + f"?A2A-Version={version}", json=body))
    for reply in replies:
        assert ("result" in reply.json()) is accepted
        if not accepted:
            assert reply.json()["error"]["code"] == -32009


async def test_an_unknown_agent_is_not_found(server: Server) -> None:
    async with httpx2.AsyncClient() as http:
        for path in ("/agents/nobody", "/agents/nobody/"):
            reply = await http.post(server.url + path, json=rpc(params=send_params()), headers={"A2A-Version": "1.0"})
            assert reply.status_code == 404
            assert reply.json()["error"]["data"][0]["reason"] == "AGENT_NOT_FOUND"


async def test_a_client_that_leaves_does_not_stop_the_task(clients: Clients) -> None:
    events = clients.writer.events("SendStreamingMessage", {"message": message("begin")})
    _, first = await anext(events)
    await events.aclose()  # type: ignore[attr-defined]
    task = first["result"]["task"]["id"]
    followed = clients.writer.events("SubscribeToTask", {"id": task}, {"Last-Event-ID": "2"})
    while "INPUT_REQUIRED" not in json.dumps((await anext(followed))[1]):
        pass
    await followed.aclose()  # type: ignore[attr-defined]


async def test_a_stale_cursor_begins_with_the_task_as_it_is(server: Server, clients: Clients) -> None:
    task = (await clients.echo.send("hi"))["task"]
    head = await server.exchange.store.head(task["id"])
    assert head is not None
    server.exchange.retention._keep_ms = -1000
    await server.exchange.retention.tick()
    assert await clients.echo.get(task["id"]) == task
    steps = await stream(clients.echo, {"id": task["id"]}, "SubscribeToTask", last_event_id="2")
    assert steps == [(head.run.version, {"task": task})]

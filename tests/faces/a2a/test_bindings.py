"""The bindings and versions of A2A over the wire: whole transcripts, and what each must refuse."""

import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from parley.testing.servers import Server
from tests.faces.a2a.test_jsonrpc import plain
from tests.faces.wires import HOOK, WIRES, Wire

Json = dict[str, Any]
NEW = {"A2A-Version": "1.0"}


@pytest.fixture
async def http(server: Server) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=server.url) as client:
        yield client


def events(reply: httpx2.Response) -> list[tuple[int, Any]]:
    """The frames of a stream that has ended: id and data."""
    assert reply.headers["content-type"].startswith("text/event-stream")
    found: list[tuple[int, Any]] = []
    for block in reply.text.strip().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if not line.startswith(":"))
        if fields:
            found.append((int(fields["id"]), json.loads(fields["data"])))
    return found


IDS = {"taskId": "ID1", "contextId": "ID2"}
PLACE = {"id": "ID1", "contextId": "ID2"}
USER = {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "hello"}], **IDS}
OLD_USER = {
    "kind": "message", "messageId": "m-1", "role": "user", "parts": [{"kind": "text", "text": "hello"}], **IDS,
}  # fmt: skip
REST_USER = {"messageId": "m-1", "role": "ROLE_USER", "content": [{"text": "hello"}], **IDS}
MADE = {"artifactId": "response-1", "name": "response"}

FINISHED: dict[str, Any] = {
    "JSON-RPC 1.0": {
        "task": {
            **PLACE, "status": {"state": "TASK_STATE_COMPLETED", "timestamp": "TIME"},
            "artifacts": [{**MADE, "parts": [{"text": "hello"}]}], "history": [USER],
        }
    },
    "JSON-RPC 0.3": {
        "kind": "task", **PLACE, "status": {"state": "completed", "timestamp": "TIME"},
        "artifacts": [{**MADE, "parts": [{"kind": "text", "text": "hello"}]}], "history": [OLD_USER],
    },
    "HTTP+JSON 0.3": {
        "task": {
            **PLACE, "status": {"state": "TASK_STATE_COMPLETED", "timestamp": "TIME"},
            "artifacts": [{**MADE, "parts": [{"text": "hello"}]}], "history": [REST_USER],
        }
    },
}  # fmt: skip
FINISHED["HTTP+JSON 1.0"] = FINISHED["JSON-RPC 1.0"]


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
async def test_a_send_and_a_read_show_the_finished_task(http: httpx2.AsyncClient, wire: Wire) -> None:
    sent = wire.result(await wire.ask(http, "send"))
    assert plain(sent) == FINISHED[wire.name]
    task = sent.get("task", sent)
    assert wire.result(await wire.ask(http, "get", task["id"])) == task


STREAMED: dict[str, Any] = {
    "1.0": [
        (2, {"task": {**PLACE, "status": {"state": "TASK_STATE_SUBMITTED", "timestamp": "TIME"}, "history": [USER]}}),
        (3, {"statusUpdate": {**IDS, "status": {"state": "TASK_STATE_WORKING", "timestamp": "TIME"}}}),
        (4, {"artifactUpdate": {**IDS, "artifact": {**MADE, "parts": [{"text": "hello"}]}, "lastChunk": True}}),
        (5, {"statusUpdate": {**IDS, "status": {"state": "TASK_STATE_COMPLETED", "timestamp": "TIME"}}}),
    ],
    "JSON-RPC 0.3": [
        (2, {"kind": "task", **PLACE, "status": {"state": "submitted", "timestamp": "TIME"}, "history": [OLD_USER]}),
        (3, {"kind": "status-update", **IDS, "status": {"state": "working", "timestamp": "TIME"}, "final": False}),
        (4, {"kind": "artifact-update", **IDS, "artifact": {**MADE, "parts": [{"kind": "text", "text": "hello"}]},
             "append": False, "lastChunk": True}),
        (5, {"kind": "status-update", **IDS, "status": {"state": "completed", "timestamp": "TIME"}, "final": True}),
    ],
    "HTTP+JSON 0.3": [
        (2, {"task": {**PLACE, "status": {"state": "TASK_STATE_SUBMITTED", "timestamp": "TIME"},
                      "history": [REST_USER]}}),
        (3, {"statusUpdate": {**IDS, "status": {"state": "TASK_STATE_WORKING", "timestamp": "TIME"}}}),
        (4, {"artifactUpdate": {**IDS, "artifact": {**MADE, "parts": [{"text": "hello"}]}, "lastChunk": True}}),
        (5, {"statusUpdate": {**IDS, "status": {"state": "TASK_STATE_COMPLETED", "timestamp": "TIME"},
                              "final": True}}),
    ],
}  # fmt: skip


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
async def test_a_stream_is_the_task_and_then_what_happens(http: httpx2.AsyncClient, wire: Wire) -> None:
    names: dict[str, str] = {}
    frames = events(await wire.ask(http, "stream"))
    if wire.name.startswith("JSON-RPC"):
        assert {(frame["jsonrpc"], frame["id"]) for _, frame in frames} == {("2.0", 7)}
        frames = [(seq, frame["result"]) for seq, frame in frames]
    expected = STREAMED.get(wire.name) or STREAMED["1.0"]
    assert [(seq, plain(frame, names)) for seq, frame in frames] == expected


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
async def test_the_first_task_of_a_stream_has_no_more_history_than_was_asked_for(
    http: httpx2.AsyncClient, wire: Wire
) -> None:
    writer = Wire(wire.name, "/agents/writer")
    begun = await first_task(http, writer, history=0)
    assert "history" not in begun
    task = await first_task(http, writer, begun["id"], text="Ada", id_="m-2", history=0)
    assert "history" not in task
    again = (await first_task(http, writer))["id"]
    assert len((await first_task(http, writer, again, text="Ada", id_="m-2", history=1))["history"]) == 1


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
async def test_a_follow_ups_stream_begins_with_the_task_at_work(http: httpx2.AsyncClient, wire: Wire) -> None:
    """The agent has started on the answer by the time the stream begins, so the task is not submitted again."""
    writer = Wire(wire.name, "/agents/writer")
    begun = await first_task(http, writer)
    assert begun["status"]["state"] in ("TASK_STATE_SUBMITTED", "submitted")
    task = await first_task(http, writer, begun["id"], text="Ada", id_="m-2")
    assert task["status"]["state"] in ("TASK_STATE_WORKING", "working")


async def first_task(
    http: httpx2.AsyncClient, wire: Wire, task: str = "", history: int | None = None, **more: Any
) -> Json:
    """The Task that a stream begins with; it is read to its end."""
    method, path, body = wire.request("stream", task, **more)
    if history is not None:
        (body or {}).get("params", body)["configuration"] = {"historyLength": history}
    version = {"A2A-Version": "1.0"} if wire.name.endswith("1.0") else {}
    _, frame = events(await http.request(method, path, json=body, headers=version))[0]
    shown = frame["result"] if wire.name.startswith("JSON-RPC") else frame
    return shown.get("task", shown)


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
async def test_a_question_is_asked_answered_and_a_task_canceled(http: httpx2.AsyncClient, wire: Wire) -> None:
    writer = Wire(wire.name, "/agents/writer")
    sent = writer.result(await writer.ask(http, "send"))
    task = sent.get("task", sent)
    assert task["status"]["state"] in ("TASK_STATE_INPUT_REQUIRED", "input-required")
    answered = writer.result(await writer.ask(http, "send", task["id"], text="Ada", id_="m-2"))
    done = answered.get("task", answered)
    assert done["contextId"] == task["contextId"]
    assert done["status"]["state"] in ("TASK_STATE_COMPLETED", "completed")
    assert "42" in json.dumps(done["artifacts"])
    assert "42.0" not in json.dumps(done["artifacts"])

    again = writer.result(await writer.ask(http, "send"))
    canceled = writer.result(await writer.ask(http, "cancel", again.get("task", again)["id"]))
    spelled = {"JSON-RPC 0.3": "canceled", "HTTP+JSON 0.3": "TASK_STATE_CANCELLED"}
    assert canceled["status"]["state"] == spelled.get(wire.name, "TASK_STATE_CANCELED")
    refused = await writer.ask(http, "cancel", canceled["id"])
    assert b"TASK_NOT_CANCELABLE" in refused.content


@pytest.mark.parametrize("prefix", ["", "/v1"], ids=["1.0", "0.3"])
async def test_a_cancel_may_have_null_for_a_body(http: httpx2.AsyncClient, prefix: str) -> None:
    """The official Go client writes a request without parameters so."""
    version = {"A2A-Version": "0.3" if prefix else "1.0"}
    task = WIRES[0].result(await Wire(WIRES[0].name, "/agents/writer").ask(http, "send"))["task"]["id"]
    headers = {**version, "Content-Type": "application/json"}
    for body in (b"null", b" null\n"):
        path = f"/agents/writer{prefix}/tasks/{task}:cancel"
        reply = await http.post(path, content=body, headers=headers)
        if reply.status_code == 200:
            assert reply.json()["status"]["state"].startswith("TASK_STATE_CANCEL")
        else:
            assert b"TASK_NOT_CANCELABLE" in reply.content
    assert (await http.get(f"/agents/writer/tasks/{task}", headers=NEW)).json()["status"]["state"].endswith("CANCELED")


@pytest.mark.parametrize("wire", [one for one in WIRES if one.name.endswith("0.3")], ids=lambda wire: wire.name)
async def test_a_push_configuration_of_0_3_may_name_no_scheme(
    http: httpx2.AsyncClient, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = Wire(wire.name, "/agents/writer")
    sent = writer.result(await writer.ask(http, "send"))
    monkeypatch.setitem(HOOK, "authentication", {})
    made = writer.result(await writer.ask(http, "set_hook", sent.get("task", sent)["id"]))
    assert "authentication" not in made["pushNotificationConfig"]


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
async def test_a_stream_is_resumed_after_its_last_event(http: httpx2.AsyncClient, wire: Wire) -> None:
    whole = events(await wire.ask(http, "stream", headers={"Idempotency-Key": "k"}))
    rest = events(await wire.ask(http, "stream", headers={"Idempotency-Key": "k", "Last-Event-ID": "3"}))
    assert rest == whole[2:]
    first = whole[0][1].get("result", whole[0][1])
    task = first.get("task", first)["id"]
    assert events(await wire.ask(http, "subscribe", task, {"Last-Event-ID": "4"})) == whole[3:]
    refused = await wire.ask(http, "subscribe", task)
    assert b"UNSUPPORTED_OPERATION" in refused.content


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
async def test_a_direct_answer_is_a_message_and_no_task(http: httpx2.AsyncClient, wire: Wire) -> None:
    greeter = Wire(wire.name, "/agents/greeter")
    sent = greeter.result(await greeter.ask(http, "send"))
    message = sent.get("message", sent)
    assert "Hello, hello." in json.dumps(message)
    assert "taskId" not in message
    ((_, frame),) = events(await greeter.ask(http, "stream"))
    assert "Hello, hello." in json.dumps(frame)


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
async def test_push_configurations_are_kept_listed_and_deleted(http: httpx2.AsyncClient, wire: Wire) -> None:
    writer = Wire(wire.name, "/agents/writer")
    sent = writer.result(await writer.ask(http, "send"))
    task = sent.get("task", sent)["id"]
    made = writer.result(await writer.ask(http, "set_hook", task))
    assert writer.result(await writer.ask(http, "get_hook", task)) == made
    listed = writer.result(await writer.ask(http, "list_hooks", task))
    assert (listed if isinstance(listed, list) else listed["configs"]) == [made]
    for _ in range(2):
        gone = await writer.ask(http, "delete_hook", task)
        assert gone.json() == ({"jsonrpc": "2.0", "id": 7, "result": None} if "RPC" in wire.name else {})
    missing = await writer.ask(http, "get_hook", task)
    assert b"TASK_NOT_FOUND" in missing.content


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
async def test_a_receiver_that_may_not_be_called_is_refused(
    http: httpx2.AsyncClient, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One check for all bindings; the table of addresses is in tests/security."""
    writer = Wire(wire.name, "/agents/writer")
    sent = writer.result(await writer.ask(http, "send"))
    task = sent.get("task", sent)["id"]
    monkeypatch.setitem(HOOK, "url", "http://0xa9fea9fe/latest")
    refused = await writer.ask(http, "set_hook", task)
    assert b"OUTBOUND_REFUSED" in refused.content
    listed = writer.result(await writer.ask(http, "list_hooks", task))
    assert not (listed if isinstance(listed, list) else listed.get("configs"))


async def test_the_extended_card_is_given_in_the_callers_version(http: httpx2.AsyncClient) -> None:
    refused = await http.get("/agents/echo/extendedAgentCard", headers=NEW)
    assert (refused.status_code, refused.json()["error"]["details"][0]["reason"]) == (400, "UNSUPPORTED_OPERATION")
    body = {"jsonrpc": "2.0", "id": 1, "method": "GetExtendedAgentCard"}
    assert (await http.post("/agents/echo", json=body, headers=NEW)).json()["error"]["code"] == -32004


async def test_tasks_are_listed_by_pages_latest_first(http: httpx2.AsyncClient) -> None:
    wire = WIRES[1]
    made = [wire.result(await wire.ask(http, "send", id_=f"m-{n}"))["task"]["id"] for n in range(7)]
    found: list[str] = []
    token = ""
    while True:
        page = (await http.get(f"/agents/echo/tasks?pageSize=3&pageToken={token}", headers=NEW)).json()
        assert (page["pageSize"], page["totalSize"]) == (3, 7)
        assert all("artifacts" not in task and len(task["history"]) == 1 for task in page["tasks"])
        found += [task["id"] for task in page["tasks"]]
        token = page["nextPageToken"]
        if not token:
            break
    assert found == made[::-1]


LISTED = {
    "status=TASK_STATE_COMPLETED": 2,
    "status=TASK_STATE_WORKING": 0,
    "status=TASK_STATE_UNSPECIFIED": 2,
    "contextId=nobody": 0,
    "contextId=a%20b%00": 0,
    "statusTimestampAfter=2000-01-01T00:00:00Z": 2,
    "statusTimestampAfter=2999-01-01T00:00:00%2B02:00": 0,
    "includeArtifacts=true&historyLength=0": 2,
    "page_size=100&include_artifacts=false": 2,
}


@pytest.mark.parametrize("query", LISTED)
async def test_a_list_is_filtered(http: httpx2.AsyncClient, query: str) -> None:
    for wire in WIRES[:2]:
        await wire.ask(http, "send")
    reply = await http.get(f"/agents/echo/tasks?{query}", headers=NEW)
    page = reply.json()
    assert len(page["tasks"]) == page["totalSize"] == LISTED[query]
    for task in page["tasks"]:
        assert ("artifacts" in task) is ("true" in query)
        assert ("history" in task) is ("historyLength=0" not in query)


WRONG_LISTS = [
    "status=RUNNING", "pageSize=0", "pageSize=101", "pageSize=x", "pageToken=%25", "pageToken=AAAA",
    "historyLength=-1", "statusTimestampAfter=yesterday", "includeArtifacts=maybe",
]  # fmt: skip


@pytest.mark.parametrize("query", WRONG_LISTS)
async def test_a_list_that_makes_no_sense_is_refused(http: httpx2.AsyncClient, query: str) -> None:
    reply = await http.get(f"/agents/echo/tasks?{query}", headers=NEW)
    error = reply.json()["error"]
    assert (reply.status_code, error["code"], error["status"]) == (400, 400, "INVALID_ARGUMENT")
    assert error["details"][1]["fieldViolations"][0]["field"] == query.partition("=")[0]


PATHS = ["/agents/echo", "/agents/echo/", "/", ""]


@pytest.mark.parametrize("path", PATHS)
async def test_an_address_is_the_same_with_and_without_a_slash(http: httpx2.AsyncClient, path: str) -> None:
    _, _, body = WIRES[0].request("send", "")
    reply = await http.post(path, json=body, headers=NEW)
    assert plain(reply.json()["result"]) == FINISHED["JSON-RPC 1.0"]
    rest = await http.post(f"{path.rstrip('/')}/message:send/", json=WIRES[1].request("send", "")[2], headers=NEW)
    assert plain(rest.json()) == FINISHED["HTTP+JSON 1.0"]


async def test_a_tenant_names_the_agent_at_the_root(http: httpx2.AsyncClient) -> None:
    _, _, body = WIRES[0].request("send", "")
    assert body is not None
    body["params"]["tenant"] = "greeter"
    assert "message" in (await http.post("/", json=body, headers=NEW)).json()["result"]
    wrong = await http.post("/agents/echo", json=body, headers=NEW)
    assert wrong.json()["error"]["code"] == -32602
    sent = WIRES[1].request("send", "")[2]
    assert "message" in (await http.post("/greeter/message:send", json=sent, headers=NEW)).json()
    task = (await http.post("/echo/message:send", json=sent, headers=NEW)).json()["task"]["id"]
    assert (await http.get(f"/echo/tasks/{task}", headers=NEW)).status_code == 200
    assert (await http.get(f"/tasks/{task}", headers=NEW)).status_code == 200
    assert (await http.get(f"/greeter/tasks/{task}", headers=NEW)).status_code == 404
    assert (await http.get(f"/nobody/tasks/{task}", headers=NEW)).status_code == 404


MEDIA = {
    ("application/json", None): "application/json",
    ("application/a2a+json", None): "application/a2a+json",
    ("application/json; charset=utf-8", "application/a2a+json"): "application/json",
    (None, "application/json"): "application/json",
    (None, "*/*"): "application/a2a+json",
    (None, None): "application/a2a+json",
}


@pytest.mark.parametrize(("sent", "accepted"), MEDIA)
async def test_a_reply_has_the_media_type_of_its_request(
    http: httpx2.AsyncClient, sent: str | None, accepted: str | None
) -> None:
    headers = {**NEW, **({"Content-Type": sent} if sent else {}), **({"Accept": accepted} if accepted else {})}
    body = json.dumps(WIRES[1].request("send", "")[2]).encode()
    if sent is None:
        reply = await http.get("/agents/echo/tasks", headers=headers)
    else:
        reply = await http.post("/agents/echo/message:send", content=body, headers=headers)
    assert reply.headers["content-type"] == MEDIA[sent, accepted]


REFUSED: dict[str, tuple[str, str, bytes | None, str | None, int, str]] = {
    "not JSON": ("POST", "message:send", b"{", None, 400, "INVALID_JSON"),
    "not UTF-8": ("POST", "message:send", b'{"message": "\xff"}', None, 400, "INVALID_JSON"),
    "no body": ("POST", "message:send", b"", None, 400, "INVALID_INPUT"),
    "a list": ("POST", "message:send", b"[]", None, 400, "INVALID_INPUT"),
    "nested too deep": ("POST", "message:send", b"[" * 5000 + b"]" * 5000, None, 400, "NESTED_TOO_DEEP"),
    "a wrong media type": ("POST", "message:send", b"{}", "text/plain", 415, "CONTENT_TYPE_NOT_SUPPORTED"),
    "too large": ("POST", "message:send", b" " * 300_000, None, 413, "PAYLOAD_TOO_LARGE"),
    "a wrong method": ("GET", "message:send", None, None, 405, "METHOD_NOT_ALLOWED"),
    "another wrong method": ("PUT", "tasks", None, None, 405, "METHOD_NOT_ALLOWED"),
    "an unknown path": ("GET", "nonsense", None, None, 404, "UNKNOWN_METHOD"),
    "an unknown task": ("GET", "tasks/nope", None, None, 404, "TASK_NOT_FOUND"),
    "a task id of a wrong form": ("GET", "tasks/a%20b%0A", None, None, 404, "TASK_NOT_FOUND"),
    "a wrong history": ("GET", "tasks/nope?historyLength=x", None, None, 400, "INVALID_INPUT"),
    "a list in 0.3": ("GET", "v1/tasks", None, None, 404, "UNKNOWN_METHOD"),
    "a hook without a url": ("POST", "tasks/x/pushNotificationConfigs", b"{}", None, 400, "INVALID_INPUT"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_what_is_wrong_gets_its_own_error(http: httpx2.AsyncClient, case: str) -> None:
    method, path, body, media, status, reason = REFUSED[case]
    headers = {**NEW, "Content-Type": media or "application/json"} if body is not None else NEW
    reply = await http.request(method, f"/agents/echo/{path}", content=body, headers=headers)
    error = reply.json()["error"]
    assert (reply.status_code, error["code"], error["details"][0]["reason"]) == (status, status, reason)
    assert error["message"]
    assert ("allow" in reply.headers) is (status == 405)


async def test_what_json_rpc_has_and_a2a_has_not(http: httpx2.AsyncClient) -> None:
    _, _, one = WIRES[0].request("send", "")
    assert one is not None
    batch = await http.post("/agents/echo", json=[one, one], headers=NEW)
    assert (batch.json()["error"]["code"], batch.json()["id"]) == (-32600, None)
    notification = {name: value for name, value in one.items() if name != "id"}
    assert (await http.post("/agents/echo", json=notification, headers=NEW)).json()["error"]["code"] == -32600
    text = await http.post("/agents/echo", content=b"hello", headers={**NEW, "Content-Type": "text/plain"})
    assert text.json()["error"]["code"] == -32005
    assert (await http.get("/tasks", headers=NEW)).json()["totalSize"] == 0


VERSIONS = [
    ("SendMessage", None, -32009), ("SendMessage", "0.3", -32009), ("SendMessage", "1.0", None),
    ("SendMessage", "1.0.1", None), ("SendMessage", "1.7", -32009), ("SendMessage", "nonsense", -32009),
    ("message/send", None, None), ("message/send", "", None), ("message/send", "0.3", None),
    ("message/send", "0.3.0", None), ("message/send", "1.0", -32601), ("message/send", "2.0", -32009),
    ("message/nonsense", None, -32601),
]  # fmt: skip


@pytest.mark.parametrize(("method", "version", "code"), VERSIONS)
async def test_a_method_belongs_to_one_generation(
    http: httpx2.AsyncClient, method: str, version: str | None, code: int | None
) -> None:
    wire = WIRES[0] if method == "SendMessage" else WIRES[2]
    _, _, body = wire.request("send", "")
    headers = {} if version is None else {"A2A-Version": version}
    reply = await http.post("/agents/echo", json={**(body or {}), "method": method}, headers=headers)
    assert reply.json().get("error", {}).get("code") == code


async def test_http_paths_belong_to_a_generation_too(http: httpx2.AsyncClient) -> None:
    sent = WIRES[1].request("send", "")[2]
    refused = await http.post("/agents/echo/message:send", json=sent)
    assert refused.json()["error"]["details"][0]["reason"] == "VERSION_NOT_SUPPORTED"
    task = (await http.post("/agents/echo/message:send?A2A-Version=1.0", json=sent)).json()["task"]["id"]
    flat = (await http.get(f"/agents/echo/tasks/{task}")).json()
    assert (flat["kind"], flat["status"]["state"]) == ("task", "completed")


OLD_PARTS: dict[str, tuple[Json, Json]] = {
    "type instead of kind": ({"type": "text", "text": "a"}, {"kind": "text", "text": "a"}),
    "neither": ({"text": "a"}, {"kind": "text", "text": "a"}),
    "data": ({"kind": "data", "data": {"n": 42, "big": 12345678901234567890}},
             {"kind": "data", "data": {"n": 42, "big": 12345678901234567890}}),
    "a list as data": ({"data": [1, 2.0]}, {"kind": "data", "data": {"value": [1, 2.0]}}),
    "bytes": ({"kind": "file", "file": {"bytes": "dGNr", "name": "a", "mimeType": "x/y"}},
              {"kind": "file", "file": {"bytes": "dGNr", "name": "a", "mimeType": "x/y"}}),
    "a uri": ({"file": {"uri": "https://example.com/a"}}, {"kind": "file", "file": {"uri": "https://example.com/a"}}),
}  # fmt: skip


@pytest.mark.parametrize("case", OLD_PARTS)
async def test_parts_of_0_3_are_read_in_all_their_variants(http: httpx2.AsyncClient, case: str) -> None:
    given, shown = OLD_PARTS[case]
    message = {"messageId": "m", "role": "user", "parts": [given]}
    body = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": message}}
    task = (await http.post("/agents/file", json=body)).json()["result"]
    assert task["history"][0]["parts"] == [shown]
    assert task["artifacts"][0]["parts"] == [shown]


WRONG_OLD_PARTS = [
    {"kind": "video", "text": "a"}, {"kind": "text"}, {}, {"text": "a", "data": {}}, {"kind": "file", "file": {}},
    {"kind": "file", "file": {"bytes": "dGNr", "uri": "x"}}, {"kind": "file", "file": {"bytes": "%"}},
]  # fmt: skip


@pytest.mark.parametrize("part", WRONG_OLD_PARTS, ids=json.dumps)
async def test_parts_of_0_3_that_make_no_sense_are_refused(http: httpx2.AsyncClient, part: Json) -> None:
    message = {"messageId": "m", "role": "user", "parts": [part]}
    body = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": message}}
    assert (await http.post("/agents/file", json=body)).json()["error"]["code"] == -32602


async def test_the_older_name_of_a_stream_is_understood(http: httpx2.AsyncClient) -> None:
    _, _, body = WIRES[2].request("stream", "")
    frames = events(await http.post("/agents/echo", json={**(body or {}), "method": "message/sendSubscribe"}))
    assert frames[-1][1]["result"]["final"] is True


async def test_a_refused_stream_of_0_3_is_an_event_and_of_1_0_a_reply(http: httpx2.AsyncClient) -> None:
    old = await WIRES[2].ask(http, "subscribe", "nope")
    assert old.headers["content-type"].startswith("text/event-stream")
    assert json.loads(old.text.removeprefix("data: "))["error"]["code"] == -32001
    new = await WIRES[0].ask(http, "subscribe", "nope")
    assert (new.headers["content-type"], new.json()["error"]["code"]) == ("application/json", -32001)


async def test_bytes_over_http_0_3_are_base64_and_base64_of_it_for_the_python_clients(http: httpx2.AsyncClient) -> None:
    raw, tempting = b"\x00tck", b"abcd"

    def wire(content: bytes) -> str:
        return base64.b64encode(content).decode()

    async def sent_back(given: str, **headers: str) -> str:
        file = {"fileWithBytes": given, "mimeType": "x/y", "name": "a"}
        sent = {"message": {"messageId": "m", "role": "ROLE_USER", "content": [{"file": file}]}}
        task = (await http.post("/agents/file/v1/message:send", json=sent, headers=headers)).json()["task"]
        return task["artifacts"][0]["parts"][0]["file"]["fileWithBytes"]

    for content in (raw, tempting):
        assert await sent_back(wire(content)) == wire(content)
        twice = wire(wire(content).encode())
        assert await sent_back(twice, **{"User-Agent": "python-httpx/0.28.1"}) == twice
    # One of them that keeps to the schema all the same.
    assert await sent_back(wire(raw), **{"User-Agent": "python-httpx/0.28.1"}) == wire(wire(raw).encode())


async def test_fields_may_be_named_as_the_schema_names_them(http: httpx2.AsyncClient) -> None:
    params = {
        "message": {
            "message_id": "m", "role": "ROLE_USER", "context_id": "c",
            "parts": [{"data": {"snake_case": 1}, "media_type": "application/json"}],
            "metadata": {"also_mine": True},
        },
        "configuration": {"history_length": 1, "return_immediately": False},
    }  # fmt: skip
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}
    task = (await http.post("/agents/file", json=body, headers=NEW)).json()["result"]["task"]
    assert task["contextId"] == "c"
    assert task["history"][0]["parts"] == [{"data": {"snake_case": 1}, "mediaType": "application/json"}]
    assert task["history"][0]["metadata"] == {"also_mine": True}


async def test_a_card_is_cached_by_its_tag(http: httpx2.AsyncClient) -> None:
    for path in ("/.well-known/agent-card.json", "/agents/echo/.well-known/agent.json"):
        first = await http.get(path)
        assert first.headers["cache-control"] == "public, max-age=300"
        assert first.headers["last-modified"].endswith("GMT")
        again = await http.get(path, headers={"If-None-Match": first.headers["etag"]})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", first.headers["etag"])
        assert (await http.get(path, headers={"If-None-Match": '"other"'})).status_code == 200
    modern = (await http.get("/agents/echo/.well-known/agent-card.json", headers=NEW)).json()
    assert "url" not in modern
    assert len(modern["signatures"]) == 1
    assert {one["protocolVersion"] for one in modern["supportedInterfaces"]} == {"1.0", "0.3"}


async def test_media_types_that_an_agent_does_not_read_are_refused(http: httpx2.AsyncClient) -> None:
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"raw": "dGNr", "mediaType": "image/png"}]}
    reply = await http.post("/agents/echo/message:send", json={"message": message}, headers=NEW)
    assert (reply.status_code, reply.json()["error"]["details"][0]["reason"]) == (400, "CONTENT_TYPE_NOT_SUPPORTED")
    assert (await http.post("/agents/file/message:send", json={"message": message}, headers=NEW)).status_code == 200

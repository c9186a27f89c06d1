"""The runtime control plane contract: each example request is sent as the document prints it, signed, to a server of
its own, so that `run_123` is `run_123` everywhere."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path

import httpx2
import pytest

from parley import telemetry
from parley.client.control import Owner, RuntimeClient
from parley.ids import RunId
from parley.testing.servers import Server, serving
from tests.contracts.literals import Json, assert_contains, assert_like, from_json, substituted
from tests.faces.control.conftest import AGENTS
from tests.faces.control.test_stream import forget
from tests.faces.control.wire import SECRET, Wire, claims_of, error_of, kinds, until, until_done
from tests.tools.github import GitHubServer, github

RUN, THREAD = "run_123", "thread_abc"
STANDARD_CODES = """
- `unauthorized`
- `forbidden`
- `invalid_request`
- `not_found`
- `conflict`
- `stale_cursor`
- `internal_error`
"""
ERROR_ENVELOPE = """
{
  "error": {
    "code": "invalid_request",
    "message": "thread_id is required",
    "details": ["optional machine-readable validation details"]
  }
}
"""
HEALTH = """
{
  "status": "ok",
  "service": "openagents-runtime",
  "version": "0.1.0"
}
"""
DELIVERY_EVENT = """
{
  "event_id": "resend_evt_123",
  "provider": "resend",
  "delivery_state": "delivered",
  "message_id": "email_abc",
  "integration_id": "resend.primary",
  "recipient": "user@example.com",
  "occurred_at": "2026-02-19T18:00:00Z",
  "reason": null,
  "payload": {
    "rawType": "email.delivered"
  }
}
"""
DELIVERY_ACCEPTED = """
{
  "eventId": "resend_evt_123",
  "status": "accepted",
  "idempotentReplay": false
}
"""
DELIVERY_REPLAYED = """
{
  "eventId": "resend_evt_123",
  "status": "accepted",
  "idempotentReplay": true
}
"""
DELIVERY_CONFLICT = """
{
  "error": {
    "code": "conflict",
    "message": "event_id payload mismatch for existing webhook event"
  }
}
"""
TOOLS_EXECUTE = """
{
  "tool_pack": "coding.v1",
  "mode": "execute",
  "run_id": "run_123",
  "thread_id": "thread_abc",
  "manifest": {
    "manifest_version": "coding.integration.v1",
    "integration_id": "github.primary",
    "provider": "github",
    "status": "active",
    "tool_pack": "coding.v1",
    "capabilities": ["get_issue", "get_pull_request", "add_issue_comment"],
    "policy": {
      "write_operations_mode": "enforce",
      "default_repository": "OpenAgentsInc/openagents"
    }
  },
  "request": {
    "integration_id": "github.primary",
    "operation": "get_issue",
    "repository": "OpenAgentsInc/openagents",
    "issue_number": 1747,
    "run_id": "run_123",
    "tool_call_id": "tool_call_001"
  },
  "policy": {
    "authorization_id": "auth_abc",
    "authorization_mode": "delegated_budget",
    "budget": {
      "max_total_sats": 5000
    }
  }
}
"""
TOOLS_SUCCESS = """
{
  "data": {
    "state": "succeeded",
    "decision": "allowed",
    "reason_code": "policy_allowed.default",
    "receipt": {
      "receipt_id": "coding_abc123",
      "replay_hash": "..."
    }
  }
}
"""
TOOLS_FAILURE = """
{
  "error": {
    "code": "invalid_request",
    "message": "tool invocation validation failed",
    "details": ["machine-readable error details"]
  }
}
"""
SNAPSHOT = """
{
  "runId": "run_123",
  "threadId": "thread_abc",
  "status": "unknown",
  "latestSeq": 12,
  "updatedAt": "2026-02-18T12:30:00Z"
}
"""
FRAME = """
{
  "thread_id": "thread_abc",
  "frame_id": "frm_001",
  "type": "user_message",
  "payload": {
    "text": "hi"
  }
}
"""
FRAME_ACCEPTED = """
{
  "runId": "run_123",
  "frameId": "frm_001",
  "status": "accepted",
  "idempotentReplay": false
}
"""
FRAME_REPLAYED = """
{
  "runId": "run_123",
  "frameId": "frm_001",
  "status": "accepted",
  "idempotentReplay": true
}
"""
SSE = """\
event: message
id: 42
data: {"type":"text-delta","delta":"Hello","runId":"run_123"}

"""
CANCEL = """
{
  "thread_id": "thread_abc",
  "reason": "user requested stop"
}
"""
CANCEL_ACCEPTED = """
{
  "runId": "run_123",
  "status": "canceling",
  "cancelRequested": true,
  "idempotentReplay": false
}
"""
CANCEL_REPLAYED = """
{
  "runId": "run_123",
  "status": "canceling",
  "cancelRequested": true,
  "idempotentReplay": true
}
"""


class Plane:
    """User 42 at the control plane; texts go over the wire byte for byte."""

    def __init__(self, server: Server, wire: Wire, client: RuntimeClient, provider: GitHubServer) -> None:
        self.server = server
        self.wire = wire
        self.client = client
        self.provider = provider

    async def post(self, path: str, text: str, **options: object) -> httpx2.Response:
        claims = claims_of(path, json.loads(text), options.get("user", 42))
        return await self.wire.send("POST", path, text.encode(), **{"claims": claims, **options})

    async def get(self, path: str, **options: object) -> httpx2.Response:
        return await self.wire.get(path, **options)

    async def at_work(self) -> None:
        """A run whose agent works until it is canceled."""
        await self.wire.new_run(RUN, agent="sleeper")
        await self.post(f"/runs/{RUN}/frames", FRAME)
        await until(self.client, RUN, "run.progress")

    async def ended(self) -> int:
        """A run that has ended; its latest seq."""
        await self.wire.new_run(RUN)
        await self.post(f"/runs/{RUN}/frames", FRAME)
        await self.client.finish(RUN, THREAD)
        return (await until_done(self.client, RUN))[-1][0]


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[Plane]:
    async with (
        github() as provider,
        serving(tmp_path, AGENTS, store="memory", github_api=provider.url, github_token="ghp_secret") as server,
        Wire(server.url) as wire,
        RuntimeClient(server.url, SECRET, owner=Owner(user_id=42)) as client,
    ):
        yield Plane(server, wire, client, provider)


def exactly(reply: httpx2.Response, status: int, text: str) -> None:
    assert (reply.status_code, reply.json()) == (status, from_json(text))


async def test_conventions(plane: Plane) -> None:
    await plane.ended()
    signed = [
        ("GET", "/health"), ("POST", "/comms/delivery-events"), ("POST", "/tools/execute"),
        ("GET", f"/runs/{RUN}/snapshot"), ("POST", f"/runs/{RUN}/frames"), ("GET", f"/runs/{RUN}/stream"),
        ("POST", f"/runs/{RUN}/cancel"),
    ]  # fmt: skip
    for method, path in signed:
        refused = await plane.wire.send(method, path, {} if method == "POST" else None, signed=False)
        assert error_of(refused)[:2] == (401, "unauthorized")
    health = await plane.get("/health")
    assert health.headers["content-type"] == "application/json"
    stream = await plane.get(f"/runs/{RUN}/stream?thread_id={THREAD}&cursor=0")
    assert stream.headers["content-type"].partition(";")[0] == "text/event-stream"


async def test_entity_ids(plane: Plane) -> None:
    latest = await plane.ended()
    seen = [seq for seq, _ in await until_done(plane.client, RUN)]
    assert seen == list(range(1, latest + 1))


async def test_error_envelope(plane: Plane) -> None:
    await plane.wire.new_run(RUN)
    reply = await plane.get(f"/runs/{RUN}/snapshot")
    shown = from_json(ERROR_ENVELOPE)
    assert reply.status_code == 400
    assert_contains({"error": {name: shown["error"][name] for name in ("code", "message")}}, reply.json())
    assert isinstance(reply.json()["error"].get("details", []), list)


async def stale(plane: Plane) -> httpx2.Response:
    await plane.ended()
    await forget(plane.server.exchange, RunId(RUN), 4)
    return await plane.get(f"/runs/{RUN}/stream?thread_id={THREAD}&cursor=1")


async def conflicting(plane: Plane) -> httpx2.Response:
    await plane.ended()
    return await plane.post(f"/runs/{RUN}/frames", substituted(FRAME, {'"hi"': '"ho"'}))


async def foreign(plane: Plane) -> httpx2.Response:
    await plane.ended()
    return await plane.post(f"/runs/{RUN}/cancel", CANCEL, user=7)


async def broken(plane: Plane) -> httpx2.Response:
    async def defect(*_: object) -> None:
        raise ValueError("a secret of the server")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plane.server.exchange.commands, "stored", defect)
        return await plane.post(f"/runs/{RUN}/cancel", CANCEL)


CAUSES: dict[str, tuple[int, Callable[[Plane], Awaitable[httpx2.Response]]]] = {
    "unauthorized": (401, lambda plane: plane.get("/health", signed=False)),
    "forbidden": (403, foreign),
    "invalid_request": (400, lambda plane: plane.post(f"/runs/{RUN}/frames", '{"thread_id": "thread_abc"}')),
    "not_found": (404, lambda plane: plane.post(f"/runs/{RUN}/frames", FRAME)),
    "conflict": (409, conflicting),
    "stale_cursor": (410, stale),
    "internal_error": (500, broken),
}


@pytest.mark.parametrize("code", re.findall(r"`(\w+)`", STANDARD_CODES))
async def test_error_envelope_standard_error_codes(plane: Plane, code: str) -> None:
    status, cause = CAUSES[code]
    reply = await cause(plane)
    assert (reply.status_code, reply.json()["error"]["code"]) == (status, code)
    assert isinstance(reply.json()["error"]["message"], str)
    assert "a secret" not in reply.text


async def test_cursor_semantics(plane: Plane) -> None:
    latest = await plane.ended()
    path = f"/runs/{RUN}/stream?thread_id={THREAD}"
    both = await plane.get(f"{path}&cursor=2", headers={"Last-Event-ID": "3"})
    assert error_of(both)[:2] == (400, "invalid_request")
    by_query = await plane.get(f"{path}&cursor=2")
    by_header = await plane.get(path, headers={"Last-Event-ID": "2"})
    assert by_query.text == by_header.text
    assert re.findall(r"^id: (\d+)$", by_query.text, re.MULTILINE)[0] == "3"
    neither = await plane.get(path)
    assert neither.text == f"event: message\nid: {latest}\ndata: [DONE]\n\n"
    await forget(plane.server.exchange, RunId(RUN), 4)
    assert error_of(await plane.get(f"{path}&cursor=2"))[:2] == (410, "stale_cursor")


async def test_stream_tail_window(plane: Plane) -> None:
    await plane.wire.new_run(RUN)
    path = f"/runs/{RUN}/stream?thread_id={THREAD}"
    for invalid in ("0", "-1", "soon"):
        assert error_of(await plane.get(f"{path}&tail_ms={invalid}"))[:2] == (400, "invalid_request")
    assert (await plane.get(f"{path}&tail_ms=50")).text == ""
    async with aclosing(plane.client.stream(RUN, THREAD, 0, tail_ms=20_000)) as events:
        assert (await anext(events))[0] == 1
        assert (await plane.post(f"/runs/{RUN}/frames", FRAME)).status_code == 202
        assert (await anext(events))[0] == 2


async def test_idempotency_frame_id(plane: Plane) -> None:
    await plane.wire.new_run(RUN)
    path = f"/runs/{RUN}/frames"
    exactly(await plane.post(path, FRAME), 202, FRAME_ACCEPTED)
    exactly(await plane.post(path, FRAME), 200, FRAME_REPLAYED)
    for old, new in (('"hi"', '"ho"'), ('"user_message"', '"other_message"')):
        other = await plane.post(path, substituted(FRAME, {old: new}))
        assert error_of(other)[:2] == (409, "conflict")


async def test_cancellation_semantics(plane: Plane) -> None:
    await plane.at_work()
    first, *others = await asyncio.gather(*(plane.post(f"/runs/{RUN}/cancel", CANCEL) for _ in range(3)))
    replies = sorted((first, *others), key=lambda reply: -reply.status_code)
    assert [(one.status_code, one.json()["idempotentReplay"]) for one in replies] == [
        (202, False), (200, True), (200, True),
    ]  # fmt: skip
    seen = await until_done(plane.client, RUN)
    assert kinds(seen).count("run.cancel_requested") == 1
    blocked = (await plane.post("/tools/execute", TOOLS_EXECUTE)).json()["data"]
    assert (blocked["state"], plane.provider.asked) == ("blocked", [])
    late = substituted(FRAME, {"frm_001": "frm_002"})
    await plane.post(f"/runs/{RUN}/frames", late)
    assert (await plane.client.snapshot(RUN, THREAD))["status"] == "canceled"


async def test_get_internal_v1_health(plane: Plane) -> None:
    reply = await plane.get("/health")
    assert reply.status_code == 200
    shown = from_json(HEALTH)
    assert_like(shown, reply.json())
    assert_contains({name: shown[name] for name in ("status", "service")}, reply.json())


async def test_post_internal_v1_comms_delivery_events(plane: Plane) -> None:
    path = "/comms/delivery-events"
    exactly(await plane.post(path, DELIVERY_EVENT), 202, DELIVERY_ACCEPTED)
    exactly(await plane.post(path, DELIVERY_EVENT), 200, DELIVERY_REPLAYED)
    other = await plane.post(path, substituted(DELIVERY_EVENT, {'"email.delivered"': '"email.bounced"'}))
    assert other.status_code == 409
    assert_contains(from_json(DELIVERY_CONFLICT), other.json())
    for field in ("event_id", "provider", "delivery_state", "payload"):
        without = {name: value for name, value in from_json(DELIVERY_EVENT).items() if name != field}
        refused = await plane.post(path, json.dumps(without))
        assert error_of(refused) == (400, "invalid_request", f"{field} is required")


async def test_post_internal_v1_tools_execute(plane: Plane) -> None:
    await plane.wire.new_run(RUN)
    reply = await plane.post("/tools/execute", TOOLS_EXECUTE)
    assert reply.status_code == 200
    shown = from_json(TOOLS_SUCCESS)
    assert_like(shown, reply.json())
    assert_contains({"data": {**shown["data"], "receipt": {}}}, reply.json())
    assert re.fullmatch(r"coding_[0-9a-f]+", reply.json()["data"]["receipt"]["receipt_id"])
    assert [one.path for one in plane.provider.asked] == ["/repos/OpenAgentsInc/openagents/issues/1747"]
    replay = await plane.post("/tools/execute", substituted(TOOLS_EXECUTE, {'"execute"': '"replay"'}))
    assert (replay.status_code, len(plane.provider.asked)) == (200, 1)


async def test_post_internal_v1_tools_execute_minimal(plane: Plane) -> None:
    """With the required fields alone; and each of them is required."""
    whole = from_json(TOOLS_EXECUTE)
    needed: Json = {name: whole[name] for name in ("tool_pack", "manifest", "request")}
    reply = await plane.post("/tools/execute", json.dumps(needed))
    assert reply.status_code == 200
    assert_contains({"decision": "denied", "reason_code": "policy_denied.authorization_missing"}, reply.json()["data"])
    for name in needed:
        without = {other: value for other, value in whole.items() if other != name}
        assert error_of(await plane.post("/tools/execute", json.dumps(without)))[:2] == (400, "invalid_request")
    anonymous = await plane.post("/tools/execute", TOOLS_EXECUTE, user=None)
    assert error_of(anonymous)[:2] == (400, "invalid_request")


async def test_post_internal_v1_tools_execute_validation_failure(plane: Plane) -> None:
    wrong = substituted(TOOLS_EXECUTE, {'"operation": "get_issue"': '"operation": "delete_repository"'})
    reply = await plane.post("/tools/execute", wrong)
    shown = from_json(TOOLS_FAILURE)
    assert reply.status_code == 422
    assert_like(shown, reply.json())
    assert_contains({"error": {name: shown["error"][name] for name in ("code", "message")}}, reply.json())


async def test_get_internal_v1_runs_run_id_snapshot(plane: Plane) -> None:
    latest = await plane.ended()
    reply = await plane.get(f"/runs/{RUN}/snapshot?thread_id={THREAD}")
    assert reply.status_code == 200
    assert_like(from_json(SNAPSHOT), reply.json())
    assert_contains({"runId": RUN, "threadId": THREAD, "latestSeq": latest, "status": "succeeded"}, reply.json())
    nobody = await plane.get(f"/runs/{RUN}/snapshot?thread_id={THREAD}", user=None)
    assert error_of(nobody)[:2] == (401, "unauthorized")
    await plane.wire.new_run("run_guest", user=None, guest="guest_1")
    guest = await plane.get(f"/runs/run_guest/snapshot?thread_id={THREAD}", user=None, guest="guest_1")
    assert guest.status_code == 200


async def test_post_internal_v1_runs_run_id_frames(plane: Plane) -> None:
    await plane.wire.new_run(RUN)
    exactly(await plane.post(f"/runs/{RUN}/frames", FRAME), 202, FRAME_ACCEPTED)
    exactly(await plane.post(f"/runs/{RUN}/frames", FRAME), 200, FRAME_REPLAYED)
    for field in ("thread_id", "frame_id", "type", "payload"):
        without = {name: value for name, value in from_json(FRAME).items() if name != field}
        refused = await plane.post(f"/runs/{RUN}/frames", json.dumps(without))
        assert error_of(refused) == (400, "invalid_request", f"{field} is required")


async def test_get_internal_v1_runs_run_id_stream(plane: Plane) -> None:
    """The frame of the example, line by line; the seq is the run's own."""
    await plane.wire.new_run(RUN)
    await plane.post(f"/runs/{RUN}/frames", substituted(FRAME, {'"hi"': '"Hello"'}))
    await plane.client.finish(RUN, THREAD)
    await until_done(plane.client, RUN)
    reply = await plane.get(f"/runs/{RUN}/stream?thread_id={THREAD}&cursor=0&tail_ms=1000")
    frames = reply.text.split("\n\n")
    (delta,) = [frame for frame in frames if '"text-delta"' in frame]
    seq = re.findall(r"^id: (\d+)$", delta, re.MULTILINE)[0]
    *head, data = substituted(SSE, {"id: 42": f"id: {seq}"}).rstrip("\n").splitlines()
    *shown, told = delta.splitlines()
    assert shown == head
    assert json.loads(told.removeprefix("data: ")) == json.loads(data.removeprefix("data: "))
    assert frames[-2].endswith("\ndata: [DONE]")


async def test_post_internal_v1_runs_run_id_cancel(plane: Plane) -> None:
    await plane.at_work()
    exactly(await plane.post(f"/runs/{RUN}/cancel", CANCEL), 202, CANCEL_ACCEPTED)
    again = await plane.post(f"/runs/{RUN}/cancel", CANCEL)
    shown = from_json(CANCEL_REPLAYED)
    assert again.status_code == 200
    assert_like(shown, again.json())
    # The agent may have stopped meanwhile; then the status is the one that it ended with.
    assert again.json() in (shown, {**shown, "status": "canceled"})
    assert error_of(await plane.post(f"/runs/{RUN}/cancel", "{}"))[:2] == (400, "invalid_request")


async def test_ownership_and_principal_enforcement(plane: Plane) -> None:
    await plane.wire.new_run(RUN)
    claimed = json.dumps({**from_json(FRAME), "user_id": 42})
    assert error_of(await plane.post(f"/runs/{RUN}/frames", claimed, user=7))[:2] == (403, "forbidden")
    assert (await plane.post(f"/runs/{RUN}/frames", claimed)).status_code == 202


async def test_tracing_contract(plane: Plane) -> None:
    sent = {
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "vendor=1",
        "x-request-id": "req-7",
    }  # fmt: skip
    spans: list[str] = []
    detach = telemetry.attach(lambda name, fields: spans.append(fields["name"]) if name == "span.ended" else None)
    try:
        await plane.wire.new_run(RUN)
        replies = [
            await plane.post(f"/runs/{RUN}/frames", FRAME, headers=sent),
            await plane.post("/tools/execute", TOOLS_EXECUTE, headers=sent),
            await plane.get(f"/runs/{RUN}/stream?thread_id={THREAD}&tail_ms=1", headers=sent),
            await plane.get(f"/runs/{RUN}/snapshot?thread_id={THREAD}", headers=sent),
        ]
        await until(plane.client, RUN, "run.input_required")
    finally:
        detach()
    assert all({name: reply.headers[name] for name in sent} == sent for reply in replies)
    assert {"runtime.ingest", "runtime.infer", "runtime.tool", "runtime.persist", "runtime.stream"} <= set(spans)
    (asked,) = plane.provider.asked
    assert asked.headers["traceparent"] == sent["traceparent"]

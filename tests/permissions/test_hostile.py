"""Hostile requests to everything there is: each is refused in words, soon, and nothing of it comes back as a header."""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import grpc
import httpx2
import pytest
import pytest_asyncio

from parley import ArtifactChunk, Turn, agent, telemetry
from parley.runs.rules.content import Part
from parley.testing.databases import fresh_database
from parley.testing.processes import until
from tests.faces.a2a.test_grpc import address_of
from tests.permissions.house import House, open_house, signed
from tests.permissions.requests import Asked, request_for, ruled, version_for
from tests.permissions.walk import asked_of

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]

SOON_S = 3.0
DEEP = "[" * 5_000 + "]" * 5_000
BODIES: dict[str, bytes] = {
    "nothing": b"",
    "a lone bracket": b"[" * 50_000,
    "deep arrays": DEEP.encode(),
    "deep objects": b'{"a":' * 5_000 + b"1" + b"}" * 5_000,
    "a scalar": b"42",
    "null": b"null",
    "not UTF-8": b'{"a": "\xff\xfe"}',
    "UTF-16": '{"a": 1}'.encode("utf-16"),
    "zero bytes": b"\x00" * 64,
    "a very long number": b'{"id": ' + b"9" * 10_000 + b"}",
    "a number without an end": b'{"id": 1e999999999}',
    "the same name many times": b"{" + b",".join([b'"id": 1'] * 5_000) + b"}",
    "many names": json.dumps({f"n{number}": number for number in range(5_000)}).encode(),
    "half a body": b'{"jsonrpc": "2.0", "id": 1, "method": "SendMess',
}
VALUES: dict[str, str] = {
    "deep": DEEP, "null": "null", "huge": "1e999", "zero": r'"a\u0000b"', "half": r'"\ud800"',
    "lines": r'"a\r\nset-cookie: stolen=1"', "path": '"../../../../etc/passwd"',
}  # fmt: skip
IDS = [
    "%00", "a%00b", "..%2f..%2f..%2fetc%2fpasswd", "..", "%2e%2e", "a%0d%0aset-cookie:%20stolen=1", "a" * 3000,
    "%ff%fe", "%ed%a0%80", "'%22%3b--", "*", "%25s%25n", "a%20b", "%F0%9F%92%A3",
]  # fmt: skip


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    """On PostgreSQL, which has more to object to than SQLite."""
    settings = {"store": "postgres", "postgres_url": await fresh_database(request.getfixturevalue("postgres"))}
    async with open_house(tmp_path_factory.mktemp("hostile"), named, max_body_bytes=2_000_000, **settings) as house:
        yield house


@contextmanager
def crashes() -> Iterator[list[str]]:
    told: list[str] = []
    detach = telemetry.attach(lambda name, fields: told.append(str(fields)) if name.endswith("crashed") else None)
    try:
        yield told
    finally:
        detach()


def credentials(house: House, asked: str, path: str) -> dict[str, str]:
    """Credentials of a caller that may use the operation."""
    rule = ruled(asked)
    assert rule is not None
    if path.startswith("/internal/v1"):
        run = re.match("/internal/v1/runs/([^/]+)/", path)
        return signed(user_id=42, **({"run_id": run[1]} if run else {}))
    who = next((name for name in ("admin", "runtime", "node", "nobody") if name in rule.who), "nobody")
    return house.headers(who)


async def sent(house: House, asked: str, made: Asked, content: bytes, media: str = "application/json") -> str:
    """Send a request; return what is wrong with the answer, empty if nothing is."""
    method, path, _, headers = made
    given = {**credentials(house, asked, path), **headers, "Content-Type": media}
    begun = time.monotonic()
    async with house.http.stream(method, path, content=content, headers=given) as reply:
        if "text/event-stream" not in reply.headers.get("content-type", ""):
            await reply.aread()
        return complaint(reply, time.monotonic() - begun)


def complaint(reply: httpx2.Response, took_s: float) -> str:
    if reply.status_code >= 500:
        return f"{reply.status_code} {reply.text[:100]}"
    if took_s > SOON_S:
        return f"took {took_s:.1f} s"
    if any("stolen" in value or "\n" in value for value in reply.headers.values()):
        return f"headers {reply.headers}"
    return ""


def with_bodies(house: House) -> list[str]:
    kinds = ("POST", "PATCH", "RPC", "MCP", "002")
    return [one for one in asked_of(house.server.app) if one.split(" ")[0] in kinds]


async def every(house: House, asked: list[str], contents: dict[str, bytes], media: str = "application/json") -> None:
    wrong: list[str] = []
    with crashes() as crashed:
        for one in asked:
            made = request_for(one, ruled(one), house.nodes["node"].id)
            for name, content in contents.items():
                if said := await sent(house, one, made, content, media):
                    wrong.append(f"{one} with {name}: {said}")
    assert not wrong, "\n".join(wrong)
    assert not crashed


NAMED = [
    "a\r\nset-cookie: stolen=1",
    "../../etc/passwd",
    '"; filename="stolen',
    "a\x00b",
    "/",
    "..",
    "\u202egnp.exe",
    "ä",
]


@agent("named")
async def named(turn: Turn):
    """Calls its files as nobody should."""
    for number, name in enumerate(NAMED):
        part = Part(text="content", filename=name, media_type="text/html\r\nset-cookie: stolen=1")
        yield ArtifactChunk(part, id=f"file-{number}")


async def test_no_name_of_a_file_becomes_a_header_or_a_path(house: House) -> None:
    task = await house.task("user", slug="named")

    async def done() -> bool:
        shown = await house.ask("user", "GET", f"/agents/named/tasks/{task}", None, {"A2A-Version": "1.0"})
        return shown.json()["status"]["state"] == "TASK_STATE_COMPLETED"

    await until(done)
    for number in range(len(NAMED)):
        for path in (f"/agents/named/tasks/{task}/artifacts/file-{number}", f"/console/runs/{task}/text/file-{number}"):
            reply = await house.ask("user", "GET", path)
            assert reply.status_code == 200, reply.text
            assert set(reply.headers) & {"set-cookie", "stolen"} <= {"set-cookie"}
            assert "stolen=1" not in str(reply.headers.get_list("set-cookie"))
            saved = reply.headers["content-disposition"]
            assert saved.startswith("attachment; filename*=UTF-8''")
            assert re.fullmatch(r"[\w.%~-]+", saved.partition("''")[2], re.ASCII)
            assert reply.headers["x-content-type-options"].startswith("nosniff")


async def test_no_body_breaks_anything(house: House) -> None:
    await every(house, with_bodies(house), BODIES)


async def test_no_value_of_a_member_breaks_anything(house: House) -> None:
    """A valid request, with each of its members replaced in turn."""
    wrong: list[str] = []
    with crashes() as crashed:
        for one in with_bodies(house):
            made = request_for(one, ruled(one), house.nodes["node"].id)
            for place, name, content in replaced(made[2]):
                if said := await sent(house, one, made, content):
                    wrong.append(f"{one} with {place} {name}: {said}")
    assert not wrong, "\n".join(wrong)
    assert not crashed


def replaced(body: Any) -> Iterator[tuple[str, str, bytes]]:
    for place in places(body or {}):
        for name, value in VALUES.items():
            marked = json.dumps(put(body, place, "\u2620"))
            yield ".".join(map(str, place)), name, marked.replace(json.dumps("\u2620"), value).encode()


def places(body: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    members = body.items() if isinstance(body, dict) else enumerate(body) if isinstance(body, list) else ()
    for name, value in members:
        yield (*at, name)
        yield from places(value, (*at, name))


def put(body: Any, place: tuple[Any, ...], value: Any) -> Any:
    if not place:
        return value
    copy = dict(body) if isinstance(body, dict) else list(body)
    copy[place[0]] = put(copy[place[0]], place[1:], value)
    return copy


async def test_a_body_that_is_too_long_is_refused_as_such(house: House) -> None:
    """Before it is all there: the end of it is never sent."""
    wrong: list[str] = []
    for one in with_bodies(house):
        method, path, _, headers = request_for(one, ruled(one), house.nodes["node"].id)
        media = "application/x-www-form-urlencoded" if path.startswith("/console") else "application/json"
        given = {**credentials(house, one, path), **headers, "Content-Type": media}
        status = await flooded(house, method, path, given)
        if (status == 413) == (one in UNREAD) or not 200 <= status < 500:
            wrong.append(f"{one}: {status}")
    assert not wrong, "\n".join(wrong)


UNREAD = frozenset((
    "POST /workspaces/{id}/tokens", "POST /workspaces/{id}/delegations/{delegation}/cancel",
    "POST /admin/signing/rotate", "POST /admin/push/{task}/{id:path}/redrive", "POST /admin/agents/{slug}/pairing",
    "POST /console/runs/{id:path}/answer", "POST /console/runs/{id:path}/cancel", "POST /console/runs/{id:path}/fork",
    "POST /console/runs/{id:path}/retry",
))  # fmt: skip
"""Operations that need no body, or answer before they read it."""


async def flooded(house: House, method: str, path: str, headers: dict[str, str]) -> int:
    """The answer to a body that is a little over the limit, and says to be far over it."""
    place = urlsplit(house.server.url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    try:
        lines = [f"{method} {path} HTTP/1.1", f"host: {place.netloc}", "content-length: 99999999999"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode() + b'{"a": "' + b"a" * 2_100_000)
        async with asyncio.timeout(SOON_S):
            return int((await reader.readuntil(b"\r\n")).split()[1])
    except TimeoutError:
        return 0
    finally:
        writer.close()


@pytest.mark.parametrize(
    "media", ["text/plain", "multipart/form-data; boundary=x", "application/xml", "a/b; charset", ",", "x" * 5000]
)
async def test_another_content_type_is_refused_or_read_as_json(house: House, media: str) -> None:
    await every(house, with_bodies(house), {"a body": b'{"id": 1}'}, media)


async def test_no_id_breaks_anything_or_leads_elsewhere(house: House) -> None:
    wrong: list[str] = []
    with crashes() as crashed:
        for one in asked_of(house.server.app):
            kind, _, path = one.partition(" ")
            if "{" not in path or kind in ("RPC", "REST", "gRPC", "MCP", "002"):
                continue
            body = request_for(one, ruled(one), house.nodes["node"].id)[2]
            for id_ in IDS:
                at = re.sub(r"\{\w+(:\w+)?\}", lambda _, id_=id_: id_, path)
                made = (kind, at, body, {})
                if said := await sent(house, one, made, json.dumps(body).encode() if body is not None else b""):
                    wrong.append(f"{one} with {id_[:40]}: {said}")
    assert not wrong, "\n".join(wrong)
    assert not crashed


NAMES = ["agent", "principal", "contextId", "state", "since", "pageSize", "pageToken", "after", "q", "limit", "before",
         "type", "parent_id", "removed", "part", "cursor", "tail_ms", "thread_id", "name", "exp", "sig", "forwarded_to",
         "cascade", "historyLength", "dead"]  # fmt: skip


async def test_no_query_breaks_anything(house: House) -> None:
    wrong: list[str] = []
    with crashes() as crashed:
        for one in asked_of(house.server.app):
            if one.split(" ")[0] not in ("GET", "REST", "DELETE") or one == "DELETE /workspaces/{id}":
                continue
            method, path, body, headers = request_for(one, ruled(one), house.nodes["node"].id)
            for value in ("%00", "%ff", "9" * 400, "-1", "%ed%a0%80", "a%0d%0ab", "1e400", "%f0%9f%92%a3"):
                query = "&".join(f"{name}={value}" for name in NAMES)
                made = (method, f"{path}?{query}", body, headers)
                if said := await sent(house, one, made, json.dumps(body).encode() if body is not None else b""):
                    wrong.append(f"{one} with {value[:20]}: {said}")
    assert not wrong, "\n".join(wrong)
    assert not crashed


HEADERS = (
    "Last-Event-ID", "Idempotency-Key", "A2A-Version", "A2A-Extensions", "Prefer", "Mcp-Session-Id", "X-Workspace-ID",
    "X-OA-User-Id", "X-OA-Guest-Scope", "X-OA-RUNTIME-SIGNATURE", "X-OA-RUNTIME-KEY-ID", "X-OA-RUNTIME-BODY-SHA256",
    "X-Runtime-Token", "X-API-Key", "Authorization", "If-None-Match", "Accept", "traceparent", "tracestate",
    "X-Request-ID", "Origin", "Host", "MCP-Protocol-Version",
)  # fmt: skip


@pytest.mark.parametrize("value", [b"Bearer v1.\xe9\xff.x", b"9" * 20_000])
async def test_no_header_breaks_anything(house: House, value: bytes) -> None:
    """One route of each face: headers are read in one place for all of its routes."""
    some = ["RPC SendMessage", "REST 1.0 subscribe", "GET /agents/{slug}/.well-known/agent-card.json", "MCP tools/list",
            "002 plan.read", "GET /api/agent2agent/tasks/{taskId}/stream", "GET /internal/v1/runs/{run_id}/stream",
            "POST /agent-accounts/{agent}/task-runs/pull", "GET /workspaces/{id}", "GET /workspaces/{id}/events/stream",
            "GET /admin/keys", "GET /mcp", "GET /api/exports/{id}"]  # fmt: skip
    wrong: list[str] = []
    with crashes() as crashed:
        for one in some:
            method, path, body, headers = request_for(one, ruled(one), house.nodes["node"].id)
            for name in HEADERS:
                good = {**credentials(house, one, path), **headers, "Content-Type": "application/json"}
                given = [(k.encode(), v.encode()) for k, v in good.items() if k.lower() != name.lower()]
                content = json.dumps(body).encode() if body is not None else b""
                begun = time.monotonic()
                async with house.http.stream(
                    method, path, content=content, headers=[*given, (name.encode(), value)]
                ) as reply:
                    if "text/event-stream" not in reply.headers.get("content-type", ""):
                        await reply.aread()
                if said := complaint(reply, time.monotonic() - begun):
                    wrong.append(f"{one} with {name}: {said}")
    assert not wrong, "\n".join(wrong)
    assert not crashed


async def test_no_message_over_grpc_breaks_anything(house: House) -> None:
    """Bytes that are no message, one that is too long, and headers that are."""
    wrong: list[str] = []
    refused = {
        "INVALID_ARGUMENT",
        "RESOURCE_EXHAUSTED",
        "NOT_FOUND",
        "UNIMPLEMENTED",
        "UNAVAILABLE",
        "FAILED_PRECONDITION",
        "OK",
    }
    good = tuple((name.lower(), value) for name, value in house.headers("user").items())
    sent: dict[str, tuple[bytes, tuple[tuple[str, str], ...]]] = {
        "garbage": (b"\xff" * 100, ()),
        "half a message": (b"\x0a\x7f\x01", ()),
        "deep": (b"\x0a\x02" * 20_000, ()),
        "too long": (b"\x0a" + b"a" * 5_000_000, ()),
        "long headers": (b"", (("x-long", "a" * 100_000),)),
        "wrong headers": (b"", (("last-event-id", "-1"), ("idempotency-key", "a" * 5000))),
    }
    with crashes() as crashed:
        async with grpc.aio.insecure_channel(await address_of(house.server)) as channel:
            for one in asked_of(house.server.app):
                if not one.startswith("gRPC "):
                    continue
                for name, (message, metadata) in sent.items():
                    call = channel.unary_stream(f"/{one.removeprefix('gRPC ')}")(
                        message, metadata=(("tenant", "echo"), version_for(one), *good, *metadata), timeout=10
                    )
                    begun = time.monotonic()
                    code = await ended(call)
                    if code not in refused or time.monotonic() - begun > SOON_S:
                        wrong.append(f"{one} with {name}: {code} {await call.details()}")
    assert not wrong, "\n".join(wrong)
    assert not crashed


async def ended(call: Any) -> str:
    try:
        await call.read()
    except grpc.aio.AioRpcError as error:
        return error.code().name
    call.cancel()
    return "OK"

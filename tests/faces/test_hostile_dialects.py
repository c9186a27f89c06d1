"""Hostile input for AG-UI and the tasks of MCP: each answer is an error of the face, none a defect of the server."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parley.testing.servers import ServerThread
from tests.faces.agui.agents import echo, poet
from tests.faces.agui.wire import run_input
from tests.faces.mcp.wire import BOTH, OLD, call, modern, request

Json = Any

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
WORDS = st.sampled_from(
    ["", "x#1", "#", "user", "tool", "assistant", "\x00", "é" * 200, "../..", "resolved", "cancelled", "accept"]
)

AGUI = [
    run_input("hello"),
    run_input(resume=[{"interruptId": "x#1", "status": "resolved", "payload": {"a": [1]}}]),
    run_input(messages=[{"id": "m", "role": "tool", "toolCallId": "x#1", "content": "hi"}]),
    run_input(messages=[{"id": "m", "role": "user", "content": [
        {"type": "text", "text": "hi"},
        {"type": "image", "source": {"type": "data", "value": "aGk=", "mimeType": "image/png"}},
        {"type": "binary", "mimeType": "image/png", "url": "https://example.com/a.png"},
    ]}], tools=[{"name": "t", "description": "d", "parameters": {}}], context=[{"description": "a", "value": "b"}]),
]  # fmt: skip
MCP = [
    {**call("echo", "hi"), "params": {**call("echo", "hi")["params"], "task": {"ttl": 1}}},
    request("tasks/get", taskId="x"),
    request("tasks/result", taskId="x"),
    request("tasks/list", cursor="x"),
    request("tasks/cancel", taskId="x"),
    request("tasks/update", taskId="x", inputResponses={"x#1": {"action": "accept", "content": {"answer": "a"}}}),
    {"jsonrpc": "2.0", "id": "x#1", "result": {"action": "accept", "content": {"answer": "a"}}},
    request("subscriptions/listen", notifications={"taskIds": ["x"]}),
]


def places(value: Json, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield at
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, one in inner:
        yield from places(one, (*at, name))


@st.composite
def damaged(draw: st.DrawFn, good: list[Json]) -> Json:
    """A good request in which some members are others, or missing."""
    body = copy.deepcopy(draw(st.sampled_from(good)))
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.sampled_from([*places(body)]))
        if not place:
            return draw(JSON)
        holder = body
        for name in place[:-1]:
            holder = holder[name]
        if draw(st.booleans()):
            del holder[place[-1]]
        else:
            holder[place[-1]] = draw(JSON | WORDS)
    return body


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerThread]:
    running = ServerThread(tmp_path_factory.mktemp("data"), [echo, poet])
    yield running
    running.stop()


def sent(url: str, body: Json, headers: dict[str, str]) -> int:
    """The status of the answer; a stream is not read."""
    content = json.dumps(body).encode(errors="surrogatepass")
    with httpx2.stream("POST", url, content=content, headers={"Content-Type": "application/json", **headers}) as reply:
        return reply.status_code


HOSTILE = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.slow
@HOSTILE
@given(body=damaged(AGUI), last=st.none() | st.sampled_from(["1", "2.1", "0", "99999", "x", "1.999999"]))
def test_damaged_input_of_agui_is_refused(server: ServerThread, body: Json, last: str | None) -> None:
    headers = {"Last-Event-ID": last} if last else {}
    assert sent(f"{server.agent('echo')}/agui", body, headers) in (200, 400, 404, 409, 413)


@pytest.mark.slow
@HOSTILE
@given(body=damaged(MCP), new=st.booleans())
def test_damaged_requests_about_tasks_are_refused(server: ServerThread, body: Json, new: bool) -> None:
    headers = OLD
    if new and isinstance(body, dict) and isinstance(body.get("params"), dict) and isinstance(body.get("method"), str):
        body, headers = modern(
            {**body, "params": {name: one for name, one in body["params"].items() if name != "_meta"}}
        )
        # A name that is no text, or none that a header can hold, is in the body alone.
        held = {name: one for name, one in headers.items() if isinstance(one, str) and one.isprintable()}
        headers = {name: one for name, one in held.items() if one.isascii()} | BOTH
    assert sent(f"{server.url}/mcp", body, headers) in (200, 202, 400, 404, 413)

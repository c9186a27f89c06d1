"""Callers cannot see where an agent works: all bytes that a2a-sdk's client receives from both kinds are equal."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest
import pytest_asyncio
from a2a.client import Client, ClientConfig, create_client
from a2a.types import CancelTaskRequest, GetTaskRequest, Message, Part, Role, SendMessageRequest

from edge.tests.programs import environment
from parley.ids import new_id
from parley.testing.processes import ServerProcess
from tests.joint.chain import HERE, paired, script, working

pytestmark = [
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="module"),
    # The SDK's own protobuf classes.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

SAME = "driver: edge\nname: Same\ndescription: "
DEFINITIONS = {
    "far": f"{SAME}The same agent, wherever it works.\n",
    "far-reply": f"{SAME}Answers with a message.\nreplies: message\n",
}
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_OF_THE_MOMENT = ("date", "content-length", "etag", "last-modified", "x-request-id")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[ServerProcess, None]:
    folder = tmp_path_factory.mktemp("transcripts")
    (agents := folder / "agents").mkdir()
    for slug, definition in DEFINITIONS.items():
        (agents / f"{slug}.yaml").write_text(definition)
    server = await ServerProcess.start([agents, HERE / "near_agents.py"], folder / "data")
    async with AsyncExitStack() as stack:
        stack.push_async_callback(server.stop)
        endpoint = await stack.enter_async_context(script("far_agent.py", env=environment(folder)))
        for slug in DEFINITIONS:
            await paired(server, slug, folder / slug, endpoint)
            await stack.enter_async_context(working(folder / slug))
        yield server


class Tap(httpx.AsyncHTTPTransport):
    """Passes everything on, and keeps what was answered."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[tuple[httpx.Response, bytearray]] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await super().handle_async_request(request)
        self.answers.append((response, body := bytearray()))
        assert isinstance(response.stream, httpx.AsyncByteStream)
        response.stream = Copied(response.stream, body)
        return response


class Copied(httpx.AsyncByteStream):
    def __init__(self, stream: httpx.AsyncByteStream, body: bytearray) -> None:
        self._stream = stream
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            self._body += chunk
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


class Transcript:
    """The answers without values that change: ids replaced by their order, no times, one slug."""

    def __init__(self, slug: str) -> None:
        self._slug = slug
        self._ids: dict[str, str] = {}

    def of(self, response: httpx.Response, body: bytes) -> list[Any]:
        kept = {name: value for name, value in response.headers.items() if name not in _OF_THE_MOMENT}
        return [response.status_code, self._plain(kept), *map(self._frame, _frames(body))]

    def _frame(self, frame: dict[str, Any]) -> Any:
        return {name: self._plain(value) for name, value in frame.items()}

    def _plain(self, value: Any) -> Any:
        match value:
            case dict():
                return {name: self._plain(one) for name, one in value.items() if name not in ("signatures", "url")}
            case list():
                return [self._plain(one) for one in value]
            case str():
                text = _UUID.sub(lambda found: self._ids.setdefault(found[0], f"id-{len(self._ids)}"), value)
                return "slug" if text == self._slug else _TIME.sub("time", text).replace(f"/{self._slug}", "/slug")
            case _:
                return value


def _frames(body: bytes) -> list[dict[str, Any]]:
    """The JSON of an answer; or the events of a stream with their ids, without the comments that keep it open."""
    if body.lstrip().startswith(b"{"):
        return [{"data": json.loads(body)}]
    events: list[dict[str, Any]] = []
    for block in body.decode().split("\n\n"):
        fields = [line.partition(": ")[::2] for line in block.splitlines() if line and not line.startswith(":")]
        if fields:
            events.append({name: json.loads(value) if name == "data" else value for name, value in fields})
    return events


Talk = Callable[[Client], Awaitable[None]]


def ask(text: str, task: str = "") -> SendMessageRequest:
    parts = [Part(text=text)]
    return SendMessageRequest(message=Message(message_id=new_id(), role=Role.ROLE_USER, parts=parts, task_id=task))


def talk(*texts: str) -> Talk:
    """Say one thing after another in one task, then look at it."""

    async def said(client: Client) -> None:
        task = ""
        for text in texts:
            async for step in client.send_message(ask(text, task)):
                task = task or step.task.id
        if task:
            await client.get_task(GetTaskRequest(id=task))

    return said


async def cancel(client: Client) -> None:
    """Once it is heard that the agent works."""
    task = ""
    async for step in client.send_message(ask("hang")):
        task = task or step.task.id
        if step.status_update.status.message.parts:
            await client.cancel_task(CancelTaskRequest(id=task))
    await client.get_task(GetTaskRequest(id=task))


async def transcript(server: ServerProcess, slug: str, streaming: bool, talking: Talk) -> list[Any]:
    tap = Tap()
    async with asyncio.timeout(30), httpx.AsyncClient(transport=tap, timeout=30) as http:
        client = await create_client(
            f"{server.url}/agents/{slug}", ClientConfig(streaming=streaming, httpx_client=http)
        )
        await talking(client)
    plain = Transcript(slug)
    return [frame for response, body in tap.answers for frame in plain.of(response, bytes(body))]


@pytest.mark.parametrize("streaming", [True, False], ids=["stream", "blocking"])
@pytest.mark.parametrize(
    "texts", [("blue",), ("ask", "green"), ("file",), ("data",), ("long",), ("fail",)], ids=" then ".join
)  # fmt: skip
async def test_a_task_looks_the_same(server: ServerProcess, streaming: bool, texts: tuple[str, ...]) -> None:
    near, far = [await transcript(server, slug, streaming, talk(*texts)) for slug in ("near", "far")]
    assert len(near) > 6
    assert _begun(far) == _begun(near)


def _begun(frames: list[Any]) -> list[Any]:
    """Without the time that an answer waits for a runtime: a task in this process is at work at once."""
    bare = {"state": "TASK_STATE_WORKING", "timestamp": "time"}
    found: list[Any] = []
    for frame in frames:
        before = _result(found[-1]).get("task", {}) if found else {}
        waited = before.get("status", {}).get("state") == "TASK_STATE_SUBMITTED" and len(before["history"]) > 1
        if waited and _result(frame).get("statusUpdate", {}).get("status") == bare:
            result = {"task": {**before, "status": bare}}
            found[-1] = {"id": frame["id"], "data": {**found[-1]["data"], "result": result}}
        else:
            found.append(frame)
    return found


def _result(frame: Any) -> dict[str, Any]:
    return frame["data"].get("result", {}) if isinstance(frame, dict) and "data" in frame else {}


@pytest.mark.parametrize("streaming", [True, False], ids=["stream", "blocking"])
async def test_a_direct_reply_looks_the_same(server: ServerProcess, streaming: bool) -> None:
    near, far = [await transcript(server, slug, streaming, talk("blue")) for slug in ("near-reply", "far-reply")]
    assert "It is blue." in json.dumps(near)
    assert far == near


async def test_a_cancel_looks_the_same(server: ServerProcess) -> None:
    near, far = [await transcript(server, slug, True, cancel) for slug in ("near", "far")]
    assert "TASK_STATE_CANCELED" in json.dumps(near)
    assert far == near

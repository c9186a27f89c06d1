"""Replies to clients of A2A 1.0, byte for byte; `replies_1_0.json` holds them as they were before A2A 1.1.

`python -m tests.faces.a2a.recorded URL` asks a server that serves this file, and writes what it replies:

    PARLEY_GRPC_PORT=8201 PARLEY_ALLOW_HOSTS='["127.0.0.1"]' parley serve tests/faces/a2a/recorded.py

Ids, times, addresses and signatures differ each time; names take their place.
"""

import asyncio
import json
import re
import sys
from itertools import count
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import httpx2
from a2a.types import a2a_pb2 as pb2
from google.protobuf import json_format
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from parley import ArtifactChunk, Done, Failed, NeedInput, Status, Turn, agent
from parley.testing.processes import until
from parley.testing.receivers import Receiver, receiving

FILE = Path(__file__).with_name("replies_1_0.json")
Json = dict[str, Any]
SERVICE = "/lf.a2a.v1.A2AService/"
_CHANGING = re.compile(
    r"(?P<id>[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})"
    r"|(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z)"
    r'|(?<="signature":")(?P<signature>[\w-]+)|(?<="protected":")(?P<protected>[\w-]+)'
    r"|(?P<address>127\.0\.0\.1:\d+)"
)


@agent("writer")
async def writer(turn: Turn):
    """Shows every kind of update."""
    if turn.number == 1:
        yield Status("thinking")
        yield ArtifactChunk("one ", id="text", last=False)
        yield ArtifactChunk("two", id="text", append=True, last=True)
        yield NeedInput("Which name?")
        return
    yield ArtifactChunk({"name": turn.text, "count": 42}, id="result", name="Result")
    yield Done(f"Bye, {turn.text}.")


@agent("broken")
async def broken(turn: Turn):
    """Fails."""
    yield Failed("broken", "It broke.")


@agent("greeter", replies="message")
async def greeter(turn: Turn) -> str:
    """Answers with a message instead of a task."""
    return f"Hello, {turn.text}."


AGENTS = (writer, broken, greeter)


class Names:
    """Gives each value that differs from one run to the next a name, by the order in which it appears."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def put(self, text: str) -> str:
        return _CHANGING.sub(lambda found: self._name(found.lastgroup or "", found[0]), text)

    def _name(self, kind: str, value: str) -> str:
        if kind != "id":
            return f"<{kind}>"
        return self._names.setdefault(value, f"<id {len(self._names) + 1}>")

    def put_in(self, message: Message) -> None:
        """Put names into a message of protobuf; fields that it does not know stay as they are."""
        if isinstance(message, Timestamp):
            message.Clear()
            return
        for field, value in message.ListFields():
            if isinstance(value, str):
                setattr(message, field.name, self.put(value))
            elif isinstance(value, Message):
                self.put_in(value)
            elif field.message_type is not None and not field.message_type.GetOptions().map_entry:
                for one in value:
                    self.put_in(one)


class Recording:
    def __init__(self) -> None:
        self.replies: dict[str, str] = {}
        self._names = Names()
        self._number = count(1)

    def text(self, what: str, text: str) -> None:
        self.replies[f"{next(self._number):02} {what}"] = self._names.put(text)

    def proto(self, what: str, reply: Message) -> None:
        self._names.put_in(reply)
        self.replies[f"{next(self._number):02} {what}"] = reply.SerializeToString(deterministic=True).hex()


def said(text: str, task: str = "") -> Json:
    parts = [{"text": text}, {"data": {"deep": [1, 2.50]}}]
    about = {"taskId": task} if task else {}
    return {"messageId": "m-1", "role": "ROLE_USER", "parts": parts, "metadata": {"a": 1}, **about}


class HttpReplies:
    """Asks an agent over both bindings of HTTP, with the fields of 1.1 that 1.0 ignores."""

    def __init__(self, http: httpx2.AsyncClient, recording: Recording, binding: str) -> None:
        self._http = http
        self._recording = recording
        self._binding = binding

    async def ask(self, agent: str, method: str, path: str, params: Json, **headers: str) -> Json:
        """Ask for an operation by its method or its path. Return the last JSON of the reply."""
        address, (verb, _, path) = f"/agents/{agent}", path.partition(" ")
        if self._binding == "JSON-RPC":
            body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            reply = await self._http.post(address, json=body, headers=headers)
        else:
            path, rest = _filled(path, params)
            place: Json = {"json": rest} if verb == "POST" else {"params": rest}
            reply = await self._http.request(verb, address + path, headers=headers, **place)
        text = re.sub(r"(?m)^:.*\n\n?", "", reply.text.lstrip())
        shown = f"{reply.status_code} {reply.headers.get('content-type')}\n{text}"
        self._recording.text(f"{self._binding} {agent} {method}", shown)
        content = text.strip().rpartition("data: ")[2]
        found: Json = json.loads(content) if content else {}
        return found.get("result") or found


def _filled(path: str, params: Json) -> tuple[str, Json]:
    """Put params into a path. Return it with the other params."""
    names = re.findall(r"{(\w+)}", path)
    return path.format(**params), {name: value for name, value in params.items() if name not in names}


async def over_http(asks: HttpReplies, receiver: Receiver, path: str) -> None:
    newer = {"ifGenerationMatch": 99, "historyLength": 5}
    hook = {"url": receiver.url(path), "token": "secret"}
    send, get, subscribe = "POST /message:send", "GET /tasks/{id}", "POST /tasks/{id}:subscribe"
    sent = await asks.ask("writer", "SendMessage", send, {"message": said("go"), "configuration": newer})
    task = sent["task"]["id"]
    await asks.ask("writer", "GetTask", get, {"id": task})
    await asks.ask("writer", "GetTask", get, {"id": task, "historyLength": 0, "currentGeneration": 99})
    configs = "/tasks/{taskId}/pushNotificationConfigs"
    made = await asks.ask("writer", "CreateTaskPushNotificationConfig", f"POST {configs}", {"taskId": task, **hook})
    ref = {"taskId": task, "id": made["id"]}
    await asks.ask("writer", "GetTaskPushNotificationConfig", f"GET {configs}/{{id}}", ref)
    await asks.ask("writer", "ListTaskPushNotificationConfigs", f"GET {configs}", {"taskId": task})
    about = {"message": said("Ada", task), "configuration": newer}
    await asks.ask("writer", "SendStreamingMessage", "POST /message:stream", about)
    await until(lambda: any("COMPLETED" in post.body.decode() for post in receiver.on(path)))
    await asks.ask("writer", "DeleteTaskPushNotificationConfig", f"DELETE {configs}/{{id}}", ref)
    await asks.ask("writer", "SubscribeToTask", subscribe, {"id": task}, **{"Last-Event-ID": "0"})
    await asks.ask("writer", "SubscribeToTask", subscribe, {"id": task})
    await asks.ask("writer", "ListTasks", "GET /tasks", {"includeArtifacts": True})
    await asks.ask("writer", "CancelTask", "POST /tasks/{id}:cancel", {"id": task})
    await asks.ask("writer", "SendMessage", send, about)
    await asks.ask("writer", "GetTask", get, {"id": "unknown"})
    await asks.ask("broken", "SendMessage", send, {"message": said("go")})
    await asks.ask("greeter", "SendMessage", send, {"message": said("Ada")})
    await asks.ask("greeter", "SendStreamingMessage", "POST /message:stream", {"message": said("Ada")})
    await asks.ask("writer", "SendMessage", send, {})


async def over_grpc(channel: Any, recording: Recording) -> None:
    async def ask(method: str, params: Json, request: type[Message], reply: type[Message]) -> Any:
        """Call a method. Return the first message of the reply."""
        sent = json_format.ParseDict({"tenant": "writer", **params}, request()).SerializeToString()
        asked: dict[str, Any] = {"request": sent, "metadata": (("a2a-version", "1.0"),)}
        if reply is pb2.StreamResponse:
            replies = [raw async for raw in channel.unary_stream(SERVICE + method)(**asked)]
        else:
            replies = [await channel.unary_unary(SERVICE + method)(**asked)]
        for raw in replies:
            recording.proto(f"gRPC {method}", reply.FromString(raw))
        return reply.FromString(replies[0])

    begun = await ask("SendMessage", {"message": said("go")}, pb2.SendMessageRequest, pb2.SendMessageResponse)
    task = begun.task.id
    await ask("GetTask", {"id": task}, pb2.GetTaskRequest, pb2.Task)
    await ask("SendStreamingMessage", {"message": said("Ada", task)}, pb2.SendMessageRequest, pb2.StreamResponse)
    await ask("ListTasks", {"includeArtifacts": True}, pb2.ListTasksRequest, pb2.ListTasksResponse)


async def record(url: str) -> dict[str, str]:
    """Return the replies of a server, by their order and what was asked."""
    recording = Recording()
    versions = {"A2A-Version": "1.0"}
    async with httpx2.AsyncClient(base_url=url, headers=versions, timeout=30) as http, receiving() as receiver:
        for binding in ("JSON-RPC", "HTTP+JSON"):
            path = f"/{binding}"
            await over_http(HttpReplies(http, recording, binding), receiver, path)
            for post in receiver.on(path):
                kind = post.headers["content-type"]
                recording.text(f"{binding} push", f"{post.headers['x-a2a-event-id']} {kind}\n{post.body.decode()}")
        card = await http.get("/agents/writer/.well-known/agent-card.json")
        recording.text("card", card.text)
        interfaces = card.json()["supportedInterfaces"]
    address = next(one["url"] for one in interfaces if one["protocolBinding"] == "GRPC")
    async with grpc.aio.insecure_channel(address) as channel:
        await over_grpc(channel, recording)
    return recording.replies


if __name__ == "__main__":
    found = asyncio.run(record(sys.argv[1]))
    FILE.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", "utf-8")

"""The three bindings of A2A 1.1 as one interface: what a client sends and gets, in protobuf's JSON."""

import json
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, cast

import grpc
import grpc.aio
import httpx2
from a2a.types import a2a_pb2 as pb2
from google.protobuf import json_format
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from parley.client.protobuf_v11 import message_type
from parley.client.sse import read_events

Json = dict[str, Any]
VERSION = "1.1"
GENERATIONS = ("task", "statusUpdate", "artifactUpdate")


class Refused(Exception):
    """The server refused a request: `code` of the binding, and reason and metadata of the error."""

    def __init__(self, code: str, details: list[Json]) -> None:
        info = details[0] if details else {}
        super().__init__(f"{code} {info.get('reason', '')}")
        self.code = code
        self.reason = str(info.get("reason", ""))
        self.metadata: Json = info.get("metadata") or {}


class Wire(ABC):
    """One binding at one agent. `version` is the version of A2A that requests ask for."""

    name: str
    mismatch: str
    """Code of this binding for a generation that does not match."""

    def __init__(self, url: str, tenant: str = "", version: str = VERSION) -> None:
        self.url = url
        self.tenant = tenant
        self.version = version

    async def send(self, message: Json, configuration: Json | None = None, **headers: str) -> Json:
        return await self.call("SendMessage", _request(message, configuration), headers)

    async def get(self, task: str, headers: Mapping[str, str] | None = None, **params: object) -> Json:
        return await self.call("GetTask", {"id": task, **params}, headers or {})

    async def cancel(self, task: str) -> Json:
        return await self.call("CancelTask", {"id": task}, {})

    async def list(self, **params: object) -> Json:
        return await self.call("ListTasks", params, {})

    def stream(self, message: Json, configuration: Json | None = None, **headers: str) -> AsyncGenerator[Json, None]:
        return self.frames("SendStreamingMessage", _request(message, configuration), headers)

    def subscribe(self, task: str, **headers: str) -> AsyncGenerator[Json, None]:
        return self.frames("SubscribeToTask", {"id": task}, headers)

    @abstractmethod
    async def call(self, method: str, params: Json, headers: Mapping[str, str]) -> Json: ...

    @abstractmethod
    def frames(self, method: str, params: Json, headers: Mapping[str, str]) -> AsyncGenerator[Json, None]: ...

    @abstractmethod
    async def close(self) -> None: ...

    def _headers(self, more: Mapping[str, str]) -> dict[str, str]:
        return {"a2a-version": self.version, **{name.replace("_", "-").lower(): value for name, value in more.items()}}


class Http(Wire):
    """Base of the two bindings over HTTP."""

    def __init__(self, url: str, tenant: str = "", version: str = VERSION) -> None:
        super().__init__(url.rstrip("/"), tenant, version)
        self._http = httpx2.AsyncClient(timeout=httpx2.Timeout(90.0), trust_env=False)

    async def call(self, method: str, params: Json, headers: Mapping[str, str]) -> Json:
        verb, url, asked = self.request(method, params)
        return self.result(await self._http.request(verb, url, headers=self._headers(headers), **asked))

    async def frames(self, method: str, params: Json, headers: Mapping[str, str]) -> AsyncGenerator[Json, None]:
        verb, url, asked = self.request(method, params)
        async with self._http.stream(verb, url, headers=self._headers(headers), **asked) as reply:
            if not reply.headers.get("content-type", "").startswith("text/event-stream"):
                await reply.aread()
                self.result(reply)
            async for _, data in read_events(reply.aiter_bytes()):
                yield self.frame(json.loads(data))

    async def close(self) -> None:
        await self._http.aclose()

    @abstractmethod
    def request(self, method: str, params: Json) -> tuple[str, str, Json]:
        """Return the method, the URL and the content of a request."""
        ...

    @abstractmethod
    def result(self, reply: httpx2.Response) -> Json: ...

    @abstractmethod
    def frame(self, data: Json) -> Json: ...


class JsonRpcWire(Http):
    name = "JSON-RPC"
    mismatch = "-32010"

    def request(self, method: str, params: Json) -> tuple[str, str, Json]:
        return "POST", self.url, {"json": {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}}

    def result(self, reply: httpx2.Response) -> Json:
        return self.frame(reply.json())

    def frame(self, data: Json) -> Json:
        if "error" in data:
            raise Refused(str(data["error"]["code"]), data["error"].get("data") or [])
        return counted(data["result"])


class RestWire(Http):
    name = "HTTP+JSON"
    mismatch = "409"

    def request(self, method: str, params: Json) -> tuple[str, str, Json]:
        task = params.get("id", "")
        rest = {name: value for name, value in params.items() if name != "id"}
        match method:
            case "SendMessage":
                return "POST", f"{self.url}/message:send", {"json": params}
            case "SendStreamingMessage":
                return "POST", f"{self.url}/message:stream", {"json": params}
            case "SubscribeToTask":
                return "POST", f"{self.url}/tasks/{task}:subscribe", {}
            case "CancelTask":
                return "POST", f"{self.url}/tasks/{task}:cancel", {"json": rest}
            case "ListTasks":
                return "GET", f"{self.url}/tasks", {"params": rest}
            case _:
                return "GET", f"{self.url}/tasks/{task}", {"params": rest}

    def result(self, reply: httpx2.Response) -> Json:
        if reply.status_code >= 400:
            raise Refused(str(reply.status_code), reply.json().get("error", {}).get("details") or [])
        return counted(reply.json())

    def frame(self, data: Json) -> Json:
        return counted(data)


class GrpcWire(Wire):
    name = "gRPC"
    mismatch = "ABORTED"
    _types: Mapping[str, tuple[type[Message], type[Message]]] = {
        "SendMessage": (pb2.SendMessageRequest, pb2.SendMessageResponse),
        "SendStreamingMessage": (pb2.SendMessageRequest, pb2.StreamResponse),
        "GetTask": (pb2.GetTaskRequest, pb2.Task),
        "ListTasks": (pb2.ListTasksRequest, pb2.ListTasksResponse),
        "CancelTask": (pb2.CancelTaskRequest, pb2.Task),
        "SubscribeToTask": (pb2.SubscribeToTaskRequest, pb2.StreamResponse),
    }

    def __init__(self, url: str, tenant: str = "", version: str = VERSION) -> None:
        super().__init__(url, tenant, version)
        self._channel: Any = cast(Any, grpc.aio).insecure_channel(url)

    async def call(self, method: str, params: Json, headers: Mapping[str, str]) -> Json:
        request, ask = self._method(method, params, self._channel.unary_unary)
        try:
            return _written(await ask(request, metadata=tuple(self._headers(headers).items())))
        except grpc.RpcError as error:
            raise _refused(error) from error

    async def frames(self, method: str, params: Json, headers: Mapping[str, str]) -> AsyncGenerator[Json, None]:
        request, ask = self._method(method, params, self._channel.unary_stream)
        replies = ask(request, metadata=tuple(self._headers(headers).items()))
        try:
            async for reply in replies:
                yield _written(reply)
        except grpc.RpcError as error:
            raise _refused(error) from error
        finally:
            replies.cancel()

    async def close(self) -> None:
        await self._channel.close()

    def _method(self, method: str, params: Json, open_: Any) -> tuple[Message, Any]:
        request, reply = (message_type(kind) for kind in self._types[method])
        ask = open_(
            f"/lf.a2a.v1.A2AService/{method}",
            request_serializer=lambda sent: sent.SerializeToString(),
            response_deserializer=reply.FromString,
        )
        return json_format.ParseDict({"tenant": self.tenant, **params}, request()), ask


def counted(result: Json) -> Json:
    """Return a result with generations as numbers: protobuf's JSON may write them as texts."""
    found = {
        name: counted(value) if name in GENERATIONS and isinstance(value, dict) else value
        for name, value in result.items()
    }
    if isinstance(tasks := found.get("tasks"), list):
        found["tasks"] = [counted(task) for task in cast(list[Json], tasks)]
    return {**found, "generation": int(found["generation"])} if "generation" in found else found


def update_in(frame: Json) -> Json:
    """Return the task or the update in a frame of a stream; empty for a message."""
    return next((frame[kind] for kind in GENERATIONS if kind in frame), {})


def state_of(frame: Json) -> str:
    return str(update_in(frame).get("status", {}).get("state", ""))


async def generations(frames: AsyncGenerator[Json, None]) -> list[int]:
    """Return the generation of each frame of a stream."""
    async with aclosing(frames):
        return [int(update_in(frame).get("generation", 0)) async for frame in frames]


def _request(message: Json, configuration: Json | None) -> Json:
    return {"message": message, **({"configuration": configuration} if configuration else {})}


def _written(reply: Message) -> Json:
    return counted(json_format.MessageToDict(reply))


def _refused(error: Any) -> Refused:
    packed = dict(error.trailing_metadata() or ()).get("grpc-status-details-bin")
    info = error_details_pb2.ErrorInfo()
    status = status_pb2.Status.FromString(packed) if packed else status_pb2.Status()
    found = any(detail.Unpack(info) for detail in status.details[:1])
    return Refused(error.code().name, [{"reason": info.reason, "metadata": dict(info.metadata)}] if found else [])


WIRES: dict[str, type[Wire]] = {"JSONRPC": JsonRpcWire, "HTTP+JSON": RestWire, "GRPC": GrpcWire}


async def wires_of(url: str, version: str = VERSION) -> list[Wire]:
    """Return the wires that the card of an agent offers for a version."""
    async with httpx2.AsyncClient(trust_env=False) as http:
        reply = await http.get(url.rstrip("/") + "/.well-known/agent-card.json", headers={"A2A-Version": version})
        reply.raise_for_status()
    offered = [one for one in reply.json()["supportedInterfaces"] if one["protocolVersion"] == version]
    return [WIRES[one["protocolBinding"]](one["url"], one.get("tenant", ""), version) for one in offered]

"""Requests to remote agents over JSON-RPC and HTTP+JSON, in the formats of A2A 1.x and 0.3."""

from base64 import b64encode
from typing import Any, Literal
from urllib.parse import quote

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from parley.drivers.remote.cards import Interface
from parley.drivers.remote.replies import WRAPPED, Format
from parley.drivers.remote.translation import tidy
from parley.ids import new_id
from parley.runs.rules.content import HOPS, Message, Part, hops_metadata

Operation = Literal["send", "stream", "get", "cancel", "subscribe"]
Json = dict[str, Any]

_METHODS: dict[bool, dict[Operation, str]] = {
    False: {
        "send": "SendMessage",
        "stream": "SendStreamingMessage",
        "get": "GetTask",
        "cancel": "CancelTask",
        "subscribe": "SubscribeToTask",
    },
    True: {
        "send": "message/send",
        "stream": "message/stream",
        "get": "tasks/get",
        "cancel": "tasks/cancel",
        "subscribe": "tasks/resubscribe",
    },
}
"""Methods of JSON-RPC in A2A 1.x, and in 0.3."""
_PATHS: dict[Operation, tuple[str, str]] = {
    "send": ("POST", "/message:send"),
    "stream": ("POST", "/message:stream"),
    "get": ("GET", "/tasks/{}"),
    "cancel": ("POST", "/tasks/{}:cancel"),
    "subscribe": ("POST", "/tasks/{}:subscribe"),
}


class WireRequest(Struct, frozen=True):
    method: str
    url: str
    body: bytes | None


class Requests:
    """Requests to one interface of an agent."""

    def __init__(self, interface: Interface) -> None:
        self._url = interface.url
        self._tenant = interface.tenant
        self._old = interface.is_old
        self._rpc = interface.binding == "JSONRPC"
        if not self._rpc:
            # A2A 0.3 over HTTP has no tenants.
            below = "/v1" if self._old else f"/{quote(self._tenant, safe='')}" if self._tenant else ""
            self._url = interface.url.removesuffix("/") + below
        self.format: Format = "1" if not self._old else "0.3" if self._rpc else "0.3 http"

    def send(
        self, operation: Operation, message: Message, task: str | None, context: str | None, hops: int, *, waits: bool
    ) -> WireRequest:
        """Return the request that sends a message. `waits`: the answer comes when the agent is done or asks."""
        params = _PARAMS[self.format](message, task, context, hops, waits)
        if self._tenant and not self._old:
            params["tenant"] = self._tenant
        return self._request(operation, "", params)

    def about(self, operation: Operation, task: str, generation: int = 0) -> WireRequest:
        """Return a request about a task. `generation`: that of the task the answer must exceed (A2A 1.1)."""
        params: Json = {"id": task}
        if self._tenant and not self._old:
            params["tenant"] = self._tenant
        if generation:
            # An int64 is a text in protobuf's JSON.
            params["currentGeneration"] = str(generation)
        if self._rpc or (operation == "cancel" and not self._old):
            return self._request(operation, task, params)
        request = self._request(operation, task, None)
        return replace(request, url=f"{request.url}?currentGeneration={generation}") if generation else request

    def _request(self, operation: Operation, task: str, params: Json | None) -> WireRequest:
        if self._rpc:
            method = _METHODS[self._old][operation]
            params = {"jsonrpc": "2.0", "id": new_id(), "method": method, "params": params}
            return WireRequest("POST", self._url, msgspec.json.encode(params))
        verb, path = _PATHS[operation]
        body = None if params is None else msgspec.json.encode(params)
        return WireRequest(verb, self._url + path.format(quote(task, safe="")), body)


# Messages in each format. Values that are kept as JSON text are written so that a repeated send has the same bytes.


def _params_1(message: Message, task: str | None, context: str | None, hops: int, waits: bool) -> Json:
    sent: Json = {"messageId": message.id, "role": "ROLE_USER", "parts": [_part_1(part) for part in message.parts]}
    sent |= _ids(task, context, "taskId", "contextId") | _rest(message, hops)
    params: Json = {"message": sent}
    configuration: Json = {} if waits else {"returnImmediately": True}
    if (modes := _modes(message)) is not None:
        configuration["acceptedOutputModes"] = modes
    if configuration:
        params["configuration"] = configuration
    return params | _forwarded(message)


def _part_1(part: Part) -> Part:
    if part.data is UNSET and part.metadata is UNSET:
        return part
    return replace(part, data=_tidied(part.data), metadata=_tidied(part.metadata))


def _params_03(message: Message, task: str | None, context: str | None, hops: int, waits: bool) -> Json:
    sent: Json = {"kind": "message", "messageId": message.id, "role": "user"}
    sent["parts"] = [_part_03(part) for part in message.parts]
    sent |= _ids(task, context, "taskId", "contextId") | _rest(message, hops)
    configuration: Json = {"blocking": waits}
    if (modes := _modes(message)) is not None:
        configuration["acceptedOutputModes"] = modes
    return {"message": sent, "configuration": configuration, **_forwarded(message)}


def _part_03(part: Part) -> Json:
    if part.text is not None:
        return _noted({"kind": "text", "text": part.text}, part.metadata)
    if part.data is not UNSET:
        data, about = _wrapped(part.data, part.metadata)
        return _noted({"kind": "data", "data": data}, about)
    file: Json = {"uri": part.url} if part.raw is None else {"bytes": part.raw}
    if part.media_type:
        file["mimeType"] = part.media_type
    if part.filename:
        file["name"] = part.filename
    return _noted({"kind": "file", "file": file}, part.metadata)


def _params_03_http(message: Message, task: str | None, context: str | None, hops: int, waits: bool) -> Json:
    """Return the params with the names of the schema, like the official client: all servers know these."""
    sent: Json = {"message_id": message.id, "role": "ROLE_USER"}
    sent["content"] = [_part_03_http(part) for part in message.parts]
    sent |= _ids(task, context, "task_id", "context_id") | _rest(message, hops)
    configuration: Json = {"blocking": True} if waits else {}
    if (modes := _modes(message)) is not None:
        configuration["accepted_output_modes"] = modes
    return {"request": sent, "configuration": configuration, **_forwarded(message)}


def _part_03_http(part: Part) -> Json:
    if part.text is not None:
        return _noted({"text": part.text}, part.metadata)
    if part.data is not UNSET:
        data, about = _wrapped(part.data, part.metadata)
        return _noted({"data": {"data": data}}, about)
    # Python servers of this version expect base64 of base64.
    file: Json = {"file_with_uri": part.url} if part.raw is None else {"file_with_bytes": b64encode(part.raw)}
    if part.media_type:
        file["mime_type"] = part.media_type
    if part.filename:
        file["name"] = part.filename
    return _noted({"file": file}, part.metadata)


_PARAMS = {"1": _params_1, "0.3": _params_03, "0.3 http": _params_03_http}


def _ids(task: str | None, context: str | None, task_name: str, context_name: str) -> Json:
    return {name: value for name, value in ((task_name, task), (context_name, context)) if value}


def _rest(message: Message, hops: int) -> Json:
    """Return the members of a message that are the same in each format."""
    about: object = hops_metadata(hops)
    if message.metadata is not UNSET:
        about = Raw(tidy({**msgspec.json.decode(message.metadata), HOPS: hops}))
    return {"metadata": about, **({"extensions": message.extensions} if message.extensions else {})}


def _modes(message: Message) -> tuple[str, ...] | None:
    forwarded = message.forwarded
    return forwarded.output_modes if forwarded is not None and forwarded.output_modes else None


def _forwarded(message: Message) -> Json:
    forwarded = message.forwarded
    if forwarded is None or forwarded.metadata is UNSET:
        return {}
    return {"metadata": _tidied(forwarded.metadata)}


def _wrapped(data: Raw, metadata: Raw | UnsetType) -> tuple[Raw, Raw | UnsetType]:
    """Return data as an object, since A2A 0.3 has no other, and metadata that notes when it was wrapped."""
    written = tidy(data)
    if written.startswith(b"{"):
        return Raw(written), metadata
    about: Json = {} if metadata is UNSET else msgspec.json.decode(metadata)
    return Raw(b'{"value":%b}' % written), Raw(msgspec.json.encode({**about, WRAPPED: True}))


def _noted(part: Json, metadata: Raw | UnsetType) -> Json:
    return part if metadata is UNSET else {**part, "metadata": _tidied(metadata)}


def _tidied(value: Raw | UnsetType) -> Raw | UnsetType:
    return UNSET if value is UNSET else Raw(tidy(value))

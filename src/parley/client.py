"""A small A2A 1.0 client over JSON-RPC that survives broken connections: for the command line, tests and users.

A stream that breaks is taken up again after the last event seen; a send is repeated under its idempotency key.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import httpx2
import msgspec

from parley.errors import ParleyError
from parley.ids import new_id

_RETRIES = 8
_PAUSE_S = 0.25
_ENDED = ("TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_CANCELED", "TASK_STATE_REJECTED")
_WAITING = ("TASK_STATE_INPUT_REQUIRED", "TASK_STATE_AUTH_REQUIRED")

Json = dict[str, Any]


class _Reply(msgspec.Struct):
    jsonrpc: str
    result: Any = None
    error: Json | None = None


class _Refusal(msgspec.Struct):
    """What a server says before it speaks JSON-RPC, for want of credentials say."""

    error: Json


class RemoteError(ParleyError):
    """The server refused; `rpc` is its JSON-RPC code."""

    code = "remote_error"

    def __init__(self, error: Json) -> None:
        super().__init__(str(error.get("message", "The server refused.")))
        code = error.get("code")
        self.rpc = code if isinstance(code, int) else 0
        self.data: list[Json] = error.get("data") or error.get("details") or []

    @property
    def reason(self) -> str:
        return str(self.data[0].get("reason", "")) if self.data else ""


class Unreachable(ParleyError):
    code = "unreachable"


class Client:
    """Speaks to one agent's address (or to the root of a Parley server, for any of its tasks).

    `token` is an API key or an issuer's token; a client of one's own (`http`) brings its own credentials.
    """

    def __init__(
        self, url: str, *, token: str | None = None, timeout_s: float = 60.0, http: httpx2.AsyncClient | None = None
    ) -> None:
        self._url = url
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._http = http or httpx2.AsyncClient(timeout=httpx2.Timeout(timeout_s, connect=5.0), headers=headers)

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def card(self) -> Json:
        reply = await self._http.get(self._url.rstrip("/") + "/.well-known/agent-card.json")
        reply.raise_for_status()
        return reply.json()

    async def call(self, method: str, params: Json, headers: dict[str, str] | None = None) -> Any:
        try:
            reply = await self._http.post(self._url, json=_request(method, params), headers=_headers(headers))
        except httpx2.TransportError as error:
            raise Unreachable(f"{self._url} does not answer ({type(error).__name__}).") from error
        return _result(reply)

    async def send(
        self, text: str, *, task: str | None = None, context: str | None = None, key: str | None = None,
        configuration: Json | None = None,
    ) -> Json:  # fmt: skip
        params: Json = {"message": message(text, task=task, context=context)}
        if configuration:
            params["configuration"] = configuration
        return await self.call("SendMessage", params, {"Idempotency-Key": key} if key else None)

    async def get(self, task: str) -> Json:
        return await self.call("GetTask", {"id": task})

    async def cancel(self, task: str) -> Json:
        return await self.call("CancelTask", {"id": task})

    async def stream(self, text: str, *, task: str | None = None, context: str | None = None) -> AsyncIterator[Json]:
        """Send and follow until the task ends or waits."""
        params: Json = {"message": message(text, task=task, context=context)}
        async for _, result in self._resumed("SendStreamingMessage", params, None, {"Idempotency-Key": new_id()}):
            yield result

    async def tail(self, task: str, after: int | None = None) -> AsyncIterator[tuple[int, Json]]:
        """Follow a task from an event on, through broken connections, until it ends."""
        async for step in self._resumed("SubscribeToTask", {"id": task}, after, {}):
            yield step

    async def events(
        self, method: str, params: Json, headers: dict[str, str] | None = None
    ) -> AsyncIterator[tuple[int | None, Json]]:
        """One connection's events, as they come: their ids and whole JSON-RPC responses."""
        accept = {"Accept": "text/event-stream", **(headers or {})}
        async with self._http.stream(
            "POST", self._url, json=_request(method, params), headers=_headers(accept)
        ) as reply:
            if "text/event-stream" not in reply.headers.get("content-type", ""):
                await reply.aread()
                _result(reply)
            id_: int | None = None
            async for line in reply.aiter_lines():
                if line.startswith("id:"):
                    id_ = int(line[3:])
                elif line.startswith("data:"):
                    yield id_, json.loads(line[5:])

    async def _resumed(
        self, method: str, params: Json, after: int | None, headers: dict[str, str]
    ) -> AsyncIterator[tuple[int, Json]]:
        tries = 0
        while True:
            cursor = {"Last-Event-ID": str(after)} if after is not None else {}
            with suppress(httpx2.TransportError):
                async for id_, reply in self.events(method, params, {**headers, **cursor}):
                    if "error" in reply:
                        raise RemoteError(reply["error"])
                    tries = 0
                    after = id_ if id_ is not None else after
                    yield after or 0, reply["result"]
                    if _is_last(reply["result"], waits=method == "SendStreamingMessage"):
                        return
                if after is not None and method == "SubscribeToTask" and tries == 0:
                    # A terminal task closes at once: nothing came after the cursor.
                    tries += 1
                    if _state(await self.get(params["id"])) in _ENDED:
                        return
            tries += 1
            if tries > _RETRIES:
                raise Unreachable(f"{self._url} does not answer.")
            await asyncio.sleep(min(_PAUSE_S * 2**tries, 5.0))


def message(text: str, *, task: str | None = None, context: str | None = None, id_: str | None = None) -> Json:
    wire: Json = {"messageId": id_ or new_id(), "role": "ROLE_USER", "parts": [{"text": text}]}
    if task:
        wire["taskId"] = task
    if context:
        wire["contextId"] = context
    return wire


def _request(method: str, params: Json) -> Json:
    return {"jsonrpc": "2.0", "id": new_id(), "method": method, "params": params}


def _headers(more: dict[str, str] | None) -> dict[str, str]:
    return {"A2A-Version": "1.0", **(more or {})}


def _result(reply: httpx2.Response) -> Any:
    try:
        body = msgspec.json.decode(reply.content, type=_Reply)
    except msgspec.MsgspecError:
        raise _refused(reply) from None
    if body.error is not None:
        raise RemoteError(body.error)
    return body.result


def _refused(reply: httpx2.Response) -> ParleyError:
    with suppress(msgspec.MsgspecError):
        return RemoteError(msgspec.json.decode(reply.content, type=_Refusal).error)
    return Unreachable(f"{reply.url} answered {reply.status_code}, and not in JSON-RPC.")


def _state(task: Json) -> str:
    return str(task.get("status", {}).get("state", ""))


def _is_last(result: Json, *, waits: bool) -> bool:
    if "message" in result:
        return True
    state = _state(result.get("statusUpdate") or result.get("task") or {})
    return state in _ENDED or (waits and state in _WAITING and "statusUpdate" in result)

"""A small A2A 1.0 client over JSON-RPC that survives broken connections: for the command line, tests and users.

A stream that breaks is taken up again after the last event seen; a send is repeated under its idempotency key.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from typing import Any
from urllib.parse import quote

import httpx2
import msgspec

from parley.errors import ParleyError
from parley.ids import new_id
from parley.runtime_client import Owner, RuntimeClient, RuntimeRefused, RuntimeUnreachable
from parley.security.replies import open_client

__all__ = [
    "UNSUPPORTED",
    "Client",
    "Content",
    "Json",
    "Owner",
    "RemoteError",
    "RuntimeClient",
    "RuntimeRefused",
    "RuntimeUnreachable",
    "Unreachable",
    "message",
]  # fmt: skip

_RETRIES = 8
_FIRST_RETRIES = 3
"""Fewer before the server has answered once: it is probably not running."""
_PAUSE_S = 0.25
_LONGEST_PAUSE_S = 5.0
_ENDED = ("TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_CANCELED", "TASK_STATE_REJECTED")
UNSUPPORTED = -32004
_WAITING = ("TASK_STATE_INPUT_REQUIRED", "TASK_STATE_AUTH_REQUIRED")

Json = dict[str, Any]
Content = str | list[Json]
"""What to say: a text, or parts as A2A 1.0 writes them."""
OnRetry = Callable[[str, float], None]
"""Called before each new connection with the reason and the seconds until then."""


class _Reply(msgspec.Struct):
    jsonrpc: str
    result: Any = None
    error: Json | None = None


class _Refusal(msgspec.Struct):
    """What a server says before it speaks JSON-RPC, for want of credentials say."""

    error: Json | str


class RemoteError(ParleyError):
    """The server refused; `rpc` is its JSON-RPC code."""

    code = "remote_error"

    def __init__(self, error: Json, status: int = 200) -> None:
        super().__init__(str(error.get("message", "The server refused.")))
        self.status = status
        """Of HTTP."""
        code = error.get("code")
        self.rpc = code if isinstance(code, int) else 0
        self.data: list[Json] = error.get("data") or error.get("details") or []

    @property
    def reason(self) -> str:
        return str(self.data[0].get("reason", "")) if self.data else ""


class Unreachable(ParleyError):
    """Nobody answers at the address, or the connection broke too often."""

    code = "unreachable"


class Client:
    """Speaks to one agent's address (or to the root of a Parley server, for any of its tasks).

    `token` is an API key or an issuer's token; a client of one's own (`http`) brings its own credentials. With
    `repeats=False` nothing is ever sent twice: not every server knows idempotency keys. `on_retry` is called before
    each attempt to connect again.
    """

    def __init__(
        self, url: str, *, token: str | None = None, timeout_s: float = 60.0, http: httpx2.AsyncClient | None = None,
        repeats: bool = True, on_retry: OnRetry | None = None,
    ) -> None:  # fmt: skip
        self._url = url
        self._repeats = repeats
        self._on_retry = on_retry
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        timeout = httpx2.Timeout(timeout_s, connect=5.0)
        self._http = http or open_client(timeout=timeout, headers=headers)

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def card(self) -> Json:
        reply = await self._http.get(self._url.rstrip("/") + "/.well-known/agent-card.json")
        reply.raise_for_status()
        return reply.json()

    async def call(self, method: str, params: Json, headers: dict[str, str] | None = None) -> Any:
        return _result(await self._post(self._url, _request(method, params), headers))

    async def _post(self, url: str, body: Json, headers: dict[str, str] | None) -> httpx2.Response:
        try:
            return await self._http.post(url, json=body, headers=_headers(headers))
        except (httpx2.TransportError, httpx2.InvalidURL) as error:
            raise Unreachable(f"{url} does not answer ({type(error).__name__}).") from error

    async def send(
        self, text: Content, *, task: str | None = None, context: str | None = None, key: str | None = None,
        configuration: Json | None = None,
    ) -> Json:  # fmt: skip
        params: Json = {"message": message(text, task=task, context=context)}
        if configuration:
            params["configuration"] = configuration
        return await self.call("SendMessage", params, {"Idempotency-Key": key} if key else None)

    async def get(self, task: str) -> Json:
        return await self.call("GetTask", {"id": task})

    async def list(self, **query: object) -> Json:
        """A page of the caller's tasks; `query` as in ListTasks (`contextId`, `status`, `pageSize`, …)."""
        return await self.call("ListTasks", query)

    async def cancel(self, task: str, reason: str | None = None) -> Json:
        return await self.call("CancelTask", {"id": task, **({"metadata": {"reason": reason}} if reason else {})})

    async def fork(self, task: str, at: int | None = None, content: Content | None = None) -> Json:
        """A new task that begins as a copy of one up to an event (an extension of Parley's)."""
        body: Json = {} if at is None else {"at": at}
        if content is not None:
            body["message"] = message(content)
        url = f"{self._url.rstrip('/')}/tasks/{quote(task, safe='')}:fork"
        reply = await self._post(url, body, {"Idempotency-Key": new_id()})
        if not reply.is_success:
            raise _refused(reply)
        return msgspec.json.decode(reply.content, type=Json)

    async def stream(
        self, text: Content, *, task: str | None = None, context: str | None = None
    ) -> AsyncGenerator[Json, None]:
        """Send and follow until the task ends or waits."""
        params: Json = {"message": message(text, task=task, context=context)}
        if not self._repeats:
            async with aclosing(self._sent_once(params)) as results:
                async for result in results:
                    yield result
            return
        key = {"Idempotency-Key": new_id()}
        async with aclosing(self._resumed("SendStreamingMessage", params, None, key)) as steps:
            async for _, result in steps:
                yield result

    async def tail(self, task: str, after: int | None = None) -> AsyncGenerator[tuple[int, Json], None]:
        """Follow a task from an event on, through broken connections, until it ends; one that has is shown as it is."""
        try:
            async with aclosing(self._resumed("SubscribeToTask", {"id": task}, after, {})) as steps:
                async for step in steps:
                    yield step
        except RemoteError as error:
            ended = await self.get(task) if error.rpc == UNSUPPORTED else {}
            if _state(ended) not in _ENDED:
                raise
            yield after or 0, {"task": ended}

    async def events(
        self, method: str, params: Json, headers: dict[str, str] | None = None
    ) -> AsyncGenerator[tuple[int | None, Json], None]:
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
                    id_ = _number(line[3:])
                elif line.startswith("data:"):
                    yield id_, json.loads(line[5:])

    async def _sent_once(self, params: Json) -> AsyncGenerator[Json, None]:
        """What breaks or is closed early is followed by the task's id."""
        task = ""
        try:
            async with aclosing(self.events("SendStreamingMessage", params)) as replies:
                async for _, reply in replies:
                    if "error" in reply:
                        raise RemoteError(reply["error"])
                    yield (result := reply["result"])
                    if _is_last(result, waits=True):
                        return
                    task = _task_of(result) or task
        except httpx2.TransportError as error:
            if not task:
                raise Unreachable(f"{self._url} does not answer ({type(error).__name__}).") from error
        if not task:
            raise Unreachable(f"{self._url} closed the stream before it said anything.")
        found = await self.get(task)
        if _state(found) in (*_ENDED, *_WAITING):
            yield {"task": found}
            return
        async with aclosing(self.tail(task)) as steps:
            async for _, result in steps:
                yield result
                if _is_last(result, waits=True):
                    return

    async def _resumed(
        self, method: str, params: Json, after: int | None, headers: dict[str, str]
    ) -> AsyncGenerator[tuple[int, Json], None]:
        tries, ended, answered = 0, False, False
        while True:
            cursor = {"Last-Event-ID": str(after)} if after is not None else {}
            reason = "the connection was closed"
            try:
                came = False
                async with aclosing(self.events(method, params, {**headers, **cursor})) as replies:
                    async for id_, reply in replies:
                        if "error" in reply:
                            raise RemoteError(reply["error"])
                        tries, came, answered = 0, True, True
                        after = id_ if id_ is not None else after
                        yield after or 0, reply["result"]
                        if _is_last(reply["result"], waits=method == "SendStreamingMessage"):
                            return
                # A terminal task closes at once. But one that ended after this stream was closed, by a server that
                # stops, has more to tell: only what was asked for after the end was known leaves nothing out.
                if ended and not came:
                    return
                if after is not None and method == "SubscribeToTask" and tries == 0:
                    ended = _state(await self.get(params["id"])) in _ENDED
                    if ended:
                        continue
            except (httpx2.TransportError, Unreachable) as error:
                reason = _reason(error)
            tries += 1
            if tries > (_RETRIES if answered else _FIRST_RETRIES):
                raise Unreachable(f"{self._url} does not answer ({reason}).")
            pause = min(_PAUSE_S * 2**tries, _LONGEST_PAUSE_S)
            if self._on_retry is not None:
                self._on_retry(reason, pause)
            await asyncio.sleep(pause)


def message(text: Content, *, task: str | None = None, context: str | None = None, id_: str | None = None) -> Json:
    parts = [{"text": text}] if isinstance(text, str) else text
    wire: Json = {"messageId": id_ or new_id(), "role": "ROLE_USER", "parts": parts}
    if task:
        wire["taskId"] = task
    if context:
        wire["contextId"] = context
    return wire


def _request(method: str, params: Json) -> Json:
    return {"jsonrpc": "2.0", "id": new_id(), "method": method, "params": params}


def _headers(more: dict[str, str] | None) -> dict[str, str]:
    return {"A2A-Version": "1.0", **(more or {})}


def _reason(error: Exception) -> str:
    """A short reason for a failed connection."""
    if isinstance(error, Unreachable):
        return error.message
    if isinstance(error, httpx2.ConnectTimeout):
        return "connecting timed out"
    if isinstance(error, httpx2.ConnectError):
        return "cannot connect"
    return "the connection broke"


def _result(reply: httpx2.Response) -> Any:
    try:
        body = msgspec.json.decode(reply.content, type=_Reply)
    except msgspec.MsgspecError:
        raise _refused(reply) from None
    if body.error is not None:
        raise RemoteError(body.error, reply.status_code)
    return body.result


def _refused(reply: httpx2.Response) -> ParleyError:
    with suppress(msgspec.MsgspecError):
        error = msgspec.json.decode(reply.content, type=_Refusal).error
        return RemoteError({"message": error} if isinstance(error, str) else error, reply.status_code)
    return Unreachable(f"{reply.url} answered {reply.status_code}, and not in JSON-RPC.")


def _number(text: str) -> int | None:
    """The id of an event, where a server numbers them."""
    text = text.strip()
    return int(text) if text.isascii() and text.isdigit() else None


def _task_of(result: Json) -> str:
    for kind, name in (("task", "id"), ("statusUpdate", "taskId"), ("artifactUpdate", "taskId")):
        if kind in result:
            return str(result[kind][name])
    return ""


def _state(task: Json) -> str:
    return str(task.get("status", {}).get("state", ""))


def _is_last(result: Json, *, waits: bool) -> bool:
    if "message" in result:
        return True
    state = _state(result.get("statusUpdate") or result.get("task") or {})
    return state in _ENDED or (waits and state in _WAITING and "statusUpdate" in result)

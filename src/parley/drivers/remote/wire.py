"""Clients of remote agents, and the one over JSON-RPC and HTTP+JSON: A2A 1.0, 1.1 and 0.3."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Protocol, TypeVar

import httpx2
from msgspec.structs import replace

from parley.client.sse import read_events
from parley.drivers.remote.cards import CURRENT, NUMBERED, Offer, RemoteCard, choose
from parley.drivers.remote.http import (
    RemoteHttp,
    chunks_of,
    event_refused,
    is_stream,
    readable,
    rpc_refused,
    status_refused,
    translated,
)
from parley.drivers.remote.options import RemoteOptions, credentials
from parley.drivers.remote.replies import (
    Format,
    Replies,
    RpcReply,
    decode_event,
    decode_flat_event,
    decode_rpc,
    decode_rpc_event,
    decode_rpc_task,
    decode_task,
)
from parley.drivers.remote.requests import Requests, WireRequest
from parley.drivers.remote.translation import (
    Heard,
    RemoteRefused,
    RemoteReply,
    RemoteStatus,
    RemoteStep,
    RemoteTask,
)
from parley.runs.rules.content import Message
from parley.runs.rules.state import TERMINAL, WAITING
from parley.telemetry.trace import current, headers_for

T = TypeVar("T")
_STREAM = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
_PYTHON = "python-httpx/0.28 parley"
"""The User-Agent of A2A 0.3 over HTTP. By its beginning a Parley server knows that bytes are base64 of base64."""


class RemotePeer(Protocol):
    """Client for one remote agent. Its errors are ConnectionLost, RemoteRefused and those of this server's guards."""

    @property
    def streams(self) -> bool: ...

    @property
    def resumable(self) -> bool: ...

    @property
    def idempotent(self) -> bool: ...

    @property
    def rejoins(self) -> bool: ...

    def send(
        self, message: Message, task: str | None, context: str | None, key: str, *, hops: int
    ) -> AsyncGenerator[RemoteStep, None]:
        """Send a message. Yields the stream if the remote supports streaming, else its first answer."""
        ...

    def subscribe(self, task: str, cursor: int | None) -> AsyncGenerator[RemoteStep, None]: ...

    async def get(self, task: str, after: int = 0) -> RemoteTask:
        """Return a task. `after`: when it has a higher generation, or after a time that the remote sets."""
        ...

    async def cancel(self, task: str) -> None: ...


# Why: docs/decisions/drivers.md#speak-a2a-over-json-rpc-and-http-with-our-own-client
class WirePeer:
    """Client for one remote agent over JSON-RPC or HTTP+JSON."""

    def __init__(self, offer: Offer, http: RemoteHttp, headers: Mapping[str, str]) -> None:
        """`headers` carry credentials."""
        self.streams = offer.streams
        self.resumable = offer.resumable
        self.idempotent = offer.idempotent
        self.rejoins = offer.rejoins
        self._http = http
        self._rpc = offer.interface.binding == "JSONRPC"
        self._requests = Requests(offer.interface)
        self._replies = Replies(self._requests.format, generations=offer.generations)
        self._generations = offer.generations
        self._old = offer.interface.is_old
        self._joining = "POST"
        """The HTTP method of a request for the stream of a known task."""
        self._headers = {**headers, **_protocol(offer, self._requests.format)}

    def send(
        self, message: Message, task: str | None, context: str | None, key: str, *, hops: int
    ) -> AsyncGenerator[RemoteStep, None]:
        """Send a message. Yields the stream if the remote supports streaming, else its first answer."""
        headers = {"Idempotency-Key": key}
        if self.streams:
            return self._stream(self._requests.send("stream", message, task, context, hops, waits=True), headers)
        # A waiting task may look unchanged just after our answer, so in that case let the remote finish first.
        return self._answer(self._requests.send("send", message, task, context, hops, waits=task is not None), headers)

    def subscribe(self, task: str, cursor: int | None) -> AsyncGenerator[RemoteStep, None]:
        after = {"Last-Event-ID": str(cursor)} if cursor is not None and self.resumable else {}
        request = self._requests.about("subscribe", task)
        return self._stream(replace(request, method=self._joining) if not self._rpc else request, after)

    async def get(self, task: str, after: int = 0) -> RemoteTask:
        """Return a task. `after`: when it has a higher generation, or after a time that the remote sets."""
        content = await self._asked(self._requests.about("get", task, after if self._generations else 0))
        return readable(self._task, content)

    async def cancel(self, task: str) -> None:
        content = await self._asked(self._requests.about("cancel", task))
        readable(self._task, content)

    async def _answer(self, request: WireRequest, headers: Mapping[str, str]) -> AsyncGenerator[RemoteStep, None]:
        step = readable(self._step, await self._asked(request, headers))
        if step is None:
            raise RemoteRefused("other", "Its answer is neither a task nor a message.")
        yield step

    async def _stream(self, request: WireRequest, headers: Mapping[str, str]) -> AsyncGenerator[RemoteStep, None]:
        if not self.streams:
            raise RemoteRefused("unknown", "It does not support the operation.")
        reply = await self._opened(request, {**_STREAM, **headers})
        if not is_stream(reply):
            if (step := readable(self._step, await self._http.content(reply))) is not None:
                yield step
            return
        chunks, ended = chunks_of(reply), False
        try:
            async with aclosing(read_events(chunks)) as events:
                async for number, data in events:
                    if not data or (step := readable(self._step, data)) is None:
                        continue
                    step, ended = replace(step, cursor=number), _ends(step.heard)
                    yield step
                    if isinstance(step.heard, RemoteReply):
                        return
        except Exception as error:
            raise translated(error) from error
        finally:
            await self._http.close(reply, chunks, ended=ended)

    async def _asked(self, request: WireRequest, headers: Mapping[str, str] | None = None) -> bytes:
        return await self._http.content(await self._opened(request, headers or {}))

    async def _opened(self, request: WireRequest, headers: Mapping[str, str]) -> httpx2.Response:
        """Return the reply to a request. Raise the error of a reply that reports one."""
        known = {"Content-Type": "application/json"} if request.body is not None else {}
        headers = {**headers_for(current()), **self._headers, **known, **headers}
        reply = await self._http.send(request.method, request.url, headers, request.body)
        if reply.is_success:
            return reply
        content = await self._http.content(reply)
        if reply.status_code == 405 and self._old and request.url.endswith(":subscribe") and self._joining == "POST":
            # The schema of A2A 0.3 has GET here, its text POST.
            self._joining = "GET"
            return await self._opened(replace(request, method="GET"), headers)
        raise status_refused(reply.status_code, content, reasons=not self._rpc)

    # The content of replies.

    def _step(self, content: bytes | str) -> RemoteStep | None:
        """Return the step for an event or the result of a send; None for one that A2A 0.3 does not know."""
        if not self._rpc:
            found = decode_event(content)
            if found.error:
                raise event_refused(found.error)
        elif self._old:
            reply = decode_rpc(content)
            if reply.error:
                raise rpc_refused(reply.error)
            found = decode_flat_event(reply.result)
        else:
            found = _result(decode_rpc_event(content))
        step = self._replies.step(found)
        if step is None and not self._old:
            raise RemoteRefused("other", "An event of its stream is empty.")
        return step

    def _task(self, content: bytes | str) -> RemoteTask:
        return self._replies.task(_result(decode_rpc_task(content)) if self._rpc else decode_task(content))


def _result(reply: RpcReply[T]) -> T:
    """Return the result of a JSON-RPC response. Raise its error."""
    if reply.error:
        raise rpc_refused(reply.error)
    if reply.result is None:
        raise RemoteRefused("other", "Its answer is not valid JSON-RPC: it has neither a result nor an error.")
    return reply.result


def _ends(heard: Heard) -> bool:
    """Return whether a server closes a stream after an event."""
    if isinstance(heard, RemoteStatus | RemoteTask):
        return heard.state in TERMINAL or heard.state in WAITING
    return isinstance(heard, RemoteReply)


def _protocol(offer: Offer, format_: Format) -> dict[str, str]:
    """Return the headers that are the same in each request."""
    headers = {"A2A-Version": "0.3" if format_ != "1" else NUMBERED if offer.generations else CURRENT}
    if offer.extensions:
        headers["A2A-Extensions"] = offer.extensions
        if format_ != "1":
            headers["X-A2A-Extensions"] = offer.extensions
    if format_ == "0.3 http":
        headers["User-Agent"] = _PYTHON
    return headers


def open_peer(
    options: RemoteOptions, card: RemoteCard, http: RemoteHttp, headers: Mapping[str, str] | None = None
) -> RemotePeer:
    """Return a client for a binding that both sides support. `headers` carry credentials; like those of the options,
    they are sent only to the host of the agent's URL."""
    offer = choose(options, card, bound=headers is not None)
    sent = {**credentials(options), **(headers or {})}
    if offer.interface.binding != "GRPC":
        return WirePeer(offer, http, sent)
    from parley.drivers.remote.sdk import GrpcPeer

    return GrpcPeer(options, offer, sent)

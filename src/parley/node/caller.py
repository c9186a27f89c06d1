"""The caller's object of the registry contract (004): `send`, `subscribe` and `get`, with its names and flat results.

    async with A2A("http://127.0.0.1:8300") as a2a:
        result = await a2a.send({"method": "message/send", "params": {"message": {…}}})

It calls any server over A2A 0.3 with JSON-RPC, as the contract does. A stream that breaks is resumed after the last
event that was received, and a send is repeated with its idempotency key, if the server supports that.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, cast

import httpx2

from parley.client import UNSUPPORTED, Client, RemoteError, Unreachable
from parley.client.http import FIRST_RETRIES, RETRIES, pause_s, token_headers
from parley.errors import IssuerUnavailable
from parley.ids import new_id
from parley.node.messages import TERMINAL, WAITING, Address, Flattener, Json, PeerUnavailable
from parley.security.netguard import Guard, GuardedTransport
from parley.security.outbound import MAX_BYTES, LimitedTransport, certificates
from parley.telemetry.trace import current, headers_for

CONNECT_S, READ_S = 30.0, 300.0
"""The same timeouts as in the contract's own client."""
_STREAMS = ("message/stream", "message/sendSubscribe", "tasks/resubscribe")
_UNSENT = (httpx2.ConnectError, httpx2.ConnectTimeout)

Where = Callable[[bool], Awaitable[Address]]
"""Finds the address of the server. Called with True after the server could not be reached or refused the token."""
OnAnswer = Callable[[int | None, Exception | None], None]
"""Called with the status of each answer, or with the error of a call without an answer."""


class A2A:
    """Calls one A2A server. `where` is its URL, or a function that finds it. A client passed as `http` is not closed by
    this object. With `repeats=False` a message that may have arrived is not sent again, for servers without
    idempotency keys."""

    def __init__(
        self,
        where: str | Where,
        *,
        token: str | None = None,
        http: httpx2.AsyncClient | None = None,
        seen: OnAnswer | None = None,
        repeats: bool = True,
    ) -> None:
        self._where = _fixed(Address("", where, token)) if isinstance(where, str) else where
        self._own = http is None
        self._http = http or open_http()
        self._seen = seen
        self._repeats = repeats

    async def __aenter__(self) -> "A2A":
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._own:
            await self._http.aclose()

    async def send(self, request: Json, *, key: str | None = None) -> Json:
        """Call `request["method"]` and return its flat result. `message/send` waits until the task ends or asks."""
        method, params = str(request["method"]), completed(dict(request.get("params") or {}))
        if method in _STREAMS:
            return await self._last(self.subscribe({"method": method, "params": params}, key=key))
        key = key or (new_id() if method == "message/send" else None)
        result = await self._retried(lambda client, headers: client.call(method, params, headers), key)
        return Flattener().flat(result) if _is_task_or_message(result) else result

    async def get(self, path: str) -> Json:
        """Return the current state of `/tasks/{id}`."""
        head, _, task = path.strip("/").partition("/")
        if head != "tasks" or not task:
            raise ValueError(f"The path must be /tasks/ID, not {path!r}.")

        async def read(client: Client, headers: Json) -> Any:
            return await client.call("tasks/get", {"id": task}, headers)

        return Flattener().flat(await self._retried(read, None))

    async def cancel(self, task: str) -> Json:
        """Cancel a task, and return it."""
        return await self.send({"method": "tasks/cancel", "params": {"id": task}})

    async def subscribe(self, request: Json, *, key: str | None = None) -> AsyncGenerator[Json, None]:
        """Yield events until the task ends or waits for input. Broken connections are resumed."""
        stream = _Stream(str(request["method"]), completed(dict(request.get("params") or {})), key or new_id())
        tries, anew = 0, False
        while True:
            broke: Exception = Unreachable("The stream ended before the task did.")
            try:
                async with aclosing(self._connection(stream, anew)) as events:
                    async for event in events:
                        tries = 0
                        yield event
                if stream.over:
                    return
            except httpx2.TransportError as error:
                self._report(None, error)
                broke = error
            except RemoteError as error:
                self._report(error.status)
                if stream.task and error.rpc == UNSUPPORTED and stream.method == "tasks/resubscribe":
                    # A server that cannot resume refuses to stream an ended task, so return its final state.
                    yield await self.get(f"/tasks/{stream.task}")
                    return
                if not _is_retried(error, anew):
                    raise
                broke = error
            tries, anew = tries + 1, True
            await self._pause(tries, broke, stream.task)
            stream.resume()

    async def _connection(self, stream: "_Stream", anew: bool) -> AsyncGenerator[Json, None]:
        client, headers = await self._client(anew, stream.key)
        async with aclosing(client.events(stream.method, stream.params, {**headers, **stream.cursor})) as replies:
            begun = False
            async for id_, reply in replies:
                event = stream.read(id_, reply)
                if not begun:
                    self._report(200)
                begun = True
                yield event
                if stream.ends:
                    return

    async def _pause(self, tries: int, broke: Exception, task: str) -> None:
        """Wait before the next attempt. Raises if there should be no further attempt."""
        if not task and not self._repeats and not isinstance(broke, _UNSENT) and not isinstance(broke, RemoteError):
            raise PeerUnavailable("The connection broke before the peer answered; it may still have started the work.")
        if tries > (RETRIES if task else FIRST_RETRIES):
            why = f": {broke.message}" if isinstance(broke, RemoteError) else "."
            raise PeerUnavailable(f"The peer cannot be reached{why}") from broke
        await asyncio.sleep(0 if _is_unauthenticated(broke) else pause_s(tries))

    async def _last(self, events: AsyncGenerator[Json, None]) -> Json:
        last: Json = {}
        async with aclosing(events):
            async for event in events:
                last = event
        return last

    async def _client(self, anew: bool, key: str | None) -> tuple[Client, dict[str, str]]:
        at = await self._where(anew)
        keyed = {"Idempotency-Key": key} if key else {}
        # This class decides which sends are repeated, so the client must not retry.
        headers = {"A2A-Version": "0.3", **headers_for(current()), **token_headers(at.token), **keyed}
        return Client(at.url, http=self._http), headers

    async def _retried(self, ask: Callable[[Client, dict[str, str]], Awaitable[Any]], key: str | None) -> Any:
        """Make a call. If the token was refused or the server not reached, find the address again and retry."""
        tries = 0
        while True:
            try:
                client, headers = await self._client(tries > 0, key)
                result = await ask(client, headers)
            except Unreachable as error:
                broke = error.__cause__ if isinstance(error.__cause__, Exception) else error
                self._report(None, broke)
            except RemoteError as error:
                self._report(error.status)
                if not _is_retried(error, tries > 0):
                    raise
                broke = error
            else:
                self._report(200)
                return result
            tries += 1
            await self._pause(tries, broke, "" if key else "known")

    def _report(self, status: int | None, error: Exception | None = None) -> None:
        if self._seen is not None:
            self._seen(status, error)


class _Stream:
    """Position in a stream, and the request that resumes it."""

    def __init__(self, method: str, params: Json, key: str) -> None:
        self.method = method
        self.params = params
        self.key: str | None = None if method == "tasks/resubscribe" else key
        self._flattener = Flattener(str(params.get("id", "")) if self.key is None else "")
        self._after: int | None = None
        self._status = ""
        self._happened = False

    @property
    def task(self) -> str:
        return self._flattener.task

    @property
    def cursor(self) -> dict[str, str]:
        return {} if self._after is None else {"Last-Event-ID": str(self._after)}

    @property
    def ends(self) -> bool:
        """True if the stream has ended. A task that was just answered may still be shown as waiting, so only its later
        events count."""
        return self._status in TERMINAL or (self._status in WAITING and self._happened)

    @property
    def over(self) -> bool:
        return self._status in TERMINAL or self._status in WAITING

    def read(self, id_: int | None, reply: Json) -> Json:
        if "error" in reply:
            raise RemoteError(reply["error"])
        self._after = id_ if id_ is not None else self._after
        result: Json = reply["result"]
        event = self._flattener.flat(result)
        self._status, self._happened = event["status"], result.get("kind") == "status-update"
        return event

    def resume(self) -> None:
        """Prepare the request that resumes the stream. A server that numbers its events continues after the last one;
        with any other server the task is followed again."""
        if self.task and self._after is None:
            self.method, self.params, self.key = "tasks/resubscribe", {"id": self.task}, None


def open_http(guard: Guard | None = None) -> httpx2.AsyncClient:
    """Open a client for calls to peers. It ignores proxies of the environment. `guard` decides which addresses may be
    called."""
    plain = httpx2.AsyncHTTPTransport(verify=certificates(), trust_env=False)
    transport = LimitedTransport(plain if guard is None else GuardedTransport(guard), MAX_BYTES)
    timeout = httpx2.Timeout(READ_S, connect=CONNECT_S)
    return httpx2.AsyncClient(transport=transport, timeout=timeout, trust_env=False)


def completed(params: Json) -> Json:
    """Return the parameters with the fields that A2A requires but the contract's examples leave out."""
    message = params.get("message")
    if isinstance(message, dict):
        params["message"] = {"kind": "message", "role": "user", "messageId": new_id(), **message}
    return params


def _is_task_or_message(result: Any) -> bool:
    return isinstance(result, dict) and ("status" in result or cast(Json, result).get("kind") == "message")


def _fixed(address: Address) -> Where:
    async def where(anew: bool) -> Address:
        return address

    return where


def _is_unauthenticated(error: Exception) -> bool:
    return isinstance(error, RemoteError) and error.status == 401


def _is_retried(error: RemoteError, anew: bool) -> bool:
    """Tell whether to repeat a call: once with another token; and as long as the peer cannot ask the platform about our
    token, because then it has not started any work."""
    return error.reason == IssuerUnavailable.code.upper() or (_is_unauthenticated(error) and not anew)

"""The caller's object of contract 004: `send`, `subscribe` and `get`, in its words and flat shapes.

    async with A2A("http://127.0.0.1:8300") as a2a:
        result = await a2a.send({"method": "message/send", "params": {"message": {…}}})

It speaks A2A 0.3 over JSON-RPC, as the contract does, to any server. A stream that breaks is taken up again after the
last event that was seen, and a send is repeated under its key, where the server understands that.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, cast

import httpx2

from parley.certificates import certificates
from parley.client import Client, RemoteError, Unreachable
from parley.ids import new_id
from parley.node.flat import TERMINAL, WAITING, Flattener
from parley.node.words import Address, Json, PeerUnavailable
from parley.security.netguard import Guard, GuardedTransport
from parley.security.replies import MAX_BYTES, LimitedTransport
from parley.telemetry.trace import current, headers_for

CONNECT_S, READ_S = 30.0, 300.0
"""As the contract's own client has them."""
TRIES, FIRST_TRIES = 8, 3
"""How often a task is asked for that is under way, and one that is not."""
_PAUSE_S = 0.25
_LONGEST_S = 5.0
_STREAMS = ("message/stream", "message/sendSubscribe", "tasks/resubscribe")
_UNSUPPORTED = -32004
_UNSENT = (httpx2.ConnectError, httpx2.ConnectTimeout)

Where = Callable[[bool], Awaitable[Address]]
"""Where the other one is; asked anew (True) after it could not be reached there, or did not let us in."""
Seen = Callable[[int | None, Exception | None], None]
"""Told of every answer's status, or how a call ended without one."""


class A2A:
    """`where` is an address, or who knows it; a client of one's own (`http`) is not closed with this. With
    `repeats=False` nothing that may have arrived is sent twice: not every server knows idempotency keys."""

    def __init__(
        self, where: str | Where, *, token: str | None = None, http: httpx2.AsyncClient | None = None,
        seen: Seen | None = None, repeats: bool = True,
    ) -> None:  # fmt: skip
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
        """What `request["method"]` answers, flat; `message/send` waits until the task ends or asks something."""
        method, params = str(request["method"]), completed(dict(request.get("params") or {}))
        if method in _STREAMS:
            return await self._last(self.subscribe({"method": method, "params": params}, key=key))
        key = key or (new_id() if method == "message/send" else None)
        result = await self._tried(lambda client, headers: client.call(method, params, headers), key)
        return Flattener().flat(result) if _is_task_or_message(result) else result

    async def get(self, path: str) -> Json:
        """`/tasks/{id}`, as it is now."""
        head, _, task = path.strip("/").partition("/")
        if head != "tasks" or not task:
            raise ValueError(f"{path!r} is not /tasks/ID.")

        async def read(client: Client, headers: Json) -> Any:
            return await client.call("tasks/get", {"id": task}, headers)

        return Flattener().flat(await self._tried(read, None))

    async def cancel(self, task: str) -> Json:
        return await self.send({"method": "tasks/cancel", "params": {"id": task}})

    async def subscribe(self, request: Json, *, key: str | None = None) -> AsyncGenerator[Json, None]:
        """Events until the task ends or waits for somebody, through broken connections."""
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
                self._note(None, error)
                broke = error
            except RemoteError as error:
                self._note(error.status)
                if stream.task and error.rpc == _UNSUPPORTED and stream.method == "tasks/resubscribe":
                    # A server that cannot resume refuses to follow what has ended: its end is what there is to say.
                    yield await self.get(f"/tasks/{stream.task}")
                    return
                if anew or not _unlet(error):
                    raise
                broke = error
            tries, anew = tries + 1, True
            await self._pause(tries, broke, stream.task)
            stream.goes_on()

    async def _connection(self, stream: "_Stream", anew: bool) -> AsyncGenerator[Json, None]:
        client, headers = await self._client(anew, stream.key)
        async with aclosing(client.events(stream.method, stream.params, {**headers, **stream.cursor})) as replies:
            begun = False
            async for id_, reply in replies:
                event = stream.heard(id_, reply)
                if not begun:
                    self._note(200)
                begun = True
                yield event
                if stream.ends:
                    return

    async def _pause(self, tries: int, broke: Exception, task: str) -> None:
        """Before the next attempt, if there is to be one."""
        if not task and not self._repeats and not isinstance(broke, _UNSENT) and not _unlet(broke):
            raise PeerUnavailable("The connection broke before the peer answered; it may have begun all the same.")
        if tries > (TRIES if task else FIRST_TRIES):
            raise PeerUnavailable("The peer cannot be reached.") from broke
        await asyncio.sleep(0 if _unlet(broke) else min(_PAUSE_S * 2**tries, _LONGEST_S))

    async def _last(self, events: AsyncGenerator[Json, None]) -> Json:
        last: Json = {}
        async with aclosing(events):
            async for event in events:
                last = event
        return last

    async def _client(self, anew: bool, key: str | None) -> tuple[Client, dict[str, str]]:
        at = await self._where(anew)
        token = {"Authorization": f"Bearer {at.token}"} if at.token else {}
        keyed = {"Idempotency-Key": key} if key else {}
        # Repeated sends are ours to decide on, so nothing of it is left to the client.
        headers = {"A2A-Version": "0.3", **headers_for(current()), **token, **keyed}
        return Client(at.url, http=self._http), headers

    async def _tried(self, ask: Callable[[Client, dict[str, str]], Awaitable[Any]], key: str | None) -> Any:
        """Once more, elsewhere perhaps, when it was not let in, or could not be reached."""
        tries = 0
        while True:
            try:
                client, headers = await self._client(tries > 0, key)
                result = await ask(client, headers)
            except Unreachable as error:
                broke = error.__cause__ if isinstance(error.__cause__, Exception) else error
                self._note(None, broke)
            except RemoteError as error:
                self._note(error.status)
                if tries or not _unlet(error):
                    raise
                broke = error
            else:
                self._note(200)
                return result
            tries += 1
            await self._pause(tries, broke, "" if key else "known")

    def _note(self, status: int | None, error: Exception | None = None) -> None:
        if self._seen is not None:
            self._seen(status, error)


class _Stream:
    """How far a stream has come, and how it is taken up."""

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
        """A task that was just answered may still be shown as it waited: only what happens to it counts."""
        return self._status in TERMINAL or (self._status in WAITING and self._happened)

    @property
    def over(self) -> bool:
        return self._status in TERMINAL or self._status in WAITING

    def heard(self, id_: int | None, reply: Json) -> Json:
        if "error" in reply:
            raise RemoteError(reply["error"])
        self._after = id_ if id_ is not None else self._after
        result: Json = reply["result"]
        event = self._flattener.flat(result)
        self._status, self._happened = event["status"], result.get("kind") == "status-update"
        return event

    def goes_on(self) -> None:
        """A server that numbers its events goes on after the last one; of any other the task is followed anew."""
        if self.task and self._after is None:
            self.method, self.params, self.key = "tasks/resubscribe", {"id": self.task}, None


def open_http(guard: Guard | None = None) -> httpx2.AsyncClient:
    """A client for calls to peers, without proxies of the environment. `guard` decides which addresses are called."""
    plain = httpx2.AsyncHTTPTransport(verify=certificates(), trust_env=False)
    transport = LimitedTransport(plain if guard is None else GuardedTransport(guard), MAX_BYTES)
    timeout = httpx2.Timeout(READ_S, connect=CONNECT_S)
    return httpx2.AsyncClient(transport=transport, timeout=timeout, trust_env=False)


def completed(params: Json) -> Json:
    """With what A2A wants and the contract's examples leave out."""
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


def _unlet(error: Exception) -> bool:
    return isinstance(error, RemoteError) and error.status == 401

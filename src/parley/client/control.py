"""Client of the runtime control plane (003, `/internal/v1`): signs every request, and follows a run through broken
connections and closed tails until `[DONE]`."""

import asyncio
import hashlib
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Any, NoReturn
from urllib.parse import quote

import httpx2
import msgspec
from msgspec import Struct

from parley.client.http import RETRIES, HttpAnswer, Json, ask, open_events, pause_s, reaching
from parley.clock import Clock, now_ms
from parley.errors import ParleyError
from parley.ids import new_id
from parley.security.outbound import open_client
from parley.security.signatures import claims_for, sign

KEY_ID = "runtime-v1"
TAIL_MS = 25_000
_DONE = "[DONE]"


class RuntimeRefused(ParleyError):
    """The runtime refused the request; fields are from its error envelope, `status` is the HTTP status."""

    code = "runtime_refused"

    def __init__(self, status: int, error: Json) -> None:
        super().__init__(str(error.get("message", "The runtime refused the request.")))
        self.status = status
        self.reason = str(error.get("code", ""))
        self.problems: list[Any] = error.get("details") or []


class RuntimeUnreachable(ParleyError):
    """No server answers at the address, or the connection broke too often."""

    code = "unreachable"


class Owner(Struct, frozen=True):
    """User or guest that the client acts for."""

    user_id: int | None = None
    guest_scope: str | None = None

    @property
    def headers(self) -> dict[str, str]:
        """Headers that name the owner in a request."""
        given = {"x-oa-user-id": self.user_id, "x-oa-guest-scope": self.guest_scope}
        return {name: str(value) for name, value in given.items() if value is not None}


class RuntimeClient:
    """Client of the runtime control plane (003). `url` is the root of a server; `secret` is the key that its operator
    issued with the id `key_id`."""

    def __init__(
        self,
        url: str,
        secret: str,
        *,
        owner: Owner | None = None,
        key_id: str | None = KEY_ID,
        clock: Clock = now_ms,
        http: httpx2.AsyncClient | None = None,
    ) -> None:
        self._base = url.rstrip("/") + "/internal/v1"
        self._secret = secret
        self._key_id = key_id
        self._owner = owner or Owner()
        self._clock = clock
        self._http = http or open_client(timeout=httpx2.Timeout(60.0, connect=5.0))

    async def __aenter__(self) -> "RuntimeClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def health(self) -> Json:
        """Return the health of the runtime."""
        return await self._get("/health")

    async def openapi(self) -> Json:
        """Return the OpenAPI document."""
        return await self._get("/openapi.json")

    async def create_run(self, thread: str, *, run: str | None = None, agent: str | None = None) -> Json:
        """Create a run. The same id returns the same run; without one, an id is made here so that a retry finds it."""
        body: Json = {"thread_id": thread, "run_id": run or new_id(), **({"agent": agent} if agent else {})}
        return await self._post("/runs", body)

    async def snapshot(self, run: str, thread: str) -> Json:
        """Return the state of a run."""
        return await self._get(_path(run, "snapshot"), run=run, query={"thread_id": thread})

    async def frame(
        self, run: str, thread: str, type_: str = "user_message", payload: Json | None = None, *, id_: str | None = None
    ) -> Json:
        """Append a frame to a run."""
        body = {"thread_id": thread, "frame_id": id_ or new_id(), "type": type_, "payload": payload or {}}
        return await self._post(_path(run, "frames"), body, run=run)

    async def say(self, run: str, thread: str, text: str) -> Json:
        """Append a user's message to a run."""
        return await self.frame(run, thread, payload={"text": text})

    async def finish(self, run: str, thread: str) -> Json:
        """End a run as done."""
        return await self.frame(run, thread, "finish")

    async def cancel(self, run: str, thread: str, reason: str | None = None) -> Json:
        """Cancel a run."""
        body: Json = {"thread_id": thread, **({"reason": reason} if reason else {})}
        return await self._post(_path(run, "cancel"), body, run=run)

    async def execute(self, body: Json) -> Json:
        """Call a tool; `body` as in the contract's `tools/execute`."""
        return await self._post("/tools/execute", body)

    async def deliver(self, event: Json) -> Json:
        """Store a delivery event."""
        return await self._post("/comms/delivery-events", event)

    async def stream(
        self, run: str, thread: str, cursor: int | None = None, tail_ms: int = TAIL_MS
    ) -> AsyncGenerator[tuple[int, Json], None]:
        """Yield the events of one connection with their numbers, until the tail ends or the run is done."""
        async with aclosing(self._lines(run, thread, cursor, tail_ms)) as lines:
            async for seq, data in lines:
                if data == _DONE:
                    return
                yield seq, msgspec.json.decode(data)

    async def follow(self, run: str, thread: str, cursor: int = 0) -> AsyncGenerator[tuple[int, Json], None]:
        """Yield all events after the cursor until the run is done, reconnecting as often as needed."""
        tries = 0
        while tries <= RETRIES:
            with suppress(httpx2.TransportError):
                async with aclosing(self._lines(run, thread, cursor, TAIL_MS)) as lines:
                    async for seq, data in lines:
                        if data == _DONE:
                            return
                        cursor, tries = seq, 0
                        yield seq, msgspec.json.decode(data)
                continue
            tries += 1
            await asyncio.sleep(pause_s(tries))
        raise RuntimeUnreachable(f"{self._base} does not answer.")

    async def _lines(
        self, run: str, thread: str, cursor: int | None, tail_ms: int
    ) -> AsyncGenerator[tuple[int, str], None]:
        query = {"thread_id": thread, "tail_ms": str(tail_ms), **({} if cursor is None else {"cursor": str(cursor)})}
        headers = self.headers(run=run, thread=thread)
        url = self._base + _path(run, "stream")
        async with open_events(self._http, "GET", url, _refuse, params=query, headers=headers) as events:
            seq = 0
            async for number, data in events:
                seq = seq if number is None else number
                yield seq, data

    def headers(self, *, run: str | None = None, thread: str | None = None, body: bytes | None = None) -> Json:
        """Return the signed headers of one request, which must name exactly this run and thread."""
        owner = self._owner
        claims = claims_for(
            self._clock(), run_id=run, thread_id=thread, user_id=owner.user_id, guest_scope=owner.guest_scope
        )
        headers = {"X-OA-RUNTIME-SIGNATURE": sign(self._secret, claims), **owner.headers}
        if self._key_id is not None:
            headers["X-OA-RUNTIME-KEY-ID"] = self._key_id
        if body is not None:
            headers["X-OA-RUNTIME-BODY-SHA256"] = hashlib.sha256(body).hexdigest()
        return headers

    async def _get(self, path: str, *, run: str | None = None, query: dict[str, str] | None = None) -> Json:
        headers = self.headers(run=run, thread=(query or {}).get("thread_id"))
        return await self._ask("GET", path, headers, query=query)

    async def _post(self, path: str, fields: Json, *, run: str | None = None) -> Json:
        body = msgspec.json.encode(fields)
        asked: Json = {**(fields.get("request") or {}), **fields}
        headers = self.headers(run=run or asked.get("run_id"), thread=asked.get("thread_id"), body=body)
        return await self._ask("POST", path, {**headers, "Content-Type": "application/json"}, body=body)

    async def _ask(
        self, method: str, path: str, headers: Json, *, query: dict[str, str] | None = None, body: bytes | None = None
    ) -> Json:
        sent: Json = {"params": query, "headers": headers, "content": body}
        with reaching(self._base, RuntimeUnreachable):
            answer = await ask(self._http, method, self._base + path, **sent)
        if not answer.ok:
            _refuse(answer)
        return msgspec.json.decode(answer.content, type=Json)


def _path(run: str, operation: str) -> str:
    return f"/runs/{quote(run, safe='')}/{operation}"


def _refuse(answer: HttpAnswer) -> NoReturn:
    raise RuntimeRefused(answer.status, answer.error or {})

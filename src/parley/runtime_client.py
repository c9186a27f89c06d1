"""A client of the runtime contract (`/internal/v1`): it signs every request, and follows a run through broken
connections and closed tails until `[DONE]`."""

import asyncio
import hashlib
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Any
from urllib.parse import quote

import httpx2
import msgspec
from msgspec import Struct

from parley.clock import Clock, now_ms
from parley.errors import ParleyError
from parley.ids import new_id
from parley.security.replies import open_client
from parley.security.signatures import claims_for, sign

KEY_ID = "runtime-v1"
TAIL_MS = 25_000
_RETRIES = 8
_PAUSE_S = 0.25
_DONE = "[DONE]"

Json = dict[str, Any]


class RuntimeRefused(ParleyError):
    """The runtime's error envelope; `status` is HTTP's."""

    code = "runtime_refused"

    def __init__(self, status: int, error: Json) -> None:
        super().__init__(str(error.get("message", "The runtime refused.")))
        self.status = status
        self.reason = str(error.get("code", ""))
        self.problems: list[Any] = error.get("details") or []


class RuntimeUnreachable(ParleyError):
    """Nobody answers at the address, or the connection broke too often."""

    code = "unreachable"


class Owner(Struct, frozen=True):
    """On whose behalf: a user, or a guest."""

    user_id: int | None = None
    guest_scope: str | None = None

    @property
    def headers(self) -> dict[str, str]:
        given = {"x-oa-user-id": self.user_id, "x-oa-guest-scope": self.guest_scope}
        return {name: str(value) for name, value in given.items() if value is not None}


class RuntimeClient:
    """`url` is the root of a server; `secret` the key that its operator gave out under `key_id`."""

    def __init__(
        self, url: str, secret: str, *, owner: Owner | None = None, key_id: str | None = KEY_ID,
        clock: Clock = now_ms, http: httpx2.AsyncClient | None = None,
    ) -> None:  # fmt: skip
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
        return await self._get("/health")

    async def openapi(self) -> Json:
        return await self._get("/openapi.json")

    async def create_run(self, thread: str, *, run: str | None = None, agent: str | None = None) -> Json:
        """Begin a run. Named, it can be asked for again; else it gets a name here, so that a retry finds it."""
        body: Json = {"thread_id": thread, "run_id": run or new_id(), **({"agent": agent} if agent else {})}
        return await self._post("/runs", body)

    async def snapshot(self, run: str, thread: str) -> Json:
        return await self._get(_path(run, "snapshot"), run=run, query={"thread_id": thread})

    async def frame(
        self, run: str, thread: str, type_: str = "user_message", payload: Json | None = None, *, id_: str | None = None
    ) -> Json:
        body = {"thread_id": thread, "frame_id": id_ or new_id(), "type": type_, "payload": payload or {}}
        return await self._post(_path(run, "frames"), body, run=run)

    async def say(self, run: str, thread: str, text: str) -> Json:
        return await self.frame(run, thread, payload={"text": text})

    async def finish(self, run: str, thread: str) -> Json:
        return await self.frame(run, thread, "finish")

    async def cancel(self, run: str, thread: str, reason: str | None = None) -> Json:
        body: Json = {"thread_id": thread, **({"reason": reason} if reason else {})}
        return await self._post(_path(run, "cancel"), body, run=run)

    async def execute(self, body: Json) -> Json:
        """Use a tool; `body` as in the contract's `tools/execute`."""
        return await self._post("/tools/execute", body)

    async def deliver(self, event: Json) -> Json:
        return await self._post("/comms/delivery-events", event)

    async def stream(
        self, run: str, thread: str, cursor: int | None = None, tail_ms: int = TAIL_MS
    ) -> AsyncGenerator[tuple[int, Json], None]:
        """One connection: events with their numbers, until the tail is over or the run is done."""
        async with aclosing(self._lines(run, thread, cursor, tail_ms)) as lines:
            async for seq, data in lines:
                if data == _DONE:
                    return
                yield seq, msgspec.json.decode(data)

    async def follow(self, run: str, thread: str, cursor: int = 0) -> AsyncGenerator[tuple[int, Json], None]:
        """Everything after the cursor, over as many connections as it takes, until the run is done."""
        tries = 0
        while tries <= _RETRIES:
            with suppress(httpx2.TransportError):
                async with aclosing(self._lines(run, thread, cursor, TAIL_MS)) as lines:
                    async for seq, data in lines:
                        if data == _DONE:
                            return
                        cursor, tries = seq, 0
                        yield seq, msgspec.json.decode(data)
                continue
            tries += 1
            await asyncio.sleep(min(_PAUSE_S * 2**tries, 5.0))
        raise RuntimeUnreachable(f"{self._base} does not answer.")

    async def _lines(
        self, run: str, thread: str, cursor: int | None, tail_ms: int
    ) -> AsyncGenerator[tuple[int, str], None]:
        query = {"thread_id": thread, "tail_ms": str(tail_ms), **({} if cursor is None else {"cursor": str(cursor)})}
        headers = self.headers(run=run, thread=thread)
        url = self._base + _path(run, "stream")
        async with self._http.stream("GET", url, params=query, headers=headers) as reply:
            if reply.status_code != 200:
                raise _refused(reply.status_code, await reply.aread())
            seq = 0
            async for line in reply.aiter_lines():
                if line.startswith("id: "):
                    seq = int(line[4:])
                elif line.startswith("data: "):
                    yield seq, line[6:]

    def headers(self, *, run: str | None = None, thread: str | None = None, body: bytes | None = None) -> Json:
        """Signed for one request, which must name just this run and thread."""
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
        try:
            reply = await self._http.request(method, self._base + path, params=query, headers=headers, content=body)
        except httpx2.TransportError as error:
            raise RuntimeUnreachable(f"{self._base} does not answer ({type(error).__name__}).") from error
        if not reply.is_success:
            raise _refused(reply.status_code, reply.content)
        return msgspec.json.decode(reply.content, type=Json)


def _path(run: str, operation: str) -> str:
    return f"/runs/{quote(run, safe='')}/{operation}"


def _refused(status: int, content: bytes) -> RuntimeRefused:
    error: Json = {}
    with suppress(msgspec.MsgspecError):
        error = msgspec.json.decode(content, type=dict[str, Json]).get("error", {})
    return RuntimeRefused(status, error)

"""A client's connection to the platform: it may break at any moment, and requests are retried."""

import asyncio
import json
import random
import re
import ssl
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

import httpx2
from msgspec import Struct

from dev.chaos.history import History, Json, Refusal
from parley.ids import new_id

NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
PATIENCE_S = 8.0
"""A stream sends something every three seconds; a longer silence means a dead connection."""
PASSING = frozenset({"store_unavailable", "database_error", "stopping"})
"""Temporary error codes: JSON-RPC sends them with 200, and the actions (002) have their own word for the first."""
BROKEN = (httpx2.TransportError, httpx2.InvalidURL)


class Answer(Struct, frozen=True):
    status: int
    body: Json

    @property
    def good(self) -> bool:
        return bool(self.queued) or (200 <= self.status < 300 and "error" not in self.body)

    @property
    def passing(self) -> bool:
        """True if a retry may succeed."""
        return self.code in PASSING or self.status in (429, 503)

    @property
    def queued(self) -> str:
        """The task that waits for a node with room, however that is said: once a client was kept waiting it is an error
        of JSON-RPC."""
        found = re.search(r'"queue_id": "([^"]+)"', json.dumps(self.body))
        return found[1] if found else ""

    @property
    def code(self) -> str:
        error = self.body.get("error")
        if not isinstance(error, dict):
            return str(error or "").lower()
        details = error.get("data") or error.get("details") or []
        first = details[0] if isinstance(details, list) and details else {}
        return str(first.get("reason") or error.get("code") or "").lower()


class Line:
    def __init__(self, url: str, history: History, dice: random.Random) -> None:
        self._url = url
        self._history = history
        self.dice = dice
        self.until = float("inf")
        """Time at which retries end."""
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=4)
        timeout = httpx2.Timeout(PATIENCE_S, connect=2.0)
        self._http = httpx2.AsyncClient(verify=NO_TLS, timeout=timeout, limits=limits, trust_env=False)

    async def close(self) -> None:
        await self._http.aclose()

    async def once(self, what: str, method: str, path: str, body: Json | None, key: str = "") -> Answer | None:
        """Send once; None if the outcome is unknown."""
        headers = {"A2A-Version": "1.0", **({"Idempotency-Key": key} if key else {})}
        try:
            reply = await self._http.request(method, self._url + path, json=body, headers=headers)
        except BROKEN:
            return None
        answer = Answer(reply.status_code, _read(reply.content))
        if not answer.good:
            self._history.refusals.append(Refusal(what, answer.status, answer.code))
        return answer

    async def insist(self, attempt: Callable[[], Awaitable[Answer | None]]) -> Answer | None:
        """Retry until the outcome is known; None when time is up."""
        while True:
            answer = await attempt()
            if answer is not None and not answer.passing:
                return answer
            if time.monotonic() > self.until:
                return None
            await asyncio.sleep(self.dice.uniform(0.05, 0.5))

    async def ask(self, what: str, path: str, body: Json, key: str = "") -> Answer | None:
        return await self.insist(lambda: self.once(what, "POST", path, body, key))

    async def rpc(self, method: str, path: str, params: Json, key: str = "") -> Answer | None:
        return await self.ask(method, path, envelope(method, params), key)

    async def events(
        self, method: str, path: str, params: Json, key: str, after: int | None
    ) -> AsyncGenerator[tuple[int, Json], None]:
        """Yield the ids and whole JSON-RPC responses of one connection, until it ends or `until` has passed."""
        headers = {"A2A-Version": "1.0", "Accept": "text/event-stream"}
        headers |= {"Idempotency-Key": key} if key else {}
        headers |= {"Last-Event-ID": str(after)} if after is not None else {}
        body = envelope(method, params)
        async with self._http.stream("POST", self._url + path, json=body, headers=headers) as reply:
            if "text/event-stream" not in reply.headers.get("content-type", ""):
                answer = Answer(reply.status_code, _read(await reply.aread()))
                if not answer.good:
                    self._history.refusals.append(Refusal(method, answer.status, answer.code))
                raise Refused(answer)
            id_ = 0
            async with aclosing(reply.aiter_lines()) as lines:
                async for line in lines:
                    if time.monotonic() > self.until:
                        return
                    if line.startswith("id:"):
                        id_ = int(line[3:])
                    elif line.startswith("data:"):
                        yield id_, json.loads(line[5:])


class Refused(Exception):
    def __init__(self, answer: Answer) -> None:
        super().__init__(f"{answer.status} {answer.code}")
        self.answer = answer


def envelope(method: str, params: Json) -> Json:
    return {"jsonrpc": "2.0", "id": new_id(), "method": method, "params": params}


def _read(content: bytes) -> Json:
    try:
        found = json.loads(content)
    except ValueError:
        return {"error": ""}
    return found if isinstance(found, dict) else {"error": ""}

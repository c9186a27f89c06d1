"""What a node says to its platform, and asks of it."""

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import httpx2
import msgspec

from parley.errors import ReplyTooLarge
from parley.node.kept import Kept, Self
from parley.node.words import Discovered, Json, Peer, PlatformRefused, PlatformUnreachable, peers_in
from parley.security.replies import open_client

TIMEOUT_S = 10.0
SILENCE_S = 15.0
"""The feed says something every three seconds, be it nothing."""
_NEXT = "x-next-after"
_NO_ANSWER = (httpx2.TransportError, ReplyTooLarge)


class Happening(msgspec.Struct, frozen=True):
    """One event of the platform's feed; a heartbeat has no number."""

    event: str
    workspace_id: str
    payload: Json
    number: int | None = None


class Platform:
    """Speaks for one node. Its token comes with the first registration, and is kept at once."""

    def __init__(
        self, url: str, kept: Kept, id_: str | None = None, *, token: str | None = None,
        registration_token: str | None = None, http: httpx2.AsyncClient | None = None,
    ) -> None:  # fmt: skip
        self.url = url.rstrip("/")
        self._kept = kept
        known = kept.read(id_)
        if token is not None and token != known.token:
            known = self._keep(known.id, token)
        self._known = known
        self._admission = registration_token
        self._http = http or open_client(timeout=TIMEOUT_S)

    @property
    def id(self) -> str:
        return self._known.id

    @property
    def token(self) -> str | None:
        return self._known.token

    async def register(self, url: str, card: Json, name: str | None = None) -> None:
        """This node is here. A platform that has forgotten its token, or revoked it, is asked for another."""
        body = {"id": self.id, "url": url, "agent_card": card, **({"name": name} if name else {})}
        try:
            reply = await self._post("/registry/register", body, self.token or self._admission)
        except PlatformRefused as error:
            if error.status != 401 or self.token is None:
                raise
            reply = await self._post("/registry/register", body, self._admission)
        if token := reply.get("auth_token"):
            self._known = self._keep(self.id, str(token))

    async def beat(self, said: Json) -> None:
        await self._post("/registry/heartbeat", {"workspace_id": self.id, **said}, self.token)

    async def update_card(self, card: Json) -> None:
        await self._post("/registry/update-card", {"workspace_id": self.id, "agent_card": card}, self.token)

    async def discover(self, peer: str) -> Discovered:
        """Where a peer is now; a removed one's successor answers in its place."""
        reply = await self._ask("GET", f"/registry/discover/{peer}")
        return msgspec.json.decode(reply.content, type=Discovered)

    async def peers(self, words: str = "") -> list[Peer]:
        found: list[Peer] = []
        query: dict[str, str] = {"q": words} if words else {}
        while True:
            reply = await self._ask("GET", f"/registry/{self.id}/peers", params=query)
            found += peers_in(reply.content)
            if (after := reply.headers.get(_NEXT)) is None:
                return found
            query["after"] = after

    async def peer(self, id_: str) -> Peer:
        return msgspec.json.decode((await self._ask("GET", f"/workspaces/{id_}")).content, type=Peer)

    async def events(self, after: int | None) -> AsyncGenerator[Happening | None, None]:
        """One connection's worth of what happens to those this node may talk to; None once it is open."""
        cursor = {} if after is None else {"Last-Event-ID": str(after)}
        headers = {**self._headers(self.token), **cursor, "Accept": "text/event-stream"}
        timeout = httpx2.Timeout(TIMEOUT_S, read=SILENCE_S)
        try:
            async with self._http.stream(
                "GET", f"{self.url}/workspaces/events/stream", headers=headers, timeout=timeout
            ) as reply:
                if reply.status_code != 200:
                    await reply.aread()
                    raise _refused(reply)
                yield None
                async with aclosing(_happenings(reply)) as happenings:
                    async for happening in happenings:
                        yield happening
        except _NO_ANSWER as error:
            raise _away(error) from error

    async def close(self) -> None:
        await self._http.aclose()

    def _keep(self, id_: str, token: str) -> Self:
        known = Self(id_, token)
        self._kept.write(known)
        return known

    def _headers(self, token: str | None) -> dict[str, str]:
        return {"X-Workspace-ID": self.id, **({"Authorization": f"Bearer {token}"} if token else {})}

    async def _post(self, path: str, body: Json, token: str | None) -> Json:
        return (await self._send("POST", path, token, json=body)).json()

    async def _ask(self, method: str, path: str, **more: Any) -> httpx2.Response:
        return await self._send(method, path, self.token, **more)

    async def _send(self, method: str, path: str, token: str | None, **more: Any) -> httpx2.Response:
        headers = self._headers(token)
        try:
            reply = await self._http.request(method, self.url + path, headers=headers, **more)
        except _NO_ANSWER as error:
            raise _away(error) from error
        if reply.status_code >= 500 and reply.status_code != 503:
            raise PlatformUnreachable(f"The platform answered {reply.status_code}.")
        if reply.status_code not in (200, 301):
            raise _refused(reply)
        return reply


async def _happenings(reply: httpx2.Response) -> AsyncGenerator[Happening, None]:
    number: int | None = None
    async for line in reply.aiter_lines():
        if line.startswith("id:"):
            number = int(line[3:])
        elif line.startswith("data:"):
            said = json.loads(line[5:])
            yield Happening(said["event"], said["workspace_id"], said.get("payload") or {}, number)
            number = None


def _away(error: Exception) -> PlatformUnreachable:
    return PlatformUnreachable(f"The platform does not answer ({type(error).__name__}).")


def _refused(reply: httpx2.Response) -> PlatformRefused:
    try:
        words = str(msgspec.json.decode(reply.content)["error"])
    except (msgspec.MsgspecError, KeyError, TypeError):
        words = f"the platform answered {reply.status_code}"
    return PlatformRefused(reply.status_code, words[:300])

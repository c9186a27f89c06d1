"""Client of a node for its platform, and the file that stores the node's identity."""

import json
import os
import tempfile
import uuid
from collections.abc import AsyncGenerator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import httpx2
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from parley.client.http import HttpAnswer, ask, open_events, reaching, token_headers
from parley.errors import ConfigurationError, ReplyTooLarge
from parley.node.messages import Discovered, Json, Peer, PlatformRefused, PlatformUnreachable
from parley.security.outbound import open_client

# Identity of a node across restarts: its id, its token and its trusted issuer, in a file of mode 0600.

FILE = "node.json"


class NodeIdentity(Struct, frozen=True, omit_defaults=True):
    id: str
    token: str | None = None
    issuer: str | None = None
    """Issuer of pair tokens that `platform` returned at the last registration."""
    platform: str | None = None


class IdentityFile:
    def __init__(self, directory: Path) -> None:
        self.path = directory / FILE

    def read(self, id_: str | None) -> NodeIdentity:
        """Read the stored identity. If `id_` differs from the stored id, it is a new node; without any id, one is
        generated."""
        found = self._stored()
        if found is not None and id_ in (None, found.id):
            return found
        new = NodeIdentity(id_ or str(uuid.uuid4()))
        self.write(new)
        return new

    def write(self, known: NodeIdentity) -> None:
        """Write the identity atomically, because the platform shows a token only once."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=f".{FILE}.")  # of mode 0600
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(msgspec.json.encode(known))
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, self.path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise

    def _stored(self) -> NodeIdentity | None:
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=NodeIdentity)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError) as error:
            raise ConfigurationError(f"{self.path} cannot be read: {type(error).__name__}.") from None


TIMEOUT_S = 10.0
SILENCE_S = 15.0
"""Longest silence of the feed, which sends at least a heartbeat every three seconds."""
_NEXT = "x-next-after"
T = TypeVar("T")


class FeedEvent(msgspec.Struct, frozen=True):
    """One event of the platform's feed; a heartbeat has no number."""

    event: str
    workspace_id: str
    payload: Json
    number: int | None = None


class PlatformClient:
    """Calls the platform for one node. The node's token comes with the first registration, and is stored at once."""

    def __init__(
        self,
        url: str,
        identity_file: IdentityFile,
        id_: str | None = None,
        *,
        token: str | None = None,
        registration_token: str | None = None,
        http: httpx2.AsyncClient | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        self._identity_file = identity_file
        known = identity_file.read(id_)
        if token is not None and token != known.token:
            known = replace(known, token=token)
            identity_file.write(known)
        self._identity = known
        self._registration_token = registration_token
        self._http = http or open_client(timeout=TIMEOUT_S)

    @property
    def id(self) -> str:
        return self._identity.id

    @property
    def token(self) -> str | None:
        return self._identity.token

    @property
    def issuer(self) -> str:
        """Issuer of pair tokens: as this platform returned it at registration; if it did not, the platform's URL."""
        known = self._identity
        return known.issuer if known.issuer and known.platform == self.url else self.url

    async def register(self, url: str, card: Json, name: str | None = None) -> None:
        """Register this node. If the platform no longer accepts the node's token, request a new one."""
        body = {"id": self.id, "url": url, "agent_card": card, **({"name": name} if name else {})}
        try:
            answer = await self._post("/registry/register", body, self.token or self._registration_token)
        except PlatformRefused as error:
            if error.status != 401 or self.token is None:
                raise
            answer = await self._post("/registry/register", body, self._registration_token)
        reply = _read(answer, Json)
        self._learn(reply.get("auth_token"), reply.get("issuer"))

    async def heartbeat(self, report: Json) -> None:
        await self._post("/registry/heartbeat", {"workspace_id": self.id, **report}, self.token)

    async def update_card(self, card: Json) -> None:
        await self._post("/registry/update-card", {"workspace_id": self.id, "agent_card": card}, self.token)

    async def discover(self, peer: str) -> Discovered:
        """Return a peer's current address. For a removed peer, the address of its successor."""
        return _read(await self._ask("GET", f"/registry/discover/{peer}"), Discovered)

    async def peers(self, words: str = "") -> list[Peer]:
        found: list[Peer] = []
        query: dict[str, str] = {"q": words} if words else {}
        while True:
            answer = await self._ask("GET", f"/registry/{self.id}/peers", params=query)
            found += _read(answer, list[Peer])
            if (after := answer.headers.get(_NEXT)) is None:
                return found
            query["after"] = after

    async def peer(self, id_: str) -> Peer:
        return _read(await self._ask("GET", f"/workspaces/{id_}"), Peer)

    async def events(self, after: int | None) -> AsyncGenerator[FeedEvent | None, None]:
        """Yield the events of one connection about nodes that this node may call; first None, once it is open."""
        cursor = {} if after is None else {"Last-Event-ID": str(after)}
        headers = {**self._headers(self.token), **cursor, "Accept": "text/event-stream"}
        sent: Json = {"headers": headers, "timeout": httpx2.Timeout(TIMEOUT_S, read=SILENCE_S)}
        url = f"{self.url}/workspaces/events/stream"
        with _reaching():
            async with open_events(self._http, "GET", url, _refuse, **sent) as events:
                yield None
                async for number, data in events:
                    event = json.loads(data)
                    yield FeedEvent(event["event"], event["workspace_id"], event.get("payload") or {}, number)

    async def close(self) -> None:
        await self._http.aclose()

    def _learn(self, token: object, issuer: object) -> None:
        """Store the token and issuer from the answer to a registration. Older platforms return no issuer."""
        known = self._identity
        if token:
            known = replace(known, token=str(token))
        if isinstance(issuer, str) and issuer:
            known = replace(known, issuer=issuer, platform=self.url)
        if known != self._identity:
            self._identity_file.write(known)
            self._identity = known

    def _headers(self, token: str | None) -> dict[str, str]:
        return {"X-Workspace-ID": self.id, **token_headers(token)}

    async def _post(self, path: str, body: Json, token: str | None) -> HttpAnswer:
        return await self._send("POST", path, token, json=body)

    async def _ask(self, method: str, path: str, **more: Any) -> HttpAnswer:
        return await self._send(method, path, self.token, **more)

    async def _send(self, method: str, path: str, token: str | None, **more: Any) -> HttpAnswer:
        with _reaching():
            answer = await ask(self._http, method, self.url + path, headers=self._headers(token), **more)
        if answer.status >= 500 and answer.status != 503:
            raise PlatformUnreachable(f"The platform answered with HTTP {answer.status}.")
        if answer.status not in (200, 301):
            _refuse(answer)
        return answer


def _reaching() -> AbstractContextManager[None]:
    return reaching("The platform", PlatformUnreachable, ReplyTooLarge)


def _read(answer: HttpAnswer, type_: type[T]) -> T:
    if (found := answer.read(type_)) is None:
        raise PlatformUnreachable("The platform's answer is not valid.")
    return found


def _refuse(answer: HttpAnswer) -> NoReturn:
    message = answer.error_message or f"the platform answered with HTTP {answer.status}"
    raise PlatformRefused(answer.status, message[:300])

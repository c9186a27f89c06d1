"""Peers that a node can ask. Cards are read at the start and at each change; addresses are looked up for each call."""

import asyncio
from contextlib import aclosing, suppress

from parley.node.messages import (
    Address,
    Peer,
    PeerRefused,
    PeerUnavailable,
    PlatformRefused,
    PlatformUnreachable,
    briefing,
)
from parley.node.platform import FeedEvent, PlatformClient
from parley.telemetry import tell

IDEMPOTENT = "urn:parley:extension:idempotency-key:1"
RETRY_S = (0.2, 0.5, 1.0, 2.0, 5.0)
_CARD = "AGENT_CARD_UPDATED"
_ALL = frozenset(
    (
        "WORKSPACE_PROVISIONING",
        "WORKSPACE_MOVED",
        "WORKSPACE_REMOVED",
        "WORKSPACE_UPDATED",
        "WORKSPACE_ONLINE",
        "WORKSPACE_OFFLINE",
        "WORKSPACE_DEGRADED",
        "WORKSPACE_PAUSED",
        "WORKSPACE_HIBERNATED",
    )
)
"""Events after which the list of peers may have changed. A node that registers again sends its card."""
_STALE = (400, 410)


class Peers:
    def __init__(self, platform: PlatformClient, registered: asyncio.Event) -> None:
        self._platform = platform
        self._known: dict[str, Peer] = {}
        self._addresses: dict[str, Address] = {}
        self._after: int | None = None
        self._registered = registered
        self._task: asyncio.Task[None] | None = None
        self.read = asyncio.Event()
        """Set once the cards have been read."""

    @property
    def all(self) -> list[Peer]:
        return list(self._known.values())

    @property
    def briefing(self) -> str:
        return briefing(self.all)

    def repeats(self, id_: str) -> bool:
        """Tell whether a peer recognises repeated messages by their key."""
        found = self._known.get(id_)
        return found is not None and IDEMPOTENT in found.extensions

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._follow())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def where(self, id_: str, anew: bool) -> Address:
        """Return a peer's current address from the platform. A pair token is reused until shortly before it expires."""
        known = self._addresses.get(id_)
        if known is not None and known.fresh and not anew:
            return known
        try:
            found = (await self._platform.discover(id_)).address()
        except PlatformRefused as error:
            self._addresses.pop(id_, None)
            raise _refused(id_, error) from error
        except PlatformUnreachable as error:
            if known is not None and known.fresh:
                return known
            raise PeerUnavailable(f"The address of {id_} cannot be looked up: {error.message}") from error
        self._addresses[id_] = found
        return found

    async def refresh(self) -> None:
        self._known = {peer.id: peer for peer in await self._platform.peers()}
        self.read.set()

    async def _follow(self) -> None:
        """Read the cards, then follow the platform's feed. A broken feed is resumed."""
        tries = 0
        while True:
            await self._registered.wait()
            try:
                async with aclosing(self._platform.events(self._after)) as events:
                    async for event in events:
                        tries = 0
                        await self._handle(event)
            except PlatformRefused as error:
                # The platform no longer knows the cursor; that is fine, because the current cards are read anyway.
                self._after = None if error.status in _STALE else self._after
                tell("node.feed_refused", status=error.status)
            except PlatformUnreachable:
                tell("node.feed_broken")
            await asyncio.sleep(RETRY_S[min(tries, len(RETRY_S) - 1)])
            tries += 1

    async def _handle(self, event: FeedEvent | None) -> None:
        if event is None:
            # The feed is opened before the cards are read, so that no change is missed in between.
            return await self.refresh()
        self._after = event.number if event.number is not None else self._after
        if event.event == _CARD and event.workspace_id in self._known:
            await self._refresh_one(event.workspace_id)
        elif event.event == _CARD or event.event in _ALL:
            if event.event != "WORKSPACE_ONLINE":
                self._addresses.pop(event.workspace_id, None)
            await self.refresh()
        return None

    async def _refresh_one(self, id_: str) -> None:
        try:
            self._known = {**self._known, id_: await self._platform.peer(id_)}
        except PlatformRefused:
            await self.refresh()


def _refused(id_: str, error: PlatformRefused) -> PeerRefused | PeerUnavailable:
    if error.status in (401, 403):
        return PeerRefused(f"This node is not allowed to ask {id_}: {error.message}.")
    return PeerUnavailable(f"{id_} cannot be asked: {error.message}.")

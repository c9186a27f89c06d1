"""Whom a node can ask: cards that are read at the start and when they change, addresses at the moment of asking."""

import asyncio
from contextlib import aclosing, suppress

from parley.node.platform import Happening, Platform
from parley.node.words import (
    Address,
    Peer,
    PeerRefused,
    PeerUnavailable,
    PlatformRefused,
    PlatformUnreachable,
    briefing,
)
from parley.telemetry import tell

IDEMPOTENT = "urn:parley:extension:idempotency-key:1"
RETRY_S = (0.2, 0.5, 1.0, 2.0, 5.0)
_CARD = "AGENT_CARD_UPDATED"
_ALL = frozenset((
    "WORKSPACE_PROVISIONING", "WORKSPACE_MOVED", "WORKSPACE_REMOVED", "WORKSPACE_UPDATED", "WORKSPACE_ONLINE",
    "WORKSPACE_OFFLINE", "WORKSPACE_DEGRADED", "WORKSPACE_PAUSED", "WORKSPACE_HIBERNATED",
))  # fmt: skip
"""After these somebody else may be a peer, or another than before; a card comes along with who registers anew."""
_STALE = (400, 410)


class Peers:
    def __init__(self, platform: Platform, registered: asyncio.Event) -> None:
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
        """Whether a peer says that it knows a message again which it has had before."""
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
        """By the platform, at this moment; the token of a pair serves until it is about to expire."""
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
            raise PeerUnavailable(f"Where {id_} is cannot be found out: {error.message}") from error
        self._addresses[id_] = found
        return found

    async def refresh(self) -> None:
        self._known = {peer.id: peer for peer in await self._platform.peers()}
        self.read.set()

    async def _follow(self) -> None:
        """The cards now, then what happens; again from where it broke off."""
        tries = 0
        while True:
            await self._registered.wait()
            try:
                async with aclosing(self._platform.events(self._after)) as events:
                    async for event in events:
                        tries = 0
                        await self._heard(event)
            except PlatformRefused as error:
                # A cursor that the platform does not know is of another time: what is there now is read anyway.
                self._after = None if error.status in _STALE else self._after
                tell("node.feed_refused", status=error.status)
            except PlatformUnreachable:
                tell("node.feed_broken")
            await asyncio.sleep(RETRY_S[min(tries, len(RETRY_S) - 1)])
            tries += 1

    async def _heard(self, event: Happening | None) -> None:
        if event is None:
            # Open before it reads, so that nothing falls between the two.
            return await self.refresh()
        self._after = event.number if event.number is not None else self._after
        if event.event == _CARD and event.workspace_id in self._known:
            await self._look_at(event.workspace_id)
        elif event.event == _CARD or event.event in _ALL:
            if event.event != "WORKSPACE_ONLINE":
                self._addresses.pop(event.workspace_id, None)
            await self.refresh()
        return None

    async def _look_at(self, id_: str) -> None:
        try:
            self._known = {**self._known, id_: await self._platform.peer(id_)}
        except PlatformRefused:
            await self.refresh()


def _refused(id_: str, error: PlatformRefused) -> PeerRefused | PeerUnavailable:
    if error.status in (401, 403):
        return PeerRefused(f"This node may not ask {id_}: {error.message}.")
    return PeerUnavailable(f"{id_} cannot be asked: {error.message}.")

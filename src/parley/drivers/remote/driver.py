"""A remote agent as a driver: fetch its agent card, run turns, and cancel its task when the run is canceled."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from parley.drivers.remote.connections import OUTSIDE, OpenTransport, OutboundConnections
from parley.drivers.remote.options import RemoteOptions, check_options, completed
from parley.drivers.remote.translation import ConnectionLost, RemoteRefused
from parley.errors import ParleyError
from parley.execution.driver import Driver
from parley.execution.rules import Output
from parley.execution.turn import Turn
from parley.runs.rules.agents import Agent
from parley.runs.rules.content import hops_of
from parley.runs.rules.events import Rejected
from parley.runs.rules.state import Run
from parley.telemetry import tell

if TYPE_CHECKING:
    from parley.drivers.remote.cards import RemoteCard
    from parley.drivers.remote.wire import RemotePeer

MAX_HOPS = 10
CARD_LIFE_S = 300.0
FIRST_CARDS_S = 2.0
LOOK_S = 5.0
"""Interval for retrying to fetch a card that could not be fetched."""
CANCEL_S = 5.0


class RemoteDriver:
    def __init__(self, agent: Agent, options: RemoteOptions, outside: OutboundConnections = OUTSIDE) -> None:
        check_options(options)
        self._defined = agent
        self._options = options
        self._outside = outside
        self._agent = completed(agent, None)
        self._card: RemoteCard | None = None
        self._peer: RemotePeer | None = None
        self._fetched = -CARD_LIFE_S

    @property
    def agent(self) -> Agent:
        """The agent. Fields that its definition leaves out are filled from the remote's card once it is fetched."""
        return self._agent

    @property
    def url(self) -> str:
        return self._options.url

    @property
    def is_known(self) -> bool:
        return self._card is not None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RemoteDriver):
            return False
        return (self._defined, self._options) == (other._defined, other._options)

    def __hash__(self) -> int:
        return hash((self._defined.slug, self._options.url))

    async def run(self, turn: Turn) -> AsyncGenerator[Output, None]:
        from parley.drivers.remote.dialogue import RemoteDialogue

        hops = hops_of(turn.message)
        if hops >= MAX_HOPS:
            yield Rejected("too_many_hops", f"The message passed through {hops} agents already; they may form a loop.")
            return
        async for output in RemoteDialogue(turn, self.peer, self._options, hops + 1).outputs():
            yield output

    # Why: docs/decisions/drivers.md#cancel-the-remote-task-after-the-run-has-ended
    async def cancel_work(self, run: Run) -> None:
        """Cancel the remote task."""
        await withdraw(run, self.peer)

    async def peer(self) -> "RemotePeer":
        """Return a client for the remote agent, built from its card. The card is fetched again from time to time."""
        if self._peer is None or time.monotonic() - self._fetched > CARD_LIFE_S:
            await self.refresh()
        assert self._peer is not None
        return self._peer

    async def refresh(self) -> None:
        """Fetch the card, or check that it has not changed. If the fetch fails, the known card is kept."""
        from parley.drivers.remote.cards import fetch_card
        from parley.drivers.remote.http import RemoteHttp
        from parley.drivers.remote.wire import open_peer

        http = RemoteHttp(self._outside, self._options)
        try:
            card = await fetch_card(self._options, http, self._card)
        except ConnectionLost:
            if self._card is None:
                raise
            self._fetched = time.monotonic()
            return
        if card is not self._card:
            self._peer = open_peer(self._options, card, http)
            self._card = card
            self._agent = completed(self._defined, card.known)
        self._fetched = time.monotonic()


async def withdraw(run: Run, connect: "Callable[[], Awaitable[RemotePeer]]") -> None:
    """Cancel a run's remote task, if the remote can be reached in time. A task that has ended refuses the cancel,
    which is fine."""
    task = run.notes.get("task")
    if not task:
        return
    try:
        async with asyncio.timeout(CANCEL_S):
            for pause in (0.1, 0.5, 1.0, 3.0):
                if await _canceled(task, connect):
                    return
                await asyncio.sleep(pause)
    except (TimeoutError, ParleyError) as error:
        tell("remote.not_canceled", run=run.id, agent=run.agent, code=getattr(error, "code", "timeout"))


async def _canceled(task: str, connect: "Callable[[], Awaitable[RemotePeer]]") -> bool:
    try:
        await (await connect()).cancel(task)
    except ConnectionLost:
        return False
    except RemoteRefused:
        return True
    return True


@asynccontextmanager
async def following_cards(
    drivers: Mapping[str, Driver],
    outside: OutboundConnections = OUTSIDE,
    open_guarded: OpenTransport | None = None,
) -> AsyncGenerator[None, None]:
    """Fetch the cards of remote agents: at once from those that answer quickly, in the background from the others and
    from agents added later."""
    async with outside.kept(open_guarded):
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_CARDS_S):
                await _fetch_missing_cards(drivers.values())
        task = asyncio.get_running_loop().create_task(_poll_cards(drivers))
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def _poll_cards(drivers: Mapping[str, Driver]) -> None:
    while True:
        await asyncio.sleep(LOOK_S)
        await _fetch_missing_cards(list(drivers.values()))


async def _fetch_missing_cards(drivers: Iterable[Driver]) -> None:
    unknown = [one for one in drivers if isinstance(one, RemoteDriver) and not one.is_known]
    await asyncio.gather(*map(_try, unknown))


async def _try(driver: RemoteDriver) -> None:
    try:
        await driver.refresh()
    except ConnectionLost as error:
        tell("remote.unreachable", agent=driver.agent.slug, why=error.why)
    except RemoteRefused as error:
        tell("remote.refused", agent=driver.agent.slug, why=error.words)
    except ParleyError as error:
        tell("remote.refused", agent=driver.agent.slug, why=error.message)
    except Exception as error:  # noqa: BLE001 - one bad remote must not affect the other agents
        tell("remote.broken", agent=driver.agent.slug, error=error)

"""A remote agent as a driver: what it is, how it is found, and what is done when nobody wants its work any more."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from parley.core.agents import Agent
from parley.core.conversations import hops_of
from parley.core.events import Rejected
from parley.core.runs import Run
from parley.core.turns import Output
from parley.drivers.remote.options import RemoteOptions, check_options, completed
from parley.drivers.remote.outside import OUTSIDE, Outside
from parley.drivers.remote.words import Lost, Refused
from parley.engine.ports import Driver
from parley.engine.turns import Turn
from parley.errors import ParleyError
from parley.telemetry import tell

if TYPE_CHECKING:
    from parley.drivers.remote.sdk import Card, Peer

MAX_HOPS = 10
CARD_LIFE_S = 300.0
FIRST_CARDS_S = 2.0
LOOK_S = 5.0
"""How often a card that could not be fetched is asked for again."""
CANCEL_S = 5.0


class RemoteDriver:
    def __init__(self, agent: Agent, options: RemoteOptions, outside: Outside = OUTSIDE) -> None:
        check_options(options)
        self._defined = agent
        self._options = options
        self._outside = outside
        self._agent = completed(agent, None)
        self._card: Card | None = None
        self._peer: Peer | None = None
        self._fetched = -CARD_LIFE_S

    @property
    def agent(self) -> Agent:
        """As it is defined; where that says nothing, as the remote's own card says, once that was fetched."""
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
        from parley.drivers.remote.dialogue import Dialogue

        hops = hops_of(turn.message)
        if hops >= MAX_HOPS:
            yield Rejected("too_many_hops", f"The message came through {hops} agents already: they may form a circle.")
            return
        async for output in Dialogue(turn, self.peer, self._options, hops + 1).outputs():
            yield output

    async def forsake(self, run: Run) -> None:
        """Cancel the remote task."""
        await withdraw(run, self.peer)

    async def peer(self) -> "Peer":
        """The way to the remote by its card, which is fetched anew from time to time."""
        if self._peer is None or time.monotonic() - self._fetched > CARD_LIFE_S:
            await self.refresh()
        assert self._peer is not None
        return self._peer

    async def refresh(self) -> None:
        """Fetch the card, or make sure that it still holds. One that cannot be had now is no reason to forget it."""
        from parley.drivers.remote.sdk import Peer, fetch_card, open_http

        http = open_http(self._outside, self._options)
        try:
            card = await fetch_card(self._options, http, self._card)
        except Lost:
            if self._card is None:
                raise
            self._fetched = time.monotonic()
            return
        if card is not self._card:
            self._peer = Peer(self._options, card, http)
            self._card = card
            self._agent = completed(self._defined, card.known)
        self._fetched = time.monotonic()


async def withdraw(run: Run, connect: "Callable[[], Awaitable[Peer]]") -> None:
    """Cancel a run's remote task, if it can be reached in time; one that has ended refuses, which is as good."""
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


async def _canceled(task: str, connect: "Callable[[], Awaitable[Peer]]") -> bool:
    try:
        await (await connect()).cancel(task)
    except Lost:
        return False
    except Refused:
        return True
    return True


@asynccontextmanager
async def tending(drivers: Mapping[str, Driver], outside: Outside = OUTSIDE) -> AsyncGenerator[None, None]:
    """Look for the cards of remote agents: at once those that answer soon, later the others and those that are new."""
    async with outside.kept():
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_CARDS_S):
                await _look(drivers.values())
        task = asyncio.get_running_loop().create_task(_keep_looking(drivers))
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def _keep_looking(drivers: Mapping[str, Driver]) -> None:
    while True:
        await asyncio.sleep(LOOK_S)
        await _look(list(drivers.values()))


async def _look(drivers: Iterable[Driver]) -> None:
    unknown = [one for one in drivers if isinstance(one, RemoteDriver) and not one.is_known]
    await asyncio.gather(*map(_try, unknown))


async def _try(driver: RemoteDriver) -> None:
    try:
        await driver.refresh()
    except Lost as error:
        tell("remote.unreachable", agent=driver.agent.slug, why=error.why)
    except Refused as error:
        tell("remote.refused", agent=driver.agent.slug, why=error.words)
    except ParleyError as error:
        tell("remote.refused", agent=driver.agent.slug, why=error.message)
    except Exception as error:  # noqa: BLE001 - whatever one remote says, all the others are served
        tell("remote.broken", agent=driver.agent.slug, error=error)

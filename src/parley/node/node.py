"""A node: an agent with an address of its own, which registers with a platform, finds its peers and asks them."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import Unpack

import uvloop

from parley.app import tune_interpreter
from parley.core.turns import Output
from parley.engine.exchange import Exchange
from parley.engine.ports import Distant, Driver
from parley.engine.turns import Turn
from parley.errors import ConfigurationError
from parley.node.caller import A2A
from parley.node.delegating import PeerAnswer
from parley.node.here import Here
from parley.node.settings import Given, load, server_settings
from parley.node.words import Json, Peer
from parley.telemetry import logs


class Node:
    """`agent` is whatever a driver is: an `@agent` function, a graph by `parley.drivers.graph`, a remote agent. What
    else a node needs to know are the fields of `NodeSettings`; `run()` serves until it is told to stop."""

    def __init__(self, agent: Driver, *others: Driver, **given: Unpack[Given]) -> None:
        self._drivers = (agent, *others)
        for driver in self._drivers:
            if isinstance(driver, Distant):
                raise ConfigurationError(f"The work of {driver.agent.slug} is done elsewhere; a node does its own.")
        self._settings = load(**given)
        self._here: Here | None = None

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT; what is under way then goes on at the next start."""
        settings = server_settings(self._settings, self._slug)
        logs.configure(settings.log_format, settings.log_level)
        tune_interpreter()
        uvloop.run(self.serve())

    async def serve(self) -> None:
        """The same in a loop of one's own."""
        async with AsyncExitStack() as stack:
            here = self._begin(stack)
            server = await here.open(stack, self._drivers)
            await server.serve(sockets=[here.listener])

    @asynccontextmanager
    async def running(self) -> AsyncGenerator["Node", None]:
        """Serve while the block runs, and handle no signals: for programs that do something else as well."""
        async with AsyncExitStack() as stack:
            here = self._begin(stack)
            server = await here.open(stack, self._drivers, signals=False)
            task = asyncio.get_running_loop().create_task(server.serve(sockets=[here.listener]))
            try:
                yield self
            finally:
                server.should_exit = True
                await task

    @property
    def id(self) -> str:
        return self.at_work.platform.id

    @property
    def url(self) -> str:
        return self.at_work.url

    @property
    def peers(self) -> list[Peer]:
        """Whom it may ask, with their cards: as of the start, and of every change since."""
        return self.at_work.peers.all

    @property
    def briefing(self) -> str:
        """The same in words, for a system prompt."""
        return self.at_work.peers.briefing

    @property
    def exchange(self) -> Exchange:
        return self.at_work.exchange.result()

    async def registered(self) -> None:
        """Returns once the platform knows the node, and the node its peers."""
        here = self.at_work
        await here.attendance.registered.wait()
        await here.peers.read.wait()

    async def ask(self, peer: str, text: str, *, task: str | None = None, context: str | None = None) -> PeerAnswer:
        """Ask a peer, by its id, and wait until it is done or asks back. In an agent's turn a cancel reaches the peer,
        and a turn that is taken up again finds what its question began before."""
        return await self.at_work.delegations.ask(peer, text, task=task, context=context)

    async def stream(
        self, peer: str, text: str, *, task: str | None = None, context: str | None = None
    ) -> AsyncGenerator[Json, None]:
        """Ask a peer and follow what it does, as flat events."""
        async with aclosing(self.at_work.delegations.stream(peer, text, task=task, context=context)) as events:
            async for event in events:
                yield event

    async def relay(self, turn: Turn, peer: str) -> AsyncGenerator[Output, None]:
        """Let a peer do a turn: `async for output in node.relay(turn, peer): yield output`."""
        async with aclosing(self.at_work.delegations.relay(turn, peer)) as outputs:
            async for output in outputs:
                yield output

    def a2a(self, peer: str) -> A2A:
        """The caller's object of contract 004 for one peer."""
        return self.at_work.delegations.a2a(peer)

    def doing(self, words: str) -> None:
        """Say in the heartbeat what the node works on; its peers can read it. Empty: by the number of its task."""
        self.at_work.doing = words[:500]
        self.at_work.attendance.nudge()

    def replace(self, agent: Driver) -> None:
        """Serve another agent in place of the one of the same slug; its card goes to the platform."""
        drivers = [agent if driver.agent.slug == agent.agent.slug else driver for driver in self._drivers]
        self.exchange.replace(drivers)
        self._drivers = tuple(drivers)
        self.at_work.attendance.nudge()

    @property
    def _slug(self) -> str:
        return self._drivers[0].agent.slug

    @property
    def at_work(self) -> Here:
        """What it is made of while it runs."""
        if self._here is None:
            raise ConfigurationError("The node does not run.")
        return self._here

    def _begin(self, stack: AsyncExitStack) -> Here:
        self._here = Here(self._settings, self._slug)
        stack.callback(self._end)
        return self._here

    def _end(self) -> None:
        self._here = None

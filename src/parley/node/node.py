"""A node: an agent with its own URL, which registers with a platform, finds its peers and asks them."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import Unpack

import uvloop

from parley.app import tune_interpreter
from parley.errors import ConfigurationError
from parley.execution.driver import Driver, PairedWork
from parley.execution.rules import Output
from parley.execution.turn import Turn
from parley.node.caller import A2A
from parley.node.delegations import PeerAnswer
from parley.node.messages import Json, Peer
from parley.node.server import NodeServer
from parley.node.settings import NodeArguments, load, server_settings
from parley.runs.service import Exchange
from parley.telemetry import logs


class Node:
    """A node of a registry (004). `agent` is any driver: an `@agent` function, a graph by `parley.drivers.graph`, a
    remote agent. The other arguments are the fields of `NodeSettings`. `run()` serves until it is stopped."""

    def __init__(self, agent: Driver, *others: Driver, **given: Unpack[NodeArguments]) -> None:
        self._drivers = (agent, *others)
        for driver in self._drivers:
            if isinstance(driver, PairedWork):
                raise ConfigurationError(f"A node cannot serve agent {driver.agent.slug}: its work is done elsewhere.")
        self._settings = load(**given)
        self._running: NodeServer | None = None

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT. Runs that are in progress then continue at the next start."""
        settings = server_settings(self._settings, self._slug)
        logs.configure(settings.log_format, settings.log_level)
        tune_interpreter()
        uvloop.run(self.serve())

    async def serve(self) -> None:
        """Serve like `run`, in the caller's event loop."""
        async with AsyncExitStack() as stack:
            running = self._begin(stack)
            server = await running.open(stack, self._drivers)
            await server.serve(sockets=[running.listener])

    @asynccontextmanager
    async def running(self) -> AsyncGenerator["Node", None]:
        """Serve while the block runs, without signal handlers: for programs that do other things as well."""
        async with AsyncExitStack() as stack:
            running = self._begin(stack)
            server = await running.open(stack, self._drivers, signals=False)
            task = asyncio.get_running_loop().create_task(server.serve(sockets=[running.listener]))
            try:
                yield self
            finally:
                server.should_exit = True
                await task

    @property
    def id(self) -> str:
        """Id of the node in the registry."""
        return self.at_work.platform.id

    @property
    def url(self) -> str:
        """URL of the node's own A2A server."""
        return self.at_work.url

    @property
    def peers(self) -> list[Peer]:
        """Peers that the node may ask, with their cards. They are read at the start and updated at each change."""
        return self.at_work.peers.all

    @property
    def briefing(self) -> str:
        """Description of the peers, as text for a system prompt."""
        return self.at_work.peers.briefing

    @property
    def exchange(self) -> Exchange:
        """The engine of the running node."""
        return self.at_work.exchange.result()

    async def registered(self) -> None:
        """Wait until the node is registered with the platform and has read its peers."""
        running = self.at_work
        await running.registration.registered.wait()
        await running.peers.read.wait()

    async def ask(self, peer: str, text: str, *, task: str | None = None, context: str | None = None) -> PeerAnswer:
        """Ask a peer by its id, and wait until it is done or asks a question. In an agent's turn, a cancel of the run
        also cancels the peer's task, and a resumed turn finds the task that its question started before."""
        return await self.at_work.delegations.ask(peer, text, task=task, context=context)

    async def stream(
        self, peer: str, text: str, *, task: str | None = None, context: str | None = None
    ) -> AsyncGenerator[Json, None]:
        """Ask a peer, and yield its flat events."""
        async with aclosing(self.at_work.delegations.stream(peer, text, task=task, context=context)) as events:
            async for event in events:
                yield event

    async def relay(self, turn: Turn, peer: str) -> AsyncGenerator[Output, None]:
        """Let a peer do a turn: `async for output in node.relay(turn, peer): yield output`."""
        async with aclosing(self.at_work.delegations.relay(turn, peer)) as outputs:
            async for output in outputs:
                yield output

    def a2a(self, peer: str) -> A2A:
        """Return the caller's object of the registry contract (004) for one peer."""
        return self.at_work.delegations.a2a(peer)

    def doing(self, words: str) -> None:
        """Set the heartbeat's text about the current work, which peers can read. If empty, the heartbeat names the
        task's id."""
        self.at_work.doing = words[:500]
        self.at_work.registration.report_soon()

    def replace(self, agent: Driver) -> None:
        """Replace the agent with the same slug, and send the new card to the platform."""
        drivers = [agent if driver.agent.slug == agent.agent.slug else driver for driver in self._drivers]
        self.exchange.replace(drivers)
        self._drivers = tuple(drivers)
        self.at_work.registration.report_soon()

    @property
    def _slug(self) -> str:
        return self._drivers[0].agent.slug

    @property
    def at_work(self) -> NodeServer:
        """The running server of this node. Raises if the node is not running."""
        if self._running is None:
            raise ConfigurationError("The node is not running; start it with run(), serve() or running().")
        return self._running

    def _begin(self, stack: AsyncExitStack) -> NodeServer:
        self._running = NodeServer(self._settings, self._slug)
        stack.callback(self._end)
        return self._running

    def _end(self) -> None:
        self._running = None

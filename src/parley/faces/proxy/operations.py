"""The operations of A2A on a node, by way of our log."""

from collections.abc import Callable
from contextvars import ContextVar

from msgspec.structs import replace

from parley.core.agents import Agent
from parley.core.conversations import Forwarded
from parley.core.nodes import node_of
from parley.core.views import View
from parley.engine.commands import Outcome
from parley.engine.exchange import Exchange
from parley.engine.nodes import Nodes
from parley.engine.proxying import Proxying, Waiting
from parley.engine.push import Push
from parley.engine.requests import Send
from parley.errors import CallQueued, NodeNotFound
from parley.faces.a2a.card import Cards
from parley.faces.a2a.operations import ACCEPTED, Operations
from parley.faces.a2a.streaming import Stream
from parley.faces.a2a.words import Ask, Call
from parley.faces.sse import KEEP_ALIVE_S
from parley.ids import RunId

REACH_S = KEEP_ALIVE_S - 0.5
"""A stream begins after this time also when nobody knows yet whether the node is there."""


KEEP_ALIVE: ContextVar[Callable[[], None]] = ContextVar("KEEP_ALIVE", default=lambda: None)
"""Begins to keep the connection of the current request alive."""


class ProxyOperations(Operations):
    def __init__(
        self, exchange: Exchange, push: Push, cards: Cards, nodes: Nodes, proxying: Proxying, timeout_s: float
    ) -> None:  # fmt: skip
        super().__init__(exchange, push, cards, lambda: None)
        self._nodes = nodes
        self._proxying = proxying
        self._timeout_s = timeout_s

    def _send(self, call: Call, agent: Agent, ask: Ask) -> Send:
        """With the parts of the request that the agent is to see as they came."""
        forwarded = Forwarded(ask.metadata, ask.output_modes, ask.context)
        if forwarded == Forwarded():
            return super()._send(call, agent, ask)
        return super()._send(call, agent, replace(ask, message=replace(ask.message, forwarded=forwarded)))

    async def _accepted(self, send: Send, ask: Ask) -> Outcome:
        id_ = node_of(send.agent)
        if id_ is None:
            raise NodeNotFound("workspace not found")
        node = await self._nodes.get(id_)
        await self._proxying.check(node)
        try:
            return await self._proxying.accept(node, send)
        except CallQueued as queued:
            if ask.hook is not None:
                waiting = await self._exchange.commands.state(RunId(str(queued.details["queue_id"])))
                await self._push.attach(waiting, ask.hook, ACCEPTED, replayed=True)
            raise

    async def _settled(self, outcome: Outcome) -> View:
        waiting = Waiting(KEEP_ALIVE_S, KEEP_ALIVE.get())
        return await self._proxying.settled(outcome, self._timeout_s, waiting)

    async def _opened(self, stream: Stream, outcome: Outcome) -> Stream:
        try:
            await self._proxying.reached(outcome, REACH_S)
        except BaseException:
            await stream.close()
            raise
        return stream

    def _find(self, slug: str) -> Agent | None:
        driver = self._exchange.driver(slug) if node_of(slug) else None
        return driver.agent if driver else None

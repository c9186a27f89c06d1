"""The operations of A2A on a node, by way of our log."""

from parley.core.agents import Agent
from parley.core.nodes import node_of
from parley.core.views import View
from parley.engine.commands import Outcome
from parley.engine.exchange import Exchange
from parley.engine.nodes import Nodes
from parley.engine.proxying import Proxying
from parley.engine.push import Push
from parley.engine.requests import Send
from parley.errors import NodeNotFound
from parley.faces.a2a.card import Cards
from parley.faces.a2a.operations import Operations
from parley.faces.a2a.streaming import Stream
from parley.faces.sse import KEEP_ALIVE_S

REACH_S = KEEP_ALIVE_S - 0.5
"""A stream begins after this time also when nobody knows yet whether the node is there."""


class ProxyOperations(Operations):
    def __init__(
        self, exchange: Exchange, push: Push, cards: Cards, nodes: Nodes, proxying: Proxying, timeout_s: float
    ) -> None:  # fmt: skip
        super().__init__(exchange, push, cards, lambda: None)
        self._nodes = nodes
        self._proxying = proxying
        self._timeout_s = timeout_s

    async def _accepted(self, send: Send) -> Outcome:
        id_ = node_of(send.agent)
        if id_ is None:
            raise NodeNotFound("workspace not found")
        node = await self._nodes.get(id_)
        await self._proxying.check(node)
        return await self._proxying.accept(node, send)

    async def _settled(self, outcome: Outcome) -> View:
        return await self._proxying.settled(outcome, self._timeout_s)

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

"""Nodes as agents of ours: what is sent to a node through us is a run in our log, and the node does the work."""

import asyncio
from collections.abc import AsyncGenerator
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct

from parley.clock import now_ms
from parley.core.access import Principal
from parley.core.agents import Agent, Limits
from parley.core.conversations import hops_of
from parley.core.delegations import MODE, RESTING
from parley.core.events import Failed, Rejected
from parley.core.nodes import Node, node_of, slug_of
from parley.core.runs import Run
from parley.core.turns import Note, Output
from parley.drivers.remote.driver import CARD_LIFE_S, MAX_HOPS, withdraw
from parley.drivers.remote.introduced import Introduced
from parley.drivers.remote.options import BINDINGS, RemoteOptions
from parley.drivers.remote.outside import Outside
from parley.drivers.remote.words import Refused
from parley.engine.nodes import Nodes
from parley.engine.rooms import Rooms
from parley.engine.turns import Turn
from parley.security.netguard import Guard, GuardedTransport
from parley.security.pairs import Pairs
from parley.security.recent import Recent

if TYPE_CHECKING:
    from parley.drivers.remote.sdk import Card, Peer

_AGAIN = "again_at"
START_S = 1.0
"""How long a node that cannot be reached is tried."""


class NodeLimits(Struct, frozen=True):
    timeout_s: float = 120.0
    """How long a node may be silent."""
    max_bytes: int = 10 * 1024 * 1024
    """The largest reply, and the largest event of a stream."""
    retry_s: float = 8.0
    """When a delegation that found nobody is tried once more."""


def node_agent(slug: str) -> Agent:
    """What we say of any node; how many tasks it takes at a time it says itself."""
    return Agent(
        slug, "Workspace", "An agent that is registered here.", visibility="internal", rescue="resume",
        replies="either", limits=Limits(max_concurrent=1), input_modes=("*/*",),
    )  # fmt: skip


class AbsentNode:
    """A node before nodes are served: what it works on stays its own, and nothing new begins."""

    def __init__(self, slug: str) -> None:
        self.agent = node_agent(slug)

    async def room(self) -> int:
        return 0

    async def run(self, turn: Turn) -> AsyncGenerator[Output, None]:
        yield Rejected("node_unavailable", "Nodes are not served here.")


def absent_node(slug: str) -> AbsentNode | None:
    return None if node_of(slug) is None else AbsentNode(slug)


class NodeAgents:
    """Every node as an agent, found by its slug. Whatever goes out to one passes the guard, and shows the node a pair
    token: of the node on whose behalf we ask, or of the platform."""

    def __init__(self, nodes: Nodes, rooms: Rooms, pairs: Pairs, guard: Guard, limits: NodeLimits) -> None:
        self.nodes = nodes
        self.rooms = rooms
        self.limits = limits
        self._pairs = pairs
        self._outside = Outside(lambda: Introduced(GuardedTransport(guard)))
        self._cards: Recent[tuple[str, str], Card] = Recent(CARD_LIFE_S)

    def driver(self, slug: str) -> "NodeDriver | None":
        return None if (node := node_of(slug)) is None else NodeDriver(node, self)

    async def close(self) -> None:
        async with self._outside.kept():
            pass

    def options(self, url: str) -> RemoteOptions:
        timeout_s = self.limits.timeout_s
        return RemoteOptions(url, bindings=BINDINGS, timeout_s=timeout_s, patience_s=timeout_s)

    async def peer(self, id_: str, principal: Principal) -> "Peer":
        """The way to a node as it is now, with a token that is new."""
        from parley.drivers.remote.sdk import Peer, open_http

        node = await self.nodes.get(id_)
        options = self.options(await self.nodes.url_of(node, internal=False))
        http = open_http(self._outside, options, self.limits.max_bytes)
        return Peer(options, await self.card(node, options), http, await self._shown(principal, node))

    async def card(self, node: Node, options: RemoteOptions) -> "Card":
        """The node's card: from where it is, or as it registered it, or, of one that has none, what works with all."""
        from parley.drivers.remote.cards import moved_card, plain_card, written_card
        from parley.drivers.remote.sdk import fetch_card, open_http

        place = node.id, options.url
        if (kept := self._cards.get(place)) is not None:
            return kept
        try:
            card = await fetch_card(options, open_http(self._outside, options, self.limits.max_bytes))
        except Refused:
            told = (await self.nodes.known(node.id, card=True)).card
            card = written_card(told, options.url) or plain_card(options.url)
        card = moved_card(card, options.url)
        self._cards.put(place, card)
        return card

    async def _shown(self, principal: Principal, node: Node) -> dict[str, str]:
        caller = await self.nodes.known(principal.name) if principal.kind == "node" else None
        token, _ = await self._pairs.issue(caller, node)
        return {"Authorization": f"Bearer {token}"}


class NodeDriver:
    def __init__(self, node: str, agents: NodeAgents) -> None:
        self._node = node
        self._agents = agents
        self.agent = node_agent(slug_of(node))

    async def room(self) -> int:
        return (await self._agents.rooms.load(self._node)).room

    async def run(self, turn: Turn) -> AsyncGenerator[Output, None]:
        hops = hops_of(turn.message)
        if hops >= MAX_HOPS:
            yield Rejected("too_many_hops", f"The message came through {hops} agents already: they may form a circle.")
            return
        with self._agents.rooms.turn(self._node):
            async for output in self._asked(turn):
                yield output

    async def _asked(self, turn: Turn) -> AsyncGenerator[Output, None]:
        """A delegation that found nobody is tried once more after a while, which a restart does not shorten; any other
        call is over at once, because somebody waits for it."""
        again_at = turn.notes.get(_AGAIN)
        if again_at is None:
            async for output in self._dialogue(turn):
                if isinstance(output, Failed) and output.code in RESTING and _is_delegated(turn):
                    again_at = str(now_ms() + int(self._agents.limits.retry_s * 1000))
                    yield Note({_AGAIN: again_at})
                else:
                    yield output
            if again_at is None:
                return
        await asyncio.sleep(max(0, int(again_at) - now_ms()) / 1000)
        async for output in self._dialogue(turn):
            yield output

    def _dialogue(self, turn: Turn) -> AsyncGenerator[Output, None]:
        from parley.drivers.remote.dialogue import Dialogue

        connect = partial(self._agents.peer, self._node, turn.principal)
        options, hops = self._agents.options("http://unused"), hops_of(turn.message) + 1
        return Dialogue(turn, connect, options, hops, START_S, alone=_is_delegated(turn)).outputs()

    async def forsake(self, run: Run) -> None:
        """Cancel what the node does for the run."""
        await withdraw(run, partial(self._agents.peer, self._node, Principal.parse(run.principal)))


def _is_delegated(turn: Turn) -> bool:
    return turn.assignment is not None and turn.assignment.mode == MODE

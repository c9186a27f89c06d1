"""Nodes as agents: a message sent to a node through this server is a run in our log, and the node does the work."""

import asyncio
from collections.abc import AsyncGenerator
from functools import partial
from typing import TYPE_CHECKING

import httpx2
from msgspec import Struct

from parley.cache import ExpiringCache
from parley.clock import now_ms
from parley.drivers.remote.connections import OutboundConnections
from parley.drivers.remote.driver import CARD_LIFE_S, MAX_HOPS, withdraw
from parley.drivers.remote.options import BINDINGS, RemoteOptions
from parley.drivers.remote.translation import RemoteRefused
from parley.execution.rules import Note, Output
from parley.execution.turn import Turn
from parley.nodes.capacity import NodeCapacity
from parley.nodes.delegations import MODE, RESTING
from parley.nodes.rules import RegisteredNode, node_of, slug_of
from parley.nodes.service import Nodes
from parley.nodes.tokens import Pairs
from parley.runs.rules.access import Principal
from parley.runs.rules.agents import Agent, Limits
from parley.runs.rules.content import hops_of
from parley.runs.rules.events import Failed, Rejected
from parley.runs.rules.state import Run
from parley.security.netguard import Guard, GuardedTransport

# Sending a token to a server that may not expect one.

_TOKEN = b"authorization"


class Introduced(httpx2.AsyncBaseTransport):
    """Transport that repeats a request without its token after a 401. This is safe, because 401 means that the node did
    nothing. A node that checks pair tokens refuses the second request too; a node without authentication accepts it."""

    def __init__(self, inner: httpx2.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        reply = await self._inner.handle_async_request(request)
        if reply.status_code != 401 or _TOKEN not in {name.lower() for name, _ in request.headers.raw}:
            return reply
        await reply.aclose()
        bare = httpx2.Request(
            request.method,
            request.url,
            content=request.content,
            extensions=request.extensions,
            headers=[(name, value) for name, value in request.headers.raw if name.lower() != _TOKEN],
        )
        return await self._inner.handle_async_request(bare)

    async def aclose(self) -> None:
        await self._inner.aclose()


if TYPE_CHECKING:
    from parley.drivers.remote.cards import RemoteCard
    from parley.drivers.remote.wire import RemotePeer

_AGAIN = "again_at"
START_S = 1.0
"""Time to retry a node that cannot be reached."""


class NodeLimits(Struct, frozen=True):
    timeout_s: float = 120.0
    """Longest time that a node may send nothing."""
    max_bytes: int = 10 * 1024 * 1024
    """Maximum size of a reply, and of one event of a stream."""
    retry_s: float = 8.0
    """Delay before a delegation that could not reach its node is retried once."""


def node_agent(slug: str) -> Agent:
    """Return the agent for a node. The node itself reports how many tasks it takes at a time (`room`)."""
    return Agent(
        slug,
        "Workspace",
        "An agent that is registered with this server.",
        visibility="internal",
        rescue="resume",
        replies="either",
        limits=Limits(max_concurrent=1),
        input_modes=("*/*",),
    )


class AbsentNode:
    """Driver of a node while this server serves no nodes: existing runs stay with the node, new ones are rejected."""

    def __init__(self, slug: str) -> None:
        self.agent = node_agent(slug)

    async def room(self) -> int:
        return 0

    async def run(self, turn: Turn) -> AsyncGenerator[Output, None]:
        yield Rejected("node_unavailable", "This server does not serve nodes.")


def absent_node(slug: str) -> AbsentNode | None:
    return None if node_of(slug) is None else AbsentNode(slug)


# Why: docs/decisions/nodes.md#treat-a-called-node-as-an-unlisted-agent
class NodeAgents:
    """Nodes as agents, found by slug. Each request to a node passes the guard and carries a pair token: that of the
    calling node, or of the platform."""

    def __init__(self, nodes: Nodes, capacity: NodeCapacity, pairs: Pairs, guard: Guard, limits: NodeLimits) -> None:
        self.nodes = nodes
        self.capacity = capacity
        self.limits = limits
        self._pairs = pairs
        self._outside = OutboundConnections(lambda: Introduced(GuardedTransport(guard)))
        self._cards: ExpiringCache[tuple[str, str], RemoteCard] = ExpiringCache(CARD_LIFE_S)

    def driver(self, slug: str) -> "NodeDriver | None":
        return None if (node := node_of(slug)) is None else NodeDriver(node, self)

    async def close(self) -> None:
        async with self._outside.kept():
            pass

    def options(self, url: str) -> RemoteOptions:
        timeout_s = self.limits.timeout_s
        return RemoteOptions(url, bindings=BINDINGS, timeout_s=timeout_s, patience_s=timeout_s)

    async def peer(self, id_: str, principal: Principal) -> "RemotePeer":
        """Return a client for a node at its current address, with a new token."""
        from parley.drivers.remote.http import RemoteHttp
        from parley.drivers.remote.wire import open_peer

        node = await self.nodes.get(id_)
        options = self.options(await self.nodes.url_of(node, internal=False))
        http = RemoteHttp(self._outside, options, self.limits.max_bytes)
        return open_peer(options, await self.card(node, options), http, await self._shown(principal, node))

    async def card(self, node: RegisteredNode, options: RemoteOptions) -> "RemoteCard":
        """Return the node's card: fetched from the node, else as registered, else a minimal card that works with any
        A2A server."""
        from parley.drivers.remote.cards import fetch_card, moved_card, plain_card, written_card
        from parley.drivers.remote.http import RemoteHttp

        place = node.id, options.url
        if (kept := self._cards.get(place)) is not None:
            return kept
        try:
            card = await fetch_card(options, RemoteHttp(self._outside, options, self.limits.max_bytes))
        except RemoteRefused:
            told = (await self.nodes.known(node.id, card=True)).card
            card = written_card(told, options.url) or plain_card(options.url)
        card = moved_card(card, options.url)
        self._cards.put(place, card)
        return card

    async def _shown(self, principal: Principal, node: RegisteredNode) -> dict[str, str]:
        caller = await self.nodes.known(principal.name) if principal.kind == "node" else None
        token, _ = await self._pairs.issue(caller, node)
        return {"Authorization": f"Bearer {token}"}


class NodeDriver:
    def __init__(self, node: str, agents: NodeAgents) -> None:
        self._node = node
        self._agents = agents
        self.agent = node_agent(slug_of(node))

    async def room(self) -> int:
        return (await self._agents.capacity.load(self._node)).room

    async def run(self, turn: Turn) -> AsyncGenerator[Output, None]:
        hops = hops_of(turn.message)
        if hops >= MAX_HOPS:
            yield Rejected("too_many_hops", f"The message passed through {hops} agents already; they may form a loop.")
            return
        with self._agents.capacity.turn(self._node):
            async for output in self._asked(turn):
                yield output

    async def _asked(self, turn: Turn) -> AsyncGenerator[Output, None]:
        """Run the turn. A delegation that cannot reach its node is retried once after a delay, and a restart does not
        shorten the delay. Any other call fails at once, because its caller is waiting."""
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
        from parley.drivers.remote.dialogue import RemoteDialogue

        connect = partial(self._agents.peer, self._node, turn.principal)
        options, hops = self._agents.options("http://unused"), hops_of(turn.message) + 1
        return RemoteDialogue(turn, connect, options, hops, START_S, alone=_is_delegated(turn)).outputs()

    async def cancel_work(self, run: Run) -> None:
        """Cancel the node's task for the run."""
        await withdraw(run, partial(self._agents.peer, self._node, Principal.parse(run.principal)))


def _is_delegated(turn: Turn) -> bool:
    return turn.assignment is not None and turn.assignment.mode == MODE

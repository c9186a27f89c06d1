"""The reference, and the oracle of the contract suite."""

from collections.abc import Mapping, Sequence
from itertools import count

from msgspec.structs import replace

from parley.clock import now_ms
from parley.core.nodes import AHEAD_MS, REACHABLE, Beat, Node, NodeChange, NodeEvent, judged
from parley.engine.ports.nodes import EventQuery, NodeQuery
from parley.stores.nodes.rows import NONE, words_of


class MemoryNodes:
    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._beats: dict[str, Beat] = {}
        self._events: list[NodeEvent] = []
        self._numbers = count(1)

    async def get(self, ids: Sequence[str], *, cards: bool = False) -> list[Node]:
        return [self._shown(self._nodes[id_], cards) for id_ in set(ids) if id_ in self._nodes]

    async def find(self, query: NodeQuery) -> list[Node]:
        found = sorted((node for node in self._nodes.values() if _matches(node, query)), key=lambda node: node.id)
        return [self._shown(node, query.cards) for node in found[: query.limit]]

    async def apply(self, changes: Sequence[NodeChange]) -> list[bool]:
        verdicts = judged(list(changes), {node.id: node.version for node in self._nodes.values()})
        for change, fits in zip(changes, verdicts, strict=True):
            if fits:
                self._keep(change)
        return verdicts

    def _keep(self, change: NodeChange) -> None:
        before = self._nodes.get(change.node.id)
        card = change.card if change.card is not None else before.card if before else b""
        self._nodes[change.node.id] = replace(change.node, card=card)
        self._note(change.node.id, change.node.beat)
        self._events += [replace(event, seq=next(self._numbers)) for event in change.events]

    async def beat(self, beats: Mapping[str, Beat]) -> None:
        for id_, beat in beats.items():
            self._note(id_, beat)

    def _note(self, id_: str, beat: Beat) -> None:
        before = self._beats.get(id_, NONE).at
        if beat.at >= before or before > now_ms() + AHEAD_MS:
            self._beats[id_] = beat

    async def silent(self, before: int, limit: int) -> list[Node]:
        found = [self._shown(node, False) for node in self._nodes.values() if node.status in REACHABLE]
        return sorted((node for node in found if 0 < node.beat.at < before), key=lambda node: node.beat.at)[:limit]

    async def events(self, query: EventQuery) -> list[NodeEvent]:
        found = [event for event in self._events if _asked(event, query)]
        return found[::-1][: query.limit] if query.newest else found[: query.limit]

    async def forget(self, before: int) -> int:
        kept = [event for event in self._events if event.at >= before]
        gone, self._events = len(self._events) - len(kept), kept
        return gone

    async def close(self) -> None:
        return

    def _shown(self, node: Node, cards: bool) -> Node:
        return replace(node, beat=self._beats.get(node.id, NONE), card=node.card if cards else b"")


def _matches(node: Node, query: NodeQuery) -> bool:
    if node.id <= query.after or (node.removed and not query.removed):
        return False
    if query.parent is not None and node.parent_id != query.parent:
        return False
    if query.around is not None and not _near(node, query.around):
        return False
    return query.words.casefold() in words_of(node)


def _near(node: Node, to: Node) -> bool:
    return node.id != to.id and (
        node.parent_id == to.parent_id or node.parent_id == to.id or node.id == to.parent_id
    )  # fmt: skip


def _asked(event: NodeEvent, query: EventQuery) -> bool:
    return (
        event.seq > query.after
        and (query.before is None or event.seq < query.before)
        and query.node in (None, event.node)
        and query.name in (None, event.name)
        and query.kind in (None, event.kind)
    )

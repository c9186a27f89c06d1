"""Who is above whom, who stands in for whom, and so who may talk to whom."""

from collections.abc import Iterable, Sequence

from parley.core.access import Relation, can_communicate, relation
from parley.core.nodes import MAX_DEPTH, MAX_HOPS, Node, check_id
from parley.engine.ports.nodes import NodeQuery, NodeStore
from parley.errors import Invalid

PAGE = 500


class Hierarchy:
    def __init__(self, store: NodeStore, *, ancestors: bool = False) -> None:
        self._store = store
        self._ancestors = ancestors

    async def parent(self, id_: str | None) -> Node | None:
        """Whoever is to be somebody's parent."""
        if id_ is None:
            return None
        found = await self._store.get([check_id(id_)])
        if not found or found[0].removed:
            raise Invalid("parent workspace not found", field="parent_id")
        return found[0]

    async def line(self, node: Node, parent_id: str | None) -> Sequence[Node]:
        """A parent and everybody above it, the nearest first: the node must not be among them."""
        line: list[Node] = []
        above = await self.parent(parent_id)
        while above is not None:
            line.append(above)
            if above.id == node.id:
                raise Invalid("a workspace cannot be moved below itself", field="parent_id")
            if len(line) >= MAX_DEPTH:
                raise Invalid(f"workspaces lie at most {MAX_DEPTH} levels deep", field="parent_id")
            above = await self._one(above.parent_id)
        return line

    async def children(self, id_: str) -> Sequence[Node]:
        found = page = await self._store.find(NodeQuery(parent=id_, limit=PAGE))
        while len(page) == PAGE:
            page = await self._store.find(NodeQuery(parent=id_, limit=PAGE, after=page[-1].id))
            found = [*found, *page]
        return found

    async def below(self, node: Node) -> list[Node]:
        """Everything below a node, level by level."""
        found, level = list[Node](), [node]
        while level:
            level = [child for one in level for child in await self.children(one.id)]
            found += level
        return found

    async def successor(self, node: Node) -> Node | None:
        """Whoever stands in for a removed node, if somebody does."""
        for _ in range(MAX_HOPS):
            following = await self._one(node.forwarded_to)
            if following is None or not following.removed:
                return following
            node = following
        return None

    async def check_forward(self, id_: str, to: str) -> None:
        """A removed node leads to one that is there, in a few steps, and never back to itself."""
        target = await self._one(to)
        for _ in range(MAX_HOPS):
            if target is None:
                raise Invalid("forwarded_to leads to no workspace", field="forwarded_to")
            if target.id == id_:
                raise Invalid("forwarded_to leads back to the workspace", field="forwarded_to")
            if not target.removed:
                return
            target = await self._one(target.forwarded_to)
        raise Invalid(f"forwarded_to is followed {MAX_HOPS} times at most", field="forwarded_to")

    async def allows(self, caller: Node, target: Node) -> bool:
        return await self.relation(caller, target) is not None

    async def relation(self, caller: Node, target: Node) -> Relation | None:
        """By what one node may talk to another; None where it may not."""
        seats = await self._with_those_above({caller.id: caller, target.id: target})
        return relation(seats.get, caller.id, target.id, ancestors=self._ancestors)

    async def reachable(self, caller: str, targets: Iterable[str], *, gone: bool = False) -> set[str]:
        """Those of some nodes that a node may talk to; with `gone` also those that it could until they were removed."""
        ids = {caller, *targets}
        found = {node.id: node for node in await self._store.get(sorted(ids)) if gone or not node.removed}
        seats = await self._with_those_above(found)
        return {id_ for id_ in ids if can_communicate(seats.get, caller, id_, ancestors=self._ancestors)}

    async def _with_those_above(self, seats: dict[str, Node]) -> dict[str, Node]:
        """Nobody above two nodes is asked about unless ancestors count."""
        seats = dict(seats)
        level = list(seats.values()) if self._ancestors else []
        for _ in range(MAX_DEPTH):
            missing = {node.parent_id for node in level if node.parent_id} - seats.keys()
            if not missing:
                break
            level = [node for node in await self._store.get(sorted(missing)) if not node.removed]
            seats |= {node.id: node for node in level}
        return seats

    async def _one(self, id_: str | None) -> Node | None:
        found = await self._store.get([id_]) if id_ else []
        return found[0] if found else None

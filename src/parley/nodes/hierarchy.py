"""The hierarchy of nodes: parents and successors, and which node may talk to which."""

from collections.abc import Iterable, Sequence

from parley.errors import Invalid
from parley.nodes.rules import MAX_DEPTH, MAX_HOPS, RegisteredNode, check_id
from parley.nodes.store import NodeQuery, NodeStore
from parley.runs.rules.access import Relation, can_communicate, relation

PAGE = 500


class Hierarchy:
    def __init__(self, store: NodeStore, *, ancestors: bool = False) -> None:
        self._store = store
        self._ancestors = ancestors

    async def parent(self, id_: str | None) -> RegisteredNode | None:
        """Return the node that is to become the parent of another."""
        if id_ is None:
            return None
        found = await self._store.get([check_id(id_)])
        if not found or found[0].removed:
            raise Invalid("parent workspace not found", field="parent_id")
        return found[0]

    async def line(self, node: RegisteredNode, parent_id: str | None) -> Sequence[RegisteredNode]:
        """Return a parent and all nodes above it, nearest first; raise if the node itself is among them."""
        line: list[RegisteredNode] = []
        above = await self.parent(parent_id)
        while above is not None:
            line.append(above)
            if above.id == node.id:
                raise Invalid("a workspace cannot be moved below itself", field="parent_id")
            if len(line) >= MAX_DEPTH:
                raise Invalid(f"workspaces can be nested at most {MAX_DEPTH} levels deep", field="parent_id")
            above = await self._one(above.parent_id)
        return line

    async def children(self, id_: str) -> Sequence[RegisteredNode]:
        found = page = await self._store.find(NodeQuery(parent=id_, limit=PAGE))
        while len(page) == PAGE:
            page = await self._store.find(NodeQuery(parent=id_, limit=PAGE, after=page[-1].id))
            found = [*found, *page]
        return found

    async def below(self, node: RegisteredNode) -> list[RegisteredNode]:
        """Return all nodes below a node, level by level."""
        found, level = list[RegisteredNode](), [node]
        while level:
            level = [child for one in level for child in await self.children(one.id)]
            found += level
        return found

    async def successor(self, node: RegisteredNode) -> RegisteredNode | None:
        """Return the node that replaces a removed one, if there is one."""
        for _ in range(MAX_HOPS):
            following = await self._one(node.forwarded_to)
            if following is None or not following.removed:
                return following
            node = following
        return None

    async def check_forward(self, id_: str, to: str) -> None:
        """Check that `forwarded_to` leads from a removed node to an existing one in a few steps, and never back to
        itself."""
        target = await self._one(to)
        for _ in range(MAX_HOPS):
            if target is None:
                raise Invalid("forwarded_to does not lead to a workspace", field="forwarded_to")
            if target.id == id_:
                raise Invalid("forwarded_to leads back to the workspace", field="forwarded_to")
            if not target.removed:
                return
            target = await self._one(target.forwarded_to)
        raise Invalid(f"forwarded_to may be followed at most {MAX_HOPS} times", field="forwarded_to")

    async def allows(self, caller: RegisteredNode, target: RegisteredNode) -> bool:
        return await self.relation(caller, target) is not None

    async def relation(self, caller: RegisteredNode, target: RegisteredNode) -> Relation | None:
        """Return the relation by which one node may talk to another; None if it may not."""
        seats = await self._with_those_above({caller.id: caller, target.id: target})
        return relation(seats.get, caller.id, target.id, ancestors=self._ancestors)

    async def reachable(self, caller: str, targets: Iterable[str], *, gone: bool = False) -> set[str]:
        """Return the targets that a node may talk to; with `gone` also those that it could talk to until they were
        removed."""
        ids = {caller, *targets}
        found = {node.id: node for node in await self._store.get(sorted(ids)) if gone or not node.removed}
        seats = await self._with_those_above(found)
        return {id_ for id_ in ids if can_communicate(seats.get, caller, id_, ancestors=self._ancestors)}

    async def _with_those_above(self, seats: dict[str, RegisteredNode]) -> dict[str, RegisteredNode]:
        """Add the nodes above; they are read only if ancestors count."""
        seats = dict(seats)
        level = list(seats.values()) if self._ancestors else []
        for _ in range(MAX_DEPTH):
            missing = {node.parent_id for node in level if node.parent_id} - seats.keys()
            if not missing:
                break
            level = [node for node in await self._store.get(sorted(missing)) if not node.removed]
            seats |= {node.id: node for node in level}
        return seats

    async def _one(self, id_: str | None) -> RegisteredNode | None:
        found = await self._store.get([id_]) if id_ else []
        return found[0] if found else None

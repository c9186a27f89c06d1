"""Contract suite of node stores. Subclass it and give it a `nodes` fixture:

class TestMyNodes(NodesContract):
    @pytest.fixture
    async def nodes(self):
        ...
"""

import asyncio
import uuid
from itertools import pairwise

from msgspec.structs import replace

from parley.clock import now_ms
from parley.nodes.rules import Heartbeat, NodeChange, NodeEvent, NodeStatus, NodeToken, RegisteredNode
from parley.nodes.store import EventQuery, NodeQuery, NodeStore

__all__ = ["NodesContract"]

AT = 1_700_000_000_000


def node(number: int, parent: int | None = None, **fields: object) -> RegisteredNode:
    """Return a node whose id begins with a number, so that the order of nodes is known."""
    base = RegisteredNode(_id(number), f"Node {number}", parent_id=None if parent is None else _id(parent), version=1)
    return replace(base, **fields)


def event(of: RegisteredNode, name: str = "WORKSPACE_UPDATED", at: int = AT, kind: str = "") -> NodeEvent:
    return NodeEvent(name, of.id, at, b'{"a":1}', kind, b"{}")


def _id(number: int) -> str:
    return str(uuid.UUID(int=number << 96))


async def _kept(nodes: NodeStore, *these: RegisteredNode, card: bytes = b"{}") -> None:
    assert all(await nodes.apply([NodeChange(one, 0, (event(one),), card) for one in these]))


async def _ids(nodes: NodeStore, query: NodeQuery) -> list[str]:
    return [one.name for one in await nodes.find(query)]


class NodesContract:
    """Tests that every node store passes."""

    async def test_what_was_kept_is_got_back(self, nodes: NodeStore) -> None:
        token = NodeToken("abcdefgh", b"\x00" * 32, AT)
        one = node(1, 2, role="Lead", url="http://x", tokens=(token,), beat=Heartbeat(AT, 0.5, "broke"), budget_limit=5)
        await _kept(nodes, one, card=b'{"name":"x"}')
        assert await nodes.get([one.id]) == [one]
        assert await nodes.get([one.id], cards=True) == [replace(one, card=b'{"name":"x"}')]
        assert await nodes.get([_id(9)]) == []

    async def test_a_change_leaves_the_card_unless_it_says_so(self, nodes: NodeStore) -> None:
        one = node(1)
        await _kept(nodes, one, card=b"first")
        await nodes.apply([NodeChange(replace(one, version=2), 1)])
        assert (await nodes.get([one.id], cards=True))[0].card == b"first"
        await nodes.apply([NodeChange(replace(one, version=3), 2, card=b"second")])
        assert (await nodes.get([one.id], cards=True))[0].card == b"second"

    async def test_only_what_fits_is_kept_and_the_others_do_not_hinder_it(self, nodes: NodeStore) -> None:
        one, two = node(1), node(2)
        await _kept(nodes, one, two)
        before = len(await nodes.events(EventQuery()))
        late = NodeChange(replace(one, name="late", version=9), 7, (event(one),))
        good = NodeChange(replace(two, name="good", version=2), 1, (event(two),))
        assert await nodes.apply([late, good, NodeChange(node(1), 0)]) == [False, True, False]
        assert {kept.name for kept in await nodes.get([one.id, two.id])} == {"Node 1", "good"}
        assert len(await nodes.events(EventQuery())) == before + 1

    async def test_of_rivals_exactly_one_wins(self, nodes: NodeStore) -> None:
        one = node(1)
        await _kept(nodes, one)
        rivals = [NodeChange(replace(one, name=str(number), version=2), 1) for number in range(8)]
        verdicts = await asyncio.gather(*(nodes.apply([rival]) for rival in rivals))
        assert sum(verdict for (verdict,) in verdicts) == 1

    async def test_two_that_guard_each_other_cannot_both_win(self, nodes: NodeStore) -> None:
        one, two = node(1), node(2)
        await _kept(nodes, one, two)
        moves = [
            NodeChange(replace(one, parent_id=two.id, version=2), 1, guards=((two.id, 1),)),
            NodeChange(replace(two, parent_id=one.id, version=2), 1, guards=((one.id, 1),)),
        ]
        assert sum(verdict for (verdict,) in await asyncio.gather(*(nodes.apply([move]) for move in moves))) == 1

    async def test_nodes_are_found_in_order_and_by_pages(self, nodes: NodeStore) -> None:
        await _kept(nodes, node(3), node(1), node(2, 1), node(4, status=NodeStatus.REMOVED))
        assert await _ids(nodes, NodeQuery()) == ["Node 1", "Node 2", "Node 3"]
        assert await _ids(nodes, NodeQuery(limit=2)) == ["Node 1", "Node 2"]
        assert await _ids(nodes, NodeQuery(after=_id(2), removed=True)) == ["Node 3", "Node 4"]
        assert await _ids(nodes, NodeQuery(parent=_id(1))) == ["Node 2"]

    async def test_those_around_a_node_are_siblings_children_and_the_parent(self, nodes: NodeStore) -> None:
        family = [
            node(1),
            node(2),
            node(3, 1),
            node(4, 1),
            node(5, 3),
            node(6, 2),
            node(7, 3, status=NodeStatus.REMOVED),
        ]
        await _kept(nodes, *family)
        assert await _ids(nodes, NodeQuery(family[0])) == ["Node 2", "Node 3", "Node 4"]
        assert await _ids(nodes, NodeQuery(family[2])) == ["Node 1", "Node 4", "Node 5"]
        assert await _ids(nodes, NodeQuery(family[4])) == ["Node 3"]

    async def test_words_are_looked_for_in_name_and_role_whatever_their_case(self, nodes: NodeStore) -> None:
        await _kept(nodes, node(1, name="Übersetzer"), node(2, role="der ÜBERSETZER 100%"), node(3, role="100 ways"))
        assert len(await nodes.find(NodeQuery(words="übersetz"))) == 2
        assert len(await nodes.find(NodeQuery(words="100%"))) == 1
        assert len(await nodes.find(NodeQuery(words="_"))) == 0

    async def test_a_newer_heartbeat_replaces_an_older_one_and_not_the_other_way(self, nodes: NodeStore) -> None:
        one = node(1, beat=Heartbeat(AT))
        await _kept(nodes, one)
        await nodes.beat({one.id: Heartbeat(AT + 5, active_tasks=3)})
        await nodes.beat({one.id: Heartbeat(AT + 1, active_tasks=1)})
        await nodes.apply([NodeChange(replace(one, version=2), 1)])
        assert (await nodes.get([one.id]))[0].beat == Heartbeat(AT + 5, active_tasks=3)

    async def test_of_two_heartbeats_of_one_moment_the_later_counts(self, nodes: NodeStore) -> None:
        one = node(1)
        await _kept(nodes, one)
        for tasks in (1, 2):
            await nodes.beat({one.id: Heartbeat(AT, active_tasks=tasks)})
            assert (await nodes.get([one.id]))[0].beat == Heartbeat(AT, active_tasks=tasks)

    async def test_a_heartbeat_that_a_wrong_clock_told_is_replaced_by_any_other(self, nodes: NodeStore) -> None:
        one = node(1)
        await _kept(nodes, one)
        now = now_ms()
        for at in (now + 600_000, now):
            await nodes.beat({one.id: Heartbeat(at)})
            assert (await nodes.get([one.id]))[0].beat == Heartbeat(at)

    async def test_the_silent_are_those_that_could_be_called(self, nodes: NodeStore) -> None:
        await _kept(
            nodes,
            node(1, status=NodeStatus.ONLINE, beat=Heartbeat(AT)),
            node(2, status=NodeStatus.DEGRADED, beat=Heartbeat(AT - 1)),
            node(3, status=NodeStatus.OFFLINE, beat=Heartbeat(AT)),
            node(4, status=NodeStatus.ONLINE, beat=Heartbeat(AT + 10)),
            node(5, status=NodeStatus.PROVISIONING),
            node(6, status=NodeStatus.PAUSED, beat=Heartbeat(AT)),
        )
        assert [one.name for one in await nodes.silent(AT + 5, 10)] == ["Node 2", "Node 1"]
        assert [one.name for one in await nodes.silent(AT + 5, 1)] == ["Node 2"]

    async def test_events_are_numbered_and_read_from_either_end(self, nodes: NodeStore) -> None:
        one, two = node(1), node(2)
        await _kept(nodes, one, two)
        more = (event(one, "ACTIVITY_LOGGED", kind="error"), event(one, "ACTIVITY_LOGGED", kind="agent_log"))
        await nodes.apply([NodeChange(one, 1, more)])
        found = await nodes.events(EventQuery())
        assert [after.seq > before.seq for before, after in pairwise(found)] == [True] * 3
        assert await nodes.events(EventQuery(after=found[1].seq)) == found[2:]
        assert await nodes.events(EventQuery(newest=True, limit=1)) == [found[3]]
        assert await nodes.events(EventQuery(newest=True, before=found[2].seq)) == [found[1], found[0]]
        assert await nodes.events(EventQuery(node=one.id, name="ACTIVITY_LOGGED", kind="error")) == [found[2]]

    async def test_numbers_become_visible_in_their_order(self, nodes: NodeStore) -> None:
        """A reader that continues after the last number it saw misses nothing, however many writers there are."""
        these = [node(number) for number in range(1, 9)]
        await _kept(nodes, *these)
        writing = asyncio.gather(*(self._written(nodes, one) for one in these))
        seen: list[int] = []
        ended = False
        while not ended:
            await asyncio.sleep(0)
            ended = writing.done()
            seen += [one.seq for one in await nodes.events(EventQuery(after=seen[-1] if seen else 0))]
        await writing
        assert seen == [one.seq for one in await nodes.events(EventQuery(limit=1000))]

    async def _written(self, nodes: NodeStore, one: RegisteredNode) -> None:
        for _ in range(20):
            await nodes.apply([NodeChange(one, 1, (event(one),))])

    async def test_old_events_are_forgotten_and_their_numbers_not_given_again(self, nodes: NodeStore) -> None:
        one = node(1)
        await nodes.apply([NodeChange(one, 0, (event(one, at=AT), event(one, at=AT + 10)))])
        last = (await nodes.events(EventQuery()))[-1].seq
        assert await nodes.forget(AT + 5) == 1
        assert await nodes.forget(AT + 50) == 1
        await nodes.apply([NodeChange(one, 1, (event(one),))])
        (newest,) = await nodes.events(EventQuery())
        assert newest.seq > last

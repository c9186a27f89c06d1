"""Rules for calls between nodes and for heartbeats, as functions of values."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from parley.errors import Invalid, StoreUnavailable
from parley.nodes.rules import (
    MAX_SPEND,
    Heartbeat,
    NodeChange,
    NodeStatus,
    RegisteredNode,
    check_id,
    check_words,
    folded,
    judged,
    steps,
)
from parley.runs.rules.access import can_communicate

TREE = {"r1": None, "r2": None, "a": "r1", "b": "r1", "c": "r2", "aa": "a", "ab": "a", "aaa": "aa"}
"""Two roots, teams below them, and one line that is four deep."""


def seats(tree: dict[str, str | None]) -> Callable[[str], RegisteredNode | None]:
    nodes = {name: RegisteredNode(name, name, parent_id=parent) for name, parent in tree.items()}
    return nodes.get


@pytest.mark.parametrize(
    ("caller", "target", "allowed", "by_line"),
    [
        ("a", "a", True, True),
        ("a", "b", True, True),
        ("r1", "r2", True, True),
        ("r1", "a", True, True),
        ("a", "r1", True, True),
        ("r1", "aa", False, True),
        ("aaa", "r1", False, True),
        ("a", "c", False, False),
        ("b", "aa", False, False),
        ("r2", "a", False, False),
        ("a", "nobody", False, False),
        ("nobody", "nobody", False, False),
    ],
)
def test_the_documented_pairs_may_talk(caller: str, target: str, allowed: bool, by_line: bool) -> None:
    assert can_communicate(seats(TREE), caller, target) is allowed
    assert can_communicate(seats(TREE), caller, target, ancestors=True) is by_line


@st.composite
def trees(draw: st.DrawFn) -> dict[str, str | None]:
    """Any forest: everybody's parent was there before."""
    tree: dict[str, str | None] = {}
    for number in range(draw(st.integers(1, 12))):
        tree[str(number)] = draw(st.sampled_from([None, *tree]))
    return tree


@given(trees(), st.data())
def test_talking_is_mutual_and_a_longer_line_only_adds(tree: dict[str, str | None], data: st.DataObject) -> None:
    one, other = data.draw(st.sampled_from(list(tree))), data.draw(st.sampled_from(list(tree)))
    lookup = seats(tree)
    assert can_communicate(lookup, one, other) == can_communicate(lookup, other, one)
    assert can_communicate(lookup, one, one)
    if can_communicate(lookup, one, other):
        assert can_communicate(lookup, one, other, ancestors=True)


@given(trees(), st.data())
def test_whoever_may_talk_is_in_one_team_or_one_line(tree: dict[str, str | None], data: st.DataObject) -> None:
    one, other = data.draw(st.sampled_from(list(tree))), data.draw(st.sampled_from(list(tree)))
    related = one == other or tree[one] == tree[other] or tree[one] == other or tree[other] == one
    assert can_communicate(seats(tree), one, other) == related


@given(st.dictionaries(st.sampled_from("abcdef"), st.sampled_from([None, *"abcdefx"])), st.booleans())
def test_a_broken_hierarchy_ends_and_never_lets_a_stranger_in(tree: dict[str, str | None], ancestors: bool) -> None:
    """Circles, parents that are not there."""
    for caller in "abcdefx":
        assert can_communicate(seats(tree), caller, "x", ancestors=ancestors) is False


@pytest.mark.parametrize("trouble", [KeyError("gone"), StoreUnavailable("Down.")])
def test_nobody_may_talk_while_it_cannot_be_looked_up(trouble: Exception) -> None:
    def lookup(_: str) -> RegisteredNode:
        raise trouble

    assert can_communicate(lookup, "a", "a") is False


@pytest.mark.parametrize(
    ("status", "beat", "passed"),
    [
        ("online", Heartbeat(1, 0.5), ["degraded"]),
        ("online", Heartbeat(1, 0.49), []),
        ("online", Heartbeat(1, runtime_state="wedged"), ["degraded"]),
        ("degraded", Heartbeat(1, 0.1), []),
        ("degraded", Heartbeat(1, 0.09), ["online"]),
        ("degraded", Heartbeat(1, 0.0, runtime_state="wedged"), []),
        ("degraded", Heartbeat(1, 0.0, runtime_state="busy"), []),
        ("offline", Heartbeat(1), ["online"]),
        ("provisioning", Heartbeat(1), ["online"]),
        ("offline", Heartbeat(1, 0.8), ["online", "degraded"]),
        ("removed", Heartbeat(1, 0.9), []),
        ("paused", Heartbeat(1), []),
        ("hibernated", Heartbeat(1), []),
        ("failed", Heartbeat(1), []),
    ],
)
def test_a_heartbeat_moves_the_status(status: str, beat: Heartbeat, passed: list[str]) -> None:
    assert [one.value for one in steps(NodeStatus(status), beat)] == passed


@given(st.sampled_from(list(NodeStatus)), st.floats(0, 1), st.sampled_from(["", "wedged", "x"]))
def test_a_status_settles_at_once(status: NodeStatus, rate: float, state: str) -> None:
    beat = Heartbeat(1, rate, runtime_state=state)
    passed = steps(status, beat)
    assert steps(passed[-1] if passed else status, beat) == ()


@given(st.integers(), st.integers(0, MAX_SPEND), st.integers(0, 100), st.integers(0, 100))
def test_spending_stays_within_its_bounds_and_time_does_not_run_back(
    told: int, known: int, then: int, now: int
) -> None:
    after = folded(Heartbeat(then, monthly_spend=known), Heartbeat(now, monthly_spend=told))
    assert 0 <= after.monthly_spend <= MAX_SPEND
    assert after.monthly_spend == (min(told, MAX_SPEND) if told > 0 else known)
    assert after.at == max(then, now)


def test_ids_are_uuids_in_any_case() -> None:
    assert check_id("0199F9C4-2B7E-7CC5-9D0E-3F5A0F6F8A01") == "0199f9c4-2b7e-7cc5-9d0e-3f5a0f6f8a01"
    for wrong in ("", "x", "0199f9c42b7e7cc59d0e3f5a0f6f8a01", "0199f9c4-2b7e-7cc5-9d0e-3f5a0f6f8a01\n"):
        with pytest.raises(Invalid, match="invalid workspace id"):
            check_id(wrong)


@pytest.mark.parametrize(
    "words",
    [
        {"name": "x" * 256}, {"role": "x" * 1001}, {"model": "x" * 101}, {"name": "a\nb"}, {"role": "a: {b}"},
        {"name": "\x00"},
    ],
)  # fmt: skip
def test_words_that_do_not_fit_are_refused(words: dict[str, str]) -> None:
    with pytest.raises(Invalid, match=next(iter(words))):
        check_words(**words)
    check_words(name="Zoë's team #1, 50%", role="Leads: R + D", runtime=None)


def test_changes_are_judged_one_after_another() -> None:
    one = RegisteredNode("a", "a", version=1)
    changes = [
        NodeChange(one, 0), NodeChange(one, 0), NodeChange(replace(one, version=2), 1),
        NodeChange(replace(one, version=3), 2, guards=(("b", 1),)),
        NodeChange(replace(one, version=3), 2, guards=(("a", 2),)),
    ]  # fmt: skip
    assert judged(changes, {}) == [True, False, True, False, True]

"""Limits as values: which ones apply, and when a budget is used up."""

from hypothesis import given
from hypothesis import strategies as st

from parley.budgets.rules import (
    UNIT,
    BudgetBound,
    LimitEntry,
    LimitValues,
    Spend,
    Spent,
    child_place,
    first_used_up,
    merged_spends,
    periodic_bounds,
    refusal,
    resets_at,
    root_of,
    tightest,
)
from parley.budgets.service import LimitBook
from parley.clock import iso
from parley.execution.turn_order import AgentQueue, QueueHead, next_served
from parley.ids import ConversationId, RunId
from parley.runs.rules.state import Run

NOW = 1_798_718_400_000  # 2026-12-31T12:00:00Z


def test_the_smallest_limit_holds() -> None:
    found = tightest([LimitValues(per_second=5, burst=9, cost_day=2), LimitValues(per_second=3, tokens_day=7)])
    assert found == LimitValues(per_second=3, cost_day=2, tokens_day=7)


def test_a_limit_for_every_principal_holds_where_its_own_is_missing() -> None:
    book = LimitBook([LimitEntry("principal", "*", LimitValues(cost_day=1, tree_runs=5))])
    book.replace([LimitEntry("principal", "user:ann", LimitValues(cost_day=10))])
    assert book.values("principal", "user:ann") == LimitValues(cost_day=10, tree_runs=5)
    assert book.values("principal", "user:bob") == LimitValues(cost_day=1, tree_runs=5)
    assert book.values("group", "blue") == LimitValues()


def test_of_the_settings_and_an_administrators_limits_the_smaller_holds() -> None:
    book = LimitBook([LimitEntry("agent", "writer", LimitValues(cost_day=5))])
    book.replace([LimitEntry("agent", "writer", LimitValues(cost_day=9, tokens_day=10))])
    assert book.values("agent", "writer") == LimitValues(cost_day=5, tokens_day=10)


def test_a_caller_has_the_limits_of_its_key_and_its_groups() -> None:
    book = LimitBook(
        [
            LimitEntry("key", "ci", LimitValues(per_second=2)),
            LimitEntry("group", "build", LimitValues(unfinished=3)),
            LimitEntry("group", "other", LimitValues(unfinished=1)),
        ]
    )
    assert book.of_caller("service:ci", ["build", "x"]) == LimitValues(per_second=2, unfinished=3)
    assert book.groups_in(["build", "x"]) == ("build",)


def test_budgets_reset_at_the_end_of_their_period() -> None:
    day, month = periodic_bounds("principal", "user:ann", LimitValues(tokens_day=1, cost_month=2.5), NOW)
    assert (day.place[1], month.place[1]) == ("2026-12-31", "2026-12")
    assert iso(day.resets_at or 0).startswith("2027-01-01T00:00:00")
    assert iso(month.resets_at or 0).startswith("2027-01-01T00:00:00")
    assert month.allowed == 2_500_000_000
    assert resets_at("tree") is None


def test_a_refusal_says_which_budget_is_used_up_and_when_it_resets() -> None:
    (day,) = periodic_bounds("group", "blue", LimitValues(cost_day=1.5), NOW)
    spent = Spent(cost=round(1.75 * UNIT))
    assert first_used_up([day], {day.place: Spent(cost=day.allowed - 1)}) is None
    assert first_used_up([day], {day.place: spent}) == day
    error = refusal(day, spent, NOW)
    assert error.message == (
        "The budget cost_day of group:blue is used up: 1.75 USD of 1.5 USD are spent. It resets at "
        "2027-01-01T00:00:00Z."
    )
    assert error.details == {
        "limit": "cost_day", "subject": "group:blue", "spent": 1.75, "allowed": 1.5,
        "resets_at": "2027-01-01T00:00:00Z", "retry_after": 12 * 3600,
    }  # fmt: skip


def test_of_several_used_up_budgets_the_one_that_lasts_longest_is_named() -> None:
    bounds = periodic_bounds("agent", "a", LimitValues(tokens_day=1, tokens_month=1), NOW - 20 * 24 * 3600 * 1000)
    tree = BudgetBound("tree_tokens", "agent:a", ("tree:r", "tree"), 1)
    spent = {one.place: Spent(tokens=1) for one in (*bounds, tree)}
    assert first_used_up(bounds, spent) == bounds[1]
    assert first_used_up([*bounds, tree], spent) == tree


def test_the_root_of_a_tree_travels_with_children() -> None:
    root = Run(RunId("r"), "a", ConversationId("c"), "user:ann")
    child = Run(RunId("s"), "a", ConversationId("c"), "user:ann", tree=child_place(root))
    grandchild = child_place(child)
    assert (root_of(child), grandchild.root, grandchild.depth) == ("r", "r", 2)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("de"), st.integers(0, 9), st.integers(0, 9))))
def test_merged_spending_is_the_same_spending(given_: list[tuple[str, str, int, int]]) -> None:
    spends = [Spend(subject, period, tokens, cost, 0, 1) for subject, period, tokens, cost in given_]
    merged = merged_spends(spends)
    places = [(one.subject, one.period) for one in merged]
    assert places == sorted(set(places))
    for one in merged:
        same = [other for other in spends if (other.subject, other.period) == (one.subject, one.period)]
        assert (one.tokens, one.cost) == (sum(other.tokens for other in same), sum(other.cost for other in same))


Arrivals = st.lists(st.tuples(st.integers(0, 40), st.sampled_from(["ann", "bob", "cyn", "dan"])), max_size=40)


@given(Arrivals)
def test_no_principal_waits_for_more_than_one_turn_of_each_other(arrivals: list[tuple[int, str]]) -> None:
    """One slot, runs that arrive at any time: while a principal waits, each other one gets at most one turn."""
    waiting: list[tuple[int, str]] = []
    served: dict[str, int] = {}
    since: dict[str, list[str]] = {}
    left = sorted(arrivals)
    for moment in range(len(arrivals) + 42):
        while left and left[0][0] <= moment:
            _, principal = left.pop(0)
            waiting.append((len(arrivals) - len(left), principal))
            since.setdefault(principal, [])
        heads = {name: QueueHead(name, RunId(f"{at}"), at, served.get(name, 0)) for at, name in reversed(waiting)}
        found = next_served(AgentQueue(tuple(heads.values()), max(served.values(), default=0)), "agent", ())
        if found is None:
            continue
        head, turn = found
        served[head.principal] = turn.number
        waiting.remove((head.arrival, head.principal))
        since.pop(head.principal)
        for name, turns in since.items():
            assert head.principal not in turns, f"{name} waits for a second turn of {head.principal}"
            turns.append(head.principal)
        if any(name == head.principal for _, name in waiting):
            since[head.principal] = []
    assert not waiting


def test_turns_that_are_about_to_begin_count() -> None:
    heads = (QueueHead("ann", RunId("1"), 1), QueueHead("bob", RunId("2"), 2))
    first = next_served(AgentQueue(heads), "agent", ())
    assert first is not None
    second = next_served(AgentQueue(heads), "agent", [first[1]])
    assert (first[0].principal, second and second[0].principal, second and second[1].number) == ("ann", "bob", 2)

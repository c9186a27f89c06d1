"""Limits and budgets as values: which limits apply, what a run spends, and which budget is used up."""

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal, get_args

from msgspec import Struct
from msgspec.structs import asdict, replace

from parley.errors import BudgetExceeded, Invalid
from parley.ids import RunId
from parley.runs.rules.events import Event, Forked, Progress, Submitted, TreePlace
from parley.runs.rules.state import Run

SubjectKind = Literal["principal", "group", "agent", "key"]
KINDS: tuple[SubjectKind, ...] = get_args(SubjectKind)
EVERY = "*"
"""Name of an entry that holds for each principal, group, agent or key that does not set the same limit itself."""
KEY_PRINCIPAL = "service:"
"""Prefix of the principal of an API key, followed by the name of the key."""
UNIT = 1_000_000_000
"""Cost is counted in billionths of a US dollar, so that sums are exact in any order."""
MOST_COUNT = 1 << 53
MOST_COST = 1_000_000_000.0
MAX_NAME = 256


class LimitValues(Struct, frozen=True, omit_defaults=True, rename="camel", forbid_unknown_fields=True):
    """The limits of one subject; None is unlimited. Costs are in USD, days and months are those of UTC."""

    per_second: float | None = None
    """Messages per second, on average; `burst` of them at once."""
    burst: int | None = None
    unfinished: int | None = None
    """Unfinished runs."""
    tokens_day: int | None = None
    tokens_month: int | None = None
    cost_day: float | None = None
    cost_month: float | None = None
    tree_tokens: int | None = None
    """Tokens of a run and of all runs that it starts, directly or not; `tree_cost` is their cost."""
    tree_cost: float | None = None
    tree_depth: int | None = None
    """Levels of runs below a run that a caller started."""
    tree_runs: int | None = None
    """Runs that a run starts, directly or not."""


LIMIT_NAMES: tuple[str, ...] = LimitValues.__struct_fields__
UNLIMITED = LimitValues()
_COSTS = frozenset(("cost_day", "cost_month", "tree_cost", "per_second"))


class LimitEntry(Struct, frozen=True):
    """The limits of a subject, and who set them; `by` is empty for those of the settings."""

    kind: SubjectKind
    name: str
    values: LimitValues
    by: str = ""
    at: int = 0


def check_entry(entry: LimitEntry) -> None:
    """Raise Invalid for limits that cannot be kept."""
    if not entry.name or len(entry.name) > MAX_NAME or not entry.name.isprintable():
        raise Invalid(f"name must have 1 to {MAX_NAME} printable characters, or be {EVERY}.", field="name")
    for name, value in asdict(entry.values).items():
        if value is None:
            continue
        most = MOST_COST if name in _COSTS else MOST_COUNT
        least = 1e-6 if name == "per_second" else 1 if name == "burst" else 0
        if not math.isfinite(value) or not least <= value <= most:
            raise Invalid(f"{name} must be from {least:g} to {most:,.0f}.", field=name)
    if entry.values == UNLIMITED:
        raise Invalid(f"Give at least one limit: {', '.join(LIMIT_NAMES)}.", field="kind")


def tightest(values: Iterable[LimitValues]) -> LimitValues:
    """Return the smallest value of each limit. A burst belongs to its rate."""
    result: dict[str, float | int] = {}
    for one in values:
        for name, value in asdict(one).items():
            if value is not None and name != "burst":
                if name == "per_second" and value <= result.get(name, math.inf):
                    result.pop("burst", None)
                    if one.burst is not None:
                        result["burst"] = one.burst
                result[name] = min(value, result.get(name, value))
    return LimitValues(**result)  # pyright: ignore[reportArgumentType]


def or_else(values: LimitValues, other: LimitValues) -> LimitValues:
    """Return the limits, with those of `other` where there are none."""
    given = {name: value for name, value in asdict(values).items() if value is not None}
    if "per_second" in given:
        other = replace(other, burst=None)
    return replace(other, **given)


# Subjects and periods: what is counted, and for how long.

CounterPlace = tuple[str, str]
"""A counter: its subject (`principal:user:ann`, `tree:RUN`) and its period (`2026-11-19`, `2026-11`, `tree`)."""
TREE = "tree"


class Spent(Struct, frozen=True):
    """Spending so far: tokens, cost in billionths of a US dollar, and runs that were started."""

    tokens: int = 0
    cost: int = 0
    runs: int = 0


NOTHING = Spent()


class Spend(Struct, frozen=True):
    """A spending that is added to a counter, in the transaction that stores its event."""

    subject: str
    period: str
    tokens: int
    cost: int
    runs: int
    at: int


def day_of(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d")


def month_of(at: int) -> str:
    return day_of(at)[:7]


def resets_at(period: str) -> int | None:
    """Return the time (ms) at which a period ends; None for a tree, whose budget never comes back."""
    if period == TREE:
        return None
    year, month, *day = map(int, period.split("-"))
    if day:
        return int(datetime(year, month, day[0], tzinfo=UTC).timestamp() * 1000) + 24 * 3600 * 1000
    return int(datetime(year + month // 12, month % 12 + 1, 1, tzinfo=UTC).timestamp() * 1000)


def root_of(run: Run) -> RunId:
    """Return the outermost run of the tree that a run belongs to."""
    return (run.tree.root if run.tree is not None else None) or run.id


def tree_of(run: Run) -> str:
    return f"{TREE}:{root_of(run)}"


def groups_of(run: Run) -> tuple[str, ...]:
    return run.tree.groups if run.tree is not None else ()


def subjects(principal: str, agent: str, groups: Iterable[str]) -> list[tuple[SubjectKind, str]]:
    """Return the subjects whose limits hold for work of this principal by this agent."""
    found: list[tuple[SubjectKind, str]] = [("principal", principal)]
    if principal.startswith(KEY_PRINCIPAL):
        found.append(("key", principal.removeprefix(KEY_PRINCIPAL)))
    return [*found, *(("group", one) for one in groups), ("agent", agent)]


def spends_of(run: Run, events: Sequence[Event], *, count_runs: bool) -> tuple[Spend, ...]:
    """Return the spending that some new events of a run mean. The entries that a fork copies were counted before."""
    tokens, cost, at, begun = 0, 0, 0, 0
    for event in events:
        payload = event.payload
        if type(payload) is Progress:
            if payload.usage is not None:
                used = payload.usage
                tokens, at = tokens + used.input_tokens + used.output_tokens, event.at
                cost += round((used.cost or 0.0) * UNIT)
        elif type(payload) is Forked:
            tokens, cost = 0, 0
        elif count_runs and type(payload) is Submitted and payload.tree is not None and payload.tree.root is not None:
            begun, at = 1, event.at
    if not (tokens or cost or begun):
        return ()
    spends = [Spend(tree_of(run), TREE, tokens, cost, begun, at)]
    if tokens or cost:
        day, month = day_of(at), month_of(at)
        for kind, name in subjects(run.principal, run.agent, groups_of(run)):
            spends += [Spend(f"{kind}:{name}", period, tokens, cost, 0, at) for period in (day, month)]
    return tuple(spends)


def merged_spends(spends: Iterable[Spend]) -> list[Spend]:
    """Add up the spending of each counter, in the order of the counters: rows are locked in this order."""
    found: dict[CounterPlace, Spend] = {}
    for one in spends:
        place = (one.subject, one.period)
        if (before := found.get(place)) is not None:
            one = replace(
                one,
                tokens=before.tokens + one.tokens,
                cost=before.cost + one.cost,
                runs=before.runs + one.runs,
                at=max(before.at, one.at),
            )
        found[place] = one
    return [found[place] for place in sorted(found)]


# Budgets: limits of counters.


class BudgetBound(Struct, frozen=True):
    """A budget: a limit of one counter. Costs are in billionths of a US dollar."""

    limit: str
    subject: str
    place: CounterPlace
    allowed: int

    @property
    def resets_at(self) -> int | None:
        return resets_at(self.place[1])

    @property
    def is_cost(self) -> bool:
        return self.limit in _COSTS

    def used(self, spent: Spent) -> int:
        return spent.runs if self.limit == "tree_runs" else spent.cost if self.is_cost else spent.tokens


_PERIODIC = (("tokens_day", day_of), ("tokens_month", month_of), ("cost_day", day_of), ("cost_month", month_of))


def periodic_bounds(kind: str, name: str, values: LimitValues, now: int) -> list[BudgetBound]:
    """Return the budgets of a subject for the current day and month."""
    subject = f"{kind}:{name}"
    return [
        BudgetBound(limit, subject, (subject, period(now)), _units(limit, allowed))
        for limit, period in _PERIODIC
        if (allowed := getattr(values, limit)) is not None
    ]


def tree_bounds(kind: str, name: str, values: LimitValues, tree: str) -> list[BudgetBound]:
    """Return the budgets that a subject has for each tree of runs."""
    return [
        BudgetBound(limit, f"{kind}:{name}", (tree, TREE), _units(limit, allowed))
        for limit in ("tree_tokens", "tree_cost")
        if (allowed := getattr(values, limit)) is not None
    ]


def _units(limit: str, allowed: float) -> int:
    return round(allowed * UNIT) if limit in _COSTS else int(allowed)


def first_used_up(bounds: Iterable[BudgetBound], spent: Mapping[CounterPlace, Spent]) -> BudgetBound | None:
    """Return the budget that is used up; of several the one that lasts longest."""
    found = [one for one in bounds if one.used(spent.get(one.place, NOTHING)) >= one.allowed]
    return max(found, key=lambda one: math.inf if one.resets_at is None else one.resets_at, default=None)


def shown_amount(bound: BudgetBound, amount: int) -> float | int:
    """Return an amount as people read it: tokens, or USD."""
    return round(amount / UNIT, 9) if bound.is_cost else amount


def refusal(bound: BudgetBound, spent: Spent, now: int) -> BudgetExceeded:
    """Return the error for a budget that is used up."""
    used, allowed = shown_amount(bound, bound.used(spent)), shown_amount(bound, bound.allowed)
    words = f"{_amount(bound, used)} of {_amount(bound, allowed)} are spent"
    details: dict[str, object] = {
        "limit": bound.limit, "subject": bound.subject, "spent": used, "allowed": allowed,
    }  # fmt: skip
    end = bound.resets_at
    if end is None:
        whose = f"The budget {bound.limit} of this task and the tasks that it started is used up"
        return BudgetExceeded(f"{whose}: {words}.", **details)
    when = datetime.fromtimestamp(end / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    wait = max(1, math.ceil((end - now) / 1000))
    return BudgetExceeded(
        f"The budget {bound.limit} of {bound.subject} is used up: {words}. It resets at {when}.",
        **details,
        resets_at=when,
        retry_after=wait,
    )


def _amount(bound: BudgetBound, amount: float) -> str:
    return f"{amount:g} USD" if bound.is_cost else f"{amount:,} tokens"


def child_place(parent: Run) -> TreePlace:
    """Return the place of a new child in the tree of its parent."""
    depth = parent.tree.depth if parent.tree is not None else 0
    return TreePlace(root_of(parent), depth + 1, groups_of(parent))

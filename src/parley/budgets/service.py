"""Knows the limits that are set, stores those of administrators, and checks budgets before anything is spent."""

from collections.abc import Collection, Iterable, Mapping
from typing import Literal, Protocol

import msgspec
from msgspec import Struct

from parley.audit.service import record
from parley.budgets.rules import (
    EVERY,
    KINDS,
    NOTHING,
    TREE,
    UNIT,
    UNLIMITED,
    BudgetBound,
    CounterPlace,
    LimitEntry,
    LimitValues,
    Spent,
    SubjectKind,
    check_entry,
    child_place,
    first_used_up,
    groups_of,
    or_else,
    periodic_bounds,
    refusal,
    root_of,
    shown_amount,
    subjects,
    tightest,
    tree_bounds,
    tree_of,
)
from parley.clock import Clock, iso, now_ms
from parley.errors import Invalid, NotFound, TreeTooLarge
from parley.records import Record, Records
from parley.runs.rules.access import Principal
from parley.runs.rules.events import TreePlace
from parley.runs.rules.state import Run

LIMIT = "limit"
MAX_ENTRIES = 1000
LOOK_S = 2.0
"""Interval at which a replica looks for limits that were set at another one."""


class LimitBook:
    """The limits that this process knows: those of its settings, and those of administrators. Of a limit that both set,
    the smaller one holds."""

    def __init__(self, fixed: Iterable[LimitEntry] = ()) -> None:
        self._fixed = list(fixed)
        self._entries: dict[tuple[str, str], LimitValues] = {}
        self.groups: frozenset[str] = frozenset()
        """Groups that have limits."""
        self._counts_runs = False
        self.replace(())

    def __bool__(self) -> bool:
        return bool(self._entries)

    def replace(self, stored: Iterable[LimitEntry]) -> None:
        """Take over the limits of administrators."""
        found: dict[tuple[str, str], LimitValues] = {}
        for one in (*self._fixed, *stored):
            place = (one.kind, one.name)
            found[place] = tightest([found[place], one.values]) if place in found else one.values
        self._entries = found
        self.groups = frozenset(name for kind, name in found if kind == "group")
        self._counts_runs = any(values.tree_runs is not None for values in found.values())

    def counting(self) -> bool:
        """Return whether the runs of a tree are counted."""
        return self._counts_runs

    def places(self) -> list[tuple[str, str]]:
        """Return the subjects that have limits."""
        return sorted(self._entries)

    def values(self, kind: SubjectKind, name: str) -> LimitValues:
        """Return the limits of a subject: its own, and those that hold for each subject of its kind."""
        every = self._entries.get((kind, EVERY), UNLIMITED)
        own = self._entries.get((kind, name))
        return every if own is None else or_else(own, every)

    def groups_in(self, groups: Collection[str]) -> tuple[str, ...]:
        """Return those of a principal's groups that have limits."""
        if EVERY in self.groups:
            return tuple(sorted(groups))
        return tuple(sorted(self.groups.intersection(groups)))

    def of_caller(self, principal: str, groups: Collection[str]) -> LimitValues:
        """Return the limits of a caller's requests: the smallest of its own, its key's and its groups'."""
        return tightest(
            self.values(kind, name) for kind, name in subjects(principal, "", self.groups_in(groups)) if kind != "agent"
        )


NO_LIMITS = LimitBook()


class SpentReader(Protocol):
    """The counters of the store, as far as budgets need them."""

    async def spent(self, places: Collection[CounterPlace]) -> dict[CounterPlace, Spent]: ...


class BudgetCheck:
    """Checks budgets. The counters are in the store, so a check sees all spending that any replica has stored; several
    replicas together overspend at most by the calls that are under way."""

    def __init__(self, book: LimitBook, ledger: SpentReader, clock: Clock = now_ms) -> None:
        self.book = book
        self._ledger = ledger
        self._clock = clock

    def __bool__(self) -> bool:
        return bool(self.book)

    async def check_caller(self, principal: str, agent: str, groups: Collection[str]) -> None:
        """Raise BudgetExceeded if the caller, or the agent, has no budget left for new work."""
        if self.book:
            await self._check(self._periodic(principal, agent, self.book.groups_in(groups)))

    async def check(self, run: Run) -> None:
        """Raise BudgetExceeded if nothing more may be spent by a run."""
        if self.book:
            await self._check(self.bounds(run))

    def bounds(self, run: Run) -> list[BudgetBound]:
        """Return the budgets that hold for a run."""
        found = self._periodic(run.principal, run.agent, groups_of(run))
        for kind, name in subjects(run.principal, run.agent, groups_of(run)):
            found += tree_bounds(kind, name, self.book.values(kind, name), tree_of(run))
        return found

    def _periodic(self, principal: str, agent: str, groups: Collection[str]) -> list[BudgetBound]:
        now = self._clock()
        return [
            bound
            for kind, name in subjects(principal, agent, groups)
            for bound in periodic_bounds(kind, name, self.book.values(kind, name), now)
        ]

    async def _check(self, bounds: list[BudgetBound]) -> None:
        if not bounds:
            return
        spent = await self._ledger.spent({bound.place for bound in bounds})
        if (used_up := first_used_up(bounds, spent)) is not None:
            raise refusal(used_up, spent.get(used_up.place, NOTHING), self._clock())

    def first_place(self, principal: Principal) -> TreePlace | None:
        """Return the place of a run that a caller starts; None if nothing about it needs to be stored."""
        groups = self.book.groups_in(principal.groups) if principal.groups and self.book.groups else ()
        return TreePlace(groups=groups) if groups else None

    async def place_child(self, parent: Run, agent: str) -> TreePlace:
        """Return the place of a new child. Raise TreeTooLarge if there may be none."""
        place = child_place(parent)
        if not self.book:
            return place
        every = [
            (kind, name, self.book.values(kind, name)) for kind, name in subjects(parent.principal, agent, place.groups)
        ]
        for kind, name, values in every:
            if values.tree_depth is not None and place.depth > values.tree_depth:
                raise _too_large("tree_depth", f"{kind}:{name}", values.tree_depth, "levels of tasks below the first")
        limited = [one for one in every if one[2].tree_runs is not None]
        if limited:
            at = (tree_of(parent), TREE)
            runs = (await self._ledger.spent([at])).get(at, NOTHING).runs
            for kind, name, values in limited:
                if values.tree_runs is not None and runs >= values.tree_runs:
                    raise _too_large("tree_runs", f"{kind}:{name}", values.tree_runs, "further tasks")
        return place


def _too_large(limit: str, subject: str, allowed: int, what: str) -> TreeTooLarge:
    return TreeTooLarge(
        f"The limit {limit} of {subject} allows {allowed} {what} of one task.",
        limit=limit,
        subject=subject,
        allowed=allowed,
    )


# Limits of administrators, and what is left of each.


class BudgetLeft(Struct, frozen=True):
    """A budget, and what is left of it."""

    limit: str
    spent: float
    allowed: float
    left: float
    resets_at: int | None


class SubjectLimits(Struct, frozen=True):
    """The limits of a subject as they hold, those of them that an administrator set, and what is left."""

    kind: str
    name: str
    values: LimitValues
    stored: LimitEntry | None
    budgets: list[BudgetLeft]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(LimitEntry).decode


class StoredLimits:
    """Stores the limits that administrators set, and tells what is left."""

    def __init__(self, book: LimitBook, records: Records, ledger: SpentReader, clock: Clock = now_ms) -> None:
        self._book = book
        self._records = records
        self._ledger = ledger
        self._clock = clock

    async def tick(self) -> None:
        """Take over the limits that are stored."""
        self._book.replace(await self.list())

    async def list(self) -> "list[LimitEntry]":
        return [_decode(one.body) for one in await self._records.list(LIMIT, limit=MAX_ENTRIES)]

    async def set(self, kind: str, name: str, values: LimitValues, by: str) -> LimitEntry:
        """Set the limits of a subject, in place of those that were set before."""
        entry = LimitEntry(_kind(kind), name, values, by, self._clock())
        check_entry(entry)
        if len(await self._records.list(LIMIT, limit=MAX_ENTRIES)) >= MAX_ENTRIES:
            raise Invalid(f"There are limits for {MAX_ENTRIES} subjects, which is the most; remove some.", field="name")
        await self._records.put(Record(LIMIT, kind, name, _encode(entry), entry.at))
        await self._noted("limit.set", entry)
        return entry

    async def remove(self, kind: str, name: str) -> LimitEntry:
        """Remove the limits of a subject. Those of the settings stay."""
        kept = await self._records.get(LIMIT, kind, name)
        if kept is None:
            raise NotFound("No limits are set for this subject.")
        entry = _decode(kept.body)
        await self._records.delete(LIMIT, kind, name)
        await self._noted("limit.removed", entry)
        return entry

    async def _noted(self, action: Literal["limit.set", "limit.removed"], entry: LimitEntry) -> None:
        # A principal is a person, which the audit log keeps apart.
        person = entry.name if entry.kind == "principal" and entry.name != EVERY else ""
        await record(action, entry.kind, "" if person else entry.name, person=person)
        await self.tick()

    async def all(self) -> "list[SubjectLimits]":
        """Return every subject that has limits, with what is left of its budgets."""
        return await self._with_left(self._book.places())

    async def visible(self, principal: Principal) -> "list[SubjectLimits]":
        """Return the limits that a principal may see: its own, or to operators all."""
        return await self.all() if principal.may("operate") else await self.of(principal)

    async def of(self, principal: Principal) -> "list[SubjectLimits]":
        """Return the limits that hold for a principal, with what is left of its budgets."""
        mine = subjects(str(principal), "", self._book.groups_in(principal.groups))
        found = await self._with_left([(kind, name) for kind, name in mine if kind != "agent"])
        return [one for one in found if one.values != UNLIMITED]

    async def _with_left(self, places: Iterable[tuple[str, str]]) -> "list[SubjectLimits]":
        stored = {(one.kind, one.name): one for one in await self.list()}
        now, bounds = self._clock(), dict[tuple[str, str], list[BudgetBound]]()
        for kind, name in places:
            counted = name != EVERY
            values = self._book.values(_kind(kind), name)
            bounds[kind, name] = periodic_bounds(kind, name, values, now) if counted else []
        spent = await self._ledger.spent({bound.place for found in bounds.values() for bound in found})
        return [
            SubjectLimits(
                kind,
                name,
                self._book.values(_kind(kind), name),
                stored.get((kind, name)),
                [_left(bound, spent) for bound in found],
            )
            for (kind, name), found in bounds.items()
        ]

    async def shares(self) -> dict[str, float]:
        """Return the share that is left of each budget of an agent or a group, from 0 to 1. Principals and keys are
        left out: their number is not bounded, and they are people."""
        shares: dict[str, float] = {}
        for one in await self.all() if self._book else ():
            if one.kind in ("agent", "group"):
                for budget in one.budgets:
                    name = f"{one.kind}:{one.name} {budget.limit}"
                    shares[name] = budget.left / budget.allowed if budget.allowed else 0.0
        return shares

    async def of_tree(self, budgets: BudgetCheck, run: Run) -> "tuple[Spent, list[BudgetLeft]]":
        """Return what the tree of a run has spent, and what is left of the budgets that hold for the run."""
        bounds, tree = budgets.bounds(run), (tree_of(run), TREE)
        spent = await self._ledger.spent({tree, *(bound.place for bound in bounds)})
        return spent.get(tree, NOTHING), [_left(bound, spent) for bound in bounds]


def _left(bound: BudgetBound, spent: Mapping[CounterPlace, Spent]) -> BudgetLeft:
    used = bound.used(spent.get(bound.place, NOTHING))
    return BudgetLeft(
        bound.limit,
        shown_amount(bound, used),
        shown_amount(bound, bound.allowed),
        shown_amount(bound, max(0, bound.allowed - used)),
        bound.resets_at,
    )


def _kind(kind: str) -> SubjectKind:
    found: SubjectKind | None = next((one for one in KINDS if one == kind), None)
    if found is None:
        raise Invalid(f"kind must be one of: {', '.join(KINDS)}.", field="kind")
    return found


def limits_view(one: SubjectLimits) -> dict[str, object]:
    """Render the limits of a subject."""
    return {
        "kind": one.kind,
        "name": one.name,
        "limits": one.values,
        "set": None if one.stored is None else one.stored.values,
        "by": None if one.stored is None else one.stored.by,
        "at": None if one.stored is None else iso(one.stored.at),
        "budgets": [left_view(budget) for budget in one.budgets],
    }


def entry_limits_view(entry: LimitEntry) -> dict[str, object]:
    """Render the limits that an administrator set for a subject."""
    return {"kind": entry.kind, "name": entry.name, "limits": entry.values, "by": entry.by, "at": iso(entry.at)}


def tree_view(run: Run, spent: Spent, budgets: Iterable[BudgetLeft]) -> dict[str, object]:
    """Render what a tree of runs has spent, and the budgets that hold for one of its runs."""
    return {
        "task": run.id,
        "root": root_of(run),
        "spent": {"tokens": spent.tokens, "cost": round(spent.cost / UNIT, 9)},
        "budgets": [left_view(budget) for budget in budgets],
    }


def left_view(budget: BudgetLeft) -> dict[str, object]:
    return {
        "limit": budget.limit,
        "spent": budget.spent,
        "allowed": budget.allowed,
        "left": budget.left,
        "resetsAt": None if budget.resets_at is None else iso(budget.resets_at),
    }


def entries_of(settings: Mapping[str, Mapping[str, float]]) -> list[LimitEntry]:
    """Return the limits of the settings, whose names are `KIND:NAME`. Raise Invalid if one is not valid."""
    entries: list[LimitEntry] = []
    for subject, given in settings.items():
        kind, _, name = subject.partition(":")
        entries.append(LimitEntry(_kind(kind), name, LimitValues(**given)))  # pyright: ignore[reportArgumentType]
        check_entry(entries[-1])
    return entries

"""A row: a figure of Parley, the figure it is compared with, and the ratio that must hold between them.

`ratio` is always `value / beside_value`. `floor` is the ratio that must hold and `bound` says on which side of it:
with "min" the row is ok when `ratio >= floor` (rates), with "max" when `ratio <= floor` (costs). Both are None for a
row that only informs; it is always ok.
"""

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

ROUNDS = 3

Measure = Callable[[], float]
Bound = Literal["min", "max"]


@dataclass(frozen=True)
class Case:
    """Measurement of a row: each call of `ours` and `peer` is one round."""

    name: str
    unit: str
    ours: Measure
    beside: str
    peer: Measure
    bound: Bound | None = None
    floor: float | None = None
    note: Callable[[float], str] | None = None


@dataclass(frozen=True)
class Row:
    name: str
    value: float | None
    unit: str
    beside: str
    beside_value: float | None
    ratio: float | None
    bound: Bound | None
    floor: float | None
    ok: bool
    note: str | None = None
    rounds: list[tuple[float, float]] = field(default_factory=list)
    """Ours and the peer's of each round: how far they lie apart shows how noisy the machine was."""


def measured(case: Case, show: Callable[[str], None]) -> Row:
    """Ours, the peer, ours, the peer, …: a machine that slows down half-way slows both. The medians are compared."""
    rounds: list[tuple[float, float]] = []
    try:
        for number in range(1, ROUNDS + 1):
            show(f"{case.name} {number}/{ROUNDS}: ours")
            ours = case.ours()
            show(f"{case.name} {number}/{ROUNDS}: {case.beside}")
            rounds.append((ours, case.peer()))
    except Exception as error:  # noqa: BLE001 - a row that cannot be measured must not take the others with it
        return failed(case, f"{type(error).__name__}: {error}")
    return judged(case, rounds)


def judged(case: Case, rounds: list[tuple[float, float]]) -> Row:
    value, peer = (statistics.median(figures) for figures in zip(*rounds, strict=True))
    ratio = value / peer
    note = case.note(value) if case.note else None
    return Row(
        case.name, value, case.unit, case.beside, peer, ratio, case.bound, case.floor, holds(case, ratio), note, rounds
    )


def holds(case: Case, ratio: float) -> bool:
    if case.floor is None:
        return True
    return ratio <= case.floor if case.bound == "max" else ratio >= case.floor


def failed(case: Case, why: str) -> Row:
    return Row(case.name, None, case.unit, case.beside, None, None, case.bound, case.floor, False, why)

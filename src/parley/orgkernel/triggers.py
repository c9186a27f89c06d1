"""Trigger expressions of a PACE plan: `metric op number [OR …]`, flags, and shares of a role's own limit."""

import operator
import re
from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from parley.errors import Invalid

Metric = Literal["failures", "failures_total", "context_fill", "turns_without_progress", "unrecoverable_error"]
Op = Literal[">=", "<=", "==", ">", "<"]

_METRICS: dict[str, Metric] = {
    "failures": "failures",
    "consecutive_failures": "failures",
    "consecutive_tool_failures": "failures",
    "tool_failures_consecutive": "failures",
    "failures_total": "failures_total",
    "tool_failures_total": "failures_total",
    "context_fill": "context_fill",
    "context_fill_pct": "context_fill",
    "turns_without_progress": "turns_without_progress",
    "turns_since_progress": "turns_without_progress",
}
_FLAGS: dict[str, tuple[Metric, float]] = {
    "unrecoverable_error": ("unrecoverable_error", 1),
    "critical_failure": ("unrecoverable_error", 1),
    "context_exhausted": ("context_fill", 1),
}
_LIMITS = ("max", "max_turns", "max_turns_without_progress")
_COMPARE: dict[Op, Callable[[float, float], bool]] = {
    ">=": operator.ge, "<=": operator.le, "==": operator.eq, ">": operator.gt, "<": operator.lt,
}  # fmt: skip
_OR = re.compile(r"(?<=\s)OR(?=\s)|\|\|", re.IGNORECASE)
_CLAUSE = re.compile(
    r"(?P<metric>[a-z_]+)\s*(?P<op>>=|<=|==|=|>|<)\s*"
    r"(?:(?P<limit>[a-z_]+)\s*(?:\*\s*(?P<times>\d+(?:\.\d+)?))?|(?P<number>\d+(?:\.\d+)?)\s*(?P<percent>%?))",
    re.IGNORECASE,
)


class Metrics(Struct, frozen=True):
    """What a trigger can look at."""

    failures: int = 0
    failures_total: int = 0
    context_fill: float = 0.0
    turns_without_progress: int = 0
    unrecoverable_error: bool = False
    max_turns_without_progress: int = 12


class Clause(Struct, frozen=True):
    metric: Metric
    op: Op
    number: float
    of_limit: bool = False
    """Whether `number` counts the role's `max_turns_without_progress`."""
    written: str = ""

    def holds(self, metrics: Metrics) -> bool:
        bound = self.number * metrics.max_turns_without_progress if self.of_limit else self.number
        return _COMPARE[self.op](float(getattr(metrics, self.metric)), bound)


Trigger = tuple[Clause, ...]
"""Fires when one of its clauses holds; never when it has none."""


def parse_trigger(text: str) -> Trigger:
    """Invalid names the clause that cannot be understood."""
    return tuple(_clause(one.strip()) for one in _OR.split(text.strip())) if text.strip() else ()


def fired(trigger: Trigger, metrics: Metrics) -> Clause | None:
    """The first clause that holds."""
    return next((clause for clause in trigger if clause.holds(metrics)), None)


def _clause(text: str) -> Clause:
    flag = _FLAGS.get(text.lower())
    if flag is not None:
        return Clause(flag[0], ">=", flag[1], written=text)
    match = _CLAUSE.fullmatch(text)
    if match is None:
        raise Invalid(f"{text!r} is no condition: write metric op number, such as failures>=3", field="trigger")
    metric = _METRICS.get(match["metric"].lower())
    if metric is None:
        raise Invalid(f"there is no metric {match['metric']!r}; known are {', '.join(_METRICS)}", field="trigger")
    op = _OPS[match["op"]]
    if match["limit"] is not None:
        if match["limit"].lower() not in _LIMITS:
            raise Invalid(f"{match['limit']!r} is no number, and none of {', '.join(_LIMITS)}", field="trigger")
        return Clause(metric, op, float(match["times"] or 1), of_limit=True, written=text)
    number = float(match["number"]) / (100 if match["percent"] else 1)
    return Clause(metric, op, number, written=text)


_OPS: dict[str, Op] = {">=": ">=", "<=": "<=", "==": "==", "=": "==", ">": ">", "<": "<"}

"""Counters and durations for Prometheus. What is told is only counted here; texts are made when somebody asks.

Labels come from closed lists. Nothing that names a run, a caller or a trace ever becomes one: of those there is no end.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

from msgspec import Struct
from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from parley.telemetry.severity import WARNINGS

MEDIA = b"text/plain; version=0.0.4; charset=utf-8"
EVENT_LABELS = ("name", "agent", "code", "how", "state", "tool")
SPAN_LABELS = ("name", "agent", "outcome", "tool")
ANSWER_LABELS = ("route", "status")
WARNING_LABELS = ("name",)
OTHER = "other"
"""Stands for agents that are not served here, and for whatever comes when a family is full."""
MOST_SERIES = 1000
LONGEST_VALUE = 64
BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0)
TURN = "runtime.infer"
_BOUNDS = (*map(str, BOUNDS_S), "+Inf")

Values = tuple[str, ...]
Told = tuple[object, ...]


class Gauge(Struct, frozen=True):
    """What is counted at the moment of asking: by agent, or as a whole under no name."""

    name: str
    about: str
    counts: Mapping[str, int]


class Family:
    """Counts by their labels, of which there is an end, whatever is told."""

    def __init__(self, labels: Values, size: int, agents: Container[str]) -> None:
        self._labels = labels
        self._size = size
        self._agents = agents
        self._kept: dict[Values, list[float]] = {}
        self.known: dict[Told, list[float]] = {}
        """The same counts by what was told: it is told again and again, and its labels need be made only once."""

    def find(self, told: Told) -> list[float]:
        values = tuple(map(self._value, self._labels, told))
        if values not in self._kept and len(self._kept) >= MOST_SERIES:
            values = (OTHER,) * len(values)
        counts = self._kept.setdefault(values, [0.0] * self._size)
        if OTHER not in values:
            self.known[told] = counts
        return counts

    def items(self) -> list[tuple[Values, list[float]]]:
        return list(self._kept.items())

    def _value(self, label: str, value: object) -> str:
        text = "" if value is None else str(value)[:LONGEST_VALUE]
        return OTHER if label == "agent" and text and text not in self._agents else text


class Metrics:
    """The figures of one server. `agents` are those whose names may be labels.

    Counted without a lock: one thread tells nearly everything, and it tells it for every request. What another one
    tells at the very same moment may be missed.
    """

    def __init__(self, agents: Container[str]) -> None:
        self._agents = agents
        self._events = Family(EVENT_LABELS, 1, agents)
        self._spans = Family(SPAN_LABELS, len(BOUNDS_S) + 2, agents)
        self._answers = Family(ANSWER_LABELS, len(BOUNDS_S) + 2, agents)
        self._warnings = dict.fromkeys(sorted(WARNINGS), 0)
        """All of them from the start: who is to be woken by the first one needs a count that was none before."""
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)
        PlatformCollector(registry=self._process)

    def heard(self, name: str, fields: dict[str, Any]) -> None:
        """Attach this to the seam."""
        get = fields.get
        if name == "span.ended":
            told = (fields["name"], get("agent"), get("outcome"), get("tool"))
            seconds = (fields["ended_ns"] - fields["started_ns"]) / 1e9
            _add(self._spans.known.get(told) or self._spans.find(told), seconds)
        else:
            told = (name, get("agent"), get("code"), get("how"), get("state"), get("tool"))
            (self._events.known.get(told) or self._events.find(told))[0] += 1
            if name in self._warnings:
                self._warnings[name] += 1

    def answered(self, route: str, status: int, seconds: float) -> None:
        told = (route, status)
        _add(self._answers.known.get(told) or self._answers.find(told), seconds)

    @property
    def answer_times(self) -> tuple[float, ...]:
        """How many requests were answered within each of `BOUNDS_S`, and how many later."""
        return _summed(counts for _, counts in self._answers.items())

    @property
    def turn_times(self) -> tuple[float, ...]:
        """The same of the turns of agents."""
        return _summed(counts for values, counts in self._spans.items() if values[0] == TURN)

    def text(self, gauges: Sequence[Gauge] = ()) -> bytes:
        """Everything, as Prometheus reads it. May be called in a thread: of many figures it takes a while."""
        families = [
            _counted("parley_events", "What was told, by name.", EVENT_LABELS, self._events),
            _warned(self._warnings),
            _histogram("parley_span_seconds", "How long things took, by name.", SPAN_LABELS, self._spans),
            _histogram("parley_http_answer_seconds", "From a request to its answer.", ANSWER_LABELS, self._answers),
            *map(self._measured, gauges),
            *self._process.collect(),
        ]
        return generate_latest(_Families(families))

    def _measured(self, gauge: Gauge) -> Metric:
        whole, counts = "" in gauge.counts, Counter[Values]()
        for agent, count in gauge.counts.items():
            counts[() if whole else (agent if agent in self._agents else OTHER,)] += count
        family = GaugeMetricFamily(gauge.name, gauge.about, labels=() if whole else ("agent",))
        for values, count in counts.items():
            family.add_metric(values, count)
        return family


def _summed(found: Iterable[list[float]]) -> tuple[float, ...]:
    total = [0.0] * (len(BOUNDS_S) + 1)
    for counts in found:
        total = [one + two for one, two in zip(total, counts, strict=False)]
    return tuple(total)


def _add(counts: list[float], seconds: float) -> None:
    """How many in each bucket, and at last the sum. A client library's own histogram takes far longer."""
    counts[bisect_left(BOUNDS_S, seconds)] += 1
    counts[-1] += seconds


def _counted(name: str, about: str, labels: Values, found: Family) -> Metric:
    family = CounterMetricFamily(name, about, labels=labels)
    for values, counts in found.items():
        family.add_metric(values, counts[0])
    return family


def _warned(counts: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily("parley_warnings", "What was told as a warning, by name.", labels=WARNING_LABELS)
    for name, count in counts.items():
        family.add_metric((name,), count)
    return family


def _histogram(name: str, about: str, labels: Values, found: Family) -> Metric:
    family = HistogramMetricFamily(name, about, labels=labels)
    for values, (*counts, total) in found.items():
        family.add_metric(values, list(zip(_BOUNDS, accumulate(counts), strict=True)), total)
    return family


class _Families(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families

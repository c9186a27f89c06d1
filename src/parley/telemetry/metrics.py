"""Counters and durations for Prometheus. What is told is only counted here; texts are made when somebody asks.

Labels come from closed lists. Nothing that names a run, a caller or a trace ever becomes one: of those there is no end.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import accumulate
from threading import Lock
from typing import Any

from msgspec import Struct
from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

MEDIA = b"text/plain; version=0.0.4; charset=utf-8"
EVENT_LABELS = ("name", "agent", "code", "how", "state", "tool")
SPAN_LABELS = ("name", "agent", "outcome", "tool")
ANSWER_LABELS = ("route", "status")
OTHER = "other"
"""Stands for agents that are not served here, and for whatever comes when a family is full."""
MOST_SERIES = 1000
LONGEST_VALUE = 64
BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0)
_BOUNDS = (*map(str, BOUNDS_S), "+Inf")

Values = tuple[str, ...]


class Gauge(Struct, frozen=True):
    """What is counted at the moment of asking: by agent, or as a whole under no name."""

    name: str
    about: str
    counts: Mapping[str, int]


class Durations:
    """A histogram for each set of labels. Counting is all it does: a client library's own takes far longer."""

    def __init__(self, name: str, about: str, labels: Values) -> None:
        self._about = (name, about, labels)
        self._series: dict[Values, list[float]] = {}
        """How many in each bucket, and at last the sum."""

    def add(self, values: Values, seconds: float) -> None:
        found = self._series.get(values)
        if found is None:
            if len(self._series) >= MOST_SERIES:
                values = (OTHER,) * len(values)
            found = self._series.setdefault(values, [0.0] * (len(BOUNDS_S) + 2))
        found[bisect_left(BOUNDS_S, seconds)] += 1
        found[-1] += seconds

    def copied(self) -> "Durations":
        copy = Durations(*self._about)
        copy._series = {values: list(counts) for values, counts in self._series.items()}
        return copy

    def family(self) -> Metric:
        name, about, labels = self._about
        family = HistogramMetricFamily(name, about, labels=labels)
        for values, (*counts, total) in self._series.items():
            family.add_metric(values, list(zip(_BOUNDS, accumulate(counts), strict=True)), total)
        return family


class Metrics:
    """The figures of one server. `agents` are those whose names may be labels."""

    def __init__(self, agents: Container[str]) -> None:
        self._agents = agents
        self._lock = Lock()
        """Threads tell too, and read."""
        self._events: Counter[Values] = Counter()
        self._spans = Durations("parley_span_seconds", "How long things took, by name.", SPAN_LABELS)
        self._answers = Durations(
            "parley_http_answer_seconds", "From a request to the beginning of its answer.", ANSWER_LABELS
        )
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)
        PlatformCollector(registry=self._process)

    def heard(self, name: str, fields: dict[str, Any]) -> None:
        """Attach this to the seam."""
        with self._lock:
            if name == "span.ended":
                seconds = (fields["ended_ns"] - fields["started_ns"]) / 1e9
                self._spans.add(self._values(fields["name"], fields, SPAN_LABELS), seconds)
            else:
                self._count(self._values(name, fields, EVENT_LABELS))

    def answered(self, route: str, status: int, seconds: float) -> None:
        with self._lock:
            self._answers.add((route, str(status)), seconds)

    def text(self, gauges: Sequence[Gauge] = ()) -> bytes:
        """Everything, as Prometheus reads it. May be called in a thread: of many figures it takes a while."""
        with self._lock:
            events, spans, answers = Counter(self._events), self._spans.copied(), self._answers.copied()
        measured = map(self._measured, gauges)
        return generate_latest(_Families([_counted(events), spans.family(), answers.family(), *measured, *self._own]))

    @property
    def _own(self) -> Iterable[Metric]:
        """The process itself: memory, processor time, open files."""
        return self._process.collect()

    def _count(self, values: Values) -> None:
        if values not in self._events and len(self._events) >= MOST_SERIES:
            values = (OTHER,) * len(values)
        self._events[values] += 1

    def _measured(self, gauge: Gauge) -> Metric:
        whole, counts = "" in gauge.counts, Counter[Values]()
        for agent, count in gauge.counts.items():
            counts[() if whole else (self._agent(agent),)] += count
        family = GaugeMetricFamily(gauge.name, gauge.about, labels=() if whole else ("agent",))
        for values, count in counts.items():
            family.add_metric(values, count)
        return family

    def _values(self, name: str, fields: dict[str, Any], labels: Values) -> Values:
        agent = fields.get("agent")
        rest = [str(fields[label])[:LONGEST_VALUE] if label in fields else "" for label in labels[2:]]
        return (name, self._agent(agent) if agent else "", *rest)

    def _agent(self, slug: str) -> str:
        return slug if slug in self._agents else OTHER


class _Families(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _counted(events: Mapping[Values, int]) -> Metric:
    family = CounterMetricFamily("parley_events", "What was told, by name.", labels=EVENT_LABELS)
    for values, count in events.items():
        family.add_metric(values, count)
    return family

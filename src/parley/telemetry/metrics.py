"""Counters and durations for Prometheus. Events are only counted here; text is created when metrics are requested.

Labels come from closed lists. Ids of runs, callers or traces never become labels: their number is not bounded.
"""

from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, Literal

from msgspec import Struct
from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from parley.telemetry.logs import WARNINGS

MEDIA = b"text/plain; version=0.0.4; charset=utf-8"
EVENT_LABELS = ("name", "agent", "code", "how", "state", "tool")
SPAN_LABELS = ("name", "agent", "outcome", "tool")
ANSWER_LABELS = ("route", "status")
WARNING_LABELS = ("name",)
TOKEN_LABELS = ("agent", "model", "kind")
COST_LABELS = ("agent", "model")
USAGE = "usage.recorded"
OTHER = "other"
"""Label value for agents that this server does not serve, and for everything new when a family is full."""
MOST_MODELS = 100
"""Models that become label values: their names come from agents and vendors."""
MOST_SERIES = 1000
LONGEST_VALUE = 64
BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0)
TURN = "runtime.infer"
_BOUNDS = (*map(str, BOUNDS_S), "+Inf")

Values = tuple[str, ...]
Told = tuple[object, ...]


class Gauge(Struct, frozen=True):
    """A value measured when metrics are requested: per agent, or a single value under an empty name."""

    name: str
    about: str
    counts: Mapping[str, float]
    label: Literal["agent", "budget"] = "agent"
    """Name of the label. Budgets are those that administrators set, at most 1000."""


class Family:
    """Counts by label values. The number of series is bounded, whatever the events contain."""

    def __init__(self, labels: Values, size: int, agents: Container[str]) -> None:
        self._labels = labels
        self._size = size
        self._agents = agents
        self._kept: dict[Values, list[float]] = {}
        self.known: dict[Told, list[float]] = {}
        """The same counts by the values of the event: these repeat often, and labels need to be created only once."""

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


# Why: docs/decisions/operations.md#count-metrics-in-parley-and-render-them-with-prometheus-client
class Metrics:
    """The metrics of one server. `agents` are the names that may become label values.

    Counts without a lock, because this runs for every request and nearly all events come from one thread. An event of
    another thread at the same moment may be missed.
    """

    def __init__(self, agents: Container[str]) -> None:
        self._agents = agents
        self._events = Family(EVENT_LABELS, 1, agents)
        self._spans = Family(SPAN_LABELS, len(BOUNDS_S) + 2, agents)
        self._answers = Family(ANSWER_LABELS, len(BOUNDS_S) + 2, agents)
        self._models: set[str] = set()
        self._tokens = Family(TOKEN_LABELS, 1, agents)
        self._cost = Family(COST_LABELS, 1, agents)
        self._warnings = dict.fromkeys(sorted(WARNINGS), 0)
        """All warnings from the start: an alert on the first warning needs a count of zero before it."""
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)
        PlatformCollector(registry=self._process)

    def heard(self, name: str, fields: dict[str, Any]) -> None:
        """Count an event. Attach this to the telemetry."""
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
            if name == USAGE:
                self._add_usage(fields)

    def _add_usage(self, fields: dict[str, Any]) -> None:
        agent, model = fields["agent"], fields["model"]
        if len(self._models) < MOST_MODELS:
            self._models.add(model)
        model = model if model in self._models else OTHER
        for kind in ("input", "output", "cached"):
            self._tokens.find((agent, model, kind))[0] += fields[f"{kind}_tokens"]
        if fields["cost"] is not None:
            self._cost.find((agent, model))[0] += fields["cost"]

    def answered(self, route: str, status: int, seconds: float) -> None:
        told = (route, status)
        _add(self._answers.known.get(told) or self._answers.find(told), seconds)

    @property
    def answer_times(self) -> tuple[float, ...]:
        """Return the number of requests answered within each of `BOUNDS_S`, and the number of slower ones."""
        return _summed(counts for _, counts in self._answers.items())

    @property
    def turn_times(self) -> tuple[float, ...]:
        """Return the same for the turns of agents."""
        return _summed(counts for values, counts in self._spans.items() if values[0] == TURN)

    def text(self, gauges: Sequence[Gauge] = ()) -> bytes:
        """Return all metrics in the Prometheus format. May run in a thread: with many series it takes a while."""
        families = [
            _counted("parley_events", "Telemetry events, by name.", EVENT_LABELS, self._events),
            _warned(self._warnings),
            _histogram("parley_span_seconds", "Duration of spans, by name.", SPAN_LABELS, self._spans),
            _histogram(
                "parley_http_answer_seconds", "Time from a request to its response.", ANSWER_LABELS, self._answers
            ),
            _counted(
                "parley_tokens", "Tokens of models; cached tokens are input tokens too.", TOKEN_LABELS, self._tokens
            ),
            _counted("parley_cost", "Cost of model calls in USD.", COST_LABELS, self._cost),
            *map(self._measured, gauges),
            *self._process.collect(),
        ]
        return generate_latest(_Families(families))

    def gauges(self, gauges: Sequence[Gauge]) -> bytes:
        """Return these gauges alone in the Prometheus format."""
        return generate_latest(_Families(map(self._measured, gauges)))

    def _measured(self, gauge: Gauge) -> Metric:
        whole, counts = "" in gauge.counts, defaultdict[Values, float](float)
        for name, count in gauge.counts.items():
            known = gauge.label == "budget" or name in self._agents
            counts[() if whole else (name if known else OTHER,)] += count
        family = GaugeMetricFamily(gauge.name, gauge.about, labels=() if whole else (gauge.label,))
        for values, count in counts.items():
            family.add_metric(values, count)
        return family


def _summed(found: Iterable[list[float]]) -> tuple[float, ...]:
    total = [0.0] * (len(BOUNDS_S) + 1)
    for counts in found:
        total = [one + two for one, two in zip(total, counts, strict=False)]
    return tuple(total)


def _add(counts: list[float], seconds: float) -> None:
    """Add to the bucket of a duration, and to the sum at the end. The histogram of a client library is far slower."""
    counts[bisect_left(BOUNDS_S, seconds)] += 1
    counts[-1] += seconds


def _counted(name: str, about: str, labels: Values, found: Family) -> Metric:
    family = CounterMetricFamily(name, about, labels=labels)
    for values, counts in found.items():
        family.add_metric(values, counts[0])
    return family


def _warned(counts: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(
        "parley_warnings", "Telemetry events logged as warnings, by name.", labels=WARNING_LABELS
    )
    for name, count in counts.items():
        family.add_metric((name,), count)
    return family


def _histogram(name: str, about: str, labels: Values, found: Family) -> Metric:
    family = HistogramMetricFamily(name, about, labels=labels)
    for values, (*counts, total) in found.items():
        family.add_metric(values, list(zip(_BOUNDS, accumulate(counts), strict=True)), total)
    return family


def merged(texts: Mapping[str, bytes]) -> bytes:
    """Return the metrics of several workers as one text, each sample with its worker as a label."""
    families: dict[str, list[str]] = {}
    for worker, text in texts.items():
        lines: list[str] = []
        head = 0
        for line in text.decode().splitlines():
            if line.startswith("# HELP "):
                known = families.get(name := line.split(" ", 3)[2])
                lines = families.setdefault(name, [])
                head = 0 if known is not None else 2  # its HELP and TYPE
            if not line.startswith("#"):
                lines.append(_labelled(line, worker))
            elif head:
                lines.append(line)
                head -= 1
    return "".join(f"{line}\n" for lines in families.values() for line in lines).encode()


def _labelled(sample: str, worker: str) -> str:
    """Add a label to a sample: `name{a="1"} 2.0` or `name 2.0`. A name has neither a brace nor a blank."""
    end = min(at for at in (sample.find("{"), sample.find(" ")) if at >= 0)
    name, rest = sample[:end], sample[end:]
    labels = f'worker="{worker}"'
    return f"{name}{{{labels},{rest[1:]}" if rest.startswith("{") else f"{name}{{{labels}}}{rest}"


class _Families(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


# Samples of the last hour, for plots: a ring buffer of counts and durations, filled at intervals.

EVERY_S = 15.0
HOUR_MS = 3_600_000
KEPT = int(HOUR_MS / 1000 / EVERY_S) + 1

Times = tuple[float, ...]
"""Histogram of durations: one count for each of `BOUNDS_S`, and one for slower."""


class Sample(Struct, frozen=True):
    """Counts since the server started."""

    at: int
    answers: Times
    turns: Times


class DurationStats(Struct, frozen=True):
    """Counts between two samples."""

    begin: int
    end: int
    answers: Times
    turns: Times


class Samples:
    def __init__(self) -> None:
        self._kept: deque[Sample] = deque(maxlen=KEPT)

    def add(self, at: int, answers: Times, turns: Times) -> None:
        self._kept.append(Sample(at, answers, turns))

    def spans(self, now: int, most: int = 60) -> list[DurationStats]:
        """Return the last hour in at most `most` intervals, the oldest first."""
        kept = [one for one in self._kept if one.at >= now - HOUR_MS - int(EVERY_S * 1000)]
        step = max(1, -(-(len(kept) - 1) // most))
        # Counted back from the newest, so that the oldest samples are the ones dropped.
        chosen = kept[::-1][::step][::-1]
        return [_between(one, two) for one, two in pairwise(chosen)]


def _between(one: Sample, two: Sample) -> DurationStats:
    return DurationStats(one.at, two.at, _less(two.answers, one.answers), _less(two.turns, one.turns))


def _less(later: Times, earlier: Times) -> Times:
    return tuple(two - one for one, two in zip(earlier, later, strict=True))


def per_minute(times: Times, span: DurationStats) -> float:
    return sum(times) * 60_000 / max(span.end - span.begin, 1)


def quantile(times: Sequence[float], share: float) -> float | None:
    """Return a quantile in seconds, interpolated within its bucket; None if nothing was counted."""
    total = sum(times)
    if not total:
        return None
    wanted, before, low = total * share, 0.0, 0.0
    for count, high in zip(times, BOUNDS_S, strict=False):
        if before + count >= wanted and count:
            return low + (high - low) * (wanted - before) / count
        before, low = before + count, high
    return BOUNDS_S[-1]

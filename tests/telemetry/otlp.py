"""OTLP receiver over HTTP; shows the spans as a tree."""

import gzip
from collections.abc import Iterable, Iterator

from msgspec import Struct
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue

from parley.testing.receivers import Post, Receiver

TRACES, METRICS = "/v1/traces", "/v1/metrics"


class Span(Struct, frozen=True):
    service: str
    name: str
    trace: str
    id: str
    parent: str
    about: dict[str, str]
    failed: bool = False

    def __str__(self) -> str:
        """As the documentation shows it."""
        told = [self.about[name] for name in ("parley.agent", "parley.driver", "parley.tool") if name in self.about]
        return f"{self.service}: {self.name}" + (f" ({', '.join(told)})" if told else "")


def spans(receiver: Receiver) -> list[Span]:
    return [span for post in receiver.on(TRACES) for span in _in(post)]


def counters(receiver: Receiver) -> set[str]:
    """The names of the metrics that came."""
    found: set[str] = set()
    for post in receiver.on(METRICS):
        sent = ExportMetricsServiceRequest.FromString(_body(post))
        found |= {one.name for r in sent.resource_metrics for s in r.scope_metrics for one in s.metrics}
    return found


def _in(post: Post) -> Iterator[Span]:
    for resource in ExportTraceServiceRequest.FromString(_body(post)).resource_spans:
        service = _values(resource.resource.attributes)["service.name"]
        for scope in resource.scope_spans:
            for one in scope.spans:
                yield Span(
                    service, one.name, one.trace_id.hex(), one.span_id.hex(), one.parent_span_id.hex(),
                    _values(one.attributes), one.status.code == 2,
                )  # fmt: skip


def _body(post: Post) -> bytes:
    return gzip.decompress(post.body) if post.headers.get("content-encoding") == "gzip" else post.body


def _values(attributes: Iterable[KeyValue]) -> dict[str, str]:
    return {one.key: one.value.string_value or str(one.value.int_value) for one in attributes}


class Tree:
    """The spans of one trace, by who lies under whom."""

    def __init__(self, found: list[Span]) -> None:
        self.spans = sorted(found, key=str)
        self._by_id = {one.id: one for one in found}

    def above(self, span: Span) -> list[str]:
        """From the outermost on."""
        parent = self._by_id.get(span.parent)
        return [*self.above(parent), str(parent)] if parent else []

    def roots(self) -> list[Span]:
        return [one for one in self.spans if one.parent not in self._by_id]

    def find(self, text: str) -> list[Span]:
        return [one for one in self.spans if str(one) == text]

    def shown(self, under: str = "", depth: int = 0) -> str:
        """Indented, for whoever reads a failure."""
        below = self.roots() if not depth else [one for one in self.spans if one.parent == under]
        return "".join("  " * depth + f"{one}\n" + self.shown(one.id, depth + 1) for one in below)

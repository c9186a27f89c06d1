"""OpenTelemetry: everything that is told is counted by its name, and spans are spans. Needs the extra `otel`."""

from typing import Any

from opentelemetry import context, trace
from opentelemetry.metrics import get_meter
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from parley.telemetry import Detach, attach, export
from parley.telemetry.trace import Trace, headers_for

_KINDS = {
    "face.http": SpanKind.SERVER, "face.grpc": SpanKind.SERVER, "tool.call": SpanKind.CLIENT,
    "push.post": SpanKind.CLIENT,
}  # fmt: skip
"""Of those that somebody else has the other side of."""
_LABELS = ("agent", "code", "how", "state")
_FAILED = frozenset(("error", "failed"))
_UNCOUNTED = "span.ended"
"""How many spans there are is told by the spans."""

_propagator = TraceContextTextMapPropagator()


def configure() -> Detach:
    """Attach to whatever meter and tracer providers the process has set up."""
    tracer = trace.get_tracer("parley")
    counter = get_meter("parley").create_counter("parley.events", description="What the engine told, by name.")

    def count(name: str, fields: dict[str, Any]) -> None:
        if name != _UNCOUNTED:
            labels = {label: str(fields[label]) for label in _LABELS if label in fields}
            counter.add(1, {"name": name, **labels})

    def opened(name: str, parent: Trace, at_ns: int) -> _Opened:
        return _Opened(tracer, name, parent, at_ns)

    counting, exporting = attach(count), export(opened)

    def detach() -> None:
        counting()
        exporting()

    return detach


class _Opened:
    """While it lasts it is also OpenTelemetry's current span, for agents that use that themselves."""

    def __init__(self, tracer: trace.Tracer, name: str, parent: Trace, at_ns: int) -> None:
        around = _propagator.extract(headers_for(parent), context.Context())
        self._span = tracer.start_span(name, around, _KINDS.get(name, SpanKind.INTERNAL), start_time=at_ns)
        self.trace = _carried(self._span.get_span_context(), parent)
        self._token = context.attach(trace.set_span_in_context(self._span, around))

    def end(self, at_ns: int, fields: dict[str, Any]) -> None:
        context.detach(self._token)
        self._span.set_attributes({f"parley.{name}": _plain(value) for name, value in fields.items()})
        if self.trace.request_id:
            self._span.set_attribute("parley.request_id", self.trace.request_id)
        if fields["outcome"] in _FAILED:
            self._span.set_status(Status(StatusCode.ERROR))
        self._span.end(at_ns)


def _carried(here: trace.SpanContext, parent: Trace) -> Trace:
    """With this span as the parent; without a provider there is no span, and the trace goes on as it came."""
    if not here.is_valid or here.span_id == int(parent.traceparent[36:52] or "0", 16):
        return parent
    traceparent = f"00-{here.trace_id:032x}-{here.span_id:016x}-{here.trace_flags:02x}"
    return Trace(traceparent, here.trace_state.to_header(), parent.request_id)


def _plain(value: object) -> str | int | float | bool:
    return value if isinstance(value, str | int | float | bool) else str(value)

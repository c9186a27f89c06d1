"""OpenTelemetry: counts every event by its name, and exports spans. Needs the extra `otel`."""

import os
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import entry_points
from threading import Thread
from typing import Any

from opentelemetry import context, metrics, trace
from opentelemetry.metrics import get_meter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from parley.telemetry import Detach, attach, export
from parley.telemetry.trace import Trace, headers_for

_KINDS = {
    "face.http": SpanKind.SERVER, "face.grpc": SpanKind.SERVER, "tool.call": SpanKind.CLIENT,
    "push.post": SpanKind.CLIENT, "model.call": SpanKind.CLIENT,
}  # fmt: skip
"""Kinds of the spans that have another side: a client or a server."""
_OPERATIONS = {"model.call": "chat", "driver.turn": "invoke_agent", "tool.call": "execute_tool"}
"""Spans that follow the semantic conventions for generative AI, and the names of their operations."""
_CONVENTIONS = {
    "agent": "gen_ai.agent.name",
    "provider": "gen_ai.provider.name",
    "model": "gen_ai.request.model",
    "response_model": "gen_ai.response.model",
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
    "cached_tokens": "gen_ai.usage.cache_read.input_tokens",
    "tool": "gen_ai.tool.name",
    "conversation": "gen_ai.conversation.id",
    "code": "error.type",
}
"""Attributes of the conventions, by our field."""
_A2A = {"agent": "a2a.agent.name", "run": "a2a.task.id", "conversation": "a2a.context.id"}
_LABELS = ("agent", "code", "how", "state")
_FAILED = frozenset(("error", "failed"))
_UNCOUNTED = "span.ended"
"""Not counted: the exported spans give the number of spans."""
_MODEL_CALL = "model.call"
_MEASURED = ("provider", "model", "response_model", "agent")
"""Fields of a model call that are attributes of its metrics."""

_propagator = TraceContextTextMapPropagator()


def configure() -> Detach:
    """Attach to the meter and tracer providers that the process has set up. Return a function that detaches."""
    tracer = trace.get_tracer("parley")
    counter = get_meter("parley").create_counter("parley.events", description="Telemetry events, by name.")
    calls = _ModelCalls()

    def count(name: str, fields: dict[str, Any]) -> None:
        if name != _UNCOUNTED:
            labels = {label: str(fields[label]) for label in _LABELS if label in fields}
            counter.add(1, {"name": name, **labels})
        elif fields["name"] == _MODEL_CALL:
            calls.measure(fields)

    def opened(name: str, parent: Trace, at_ns: int) -> _Opened:
        return _Opened(tracer, name, parent, at_ns)

    counting, exporting = attach(count), export(opened)

    def detach() -> None:
        counting()
        exporting()

    return detach


class _ModelCalls:
    """Metrics of model calls, by the conventions for generative AI."""

    def __init__(self) -> None:
        meter = get_meter("parley")
        self._tokens = meter.create_histogram(
            "gen_ai.client.token.usage",
            "{token}",
            "Tokens of a model call, by type.",
        )
        self._seconds = meter.create_histogram("gen_ai.client.operation.duration", "s", "Duration of a model call.")

    def measure(self, fields: dict[str, Any]) -> None:
        measured = _attributes({field: _CONVENTIONS[field] for field in _MEASURED}, fields)
        labels = {"gen_ai.operation.name": _OPERATIONS[_MODEL_CALL], **measured}
        error = _attributes({"code": _CONVENTIONS["code"]}, fields)
        self._seconds.record((fields["ended_ns"] - fields["started_ns"]) / 1e9, {**labels, **error})
        for kind in ("input", "output"):
            if (tokens := fields.get(f"{kind}_tokens")) is not None:
                self._tokens.record(tokens, {**labels, "gen_ai.token.type": kind})


class _Opened:
    """A span that is also OpenTelemetry's current span while it is open, for agents that use OpenTelemetry."""

    def __init__(self, tracer: trace.Tracer, name: str, parent: Trace, at_ns: int) -> None:
        around = _propagator.extract(headers_for(parent), context.Context())
        self._name = name
        self._span = tracer.start_span(name, around, _KINDS.get(name, SpanKind.INTERNAL), start_time=at_ns)
        self.trace = _carried(self._span.get_span_context(), parent)
        self._token = context.attach(trace.set_span_in_context(self._span, around))

    def end(self, at_ns: int, fields: dict[str, Any]) -> None:
        context.detach(self._token)
        self._span.set_attributes({f"parley.{name}": _plain(value) for name, value in fields.items()})
        self._span.set_attributes(_attributes(_A2A, fields))
        if (operation := _OPERATIONS.get(self._name)) is not None:
            self._follow_conventions(operation, fields)
        if self.trace.request_id:
            self._span.set_attribute("parley.request_id", self.trace.request_id)
        if fields["outcome"] in _FAILED:
            self._span.set_status(Status(StatusCode.ERROR))
        self._span.end(at_ns)

    def _follow_conventions(self, operation: str, fields: dict[str, Any]) -> None:
        """Add the attributes of the conventions for generative AI. Content is never recorded."""
        self._span.set_attribute("gen_ai.operation.name", operation)
        self._span.set_attributes(_attributes(_CONVENTIONS, fields))
        if self._name == _MODEL_CALL:
            self._span.update_name(f"{operation} {fields['model']}".rstrip())
        if "finish" in fields:
            self._span.set_attribute("gen_ai.response.finish_reasons", (str(fields["finish"]),))


def _attributes(names: Mapping[str, str], fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that have a value, by the names that a convention gives them."""
    return {name: _plain(fields[field]) for field, name in names.items() if fields.get(field) not in (None, "")}


def _carried(here: trace.SpanContext, parent: Trace) -> Trace:
    """Return the trace with this span as the parent. Without a provider there is no span: the trace is unchanged."""
    if not here.is_valid or here.span_id == int(parent.traceparent[36:52] or "0", 16):
        return parent
    traceparent = f"00-{here.trace_id:032x}-{here.span_id:016x}-{here.trace_flags:02x}"
    return Trace(traceparent, here.trace_state.to_header(), parent.request_id)


def _plain(value: object) -> str | int | float | bool:
    return value if isinstance(value, str | int | float | bool) else str(value)


# Set-up of OpenTelemetry by its own environment variables, for a process that has no providers yet.

SERVICE = "parley"
LAST_WORDS_S = 3.0
"""Seconds that a stopping process waits to export the rest: the receiver may be unreachable."""
_PROTOCOLS = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}


def set_up() -> Callable[[], None]:
    """Set up exporters, sampling, resources, headers and batches as the environment variables of the SDK define them.
    Providers that the surrounding program has set up are kept. Raise LookupError when an exporter is not installed.

    Return a function that exports the rest and shuts down.
    """
    ends: list[Callable[[], object]] = []
    resource = Resource.create({} if "OTEL_SERVICE_NAME" in os.environ else {"service.name": SERVICE})
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        tracing = TracerProvider(resource=resource, shutdown_on_exit=False)
        for exporter in _exporters("traces"):
            tracing.add_span_processor(BatchSpanProcessor(exporter))
        trace.set_tracer_provider(tracing)
        ends.append(tracing.shutdown)
    if not isinstance(metrics.get_meter_provider(), MeterProvider):
        readers = [PeriodicExportingMetricReader(exporter) for exporter in _exporters("metrics")]
        measuring = MeterProvider(readers, resource, shutdown_on_exit=False)
        metrics.set_meter_provider(measuring)
        ends.append(measuring.shutdown)
    return lambda: _ended(ends)


def _ended(ends: list[Callable[[], object]]) -> None:
    """Shut down all providers in parallel, within `LAST_WORDS_S`, even if the SDK would try for longer."""
    threads = [Thread(target=end, daemon=True) for end in ends]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LAST_WORDS_S / len(threads))


def _exporters(signal: str) -> Iterator[Any]:
    """Create the exporters that `OTEL_TRACES_EXPORTER` or `OTEL_METRICS_EXPORTER` names."""
    variable = f"OTEL_{signal.upper()}_EXPORTER"
    for name in os.environ.get(variable, "otlp").split(","):
        if (wanted := name.strip()) not in ("", "none"):
            yield _loaded(signal, _protocol(signal) if wanted == "otlp" else wanted, variable)()


def _protocol(signal: str) -> str:
    names = (f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
    said = next((os.environ[name] for name in names if name in os.environ), "http/protobuf")
    return _PROTOCOLS.get(said, said)


def _loaded(signal: str, name: str, variable: str) -> Any:
    for found in entry_points(group=f"opentelemetry_{signal}_exporter", name=name):
        return found.load()
    raise LookupError(f"{variable} names the exporter {name}, which is not installed: install its package.")

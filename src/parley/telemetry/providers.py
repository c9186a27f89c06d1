"""OpenTelemetry set up as its own environment variables say, for a process that nobody else has set up."""

import os
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from threading import Thread
from typing import Any

from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

SERVICE = "parley"
LAST_WORDS_S = 3.0
"""How long a process that ends waits for what it has not reported yet: a receiver may be away."""
_PROTOCOLS = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}


def set_up() -> Callable[[], None]:
    """Exporters, sampling, resources, headers, batches: whatever the SDK reads from the environment holds. Where a
    program around this one has brought its own providers, they stay. LookupError when an exporter is not installed.

    The result reports what is left, when there will be no more.
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
    """All at once, and not for longer than a moment, however long the SDK would try."""
    threads = [Thread(target=end, daemon=True) for end in ends]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LAST_WORDS_S / len(threads))


def _exporters(signal: str) -> Iterator[Any]:
    """Those that `OTEL_TRACES_EXPORTER` names, and `OTEL_METRICS_EXPORTER`."""
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
    raise LookupError(f"{variable} asks for {name}, and no such exporter of OpenTelemetry is installed.")

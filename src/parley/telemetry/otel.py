"""OpenTelemetry: everything that is told is counted by its name, and each turn is a span. Needs the extra `otel`."""

from typing import Any

from opentelemetry import trace
from opentelemetry.metrics import get_meter

from parley.telemetry import Detach, attach

_LABELS = ("agent", "code", "how", "state")


def configure() -> Detach:
    """Attach to whatever meter and tracer providers the process has set up."""
    tracer = trace.get_tracer("parley")
    counter = get_meter("parley").create_counter("parley.events", description="What the engine told, by name.")

    def count(name: str, fields: dict[str, Any]) -> None:
        labels = {label: str(fields[label]) for label in _LABELS if label in fields}
        counter.add(1, {"name": name, **labels})
        if name == "turn.ended":
            span = tracer.start_span("turn", start_time=fields["started_at"] * 1_000_000)
            span.set_attributes({"parley.run": str(fields["run"]), "parley.epoch": int(fields["epoch"]), **labels})
            span.end(fields["ended_at"] * 1_000_000)

    return attach(count)

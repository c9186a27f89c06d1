"""Counters for OpenTelemetry: everything that is told is counted by its name. Needs the extra `otel`."""

from typing import Any

from opentelemetry.metrics import get_meter

from parley.telemetry import attach

_LABELS = ("agent", "code", "how", "state")


def configure() -> None:
    """Attach to whatever meter provider the process has set up."""
    counter = get_meter("parley").create_counter("parley.events", description="What the engine told, by name.")

    def count(name: str, fields: dict[str, Any]) -> None:
        labels = {label: str(fields[label]) for label in _LABELS if label in fields}
        counter.add(1, {"name": name, **labels})

    attach(count)

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from parley.client import Client
from parley.telemetry import attach, logs, otel, tell
from parley.testing.servers import serving
from tests.faces.conftest import echo


def test_whoever_is_attached_is_told_until_detached() -> None:
    told: list[tuple[str, dict[str, Any]]] = []
    detach = attach(lambda name, fields: told.append((name, fields)))
    tell("something", run="r")
    detach()
    tell("else")
    assert told == [("something", {"run": "r"})]


def test_log_lines_carry_the_fields_and_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    detach = logs.configure("json", "info")
    try:
        tell("turn.ended", run="quiet")
        tell("run.rescued", run="r1", how="restart")
        try:
            raise ValueError("inside")
        except ValueError as error:
            tell("agent.raised", run="r2", error=error)
    finally:
        detach()
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert '"how": "restart"' in lines[0]
    assert '"level": "warning"' in lines[1]
    assert "ValueError: inside" in lines[1]


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    yield exporter
    provider.shutdown()


async def test_turns_are_counted_and_traced(tmp_path: Path, spans: InMemorySpanExporter) -> None:
    reader = InMemoryMetricReader()
    metrics.set_meter_provider(MeterProvider([reader]))
    detach = otel.configure()
    try:
        async with serving(tmp_path, [echo]) as server, Client(server.agent("echo")) as client:
            task = (await client.send("hi"))["task"]["id"]
            await server.exchange.execution.close()
    finally:
        detach()
    (span,) = spans.get_finished_spans()
    assert span.attributes is not None
    assert (span.name, span.attributes["parley.run"], span.attributes["state"]) == ("turn", task, "completed")
    data = reader.get_metrics_data()
    assert data is not None
    points = data.resource_metrics[0].scope_metrics[0].metrics[0].data.data_points
    assert [dict(point.attributes or {})["name"] for point in points] == ["turn.ended"]

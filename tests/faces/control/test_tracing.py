"""Trace headers at the runtime contract: taken, told back, and with the work."""

from contextlib import aclosing

import httpx2
import pytest

from parley import telemetry
from parley.client.control import RuntimeClient
from parley.ids import RunId
from parley.runs.rules.events import InputReceived
from parley.runs.streams import read_all
from parley.testing.servers import Server
from tests.faces.control.wire import THREAD, Json, Wire, until

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SENT = {"traceparent": TRACE, "tracestate": "vendor=1", "x-request-id": "req-7"}


async def test_trace_headers_are_told_back_also_with_a_refusal_and_a_stream(wire: Wire) -> None:
    run = await wire.new_run()
    for path, status in (
        ("/health", 200), (f"/runs/{run}/snapshot", 400), (f"/runs/{run}/stream?thread_id={THREAD}&tail_ms=1", 200),
    ):  # fmt: skip
        reply = await wire.get(path, headers=SENT)
        assert reply.status_code == status
        assert {name: reply.headers[name] for name in SENT} == SENT


async def test_the_trace_of_a_frame_is_kept_with_it(server: Server, wire: Wire) -> None:
    run = await wire.new_run()
    await wire.frame(run, {"frame_id": "f"}, headers=SENT)
    log = await read_all(server.exchange.store, RunId(run))
    [trace] = [event.payload.trace for event in log if isinstance(event.payload, InputReceived)]
    assert trace is not None
    assert (trace.traceparent, trace.tracestate, trace.request_id) == tuple(SENT.values())


@pytest.mark.usefixtures("server")
async def test_every_kind_of_request_is_a_span(wire: Wire, client: RuntimeClient) -> None:
    spans: list[Json] = []
    detach = telemetry.attach(lambda name, fields: spans.append(fields) if name == "span.ended" else None)
    try:
        run = await wire.new_run()
        await wire.frame(run, {"frame_id": "f"}, headers=SENT)
        await until(client, run, "run.input_required")
        await client.snapshot(run, THREAD)
        async with aclosing(client.stream(run, THREAD, tail_ms=1)) as events:
            assert [event async for event in events] == []
        await wire.post("/tools/execute", {})
        await client.cancel(run, THREAD)
    finally:
        detach()
    names = {span["name"] for span in spans}
    assert {"runtime.ingest", "runtime.infer", "runtime.persist", "runtime.stream", "runtime.tool"} <= names
    [infer] = [span for span in spans if span["name"] == "runtime.infer"]
    assert infer["trace"].traceparent == TRACE


async def test_requests_are_counted_by_operation_and_never_by_run(server: Server, wire: Wire) -> None:
    run = await wire.new_run()
    await wire.get(f"/runs/{run}/snapshot?thread_id={THREAD}")
    async with httpx2.AsyncClient() as http:
        text = (await http.get(f"{server.url}/metrics")).text
    assert 'route="/internal/v1/runs/{run_id}/snapshot",status="200"' in text
    assert run not in text
    assert THREAD not in text

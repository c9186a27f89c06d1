"""Every operation of the contract, put together."""

from functools import cache, partial

from parley.faces.runtime.deliveries import Deliveries
from parley.faces.runtime.openapi import document
from parley.faces.runtime.requests import Reply, Request
from parley.faces.runtime.routes import Operation, Parameter, Routes, Stream, Streamed
from parley.faces.runtime.runs import MAX_KEY, Runs
from parley.faces.runtime.stream import DEFAULT_TAIL_MS, MAX_TAIL_MS, Tail
from parley.faces.runtime.tools import Tooling, ToolsAnswer, ToolsAsk
from parley.faces.runtime.words import (
    CancelAccepted,
    CancelAsk,
    DeliveryAccepted,
    DeliveryEvent,
    FrameAccepted,
    Health,
    NewFrame,
    NewRun,
    Refusal,
    RunAccepted,
    Snapshot,
    StreamEvent,
)

THREAD = Parameter("thread_id", "query", {"type": "string", "minLength": 1}, "The run's thread.", required=True)
CURSOR = Parameter(
    "cursor", "query", {"type": "integer", "minimum": 0}, "Go on after the event of this number; 0 is the beginning."
)
LAST_EVENT = Parameter(
    "Last-Event-ID", "header", {"type": "integer", "minimum": 0}, "As `cursor`; if both are given they must match."
)
TAIL = Parameter(
    "tail_ms", "query", {"type": "integer", "minimum": 1, "default": DEFAULT_TAIL_MS},
    f"How long to stay open for what comes, in ms; more than {MAX_TAIL_MS} counts as that.",
)  # fmt: skip
KEY = Parameter(
    "Idempotency-Key", "header", {"type": "string", "minLength": 1, "maxLength": MAX_KEY},
    "Names a run that has no `run_id`.",
)  # fmt: skip


def routes(runs: Runs, tail: Tail, deliveries: Deliveries, tooling: Tooling, version: str) -> Routes:

    async def health(_: Request) -> Reply:
        return Reply(200, Health("ok", "openagents-runtime", version))

    async def stream(request: Request) -> Streamed:
        run = await runs.owned(request, request.thread_id())
        return partial(tail.write, request, run, await tail.open(request, run))

    async def openapi(_: Request) -> Reply:
        return Reply(200, described())

    refused = dict.fromkeys((400, 401, 403, 404), Refusal)
    operations = (
        Operation(
            "GET", "/health", "health", "Whether the service answers.", health, {200: Health, 401: Refusal},
        ),
        Operation(
            "POST", "/runs", "createRun", "Begin a run that takes frames until it is finished.", runs.create,
            {200: RunAccepted, 202: RunAccepted, **refused, 409: Refusal},
            span="runtime.ingest", body=NewRun, parameters=(KEY,), owner="user or guest",
        ),
        Operation(
            "GET", "/runs/{run_id}/snapshot", "snapshot", "Where a run stands.", runs.snapshot,
            {200: Snapshot, **refused},
            span="runtime.persist", parameters=(THREAD,), owner="user or guest",
        ),
        Operation(
            "POST", "/runs/{run_id}/frames", "appendFrame", "Give a run an input; once for each frame_id.", runs.frames,
            {200: FrameAccepted, 202: FrameAccepted, **refused, 409: Refusal},
            span="runtime.ingest", body=NewFrame, owner="user or guest",
        ),
        Operation(
            "GET", "/runs/{run_id}/stream", "stream", "What happens to a run, from any event on.", stream,
            {200: Stream(StreamEvent), **refused, 410: Refusal},
            span="runtime.stream", parameters=(THREAD, CURSOR, LAST_EVENT, TAIL), owner="user or guest",
        ),
        Operation(
            "POST", "/runs/{run_id}/cancel", "cancel", "Stop a run, durably and once.", runs.cancel,
            {200: CancelAccepted, 202: CancelAccepted, **refused, 500: Refusal},
            body=CancelAsk, owner="user or guest",
        ),
        Operation(
            "POST", "/comms/delivery-events", "ingestDelivery", "Keep a provider's delivery event, once.",
            deliveries.ingest, {200: DeliveryAccepted, 202: DeliveryAccepted, 400: Refusal, 401: Refusal, 409: Refusal},
            span="runtime.ingest", body=DeliveryEvent,
        ),
        Operation(
            "POST", "/tools/execute", "executeTool", "Use a tool of a tool pack, or replay its decision.",
            tooling.execute, {200: ToolsAnswer, 400: Refusal, 401: Refusal, 403: Refusal, 422: Refusal},
            span="runtime.tool", body=ToolsAsk, owner="user",
        ),
        Operation("GET", "/openapi.json", "openapi", "This document.", openapi, {200: dict, 401: Refusal}),
    )  # fmt: skip
    described = cache(partial(document, operations, version))
    return Routes(operations)

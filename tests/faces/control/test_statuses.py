"""Every status that the contract gives to an operation is reached by a request, on every store."""

from typing import Any

import httpx2
import pytest
from msgspec import Struct

from parley.client.control import RuntimeClient
from parley.ids import RunId
from parley.testing.servers import Server
from tests.faces.control.test_deliveries import EVENT
from tests.faces.control.test_stream import forget
from tests.faces.control.test_tools import example
from tests.faces.control.wire import THREAD, Json, Wire, until_done

CONTRACT: dict[str, set[int]] = {
    "/health": {200, 401},
    "/comms/delivery-events": {200, 202, 400, 401, 409},
    "/tools/execute": {200, 400, 401, 403, 422},
    "/runs/{run_id}/snapshot": {200, 400, 401, 403, 404},
    "/runs/{run_id}/frames": {200, 202, 400, 401, 403, 404, 409},
    "/runs/{run_id}/stream": {200, 400, 401, 403, 404, 410},
    "/runs/{run_id}/cancel": {200, 202, 400, 401, 403, 404},
}
"""A cancel can also be answered 500, by a defect: no request leads there."""

CODES = {
    400: "invalid_request", 401: "unauthorized", 403: "forbidden", 404: "not_found", 409: "conflict",
    410: "stale_cursor", 422: "invalid_request",
}  # fmt: skip


class Ask(Struct, frozen=True):
    """`run` stands in the path for `{run_id}`; a body makes it a POST."""

    query: str = ""
    body: Json | None = None
    options: dict[str, Any] = {}
    run: str = "run_open"

    async def send(self, wire: Wire, path: str) -> httpx2.Response:
        asked = path.replace("{run_id}", self.run) + self.query
        return await wire.send("GET" if self.body is None else "POST", asked, self.body, **self.options)


HERE, ELSEWHERE = f"?thread_id={THREAD}", "?thread_id=other"
UNSIGNED, STRANGER = {"signed": False}, {"user": 7}
FRAME: Json = {"thread_id": THREAD, "frame_id": "f", "type": "user_message", "payload": {"text": "hi"}}
CANCEL: Json = {"thread_id": THREAD, "reason": "enough"}
TOOL = example(mode="replay")

TABLE: dict[str, dict[int, Ask]] = {
    "/health": {200: Ask(), 401: Ask(options=UNSIGNED)},
    "/comms/delivery-events": {
        202: Ask(body=EVENT),
        200: Ask(body=EVENT),
        400: Ask(body={**EVENT, "provider": "r"}),
        401: Ask(body=EVENT, options=UNSIGNED),
        409: Ask(body={**EVENT, "payload": {}}),
    },
    "/tools/execute": {
        200: Ask(body=TOOL),
        400: Ask(body={**TOOL, "tool_pack": "comms.v1"}),
        401: Ask(body=TOOL, options=UNSIGNED),
        403: Ask(body={**TOOL, "user_id": 7}),
        422: Ask(body={**TOOL, "manifest": {**TOOL["manifest"], "provider": "elsewhere"}}),
    },
    "/runs/{run_id}/snapshot": {
        200: Ask(HERE),
        400: Ask(),
        401: Ask(HERE, options=UNSIGNED),
        403: Ask(HERE, options=STRANGER),
        404: Ask(ELSEWHERE),
    },
    "/runs/{run_id}/frames": {
        202: Ask(body=FRAME),
        200: Ask(body=FRAME),
        400: Ask(body={}),
        401: Ask(body=FRAME, options=UNSIGNED),
        403: Ask(body=FRAME, options=STRANGER),
        404: Ask(body=FRAME, run="nothing"),
        409: Ask(body={**FRAME, "payload": {"text": "ho"}}),
    },
    "/runs/{run_id}/stream": {
        200: Ask(f"{HERE}&cursor=0&tail_ms=1"),
        400: Ask(f"{HERE}&tail_ms=0"),
        401: Ask(HERE, options=UNSIGNED),
        403: Ask(HERE, options=STRANGER),
        404: Ask(ELSEWHERE),
        410: Ask(f"{HERE}&cursor=0", run="run_forgotten"),
    },
    "/runs/{run_id}/cancel": {
        202: Ask(body=CANCEL),
        200: Ask(body=CANCEL),
        400: Ask(body={}),
        401: Ask(body=CANCEL, options=UNSIGNED),
        403: Ask(body=CANCEL, options=STRANGER),
        404: Ask(body={"thread_id": "other"}),
    },
}
"""In this order: what is asked twice is answered as the contract has it for the second time."""


@pytest.fixture
async def runs(server: Server, wire: Wire, client: RuntimeClient) -> None:
    """One that takes frames, and one of which the beginning is no longer kept."""
    await wire.new_run("run_open", agent="sleeper")
    await wire.new_run("run_forgotten")
    await client.finish("run_forgotten", THREAD)
    await until_done(client, "run_forgotten")
    await forget(server.exchange, RunId("run_forgotten"), 2)


@pytest.mark.usefixtures("runs")
async def test_every_status_of_the_contract_is_reached(wire: Wire) -> None:
    assert {path: set(asks) for path, asks in TABLE.items()} == CONTRACT
    for path, asks in TABLE.items():
        for status, ask in asks.items():
            reply = await ask.send(wire, path)
            assert reply.status_code == status, (path, status, reply.text)
            if status in CODES:
                assert reply.json()["error"]["code"] == CODES[status]

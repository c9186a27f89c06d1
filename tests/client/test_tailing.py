"""Following a task through servers that stop: nothing is left out at its end."""

import json
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from parley.client import Client
from parley.testing.servers import hosting

STATES = ["WORKING", "WORKING", "COMPLETED"]


class Stopping:
    """Its streams end after the first event, in good order; the task has ended by the time anybody asks."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        call = await request.json()
        reply = self._got(call) if call["method"] == "GetTask" else self._told(call, request.headers["last-event-id"])
        await reply(scope, receive, send)

    def _got(self, call: Any) -> Response:
        self.asked.append("get")
        status = {"state": "TASK_STATE_COMPLETED"}
        return JSONResponse({"jsonrpc": "2.0", "id": call["id"], "result": {"id": "t", "status": status}})

    def _told(self, call: Any, after: str) -> Response:
        self.asked.append(after)
        first = int(after) + 1
        last = min(first, len(STATES)) if len(self.asked) == 1 else len(STATES)
        events = [
            f"id: {seq}\ndata: {json.dumps({'jsonrpc': '2.0', 'id': call['id'], 'result': _update(seq)})}\n\n"
            for seq in range(first, last + 1)
        ]
        return StreamingResponse(iter(events), media_type="text/event-stream")


def _update(seq: int) -> Any:
    return {"statusUpdate": {"taskId": "t", "status": {"state": f"TASK_STATE_{STATES[seq - 1]}"}}}


async def test_what_happened_after_a_stream_was_closed_is_told_before_the_end() -> None:
    server = Stopping()
    async with hosting(server) as url, Client(url) as client:
        assert [seq async for seq, _ in client.tail("t", 0)] == [1, 2, 3]
    assert server.asked == ["0", "get", "1"]


async def test_a_task_that_has_ended_before_has_nothing_more_to_tell() -> None:
    server = Stopping()
    async with hosting(server) as url, Client(url) as client:
        assert [seq async for seq, _ in client.tail("t", len(STATES))] == []
    assert server.asked[-1] == "3"

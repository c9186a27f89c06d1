"""Minimal stream server for comparison: uvicorn, and one coroutine that writes to all clients.

No log, no task, no cursor, no authentication, no check for disconnected clients: on SIGUSR1 the same bytes go to
every response that is open, and a comment when there was none for as long as our server allows.
"""

import argparse
import asyncio
import signal
from typing import Any

import uvicorn

KEEP_ALIVE_S = 3.0
COMMENT = b": keep-alive\n\n"
FIRST = b'id: 3\ndata: {"jsonrpc":"2.0","id":1,"result":{"task":{"id":"0199f9c4-2b7e-7cc5-9d0e-3f5a0f6f8a01"}}}\n\n'
FRAME = (
    b'id: 4\ndata: {"jsonrpc":"2.0","id":1,"result":{"statusUpdate":{"taskId":"0199f9c4-2b7e-7cc5-9d0e-3f5a0f6f8a01",'
    b'"contextId":"0199f9c4-2b7e-7cc5-9d0e-3f4b4ca3c3b2","status":{"state":"TASK_STATE_WORKING",'
    b'"timestamp":"2025-10-20T10:20:30.123Z","message":{"messageId":"0199f9c4-2b7e-7cc5-9d0e-3f5a0f6f8a01.e4",'
    b'"role":"ROLE_AGENT","parts":[{"text":"beat"}],"contextId":"0199f9c4-2b7e-7cc5-9d0e-3f4b4ca3c3b2",'
    b'"taskId":"0199f9c4-2b7e-7cc5-9d0e-3f5a0f6f8a01"}}}}}\n\n'
)
"""One of ours, byte for byte but for the ids."""


class Bare:
    def __init__(self) -> None:
        self._beat = asyncio.Event()
        self._sends: list[Any] = []
        self._writer: asyncio.Task[None] | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["method"] != "POST":
            await send({"type": "http.response.start", "status": 404, "headers": [(b"content-length", b"0")]})
            return await send({"type": "http.response.body", "body": b""})
        if self._writer is None:
            asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, self._beat.set)
            self._writer = asyncio.create_task(self._write())
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send(_body(FIRST))
        self._sends.append(send)
        return await asyncio.get_running_loop().create_future()

    async def _write(self) -> None:
        while True:
            try:
                await asyncio.wait_for(self._beat.wait(), KEEP_ALIVE_S)
                message = _body(FRAME)
            except TimeoutError:
                message = _body(COMMENT)
            self._beat.clear()
            for send in self._sends:
                await send(message)


def _body(body: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": True}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    port: int = parser.parse_args().port
    uvicorn.run(
        Bare(), host="127.0.0.1", port=port, loop="uvloop", http="httptools", ws="none", lifespan="off",
        log_level="warning", access_log=False, server_header=False, proxy_headers=False, timeout_graceful_shutdown=1,
    )  # fmt: skip


if __name__ == "__main__":
    main()

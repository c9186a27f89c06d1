"""Keeps a client that waits for one JSON answer from giving up: spaces come first, which JSON does not mind."""

import asyncio

from starlette.types import Send

from parley.faces.http import Headers, answer
from parley.faces.sse import KEEP_ALIVE_S

_HEADERS = [(b"content-type", b"application/json"), (b"x-accel-buffering", b"no")]


class Patience:
    """Made when the waiting begins, and asked to answer when it ends. Costs a timer when the answer is quick.

    Once a space was sent the status is 200: for bindings whose errors are bodies.
    """

    def __init__(self, send: Send, *, held: bool = False) -> None:
        """`held`: nothing is sent before `start`, so that the status can still be any."""
        self._send = send
        self._filling: asyncio.Task[None] | None = None
        self.begun = False
        """Whether something was sent, so that the status is 200."""
        self._timer = None if held else asyncio.get_running_loop().call_later(KEEP_ALIVE_S, self.start)

    async def answer(self, status: int, body: bytes, headers: Headers | None = None) -> None:
        self.stop()
        if self._filling is not None:
            await asyncio.gather(self._filling, return_exceptions=True)
        if not self.begun:
            return await answer(self._send, status, body, headers)
        return await self._send({"type": "http.response.body", "body": body})

    def stop(self) -> None:
        """Nobody is left to answer."""
        if self._timer is not None:
            self._timer.cancel()
        if self._filling is not None:
            self._filling.cancel()

    def start(self) -> None:
        """Begin the answer, with status 200."""
        self._filling = asyncio.get_running_loop().create_task(self._fill())

    async def _fill(self) -> None:
        self.begun = True
        await self._send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        while True:
            await self._send({"type": "http.response.body", "body": b" ", "more_body": True})
            await asyncio.sleep(KEEP_ALIVE_S)

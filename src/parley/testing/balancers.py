"""A plain TCP balancer: each connection goes to the next server that takes it."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

PIECE = 65536


class Balancer:
    """`servers` may change at any time; connections that are open stay where they are."""

    def __init__(self, servers: list[str]) -> None:
        self.servers = servers
        self.url = ""
        self._turn = 0
        self._open: set[asyncio.Task[None]] = set()

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        there = None
        try:
            if (there := await self._next()) is not None:
                await asyncio.gather(_pass_on(reader, there[1]), _pass_on(there[0], writer))
        except asyncio.CancelledError:
            # Only `close` does that; asyncio would log it as something nobody expected.
            return
        finally:
            self._open.discard(task)
            for one in (writer, there[1]) if there is not None else (writer,):
                one.close()

    async def _next(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        """None when nobody takes it: the client finds the connection closed."""
        for _ in range(len(self.servers)):
            self._turn += 1
            place = urlsplit(self.servers[self._turn % len(self.servers)])
            with suppress(OSError):
                return await asyncio.open_connection(place.hostname, place.port)
        return None

    async def close(self) -> None:
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)


async def _pass_on(source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while piece := await source.read(PIECE):
            to.write(piece)
            await to.drain()
    with suppress(OSError, RuntimeError):
        to.close()


@asynccontextmanager
async def balancing(*servers: str) -> AsyncGenerator[Balancer, None]:
    balancer = Balancer(list(servers))
    listener = await asyncio.start_server(balancer.connected, "127.0.0.1", 0)
    balancer.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    try:
        yield balancer
    finally:
        listener.close()
        await balancer.close()

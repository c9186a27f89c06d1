"""A plain TCP balancer: each connection goes to the next server that takes it."""

import asyncio
import socket
import struct
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
        self._open: dict[asyncio.Task[None], list[asyncio.StreamWriter]] = {}
        self._left: list[asyncio.StreamWriter] = []
        """Ends of connections that nobody passes on any more, and nobody has closed."""

    @property
    def open(self) -> int:
        """How many connections are passed on."""
        return len(self._open)

    def cut(self, share: float = 1.0) -> int:
        """Reset that share of the connections, the oldest first; how many."""
        ended = self._taken(share)
        for writer in ended:
            # With nothing to linger for the system says that it was reset, and not that it came to its end.
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        return len(ended) // 2

    def forget(self, share: float = 1.0) -> int:
        """As a router that lost its table: nothing is passed on, and nobody is told. How many."""
        ended = self._taken(share)
        self._left += ended
        return len(ended) // 2

    def _taken(self, share: float) -> list[asyncio.StreamWriter]:
        whole = [task for task, ends in self._open.items() if len(ends) == 2]
        taken = whole[: round(len(whole) * share)]
        ends = [end for task in taken for end in self._open.pop(task)]
        for task in taken:
            task.cancel()
        return ends

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        ends = self._open[task] = [writer]
        try:
            if (there := await self._next()) is not None:
                ends.append(there[1])
                await asyncio.gather(_pass_on(reader, there[1]), _pass_on(there[0], writer))
        except asyncio.CancelledError:
            # Only we do that; asyncio would log it as something nobody expected.
            return
        finally:
            # What was taken out of `_open` is somebody else's to close.
            for end in self._open.pop(task, ()):
                end.close()

    async def _next(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        """None when nobody takes it: the client finds the connection closed."""
        for _ in range(len(self.servers)):
            self._turn += 1
            place = urlsplit(self.servers[self._turn % len(self.servers)])
            with suppress(OSError):
                return await asyncio.open_connection(place.hostname, place.port)
        return None

    async def close(self) -> None:
        for end in self._left:
            end.transport.abort()
        tasks = list(self._open)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


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

"""TCP balancer: each connection goes to the next server that accepts it."""

import asyncio
import socket
import struct
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

__all__ = ["Balancer", "balancing"]

PIECE = 65536


class Balancer:
    """Balances connections. `servers` may change at any time; open connections stay where they are."""

    def __init__(self, servers: list[str]) -> None:
        self.servers = servers
        self.url = ""
        self._turn = 0
        self._open: dict[asyncio.Task[None], list[asyncio.StreamWriter]] = {}
        self._left: list[asyncio.StreamWriter] = []
        """Ends of connections that are no longer forwarded and not yet closed."""

    @property
    def open(self) -> int:
        """Number of connections that are being forwarded."""
        return len(self._open)

    def cut(self, share: float = 1.0) -> int:
        """Reset this share of the connections, oldest first; return their number."""
        ended = self._taken(share)
        for writer in ended:
            # Without lingering the peer sees a reset, not an end. One end may have closed its socket already.
            with suppress(OSError):
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        return len(ended) // 2

    def forget(self, share: float = 1.0) -> int:
        """Stop forwarding this share of the connections without closing them, like a router that lost its table; return
        their number."""
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
            # Only our own code cancels this task; asyncio would log it as unexpected.
            return
        finally:
            # Connections that were removed from `_open` are closed by the code that removed them.
            for end in self._open.pop(task, ()):
                end.close()

    async def _next(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        """Connect to the next server; None if no server accepts, and then the client finds the connection closed."""
        for _ in range(len(self.servers)):
            self._turn += 1
            place = urlsplit(self.servers[self._turn % len(self.servers)])
            with suppress(OSError):
                return await asyncio.open_connection(place.hostname, place.port)
        return None

    async def close(self) -> None:
        """Close all connections."""
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
    """Balance between servers on a free port until the block ends."""
    balancer = Balancer(list(servers))
    listener = await asyncio.start_server(balancer.connected, "127.0.0.1", 0)
    balancer.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    try:
        yield balancer
    finally:
        listener.close()
        await balancer.close()

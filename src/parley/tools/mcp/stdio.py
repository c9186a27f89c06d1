"""A server that is a program: a line is a message. It ends with its session, and with everything it started."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from types import TracebackType

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from parley.processes.programs import Program, Running, running
from parley.tools.mcp.bounds import Item
from parley.tools.mcp.faults import Flooded, Nonsense

MAX_UNREAD = 16 * 1024 * 1024
"""What may wait in our memory for a server that does not read."""


class Lines:
    """What the program writes. A line that does not begin as JSON is its chatter, and nobody's business."""

    def __init__(self, program: Running, most: int) -> None:
        self._program = program
        self._most = most
        self._buffer = bytearray()
        self._looked = 0

    async def receive(self) -> Item:
        while not (line := await self._line()).startswith(b"{"):
            if line:
                return ValueError("chatter")
        try:
            return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
        except ValueError:
            raise Nonsense("The server sent what is no message of MCP.") from None

    async def aclose(self) -> None:
        """The program is not ours to end."""

    async def _line(self) -> bytes:
        while (end := self._buffer.find(b"\n", self._looked)) < 0:
            self._looked = len(self._buffer)
            if self._looked > self._most:
                raise Flooded(f"The server's answer is longer than {self._most:,} bytes.")
            chunk = await self._program.read()
            if not chunk:
                raise anyio.EndOfStream
            self._buffer += chunk
        line = bytes(self._buffer[:end]).strip()
        del self._buffer[: end + 1]
        self._looked = 0
        return line


class Writing:
    """What the program reads. Nobody waits for it: what it does not read has a limit."""

    def __init__(self, program: Running) -> None:
        self._program = program

    async def send(self, item: SessionMessage, /) -> None:
        line = item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        if not self._program.say(line, MAX_UNREAD):
            raise anyio.BrokenResourceError
        await asyncio.sleep(0)

    async def aclose(self) -> None:
        """The program is not ours to end."""

    async def __aenter__(self) -> "Writing":
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        await self.aclose()


@asynccontextmanager
async def started(
    program: Program, env: Mapping[str, str], most: int
) -> AsyncGenerator[tuple[Lines, Writing, Running], None]:
    """OSError when there is no such program."""
    async with running(program, env, None) as process:
        yield Lines(process, most), Writing(process), process

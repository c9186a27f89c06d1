"""One life of a server's connection: opened as its definition says, and bounded."""

import asyncio
import logging
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import cast

import anyio
from httpx2 import HTTPError
from mcp.client import Transport
from mcp.shared._stream_protocols import WriteStream
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types import CONNECTION_CLOSED

from parley.core.mcp import McpServer
from parley.core.sanitising import preview
from parley.errors import OutboundRefused
from parley.processes.programs import Program, Running
from parley.security.netguard import not_resolved
from parley.tools.mcp.bounds import Bounded, Source, wire_limit
from parley.tools.mcp.faults import Fault, NotStarted
from parley.tools.mcp.http import reached
from parley.tools.mcp.secrets import resolved, without
from parley.tools.mcp.stdio import started
from parley.tools.mcp.words import OpenTransport

STOP_S = 1.0
INHERITED = ("HOME", "LANG", "LC_ALL", "PATH", "TMPDIR", "TZ", "USER")
"""What a program learns of our environment beside what its definition says."""
MAX_SAID = 400

# The library logs what servers say, and a server may repeat a secret; what matters is told by us.
logging.getLogger("mcp").addHandler(logging.NullHandler())
logging.getLogger("mcp").propagate = False

Streams = tuple[Bounded, WriteStream[SessionMessage]]


class Link:
    """The connection, from its opening to its end."""

    def __init__(self, server: McpServer, open_transport: OpenTransport) -> None:
        self._server = server
        self._open_transport = open_transport
        self.secrets: list[str] = []
        self.messages: Bounded | None = None
        self._program: Running | None = None
        self._faults: list[Fault] = []

    @property
    def said(self) -> str:
        """The last of what a program said to its operator, as a log may show it."""
        if self._program is None:
            return ""
        return preview(without(self.secrets, self._program.stderr)[-MAX_SAID:], most=MAX_SAID)

    @property
    def fault(self) -> Fault | None:
        """Why it broke, if it did."""
        found = [*self._faults, *([self.messages.fault] if self.messages and self.messages.fault else [])]
        return found[0] if found else None

    @property
    def ended(self) -> asyncio.Event:
        assert self.messages is not None
        return self.messages.ended

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[Streams, None]:
        async with self._by_address() if self._server.url is not None else self._by_program() as streams:
            yield streams

    def transport(self) -> Transport:
        return cast(Transport, self.opened())

    @asynccontextmanager
    async def _by_program(self) -> AsyncGenerator[Streams, None]:
        given, self.secrets = resolved(self._server.env)
        env = {name: os.environ[name] for name in INHERITED if name in os.environ}
        program = Program(self._server.run, self._server.cwd, grace_s=STOP_S)
        async with started(program, {**env, **given}, wire_limit(self._server.max_output_bytes)) as (
            lines, writing, self._program,
        ):  # fmt: skip
            self.messages = Bounded(lines)
            yield self.messages, writing

    @asynccontextmanager
    async def _by_address(self) -> AsyncGenerator[Streams, None]:
        assert self._server.url is not None
        headers, self.secrets = resolved(self._server.headers)
        most = wire_limit(self._server.max_output_bytes)
        async with reached(self._server.url, headers, most, self._open_transport, self._faults.append) as streams:
            self.messages = Bounded(cast(Source, streams[0]))
            yield self.messages, streams[1]


def words(error: BaseException, link: Link) -> Fault:
    """Why a server could not be started or reached, whatever the library made of it."""
    match _innermost(error):
        case MCPError(code=code) if code == CONNECTION_CLOSED:
            return NotStarted(link.fault.message if link.fault else "The server ended before it introduced itself.")
        case Fault() as fault:
            return fault if isinstance(fault, NotStarted) else NotStarted(fault.message)
        case OutboundRefused() as refused:
            return NotStarted(refused.message)
        case TimeoutError():
            return NotStarted("The server did not introduce itself in time.")
        case MCPError() as said:
            return NotStarted(f"The server refused to begin: {said.message[:MAX_SAID]}")
        case HTTPError() as failed:
            known = "has no address" if not_resolved(failed) else "cannot be reached"
            return NotStarted(f"The server {known}.")
        case OSError() | anyio.BrokenResourceError() | anyio.ClosedResourceError():
            return NotStarted("The server cannot be started.")
        case other:
            return NotStarted(f"The server could not be used ({type(other).__name__}).")


def _innermost(error: BaseException) -> BaseException:
    """Of a group of errors the first that is not merely its consequence."""
    while isinstance(error, BaseExceptionGroup):
        found = cast("BaseExceptionGroup[BaseException]", error).exceptions
        error = next((one for one in found if not isinstance(one, asyncio.CancelledError)), found[0])
    return error

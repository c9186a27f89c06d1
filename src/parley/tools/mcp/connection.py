"""One connection to an MCP server: opened as its definition says, with limits."""

import asyncio
import logging
import os
import re
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import anyio
from httpx2 import HTTPError
from mcp.client import Transport
from mcp.shared._stream_protocols import WriteStream
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types import CONNECTION_CLOSED

from parley.errors import OutboundRefused
from parley.json_values import Json
from parley.processes.programs import Program, Running
from parley.security.netguard import not_resolved
from parley.tools.mcp.errors import McpError, NotStarted, OpenTransport
from parley.tools.mcp.transports import Bounded, MessageSource, reached, started, wire_limit
from parley.tools.rules.mcp import McpServer
from parley.tools.rules.redaction import REDACTED, preview

# Secrets that a definition refers to: read from environment variables and files, and removed from every text.

_REFERENCE = re.compile(r"\$\{(file:)?([^}]+)\}")
LEAST = 4
"""Shorter values do not count as secrets: removing them would damage every text."""


def resolved(values: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return the current values, and the parts of them that are secret."""
    found: list[str] = []

    def looked_up(match: re.Match[str]) -> str:
        value = _from_file(match[2]) if match[1] else _from_environment(match[2])
        found.append(value)
        return value

    return {name: _REFERENCE.sub(looked_up, value) for name, value in values.items()}, found


def without(secrets: Iterable[str], text: str) -> str:
    for secret in secrets:
        if len(secret) >= LEAST:
            text = text.replace(secret, REDACTED)
    return text


def without_in(secrets: Iterable[str], value: Json) -> Json:
    """Remove secrets anywhere in a value."""
    kept = [secret for secret in secrets if len(secret) >= LEAST]
    return _cleaned(kept, value) if kept else value


def _cleaned(secrets: list[str], value: Json) -> Json:
    match value:
        case str():
            return without(secrets, value)
        case list():
            return [_cleaned(secrets, one) for one in value]
        case dict():
            return {without(secrets, name): _cleaned(secrets, one) for name, one in value.items()}
        case _:
            return value


def _from_environment(name: str) -> str:
    value = os.environ.get(name, "").strip()
    if not value:
        raise NotStarted(f"The environment variable {name} is not set.")
    return value


def _from_file(path: str) -> str:
    try:
        value = Path(path).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise NotStarted(f"The secret file {Path(path).name} cannot be read ({type(error).__name__}).") from None
    if not value:
        raise NotStarted(f"The secret file {Path(path).name} is empty.")
    return value


STOP_S = 1.0
INHERITED = ("HOME", "LANG", "LC_ALL", "PATH", "TMPDIR", "TZ", "USER")
"""Environment variables that a program gets from the server, beside those of its definition."""
MAX_SAID = 400

# The library logs what servers send, and a server may repeat a secret. Parley logs what matters itself.
logging.getLogger("mcp").addHandler(logging.NullHandler())
logging.getLogger("mcp").propagate = False

Streams = tuple[Bounded, WriteStream[SessionMessage]]


class McpConnection:
    """The connection, from its opening to its end."""

    def __init__(self, server: McpServer, open_transport: OpenTransport) -> None:
        self._server = server
        self._open_transport = open_transport
        self.secrets: list[str] = []
        self.messages: Bounded | None = None
        self._program: Running | None = None
        self._faults: list[McpError] = []

    @property
    def said(self) -> str:
        """Return the end of a program's standard error, safe for a log."""
        if self._program is None:
            return ""
        return preview(without(self.secrets, self._program.stderr)[-MAX_SAID:], most=MAX_SAID)

    @property
    def fault(self) -> McpError | None:
        """The error that broke the connection, if it is broken."""
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
            lines,
            writing,
            self._program,
        ):
            self.messages = Bounded(lines)
            yield self.messages, writing

    @asynccontextmanager
    async def _by_address(self) -> AsyncGenerator[Streams, None]:
        assert self._server.url is not None
        headers, self.secrets = resolved(self._server.headers)
        most = wire_limit(self._server.max_output_bytes)
        async with reached(self._server.url, headers, most, self._open_transport, self._faults.append) as streams:
            self.messages = Bounded(cast(MessageSource, streams[0]))
            yield self.messages, streams[1]


def words(error: BaseException, link: McpConnection) -> McpError:
    """Return the reason why a server could not be started or reached, whatever error the library raised."""
    match _innermost(error):
        case MCPError(code=code) if code == CONNECTION_CLOSED:
            return NotStarted(link.fault.message if link.fault else "The server ended before it was initialized.")
        case McpError() as fault:
            return fault if isinstance(fault, NotStarted) else NotStarted(fault.message)
        case OutboundRefused(details={"why": "private_address" | "metadata_endpoint"}):
            # The error names the server, but callers must not see its address.
            return NotStarted(
                "The server's address is not public. An operator can allow it with the setting allow_hosts."
            )
        case OutboundRefused() as refused:
            return NotStarted(refused.message)
        case TimeoutError():
            return NotStarted("The server was not initialized in time.")
        case MCPError() as said:
            return NotStarted(f"The server refused to initialize: {said.message[:MAX_SAID]}")
        case HTTPError() as failed:
            known = "has a host name that cannot be resolved" if not_resolved(failed) else "cannot be reached"
            return NotStarted(f"The server {known}.")
        case OSError() | anyio.BrokenResourceError() | anyio.ClosedResourceError():
            return NotStarted("The server cannot be started.")
        case other:
            return NotStarted(f"The server could not be used ({type(other).__name__}).")


def _innermost(error: BaseException) -> BaseException:
    """Return the first error of a group that is not merely a consequence of another."""
    while isinstance(error, BaseExceptionGroup):
        found = cast("BaseExceptionGroup[BaseException]", error).exceptions
        error = next((one for one in found if not isinstance(one, asyncio.CancelledError)), found[0])
    return error

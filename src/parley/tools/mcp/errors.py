"""Errors of MCP servers and the states of a session.

A module without the MCP library, which is slow to load and may be missing.
"""

from collections.abc import Callable
from typing import Literal

import httpx2

State = Literal["idle", "starting", "ready", "failed", "ended"]
OpenTransport = Callable[[], httpx2.AsyncBaseTransport]
FaultCode = Literal[
    "server_unavailable",
    "server_gone",
    "server_stopped",
    "output_too_large",
    "bad_answer",
    "tool_error",
    "tool_timeout",
]


class McpError(Exception):
    """Error of an MCP server. `ill`: it counts as a failure of the server. `unsent`: the call had no effect."""

    code: FaultCode = "server_gone"
    ill = True
    unsent = False

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class NotStarted(McpError):
    """The server cannot be started or reached, or did not complete its initialization."""

    code = "server_unavailable"
    unsent = True


class Gone(McpError):
    """The server or its connection ended during the call."""


class Flooded(McpError):
    """The server sent more than its limit."""

    code = "output_too_large"


class Nonsense(McpError):
    """The server sent something that is not valid MCP."""

    code = "bad_answer"

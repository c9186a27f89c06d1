"""Why a server of tools gave no answer. The words are for the one who asked."""

from typing import Literal

FaultCode = Literal[
    "server_unavailable",
    "server_gone",
    "server_stopped",
    "output_too_large",
    "bad_answer",
    "tool_error",
    "tool_timeout",
]


class Fault(Exception):
    """`ill`: whether it says something about the server. `unsent`: whether nothing can have been done."""

    code: FaultCode = "server_gone"
    ill = True
    unsent = False

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class NotStarted(Fault):
    """The server cannot be started or reached, or never finished its introduction."""

    code = "server_unavailable"
    unsent = True


class Gone(Fault):
    """The server ended, or its connection did, with the call under way."""


class Flooded(Fault):
    """The server sent more than it may."""

    code = "output_too_large"


class Nonsense(Fault):
    """The server sent what is no MCP."""

    code = "bad_answer"

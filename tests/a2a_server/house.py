"""Helpers of the contract's tests for a server, with the built-in kernel or with Agent-Zero."""

from pathlib import PurePath
from typing import Protocol

from tests.a2a_server.wire import Wire


class House(Protocol):
    wire: Wire
    shared: PurePath
    """A folder that the organisation may touch."""
    why: str
    """Reason given in an emergency."""

    def put(self, name: str, content: str) -> None:
        """Put a file there."""
        ...

    async def begun(self, task: str) -> None:
        """Wait until a long task is at work."""
        ...

    async def dawn(self, task: str) -> None:
        """Let a long task come to its end."""
        ...

    async def at_rest(self, task: str) -> None:
        """Wait until nothing of a task is at work any more."""
        ...

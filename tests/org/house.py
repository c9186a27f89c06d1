"""What the contract's tests need of a server, whoever does its work."""

from pathlib import PurePath
from typing import Protocol

from tests.org.wire import Wire


class House(Protocol):
    wire: Wire
    shared: PurePath
    """A folder that the organisation may touch."""
    why: str
    """What an emergency gives as its reason."""

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

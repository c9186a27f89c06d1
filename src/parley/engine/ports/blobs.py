"""Bytes of any size, beside the log."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Protocol


class Blobs(Protocol):
    """Bytes found by their content."""

    async def put(self, content: bytes) -> str:
        """Keep it durably; its sha256 in hex."""
        ...

    async def put_file(self, path: Path) -> str:
        """The same for a file of any size, which is never held in memory."""
        ...

    async def get(self, sha256: str) -> bytes: ...

    def stream(self, sha256: str) -> AsyncGenerator[bytes, None]:
        """Piece by piece. The last piece is given only when all of them together are what was put: a damaged blob
        breaks off."""
        ...


class PassingBlobs(Blobs, Protocol):
    """Bytes that are kept for a while only, apart from those that logs refer to."""

    async def delete(self, sha256: str) -> None:
        """Forget it; it need not be there."""
        ...

    async def forget(self, before: int) -> int:
        """Forget what was put before a time (ms); how many."""
        ...

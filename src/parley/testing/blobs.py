"""Contract suite of blob stores. Subclass it and give it a `blobs` fixture:

class TestMyBlobs(BlobsContract):
    @pytest.fixture
    async def blobs(self):
        ...
"""

import hashlib
import os
import time
from pathlib import Path

import pytest

from parley.errors import NotFound
from parley.runs.attachments import PassingBlobs

__all__ = ["BlobsContract"]

NOBODY = "0" * 64
LARGE = 3_000_000


class BlobsContract:
    """Tests that every blob store passes."""

    async def test_blobs_are_found_by_their_content(self, blobs: PassingBlobs) -> None:
        first, again = await blobs.put(b"content"), await blobs.put(b"content")
        assert first == again == hashlib.sha256(b"content").hexdigest()
        assert await blobs.get(first) == b"content"
        with pytest.raises(NotFound):
            await blobs.get(NOBODY)

    async def test_a_file_is_put_and_got_piece_by_piece(self, blobs: PassingBlobs, tmp_path: Path) -> None:
        path, content = tmp_path / "file", os.urandom(LARGE)
        path.write_bytes(content)
        name = await blobs.put_file(path)
        assert name == hashlib.sha256(content).hexdigest()
        pieces = [piece async for piece in blobs.stream(name)]
        assert b"".join(pieces) == content == await blobs.get(name)
        with pytest.raises(NotFound):
            _ = [piece async for piece in blobs.stream(NOBODY)]

    async def test_an_empty_file_is_a_file(self, blobs: PassingBlobs, tmp_path: Path) -> None:
        (tmp_path / "empty").touch()
        name = await blobs.put_file(tmp_path / "empty")
        assert b"".join([piece async for piece in blobs.stream(name)]) == b""

    async def test_what_is_deleted_is_gone_and_the_rest_is_not(self, blobs: PassingBlobs) -> None:
        one, other = await blobs.put(b"one"), await blobs.put(b"other")
        for _ in range(2):
            await blobs.delete(one)
        with pytest.raises(NotFound):
            await blobs.get(one)
        assert await blobs.get(other) == b"other"

    async def test_what_is_old_is_forgotten(self, blobs: PassingBlobs) -> None:
        names = [await blobs.put(b"%d" % number) for number in range(5)]
        now = int(time.time() * 1000)
        assert await blobs.forget(now - 60_000) == 0
        assert await blobs.get(names[4]) == b"4"
        assert await blobs.forget(now + 60_000) == 5
        with pytest.raises(NotFound):
            await blobs.get(names[0])

"""Every place for bytes passes the same contract."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from parley.errors import ConfigurationError, StoreUnavailable
from parley.runs.attachments import PassingBlobs
from parley.stores.blobs import PIECE, below, open_blobs
from parley.testing.blobs import BlobsContract


class TestMemoryBlobs(BlobsContract):
    @pytest.fixture
    async def blobs(self) -> PassingBlobs:
        return open_blobs("memory:")


class TestDirectoryBlobs(BlobsContract):
    @pytest.fixture
    async def blobs(self, tmp_path: Path) -> PassingBlobs:
        return open_blobs(str(tmp_path / "blobs"))


class TestObjectBlobs(BlobsContract):
    @pytest.fixture
    async def blobs(self, tmp_path: Path) -> PassingBlobs:
        (tmp_path / "blobs").mkdir()
        return open_blobs(f"file://{tmp_path}/blobs")


async def _kept(pieces: AsyncIterator[bytes], got: list[bytes]) -> AsyncIterator[bytes]:
    async for piece in pieces:
        got.append(piece)
        yield piece


async def test_a_damaged_blob_is_not_handed_out(tmp_path: Path) -> None:
    blobs = open_blobs(str(tmp_path))
    name = await blobs.put(b"content" * PIECE)
    path = tmp_path / name[:2] / name[2:4] / name
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(StoreUnavailable, match="damaged"):
        await blobs.get(name)
    got: list[bytes] = []
    with pytest.raises(StoreUnavailable, match="damaged"):
        got.extend([piece async for piece in _kept(blobs.stream(name), got)])
    assert 0 < sum(map(len, got)) < 7 * PIECE


def test_a_blob_location_that_cannot_be_used_says_so() -> None:
    with pytest.raises(ConfigurationError, match="nowhere://"):
        open_blobs("nowhere://x")


def test_a_place_within_a_location() -> None:
    assert below("memory:", "exports") == "memory:"
    assert below("/data/blobs", "exports") == "/data/blobs/exports"
    assert below("s3://bucket", "exports") == "s3://bucket/exports"
    assert below("s3://bucket/prefix/?region=eu", "exports") == "s3://bucket/prefix/exports?region=eu"

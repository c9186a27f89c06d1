"""Content-addressed blobs, through obstore: a local directory, memory, S3, Google or Azure with the same code."""

import asyncio
import hashlib
import os
import re
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import BaseError
from obstore.store import LocalStore, MemoryStore, ObjectStore, from_url

from parley.errors import ConfigurationError, NotFound, StoreUnavailable
from parley.security.files import make_private_folder, restrict

PIECE = 256 * 1024
_FOLDER = re.compile(r"[0-9a-f]{2}")


class ObjectBlobs:
    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    async def put(self, content: bytes) -> str:
        sha256 = hashlib.sha256(content).hexdigest()
        await self._put(sha256, content)
        return sha256

    async def put_file(self, path: Path) -> str:
        sha256 = await asyncio.to_thread(_digest, path)
        await self._put(sha256, path)
        return sha256

    async def get(self, sha256: str) -> bytes:
        with _reading(sha256):
            found = await obstore.get_async(self._store, _path(sha256))
            content = bytes(await found.bytes_async())
        if hashlib.sha256(content).hexdigest() != sha256:
            raise StoreUnavailable(f"The blob {sha256} is damaged.")
        return content

    async def stream(self, sha256: str) -> AsyncGenerator[bytes, None]:
        digest, held = hashlib.sha256(), b""
        with _reading(sha256):
            found = await obstore.get_async(self._store, _path(sha256))
            async for piece in found.stream(min_chunk_size=PIECE):
                if held:
                    yield held
                held = bytes(piece)
                digest.update(held)
        if digest.hexdigest() != sha256:
            raise StoreUnavailable(f"The blob {sha256} is damaged.")
        yield held

    async def delete(self, sha256: str) -> None:
        await self._delete(_path(sha256))

    async def forget(self, before: int) -> int:
        gone = 0
        with _reading("list"):
            async for batch in obstore.list(self._store):  # pyright: ignore[reportUnknownMemberType]
                old = [one["path"] for one in batch if one["last_modified"].timestamp() * 1000 < before]
                for path in old:
                    await self._delete(path)
                gone += len(old)
        return gone

    async def _put(self, sha256: str, content: bytes | Path) -> None:
        try:
            await obstore.put_async(self._store, _path(sha256), content)
        except BaseError as error:
            raise StoreUnavailable("The blob store refused the write.") from error

    async def _delete(self, path: str) -> None:
        try:
            await obstore.delete_async(self._store, path)
        except FileNotFoundError:
            return
        except BaseError as error:
            raise StoreUnavailable("The blob store refused to delete.") from error


class DirectoryBlobs(ObjectBlobs):
    """Blobs in a local directory. An event that refers to a blob is durable, so the blob must be durable before it."""

    def __init__(self, directory: Path) -> None:
        make_private_folder(directory)
        # Each blob is below one of these folders, so their contents do not have to be checked.
        restrict(*(path for path in directory.iterdir() if _FOLDER.fullmatch(path.name)))
        super().__init__(LocalStore(str(directory.resolve())))
        self._directory = directory

    async def _put(self, sha256: str, content: bytes | Path) -> None:
        await super()._put(sha256, content)
        path = self._directory / _path(sha256)
        await asyncio.to_thread(_settle, path, self._directory)


def _settle(path: Path, directory: Path) -> None:
    """Make a written blob and the folders above it private and durable."""
    restrict(path.parent.parent, path.parent, path)
    _sync(path, path.parent, path.parent.parent, directory)


def _sync(*paths: Path) -> None:
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _reading(sha256: str) -> Generator[None, None, None]:
    try:
        yield
    except FileNotFoundError as error:
        raise NotFound(f"The blob {sha256} is gone.") from error
    except BaseError as error:
        raise StoreUnavailable("The blob store could not be read.") from error


def open_blobs(location: str) -> ObjectBlobs:
    """Open `memory:`, a directory, or a URL such as `s3://bucket/prefix` (credentials from the environment)."""
    if location == "memory:":
        return ObjectBlobs(MemoryStore())
    if "://" not in location:
        return DirectoryBlobs(Path(location))
    try:
        return ObjectBlobs(from_url(location))
    except (BaseError, ValueError) as error:
        raise ConfigurationError(f"Blob location {location!r} cannot be used: {error}") from error


def below(location: str, name: str) -> str:
    """Return a separate place within a location, for blobs that must not be mixed with the rest."""
    if location == "memory:":
        return location
    if "://" not in location:
        return str(Path(location) / name)
    parts = urlsplit(location)
    return parts._replace(path=f"{parts.path.rstrip('/')}/{name}").geturl()


def _path(sha256: str) -> str:
    return f"{sha256[:2]}/{sha256[2:4]}/{sha256}"

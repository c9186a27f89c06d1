"""Bytes found by their content, through obstore: a local directory, memory, S3, Google or Azure by the same code."""

import asyncio
import hashlib
import os
from pathlib import Path

import obstore
from obstore.exceptions import BaseError
from obstore.store import LocalStore, MemoryStore, ObjectStore, from_url

from parley.errors import ConfigurationError, NotFound, StoreUnavailable


class ObjectBlobs:
    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    async def put(self, content: bytes) -> str:
        sha256 = hashlib.sha256(content).hexdigest()
        try:
            await obstore.put_async(self._store, _path(sha256), content)
        except BaseError as error:
            raise StoreUnavailable("The blob store refused the write.") from error
        return sha256

    async def get(self, sha256: str) -> bytes:
        try:
            found = await obstore.get_async(self._store, _path(sha256))
            content = bytes(await found.bytes_async())
        except FileNotFoundError as error:
            raise NotFound(f"The blob {sha256} is gone.") from error
        except BaseError as error:
            raise StoreUnavailable("The blob store could not be read.") from error
        if hashlib.sha256(content).hexdigest() != sha256:
            raise StoreUnavailable(f"The blob {sha256} is damaged.")
        return content


class DirectoryBlobs(ObjectBlobs):
    """A directory on this machine. An event that refers to a blob is durable, so the blob has to be so before it."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        super().__init__(LocalStore(str(directory.resolve())))
        self._directory = directory

    async def put(self, content: bytes) -> str:
        sha256 = await super().put(content)
        path = self._directory / _path(sha256)
        await asyncio.to_thread(_sync, path, path.parent, path.parent.parent, self._directory)
        return sha256


def _sync(*paths: Path) -> None:
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def open_blobs(location: str) -> ObjectBlobs:
    """`memory:`, a directory, or a URL such as `s3://bucket/prefix` (credentials from the environment)."""
    if location == "memory:":
        return ObjectBlobs(MemoryStore())
    if "://" not in location:
        return DirectoryBlobs(Path(location))
    try:
        return ObjectBlobs(from_url(location))
    except (BaseError, ValueError) as error:
        raise ConfigurationError(f"Blob location {location!r} cannot be used: {error}") from error


def _path(sha256: str) -> str:
    return f"{sha256[:2]}/{sha256[2:4]}/{sha256}"

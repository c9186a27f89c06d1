"""Secrets at rest, encrypted with keys from a file. The database alone gives none of them away."""

import base64
import hmac
import os
import tempfile
from pathlib import Path

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from parley.errors import ConfigurationError
from parley.file_modes import make_private_folder
from parley.telemetry import tell

FILE = "secret.key"


class Secrets:
    """One key per line: the first encrypts, all of them decrypt. To rotate, put a new line on top."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._keys: MultiFernet | None = None

    def encrypt(self, secret: bytes) -> bytes:
        """The file is made when the first secret is kept."""
        self._made()
        return self._loaded().encrypt(secret)

    def decrypt(self, kept: bytes) -> bytes:
        try:
            return self._loaded().decrypt(kept)
        except InvalidToken:
            raise ConfigurationError(
                f"A stored secret was encrypted with a key that is not in {self._path}. All processes on one database "
                "need the same file: see the setting secret_key_file.",
                field="secret_key_file",
            ) from None

    def derived(self, purpose: str) -> list[bytes]:
        """A key for something else than encryption, one of each line: the first signs, all of them are believed."""
        self._made()
        lines = self._path.read_text("ascii").split()
        return [hmac.digest(base64.urlsafe_b64decode(line), purpose.encode(), "sha256") for line in lines]

    def _made(self) -> None:
        if self._keys is None and not self._path.exists():
            _make(self._path)
        self._loaded()

    def _loaded(self) -> MultiFernet:
        if self._keys is None:
            self._keys = _load(self._path)
        return self._keys


def new_key() -> str:
    """A line for the file."""
    return Fernet.generate_key().decode()


def _load(path: Path) -> MultiFernet:
    try:
        lines = path.read_text("ascii").split()
        readable = path.stat().st_mode & 0o077
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"The key file {path} cannot be read ({type(error).__name__}); without it no stored secret can be used.",
            field="secret_key_file",
        ) from None
    try:
        keys = MultiFernet([Fernet(line) for line in lines])
    except ValueError:
        raise ConfigurationError(
            f"The key file {path} must hold one or more keys, each 32 bytes in urlsafe base64, one per line.",
            field="secret_key_file",
        ) from None
    if readable:
        tell("secrets.readable_by_others", path=str(path))
    return keys


def _make(path: Path) -> None:
    """Written whole under another name first: of two processes that start together, one wins and both read the same."""
    make_private_folder(path.parent)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".secret-")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(new_key() + "\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(name, path)
        except FileExistsError:
            return
    finally:
        os.unlink(name)

"""Stored secrets, encrypted with keys from a file. The database alone does not reveal them."""

import base64
import hmac
import os
import secrets
import tempfile
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, urlencode

import msgspec
from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from msgspec import Struct

from parley.clock import Clock, now_ms
from parley.errors import ConfigurationError, CredentialTooLong, LinkExpired, LinkRefused
from parley.security.files import make_private_folder
from parley.telemetry import tell

__all__ = ["new_key"]

FILE = "secret.key"

S = TypeVar("S", bound=Struct)


class Secrets:
    """Encrypts with the first key of the file, decrypts with any; one key per line. To rotate, add a new first line."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._keys: MultiFernet | None = None

    def encrypt(self, secret: bytes) -> bytes:
        """Encrypt a secret. The key file is created with the first secret."""
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
        """Return keys for another purpose than encryption, one derived from each line: the first signs, all of them
        verify."""
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
    """Return a new key: one line of the file that the setting `secret_key_file` names."""
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
    """Create the key file. It is written under another name first: of two processes that start together, one wins and
    both read the same file."""
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


# Values that a browser keeps in a cookie and cannot read, which every replica with the same key file can.


class CookieSeal:
    """Encrypts and signs for one purpose with keys derived from the key file: the first line encrypts, every line
    decrypts."""

    def __init__(self, secrets: Secrets, purpose: str) -> None:
        self._secrets = secrets
        self._purpose = purpose
        self._known: tuple[MultiFernet, list[bytes]] | None = None

    @property
    def keys(self) -> list[bytes]:
        return self._loaded()[1]

    def sealed(self, value: Struct) -> str:
        return self._loaded()[0].encrypt(msgspec.msgpack.encode(value)).decode()

    def opened(self, sealed: str, kind: type[S], life_s: int) -> S | None:
        """Return a sealed value; None if it is not valid or older than `life_s`."""
        try:
            return msgspec.msgpack.decode(self._loaded()[0].decrypt(sealed, life_s), type=kind)
        except (InvalidToken, msgspec.MsgspecError):
            return None

    def _loaded(self) -> tuple[MultiFernet, list[bytes]]:
        if self._known is None:
            keys = self._secrets.derived(self._purpose)
            self._known = MultiFernet([Fernet(base64.urlsafe_b64encode(key)) for key in keys]), keys
        return self._known


PURPOSE = "parley.sessions.1"
MAX_CREDENTIAL = 2600
"""Browsers limit cookies to 4 KiB, and encryption adds a third to the size."""


class BrowserSession(Struct, frozen=True, array_like=True):
    nonce: str
    """Seed of the session's CSRF token."""
    credential: str = ""
    """Checked again with every request, so that a revoked credential stops working at once. Empty if none is needed."""
    token: str = ""
    """Token of the stored session; empty before sign-in, and in cookies that an older version made."""


# Why: docs/decisions/console.md#keep-the-session-in-a-sealed-cookie
class Sessions:
    """Browser sessions, sealed in a cookie."""

    def __init__(self, secrets: Secrets, life_s: int) -> None:
        self._seal = CookieSeal(secrets, PURPOSE)
        self.life_s = life_s

    def begin(self, credential: str = "", token: str = "") -> tuple[BrowserSession, str]:
        """Return a new session and its cookie."""
        check_length(credential)
        session = BrowserSession(secrets.token_urlsafe(18), credential, token)
        return session, self._seal.sealed(session)

    def opened(self, cookie: str) -> BrowserSession | None:
        """Return the session of a cookie; None if the cookie is not valid or too old."""
        return self._seal.opened(cookie, BrowserSession, self.life_s)

    def csrf(self, session: BrowserSession) -> str:
        return _token(self._seal.keys[0], session)

    def is_csrf(self, session: BrowserSession, token: str) -> bool:
        return any(hmac.compare_digest(_token(key, session).encode(), token.encode()) for key in self._seal.keys)


def check_length(credential: str) -> None:
    """Refuse a credential that no cookie can hold."""
    if len(credential.encode()) > MAX_CREDENTIAL:
        raise CredentialTooLong(f"A credential of more than {MAX_CREDENTIAL} bytes does not fit into a cookie.")


def _token(key: bytes, session: BrowserSession) -> str:
    return hmac.digest(key, b"csrf:" + session.nonce.encode(), "sha256").hex()


# Signed links that are valid for a while: any client that has one may use it, and no client can make or change one.

LINK_PURPOSE = "parley.links.1"


class Links:
    """Links, signed with a key of the key file, which all replicas share; the first line signs, every line verifies."""

    def __init__(self, secrets: Secrets, prefix: str, clock: Clock = now_ms) -> None:
        self._secrets = secrets
        self._prefix = prefix
        self._clock = clock
        self._keys: list[bytes] | None = None

    def link(self, id_: str, name: str, expires_at: int) -> str:
        """Return the URL after `prefix`; the time is in ms, and in the link in whole seconds."""
        expires = str(expires_at // 1000)
        signature = _signature(self._known()[0], self._prefix, id_, expires, name)
        return f"{self._prefix}{quote(id_, safe='')}?{urlencode({'name': name, 'exp': expires, 'sig': signature})}"

    # Why: docs/decisions/documents.md#check-the-signature-of-a-link-before-any-lookup
    def check(self, id_: str, name: str, expires: str, signature: str) -> None:
        """Check a link before anything is looked up for it."""
        ours = [_signature(key, self._prefix, id_, expires, name) for key in self._known()]
        if not any(hmac.compare_digest(one.encode(), signature.encode()) for one in ours):
            raise LinkRefused("This link is not valid: it was changed, or was not made by this server.")
        if int(expires) * 1000 <= self._clock():
            raise LinkExpired("This link has expired; export the conversation again.")

    def _known(self) -> list[bytes]:
        if self._keys is None:
            self._keys = self._secrets.derived(LINK_PURPOSE)
        return self._keys


def _signature(key: bytes, *parts: str) -> str:
    """Sign the parts, each with its length before it, so that no text can move from one part to the next."""
    message = b"".join(b"%d:%b" % (len(part.encode()), part.encode()) for part in parts)
    return base64.urlsafe_b64encode(hmac.digest(key, message, "sha256")).rstrip(b"=").decode()

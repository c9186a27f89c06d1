"""A browser's session: what it has shown, sealed in its own cookie, so that each replica knows it and none keeps it."""

import base64
import hmac
import secrets

import msgspec
from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from msgspec import Struct

from parley.errors import CredentialTooLong
from parley.security.secrets import Secrets

PURPOSE = "parley.sessions.1"
MAX_CREDENTIAL = 2600
"""Browsers keep cookies of 4 KiB, and a sealed one is a third longer than what is in it."""


class Session(Struct, frozen=True, array_like=True):
    nonce: str
    """What its CSRF token is made of."""
    credential: str = ""
    """Checked again with every request: who is locked out is locked out at once. Empty where none is needed."""


class Sessions:
    """Sealed with a key of the secrets' file: the first line seals, every line opens."""

    def __init__(self, secrets: Secrets, life_s: int) -> None:
        self._secrets = secrets
        self.life_s = life_s
        self._known: tuple[MultiFernet, list[bytes]] | None = None

    def begin(self, credential: str = "") -> tuple[Session, str]:
        """A session, and the cookie that says so."""
        if len(credential.encode()) > MAX_CREDENTIAL:
            raise CredentialTooLong(f"A credential of more than {MAX_CREDENTIAL} bytes does not fit into a cookie.")
        session = Session(secrets.token_urlsafe(18), credential)
        return session, self._keys()[0].encrypt(msgspec.msgpack.encode(session)).decode()

    def opened(self, cookie: str) -> Session | None:
        """None for a cookie that is not ours, or too old."""
        try:
            return msgspec.msgpack.decode(self._keys()[0].decrypt(cookie, self.life_s), type=Session)
        except (InvalidToken, msgspec.MsgspecError):
            return None

    def csrf(self, session: Session) -> str:
        return _token(self._keys()[1][0], session)

    def is_csrf(self, session: Session, token: str) -> bool:
        return any(hmac.compare_digest(_token(key, session).encode(), token.encode()) for key in self._keys()[1])

    def _keys(self) -> tuple[MultiFernet, list[bytes]]:
        if self._known is None:
            keys = self._secrets.derived(PURPOSE)
            self._known = MultiFernet([Fernet(base64.urlsafe_b64encode(key)) for key in keys]), keys
        return self._known


def _token(key: bytes, session: Session) -> str:
    return hmac.digest(key, b"csrf:" + session.nonce.encode(), "sha256").hex()

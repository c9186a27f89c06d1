"""Where a vendor's model is, the key that it takes, and what its faults mean to the one who asked."""

import os

import httpx2
from msgspec import Struct

from parley.errors import ModelError, ModelInterrupted, ModelNotSetUp, ModelUnavailable
from parley.security.replies import open_client

CONNECT_S = 10.0
MAX_BYTES = 16 * 1024 * 1024
"""The largest event of an answer, and the largest refusal."""
MAX_SAID = 500
NO_KEY = "none"
"""Sent where no key is asked for: the vendors' clients insist on one."""


class Endpoint(Struct, frozen=True):
    model: str
    base_url: str
    key_from: str | None
    """The environment variable that holds the key. It is read anew for every turn, and kept nowhere."""
    silence_s: float = 60.0
    """How long the vendor may say nothing."""
    retries: int = 2
    """How often the vendor's client asks again before the first word."""

    def key(self) -> str:
        if self.key_from is None:
            return NO_KEY
        key = os.environ.get(self.key_from, "").strip()
        if not key:
            raise ModelNotSetUp("This agent's model has no key; its operator has to set it up.", variable=self.key_from)
        return key

    def http(self) -> httpx2.AsyncClient:
        """One for each turn: to close it is to hang up. It follows no redirect, which could carry the key elsewhere."""
        return open_client(MAX_BYTES, timeout=self.timeout, follow_redirects=False)

    @property
    def timeout(self) -> httpx2.Timeout:
        return httpx2.Timeout(self.silence_s, connect=min(CONNECT_S, self.silence_s))

    def said(self, text: object) -> str:
        """What the vendor said, for the operator: short, and without the key, which some repeat."""
        plain = str(text)
        if self.key_from is not None and (key := os.environ.get(self.key_from, "").strip()):
            plain = plain.replace(key, "[key]")
        return plain[:MAX_SAID]

    def refused(self, status: int, said: object) -> ModelError:
        """The vendor answered with an error instead of a stream."""
        return _refusal(status)(_words(status), status=status, said=self.said(said))

    def unreachable(self, error: BaseException, *, late: bool) -> ModelError:
        message = "The model did not answer in time." if late else "The model cannot be reached."
        return ModelUnavailable(message, said=self.said(f"{type(error).__name__}: {error}"))

    def broken_off(self, said: object) -> ModelError:
        """The stream had begun, and did not come to its end."""
        return ModelInterrupted("The model's answer was broken off.", said=self.said(said))

    def nonsense(self, error: BaseException) -> ModelError:
        said = self.said(f"{type(error).__name__}: {error}")
        return ModelError("The model answered in a way that cannot be understood.", said=said)


def _refusal(status: int) -> type[ModelError]:
    if status in (401, 403, 404):
        return ModelNotSetUp
    return ModelUnavailable if status in (408, 409, 429) or status >= 500 else ModelError


def _words(status: int) -> str:
    if status in (401, 403, 404):
        return "This agent's model is not set up right; its operator has the details."
    if status == 429:
        return "The model is over its rate limit; try again later."
    if status >= 500 or status in (408, 409):
        return "The model is not available at the moment; try again later."
    return f"The model refused the request (HTTP {status})."

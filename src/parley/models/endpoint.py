"""Endpoint of a vendor's model: its URL, its API key, and the translation of its errors for callers."""

import os
from importlib import import_module

import httpx2
from msgspec import Struct

from parley import extras
from parley.errors import Invalid, ModelError, ModelInterrupted, ModelNotSetUp, ModelUnavailable
from parley.models.llm import Llm
from parley.models.offline import NAME as OFFLINE
from parley.models.offline import OfflineModel
from parley.security.outbound import open_client

CONNECT_S = 10.0
MAX_BYTES = 16 * 1024 * 1024
"""Maximum size of one event of an answer, and of an error response."""
MAX_SAID = 500
NO_KEY = "none"
"""Sent when the server needs no key, because the vendors' clients require one."""


class ModelEndpoint(Struct, frozen=True):
    model: str
    base_url: str
    key_from: str | None
    """Name of the environment variable that holds the key. It is read for each turn, and the key is not stored."""
    silence_s: float = 60.0
    """Longest time that the vendor may send nothing."""
    retries: int = 2
    """Number of times that the vendor's client retries before the answer starts."""

    def key(self) -> str:
        if self.key_from is None:
            return NO_KEY
        key = os.environ.get(self.key_from, "").strip()
        if not key:
            raise ModelNotSetUp("This agent's model has no API key; its operator must set it.", variable=self.key_from)
        return key

    def http(self) -> httpx2.AsyncClient:
        """Open a client for one turn; closing it ends the request. It follows no redirects, because a redirect could
        send the key to another host."""
        return open_client(MAX_BYTES, timeout=self.timeout, follow_redirects=False)

    @property
    def timeout(self) -> httpx2.Timeout:
        return httpx2.Timeout(self.silence_s, connect=min(CONNECT_S, self.silence_s))

    def said(self, text: object) -> str:
        """Return the vendor's text for the operator: shortened, and without the key, which some vendors repeat."""
        plain = str(text)
        if self.key_from is not None and (key := os.environ.get(self.key_from, "").strip()):
            plain = plain.replace(key, "[key]")
        return plain[:MAX_SAID]

    def refused(self, status: int, said: object) -> ModelError:
        """Return the error for a vendor that answered with an error instead of a stream."""
        return _refusal(status)(_words(status), status=status, said=self.said(said))

    def unreachable(self, error: BaseException, *, late: bool) -> ModelError:
        message = "The model did not answer in time." if late else "The model cannot be reached."
        return ModelUnavailable(message, said=self.said(f"{type(error).__name__}: {error}"))

    def broken_off(self, said: object) -> ModelError:
        """Return the error for a stream that started but did not finish."""
        return ModelInterrupted("The model's answer was interrupted.", said=self.said(said))

    def invalid_response(self, error: BaseException) -> ModelError:
        said = self.said(f"{type(error).__name__}: {error}")
        return ModelError("The model's answer is not valid.", said=said)


def _refusal(status: int) -> type[ModelError]:
    if status in (401, 403, 404):
        return ModelNotSetUp
    return ModelUnavailable if status in (408, 409, 429) or status >= 500 else ModelError


def _words(status: int) -> str:
    if status in (401, 403, 404):
        return "This agent's model is misconfigured; its operator has the details."
    if status == 429:
        return "The model is over its rate limit; try again later."
    if status >= 500 or status in (408, 409):
        return "The model is not available at the moment; try again later."
    return f"The model refused the request (HTTP {status})."


# Models by name: `openai:gpt-…`, `anthropic:claude-…`, `offline`.

_VENDORS = {
    "openai": ("parley.models.openai_compatible", "OpenAiCompatible"),
    "anthropic": ("parley.models.anthropic", "AnthropicModel"),
}


class ModelAccess(Struct, frozen=True):
    """URL and key of a vendor, if they differ from the defaults."""

    base_url: str | None = None
    key_from: str | None = None
    silence_s: float = 60.0
    retries: int = 2


# Why: docs/decisions/models-and-llm.md#send-no-vendors-key-to-another-server
def open_model(name: str, access: ModelAccess) -> Llm:
    """Return the model of this name, without calling it. Raises Invalid if the name is not valid."""
    if name == OFFLINE:
        return OfflineModel()
    vendor, _, model = name.partition(":")
    if vendor not in _VENDORS or not model:
        raise Invalid(f"must be openai:NAME, anthropic:NAME or offline, not {name!r}", field="model")
    module, adapter = _VENDORS[vendor]
    extras.check("llm", f"A model of {vendor}", vendor, field="model")
    found = import_module(module)
    # The vendor's default key goes only to the vendor's own URL; another server gets only a key named for it.
    key_from = access.key_from or (found.KEY_FROM if access.base_url is None else None)
    endpoint = ModelEndpoint(model, access.base_url or found.BASE_URL, key_from, access.silence_s, access.retries)
    return getattr(found, adapter)(endpoint)


def key_variable(llm: Llm) -> str | None:
    """Return the name of the environment variable with the model's key; None if it needs no key."""
    endpoint: object = getattr(llm, "endpoint", None)
    return endpoint.key_from if isinstance(endpoint, ModelEndpoint) else None

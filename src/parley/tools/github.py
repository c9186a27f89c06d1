"""Requests to one GitHub API, and to nobody else: every redirect is checked, and no other host sees the token."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import httpx2
import msgspec
from msgspec import Struct

from parley.core.policy import ReasonCode
from parley.errors import ConfigurationError, OutboundRefused
from parley.security.netguard import Outbound, Reply, not_resolved
from parley.telemetry import tell
from parley.telemetry.trace import current, headers_for

API = "https://api.github.com"
TIMEOUT_S = 10.0
MAX_BYTES = 1024 * 1024
MAX_REDIRECTS = 2
_REDIRECTS = (301, 302, 307, 308)
_UNSENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
_HEADERS = {"accept": "application/vnd.github+json", "x-github-api-version": "2022-11-28"}

Token = Callable[[], str]
"""The token to use now; empty for none."""


class Unanswered(Exception):
    """There is no answer. `effect`: whether the request may have had one all the same."""

    def __init__(
        self, message: str, reason_code: ReasonCode | None = None, effect: Literal["none", "unknown"] = "none"
    ) -> None:
        super().__init__(message)
        self.message = message
        self.reason_code: ReasonCode | None = reason_code
        self.effect: Literal["none", "unknown"] = effect


class Asked(Struct, frozen=True):
    method: Literal["GET", "POST"]
    path: tuple[str, ...]
    body: dict[str, str] | None = None


class GitHub:
    def __init__(self, outbound: Outbound, token: Token, api: str = API) -> None:
        self._outbound = outbound
        self._token = token
        self._api = _api(api)

    @property
    def host(self) -> str:
        return f"{self._api.host}:{_port(self._api)}"

    @property
    def has_token(self) -> bool:
        return bool(self._token())

    async def send(self, asked: Asked) -> Reply:
        """The answer, with the token taken out of it wherever it stands."""
        token = self._token()
        headers = {**headers_for(current()), **_HEADERS, **({"authorization": f"Bearer {token}"} if token else {})}
        content = None
        if asked.body is not None:
            content, headers = msgspec.json.encode(asked.body), {**headers, "content-type": "application/json"}
        reply = await self._followed(asked.method, self._url(asked.path), headers, content)
        return _without(token, reply) if token else reply

    async def _followed(self, method: str, url: httpx2.URL, headers: dict[str, str], content: bytes | None) -> Reply:
        """A moved repository is asked at its new place in the same way: GitHub wants it so, for writes too."""
        for _ in range(MAX_REDIRECTS + 1):
            reply = await self._once(method, url, headers, content)
            if reply.status not in _REDIRECTS:
                return reply
            url = self._next(url, reply.headers.get("location"))
        raise Unanswered("The provider redirects too often.", "ssrf_block.redirect_limit_exceeded")

    async def _once(self, method: str, url: httpx2.URL, headers: dict[str, str], content: bytes | None) -> Reply:
        try:
            return await self._outbound.send(
                method, str(url), headers=headers, content=content, timeout_s=TIMEOUT_S, max_bytes=MAX_BYTES
            )
        except OutboundRefused as error:
            raise Unanswered("The provider's address may not be called.", _blocked(error)) from None
        except _UNSENT as error:
            code: ReasonCode | None = "ssrf_block.dns_resolution_failed" if not_resolved(error) else None
            raise Unanswered("The provider cannot be reached.", code) from None
        except (httpx2.HTTPError, TimeoutError):
            raise Unanswered("The provider did not answer.", effect="unknown") from None

    def _next(self, url: httpx2.URL, location: str | None) -> httpx2.URL:
        if not location:
            raise Unanswered("The provider redirects nowhere.", "ssrf_block.redirect_missing_location")
        try:
            target = url.join(location)
        except (httpx2.InvalidURL, ValueError):
            target = httpx2.URL("")
        if target.scheme != self._api.scheme or not target.host or target.userinfo:
            raise Unanswered(
                "The provider redirects to what is no address of its own.", "ssrf_block.redirect_invalid_location"
            )
        if (target.host, _port(target)) != (self._api.host, _port(self._api)):
            raise Unanswered("The provider redirects to another host.", "ssrf_block.host_not_allowed")
        return target

    def _url(self, path: tuple[str, ...]) -> httpx2.URL:
        base = str(self._api).rstrip("/")
        return httpx2.URL("/".join((base, *(quote(part, safe="") for part in path))))


def fixed_token(token: str) -> Token:
    checked = _checked(token.strip(), "github_token")
    return lambda: checked


class TokenFile:
    """Read again for each call: whoever renews the token writes the file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._latest = _read(path)

    def __call__(self) -> str:
        try:
            self._latest = _read(self._path)
        except ConfigurationError as error:
            tell("tool.token_unreadable", reason=error.message)
        return self._latest


def _read(path: Path) -> str:
    try:
        token = path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"The file {path} cannot be read ({type(error).__name__}).", field="github_token_file"
        ) from None
    if not token:
        raise ConfigurationError(f"The file {path} is empty.", field="github_token_file")
    return _checked(token, "github_token_file")


def _checked(token: str, field: str) -> str:
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise ConfigurationError(f"Setting {field}: what is there is no token.", field=field)
    return token


def _api(text: str) -> httpx2.URL:
    try:
        url = httpx2.URL(text)
    except (httpx2.InvalidURL, ValueError):
        url = httpx2.URL("")
    if url.scheme not in ("http", "https") or not url.host or url.userinfo or url.query or url.fragment:
        raise ConfigurationError("Setting github_api: it must be an http or https address.", field="github_api")
    return url


def _blocked(error: OutboundRefused) -> ReasonCode:
    match error.details.get("why"):
        case "metadata_endpoint":
            return "ssrf_block.metadata_endpoint"
        case "invalid_url":
            return "ssrf_block.invalid_url"
        case _:
            return "ssrf_block.private_address"


def _without(token: str, reply: Reply) -> Reply:
    """Whatever a server repeats of what it was sent goes no further."""
    return Reply(reply.status, reply.headers, reply.body.replace(token.encode(), b"[REDACTED]"), reply.complete)


def _port(url: httpx2.URL) -> int:
    return url.port or (443 if url.scheme == "https" else 80)

"""Requests to one GitHub API and to no other host: every redirect is checked, and no other host gets the token."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import httpx2
import msgspec
from msgspec import Struct

from parley.errors import ConfigurationError, OutboundRefused
from parley.json_values import Fields, Json, fields_of, text_of
from parley.security.netguard import Outbound, OutboundReply, not_resolved
from parley.telemetry import tell
from parley.telemetry.trace import current, headers_for
from parley.tools.providers import ToolResult
from parley.tools.rules.packs import CODING, Manifest, Pack, number_of
from parley.tools.rules.policy import DENY, EXHAUSTED, ReasonCode

API = "https://api.github.com"
TIMEOUT_S = 10.0
MAX_BYTES = 1024 * 1024
MAX_REDIRECTS = 2
_REDIRECTS = (301, 302, 307, 308)
_UNSENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
_HEADERS = {"accept": "application/vnd.github+json", "x-github-api-version": "2022-11-28"}

Token = Callable[[], str]
"""Returns the current token; empty for none."""


class Unanswered(Exception):
    """No answer was received. `effect` says whether the request may have taken effect all the same."""

    def __init__(
        self, message: str, reason_code: ReasonCode | None = None, effect: Literal["none", "unknown"] = "none"
    ) -> None:
        super().__init__(message)
        self.message = message
        self.reason_code: ReasonCode | None = reason_code
        self.effect: Literal["none", "unknown"] = effect


class GitHubRequest(Struct, frozen=True):
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

    async def send(self, asked: GitHubRequest) -> OutboundReply:
        """Send a request. The token is removed from the answer wherever it occurs."""
        token = self._token()
        headers = {**headers_for(current()), **_HEADERS, **({"authorization": f"Bearer {token}"} if token else {})}
        content = None
        if asked.body is not None:
            content, headers = msgspec.json.encode(asked.body), {**headers, "content-type": "application/json"}
        reply = await self._followed(asked.method, self._url(asked.path), headers, content)
        return _without(token, reply) if token else reply

    async def _followed(
        self, method: str, url: httpx2.URL, headers: dict[str, str], content: bytes | None
    ) -> OutboundReply:
        """Follow redirects. A moved repository is asked at its new address with the same method, for writes too, as
        GitHub requires."""
        for _ in range(MAX_REDIRECTS + 1):
            reply = await self._once(method, url, headers, content)
            if reply.status not in _REDIRECTS:
                return reply
            url = self._next(url, reply.headers.get("location"))
        raise Unanswered("The provider redirects too many times.", "ssrf_block.redirect_limit_exceeded")

    async def _once(
        self, method: str, url: httpx2.URL, headers: dict[str, str], content: bytes | None
    ) -> OutboundReply:
        try:
            return await self._outbound.send(
                method, str(url), headers=headers, content=content, timeout_s=TIMEOUT_S, max_bytes=MAX_BYTES
            )
        except OutboundRefused as error:
            raise Unanswered("The provider's address is not allowed.", _blocked(error)) from None
        except _UNSENT as error:
            code: ReasonCode | None = "ssrf_block.dns_resolution_failed" if not_resolved(error) else None
            raise Unanswered("The provider cannot be reached.", code) from None
        except (httpx2.HTTPError, TimeoutError):
            raise Unanswered("The provider did not answer.", effect="unknown") from None

    def _next(self, url: httpx2.URL, location: str | None) -> httpx2.URL:
        if not location:
            raise Unanswered(
                "The provider redirects without a target address (no Location header).",
                "ssrf_block.redirect_missing_location",
            )
        try:
            target = url.join(location)
        except (httpx2.InvalidURL, ValueError):
            target = httpx2.URL("")
        if target.scheme != self._api.scheme or not target.host or target.userinfo:
            raise Unanswered("The provider redirects to an invalid address.", "ssrf_block.redirect_invalid_location")
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
    """Reads the token file for each call, so that a renewed token is used at once."""

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
        raise ConfigurationError(f"Setting {field}: the value is not a valid token.", field=field)
    return token


def _api(text: str) -> httpx2.URL:
    try:
        url = httpx2.URL(text)
    except (httpx2.InvalidURL, ValueError):
        url = httpx2.URL("")
    if url.scheme not in ("http", "https") or not url.host or url.userinfo or url.query or url.fragment:
        raise ConfigurationError("Setting github_api must be an http or https address.", field="github_api")
    return url


def _blocked(error: OutboundRefused) -> ReasonCode:
    match error.details.get("why"):
        case "metadata_endpoint":
            return "ssrf_block.metadata_endpoint"
        case "invalid_url":
            return "ssrf_block.invalid_url"
        case _:
            return "ssrf_block.private_address"


def _without(token: str, reply: OutboundReply) -> OutboundReply:
    """Remove the token from an answer, in case the server repeats it."""
    return OutboundReply(reply.status, reply.headers, reply.body.replace(token.encode(), b"[REDACTED]"), reply.complete)


def _port(url: httpx2.URL) -> int:
    return url.port or (443 if url.scheme == "https" else 80)


# The tool pack `coding.v1`: issues and pull requests on GitHub, by its REST API (003.7).

MAX_WORDS = 300
"""Characters of GitHub's message about a refusal that are passed on."""
_INVALID: ReasonCode = "manifest_validation.invalid_schema"
_CODES: dict[int, ReasonCode] = {400: _INVALID, 401: DENY, 403: DENY, 422: _INVALID, 429: EXHAUSTED}


class Coding:
    def __init__(self, github: GitHub) -> None:
        self._github = github

    @property
    def rules(self) -> Pack:
        return CODING

    def host(self, manifest: Manifest) -> str:
        return self._github.host

    async def call(self, operation: str, request: Fields, manifest: Manifest) -> ToolResult:
        if CODING.operations[operation].writes and not self._github.has_token:
            return ToolResult(
                "failed",
                {},
                DENY,
                "Writing needs a GitHub token, and none is configured on this server.",
                effect="none",
            )
        try:
            reply = await self._github.send(_asked(operation, request))
        except Unanswered as error:
            return _unanswered(error)
        return _done(operation, reply) if 200 <= reply.status < 300 else _refused(reply)


def _asked(operation: str, request: Fields) -> GitHubRequest:
    owner, _, name = text_of(request["repository"]).partition("/")
    issue = ("repos", owner, name, "issues", str(number_of(request.get("issue_number"))))
    match operation:
        case "get_issue":
            return GitHubRequest("GET", issue)
        case "get_pull_request":
            return GitHubRequest("GET", ("repos", owner, name, "pulls", str(number_of(request.get("pull_number")))))
        case "add_issue_comment":
            return GitHubRequest("POST", (*issue, "comments"), {"body": str(request["body"])})
        case _:
            raise AssertionError(f"{operation} is not an operation of this pack")


def _done(operation: str, reply: OutboundReply) -> ToolResult:
    said, status = _json(reply), reply.status
    if said is None:
        message = "The provider's answer is too long, or is not JSON."
        return ToolResult("failed", {"provider_status": status}, message=message)
    data: Fields = {"provider_status": status, "data": said}
    if operation == "add_issue_comment":
        comment = fields_of(said)
        data |= {"comment_id": comment.get("id"), "comment_url": comment.get("html_url")}
    return ToolResult("succeeded", data)


def _refused(reply: OutboundReply) -> ToolResult:
    """Return the result of an error answer. A server error may have taken effect all the same; a refused request did
    not."""
    limited = _is_rate_limit(reply)
    code = EXHAUSTED if limited else _CODES.get(reply.status, CODING.failed)
    data: Fields = {"provider_status": reply.status}
    if limited and (wait := _wait_s(reply)) is not None:
        data["retry_after_s"] = wait
    ill = reply.status >= 500
    message = text_of(fields_of(_json(reply)).get("message"))[:MAX_WORDS] or f"The provider answered {reply.status}."
    return ToolResult("failed", data, code, message, effect="unknown" if ill else "none", well=not ill)


def _unanswered(error: Unanswered) -> ToolResult:
    """Return the result of a request without an answer. A request that we refuse says nothing bad about the provider;
    an unreachable provider counts as a failure."""
    data: Fields = {} if error.reason_code is None else {"ssrf_block_reason": error.reason_code}
    well = error.reason_code not in (None, "ssrf_block.dns_resolution_failed")
    return ToolResult("failed", data, error.reason_code, error.message, effect=error.effect, well=well)


def _is_rate_limit(reply: OutboundReply) -> bool:
    """Return whether an answer reports a rate limit: GitHub uses 403 as well as 429, and then says so in a header."""
    told = reply.headers.get("x-ratelimit-remaining") == "0" or "retry-after" in reply.headers
    return reply.status == 429 or (reply.status == 403 and told)


def _wait_s(reply: OutboundReply) -> int | None:
    after, reset = reply.headers.get("retry-after", ""), reply.headers.get("x-ratelimit-reset", "")
    if after.isdecimal() and len(after) < 10:
        return int(after)
    return max(0, int(reset) - int(time.time())) if reset.isdecimal() and len(reset) < 12 else None


def _json(reply: OutboundReply) -> Json:
    if not reply.complete:
        return None
    try:
        return msgspec.json.decode(reply.body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None

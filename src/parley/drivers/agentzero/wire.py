"""Requests to one Agent-Zero, under `/api` or, where it is older, at its root; and what its refusals mean."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit

import httpcore2
import httpx2
import msgspec

from parley.drivers.agentzero.options import AgentZeroOptions
from parley.drivers.agentzero.words import File
from parley.drivers.remote.outside import Outside
from parley.drivers.remote.words import Lost, Refused
from parley.errors import ReplyTooLarge

CONNECT_S = 5.0
MAX_BYTES = 96 * 1024 * 1024
"""The largest answer: a file that may be fetched, in base64."""
PREFIXES = ("/api", "")
_UNSENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
_BROKEN = (
    httpx2.TransportError, httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException,
)  # fmt: skip

Wanted = TypeVar("Wanted")
Json = Mapping[str, object]


class Stale(Exception):
    """The session does not hold, or never did: the call had no effect."""


class Ill(Lost):
    """It answered, but with nothing that could be understood: whatever was asked for is over."""


class _Health(msgspec.Struct):
    gitinfo: Any


class _Shared(httpx2.AsyncBaseTransport):
    """The connections of the process; whoever closes a client of theirs does not close them."""

    def __init__(self, outside: Outside) -> None:
        self._outside = outside

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        return await self._outside.transport().handle_async_request(request)


class Wire:
    def __init__(self, options: AgentZeroOptions, outside: Outside) -> None:
        self._url = options.url.rstrip("/")
        parts = urlsplit(self._url)
        self.origin = f"{parts.scheme}://{parts.netloc}"
        self._timeout = httpx2.Timeout(options.timeout_s, connect=min(CONNECT_S, options.timeout_s))
        # Agent-Zero hands out its tokens only to pages of its own.
        self.http = httpx2.AsyncClient(
            transport=_Shared(outside), timeout=self._timeout, headers={"Origin": self.origin, "User-Agent": "parley"},
            follow_redirects=False, trust_env=False,
        )  # fmt: skip
        self._prefix: str | None = None

    async def call(
        self, name: str, wanted: type[Wanted], *, json: Json | None = None, form: Mapping[str, str] | None = None,
        files: Sequence[File] = (), headers: Mapping[str, str] | None = None, wait_s: float | None = None,
    ) -> Wanted:  # fmt: skip
        """Lost when there is no answer, Stale or Refused when the answer is no."""
        uploads = [("attachments", (one.name, one.content, one.media_type)) for one in files] or None
        extra: dict[str, Any] = {"json": json} if form is None else {"data": form, "files": uploads}
        timeout = self._timeout if wait_s is None else httpx2.Timeout(wait_s, connect=CONNECT_S)
        reply = await self._sent("POST", await self._path(name), headers=headers, timeout=timeout, **extra)
        return self._read(reply, wanted)

    async def get(self, name: str, wanted: type[Wanted]) -> Wanted:
        return self._read(await self._sent("GET", await self._path(name)), wanted)

    async def download(self, name: str, params: Mapping[str, str], headers: Mapping[str, str], most: int) -> bytes:
        """At most so many bytes, and one more if there are more."""
        reply = await self._sent("GET", await self._path(name), most, params=params, headers=headers)
        _check(reply.status_code)
        return reply.content

    async def login(self, user: str, password: str) -> bool:
        """Whether it let us in: then it leads on to its first page."""
        data = {"username": user, "password": password}
        reply = await self._sent("POST", f"{self._url}/login", data=data)
        if reply.status_code >= 500:
            raise Lost(f"HTTP {reply.status_code}")
        return reply.is_redirect

    async def _path(self, name: str) -> str:
        if self._prefix is None:
            self._prefix = await self._found()
        return f"{self._url}{self._prefix}/{name}"

    async def _found(self) -> str:
        """Where the server has its calls. Nothing was sent that could have an effect."""
        ill: Lost | None = None
        for prefix in PREFIXES:
            try:
                self._read(await self._sent("GET", f"{self._url}{prefix}/health"), _Health)
            except Lost as lost:
                ill = ill or (None if lost.why == NOT_JSON else Lost(lost.why, unsent=True))
            except (Refused, Stale):
                continue
            else:
                return prefix
        raise ill or Refused("other", "there is no Agent-Zero at this address")

    async def _sent(
        self, method: Literal["GET", "POST"], url: str, most: int = MAX_BYTES, **more: Any
    ) -> httpx2.Response:
        try:
            async with self.http.stream(method, url, **more) as reply:
                body = bytearray()
                async for chunk in reply.aiter_bytes():
                    body += chunk
                    if len(body) > most:
                        break
        except _UNSENT as error:
            raise Lost(type(error).__name__, unsent=True) from error
        except _BROKEN as error:
            raise Lost(type(error).__name__) from error
        except ReplyTooLarge as error:
            raise Ill(error.message) from error
        return httpx2.Response(reply.status_code, headers={}, content=bytes(body[: most + 1]), request=reply.request)

    def _read(self, reply: httpx2.Response, wanted: type[Wanted]) -> Wanted:
        if reply.status_code == 404 and not reply.content.startswith(b"{"):
            # It knows no such call: it may have been updated, and have them elsewhere.
            self._prefix = None
        if reply.status_code == 500 and reply.content.startswith(b'{"error"'):
            raise Refused("over", "its work ended with an error")
        _check(reply.status_code)
        try:
            return msgspec.json.decode(reply.content, type=wanted)
        except msgspec.MsgspecError:
            raise Ill(NOT_JSON) from None


NOT_JSON = "it answered with something else than was asked for"


def _check(status: int) -> None:
    """What the number alone says. The words of a refusal may be a traceback, and are not repeated."""
    if status in (401, 403) or 300 <= status < 400:
        raise Stale
    if status == 404:
        raise Refused("not_found", "it does not know what it was asked for")
    if status >= 500:
        raise Ill(f"HTTP {status}")
    if status >= 400:
        raise Refused("other", f"HTTP {status}")

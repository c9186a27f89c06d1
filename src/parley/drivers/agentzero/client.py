"""Clients for Agent-Zero's two interfaces: that of its web page, with a session and a token, and its API with a key."""

import asyncio
import base64
import posixpath
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit

import httpcore2
import httpx2
import msgspec

from parley.drivers.agentzero.chat import (
    ChatAnswer,
    ChatFile,
    FileInfo,
    Large,
    LogReply,
    Look,
    Poll,
    Received,
    Token,
    looked,
)
from parley.drivers.agentzero.options import AgentZeroOptions, api_key, password
from parley.drivers.remote.connections import OutboundConnections
from parley.drivers.remote.translation import ConnectionLost, RemoteRefused
from parley.errors import ReplyTooLarge
from parley.orgkernel.files import MAX_BYTES

# Requests to one Agent-Zero, under `/api` or, for older versions, at its root; and the meaning of its errors.

CONNECT_S = 5.0
MAX_REPLY_BYTES = 96 * 1024 * 1024
"""Maximum size of an answer: the largest file that may be fetched, in base64."""
PREFIXES = ("/api", "")
_UNSENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
_BROKEN = (
    httpx2.TransportError, httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException,
)  # fmt: skip

Wanted = TypeVar("Wanted")
Json = Mapping[str, object]


class Stale(Exception):
    """The session is not valid, so the call had no effect."""


class Ill(ConnectionLost):
    """Agent-Zero answered, but the answer is not valid; the request is over."""


class _Health(msgspec.Struct):
    gitinfo: Any


class _Shared(httpx2.AsyncBaseTransport):
    """The connections of the process. Closing a client that uses them does not close them."""

    def __init__(self, outside: OutboundConnections) -> None:
        self._outside = outside

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        return await self._outside.transport().handle_async_request(request)


class Wire:
    def __init__(self, options: AgentZeroOptions, outside: OutboundConnections) -> None:
        self._url = options.url.rstrip("/")
        parts = urlsplit(self._url)
        self.origin = f"{parts.scheme}://{parts.netloc}"
        self._timeout = httpx2.Timeout(options.timeout_s, connect=min(CONNECT_S, options.timeout_s))
        # Agent-Zero gives its tokens only to its own pages, so requests carry its origin.
        self.http = httpx2.AsyncClient(
            transport=_Shared(outside),
            timeout=self._timeout,
            headers={"Origin": self.origin, "User-Agent": "parley"},
            follow_redirects=False,
            trust_env=False,
        )
        self._prefix: str | None = None

    async def call(
        self,
        name: str,
        wanted: type[Wanted],
        *,
        json: Json | None = None,
        form: Mapping[str, str] | None = None,
        files: Sequence[ChatFile] = (),
        headers: Mapping[str, str] | None = None,
        wait_s: float | None = None,
    ) -> Wanted:
        """Call an endpoint. Raises ConnectionLost if there is no answer, Stale or RemoteRefused if it is a refusal."""
        uploads = [("attachments", (one.name, one.content, one.media_type)) for one in files] or None
        extra: dict[str, Any] = {"json": json} if form is None else {"data": form, "files": uploads}
        timeout = self._timeout if wait_s is None else httpx2.Timeout(wait_s, connect=CONNECT_S)
        reply = await self._sent("POST", await self._path(name), headers=headers, timeout=timeout, **extra)
        return self._read(reply, wanted)

    async def get(self, name: str, wanted: type[Wanted]) -> Wanted:
        return self._read(await self._sent("GET", await self._path(name)), wanted)

    async def download(self, name: str, params: Mapping[str, str], headers: Mapping[str, str], most: int) -> bytes:
        """Download at most `most` bytes, and one more byte if the file is larger."""
        reply = await self._sent("GET", await self._path(name), most, params=params, headers=headers)
        _check(reply.status_code)
        return reply.content

    async def login(self, user: str, password: str) -> bool:
        """Log in. Returns True on success, which Agent-Zero shows by a redirect to its first page."""
        data = {"username": user, "password": password}
        reply = await self._sent("POST", f"{self._url}/login", data=data)
        if reply.status_code >= 500:
            raise ConnectionLost(f"HTTP {reply.status_code}")
        return reply.is_redirect

    async def _path(self, name: str) -> str:
        if self._prefix is None:
            self._prefix = await self._found()
        return f"{self._url}{self._prefix}/{name}"

    async def _found(self) -> str:
        """Find the prefix of the server's endpoints, with requests that have no effect."""
        ill: ConnectionLost | None = None
        for prefix in PREFIXES:
            try:
                self._read(await self._sent("GET", f"{self._url}{prefix}/health"), _Health)
            except ConnectionLost as lost:
                if not isinstance(lost, Ill):
                    raise ConnectionLost(lost.why, unsent=True) from None
                ill = ill or (None if lost.why == NOT_JSON else ConnectionLost(lost.why, unsent=True))
            except (RemoteRefused, Stale):
                continue
            else:
                return prefix
        raise ill or RemoteRefused("other", "there is no Agent-Zero at this URL")

    async def _sent(
        self, method: Literal["GET", "POST"], url: str, most: int = MAX_REPLY_BYTES, **more: Any
    ) -> httpx2.Response:
        try:
            async with self.http.stream(method, url, **more) as reply:
                body = bytearray()
                async for chunk in reply.aiter_bytes():
                    body += chunk
                    if len(body) > most:
                        break
        except _UNSENT as error:
            raise ConnectionLost(type(error).__name__, unsent=True) from error
        except _BROKEN as error:
            raise ConnectionLost(type(error).__name__) from error
        except ReplyTooLarge as error:
            raise Ill(error.message) from error
        return httpx2.Response(reply.status_code, headers={}, content=bytes(body[: most + 1]), request=reply.request)

    def _read(self, reply: httpx2.Response, wanted: type[Wanted]) -> Wanted:
        if reply.status_code == 404 and not reply.content.startswith(b"{"):
            # The endpoint is unknown: Agent-Zero may have been updated, and may have another prefix now.
            self._prefix = None
        if reply.status_code == 500 and reply.content.startswith(b'{"error"'):
            raise RemoteRefused("over", "its work ended with an error")
        _check(reply.status_code)
        try:
            return msgspec.json.decode(reply.content, type=wanted)
        except msgspec.MsgspecError:
            raise Ill(NOT_JSON) from None


NOT_JSON = "its answer has an unexpected format"


def _check(status: int) -> None:
    """Raise for an error status. The text of the response is not repeated, because it may be a traceback."""
    if status in (401, 403) or 300 <= status < 400:
        raise Stale
    if status == 404:
        raise RemoteRefused("not_found", "it did not find what was requested")
    if status >= 500:
        raise Ill(f"HTTP {status}")
    if status >= 400:
        raise RemoteRefused("other", f"HTTP {status}")


WHOLE_LOG = 10_000

WantedAnswer = TypeVar("WantedAnswer")


class SessionClient:
    """Client that acts like the web page: it chooses the chat's id, and polls the chat for progress."""

    def __init__(self, options: AgentZeroOptions, outside: OutboundConnections) -> None:
        self._options = options
        self._wire = Wire(options, outside)
        self.runtime = ""
        """Id of the Agent-Zero process that our session belongs to. It changes with each restart."""
        self._token: str | None = None
        self._login = asyncio.Lock()

    async def look(self, context: str, version: int = 0) -> Look:
        asked = {"context": context, "log_from": version, "notifications_from": 0, "timezone": "UTC"}
        return looked(await self._call("poll", Poll, json=asked), context)

    async def send(self, context: str, id_: str, text: str, files: Sequence[ChatFile] = ()) -> None:
        """Send a message to a chat. A chat that is working takes it as an intervention; an unknown chat is created."""
        form = {"text": text, "context": context, "message_id": id_}
        if files:
            await self._call("message_async", Received, form=form, files=files)
        else:
            await self._call("message_async", Received, json=form)

    async def stop(self, context: str) -> None:
        """Stop the work by deleting the chat: Agent-Zero has no other way."""
        await self._call("chat_remove", dict[str, Any], json={"context": context})

    async def pause(self, context: str) -> None:
        """Pause the chat until the next message."""
        await self._call("pause", dict[str, Any], json={"context": context, "paused": True})

    async def fetch(self, path: str) -> bytes | Large | None:
        """Fetch a file; None if it does not exist or is a link."""
        info = await self._call("file_info", FileInfo, json={"path": path})
        if not info.is_file or info.is_link:
            return None
        if info.size > MAX_BYTES:
            return Large(info.size)
        content = await self._held(
            lambda headers: self._wire.download("download_work_dir_file", {"path": path}, headers, MAX_BYTES)
        )
        return Large(len(content)) if len(content) > MAX_BYTES else content

    async def _call(self, name: str, wanted: type[WantedAnswer], **more: Any) -> WantedAnswer:
        return await self._held(lambda headers: self._wire.call(name, wanted, headers=headers, **more))

    async def _held(self, call: Callable[[dict[str, str]], Awaitable[WantedAnswer]]) -> WantedAnswer:
        """Call with the session's token. After a restart the session is stale: then the call had no effect, and it is
        repeated with a new session."""
        for _ in range(2):
            token = await self._held_token()
            try:
                return await call({"X-CSRF-Token": token})
            except Stale:
                if self._token == token:
                    self._token = None
        raise RemoteRefused("credentials", "it does not accept our session")

    async def _held_token(self) -> str:
        async with self._login:
            if self._token is None:
                self._wire.http.cookies.clear()
                self._token = await self._begun()
            return self._token

    async def _begun(self) -> str:
        try:
            try:
                return await self._given_token()
            except Stale:
                await self._log_in()
                return await self._given_token()
        except Stale:
            raise RemoteRefused("credentials", "it asks for a login") from None
        except ConnectionLost as lost:
            # The request that needed the session was not sent yet.
            raise ConnectionLost(lost.why, unsent=True) from None

    async def _given_token(self) -> str:
        given = await self._wire.get("csrf_token", Token)
        if not given.ok:
            why = f"it gives no session to {self._wire.origin}; add this origin to its ALLOWED_ORIGINS"
            raise RemoteRefused("credentials", why)
        self.runtime = given.runtime_id
        return given.token

    async def _log_in(self) -> None:
        user, secret = self._options.user, password(self._options)
        if user is None or secret is None:
            raise RemoteRefused("credentials", "it asks for a login; set user and password_from")
        if not await self._wire.login(user, secret):
            raise RemoteRefused("credentials", "it does not accept our login")


class KeyClient:
    """Client of the API: each message is answered when the work is done, and only that answer has the chat's id."""

    def __init__(self, options: AgentZeroOptions, outside: OutboundConnections) -> None:
        self._options = options
        self._wire = Wire(options, outside)

    async def look(self, context: str) -> Look:
        asked = {"context_id": context, "length": WHOLE_LOG}
        try:
            log = (await self._call("api_log_get", LogReply, json=asked)).log
        except RemoteRefused as refused:
            if refused.kind != "not_found":
                raise
            return Look(known=False)
        return Look(log.items, log.progress_active, guid=log.guid, version=log.total_items)

    async def ask(self, context: str, text: str, files: Sequence[ChatFile] = ()) -> ChatAnswer:
        """Send a message. A chat that is working takes it as an intervention, and both calls are answered when the work
        is done."""
        asked: dict[str, object] = {"message": text, "lifetime_hours": self._options.lifetime_hours}
        if context:
            asked["context_id"] = context
        if files:
            asked["attachments"] = [_attachment(file) for file in files]
        return await self._call("api_message", ChatAnswer, json=asked, wait_s=self._options.silence_s)

    async def stop(self, context: str) -> None:
        await self._call("api_terminate_chat", dict[str, Any], json={"context_id": context})

    async def fetch(self, path: str) -> bytes | Large | None:
        found = await self._call("api_files_get", dict[str, bytes], json={"paths": [path]})
        content = found.get(posixpath.basename(path))
        return Large(len(content)) if content is not None and len(content) > MAX_BYTES else content

    async def _call(self, name: str, wanted: type[WantedAnswer], **more: Any) -> WantedAnswer:
        headers = {"X-API-KEY": api_key(self._options) or ""}
        try:
            return await self._wire.call(name, wanted, headers=headers, **more)
        except Stale:
            raise RemoteRefused("credentials", "it does not accept the API key") from None


def _attachment(file: ChatFile) -> dict[str, str]:
    return {"filename": file.name, "base64": base64.b64encode(file.content).decode()}

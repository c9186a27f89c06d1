"""Agent-Zero's two interfaces: its web page's, with a session and a token, and its API, with a key."""

import asyncio
import base64
import posixpath
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from parley.drivers.agentzero.options import AgentZeroOptions, api_key, password
from parley.drivers.agentzero.wire import Stale, Wire
from parley.drivers.agentzero.words import (
    Answer,
    File,
    FileInfo,
    Large,
    LogReply,
    Look,
    Poll,
    Received,
    Token,
    looked,
)
from parley.drivers.remote.outside import Outside
from parley.drivers.remote.words import Lost, Refused
from parley.orgkernel.files import MAX_BYTES

WHOLE_LOG = 10_000

Wanted = TypeVar("Wanted")


class SessionClient:
    """As the web page: the caller names the chat, and asks how it goes."""

    def __init__(self, options: AgentZeroOptions, outside: Outside) -> None:
        self._options = options
        self._wire = Wire(options, outside)
        self.runtime = ""
        """Which process over there our session is with: another one after a restart, however quick that was."""
        self._token: str | None = None
        self._login = asyncio.Lock()

    async def look(self, context: str, version: int = 0) -> Look:
        asked = {"context": context, "log_from": version, "notifications_from": 0, "timezone": "UTC"}
        return looked(await self._call("poll", Poll, json=asked), context)

    async def send(self, context: str, id_: str, text: str, files: Sequence[File] = ()) -> None:
        """To a chat at work this is an intervention; one that is not there yet is begun."""
        form = {"text": text, "context": context, "message_id": id_}
        if files:
            await self._call("message_async", Received, form=form, files=files)
        else:
            await self._call("message_async", Received, json=form)

    async def stop(self, context: str) -> None:
        """Ends the work, and the chat with it: Agent-Zero knows no other way."""
        await self._call("chat_remove", dict[str, Any], json={"context": context})

    async def pause(self, context: str) -> None:
        """It stands still until the next message."""
        await self._call("pause", dict[str, Any], json={"context": context, "paused": True})

    async def fetch(self, path: str) -> bytes | Large | None:
        """A file of Agent-Zero's; None when there is none, or it leads elsewhere."""
        info = await self._call("file_info", FileInfo, json={"path": path})
        if not info.is_file or info.is_link:
            return None
        if info.size > MAX_BYTES:
            return Large(info.size)
        content = await self._held(
            lambda headers: self._wire.download("download_work_dir_file", {"path": path}, headers, MAX_BYTES)
        )
        return Large(len(content)) if len(content) > MAX_BYTES else content

    async def _call(self, name: str, wanted: type[Wanted], **more: Any) -> Wanted:
        return await self._held(lambda headers: self._wire.call(name, wanted, headers=headers, **more))

    async def _held(self, call: Callable[[dict[str, str]], Awaitable[Wanted]]) -> Wanted:
        """A session that has gone stale, as it does with a restart, is begun anew; such a call had no effect."""
        for _ in range(2):
            token = await self._held_token()
            try:
                return await call({"X-CSRF-Token": token})
            except Stale:
                if self._token == token:
                    self._token = None
        raise Refused("credentials", "it does not accept our session")

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
            raise Refused("credentials", "it asks for a login") from None
        except Lost as lost:
            # Whatever the session was for has not been asked yet.
            raise Lost(lost.why, unsent=True) from None

    async def _given_token(self) -> str:
        given = await self._wire.get("csrf_token", Token)
        if not given.ok:
            why = f"it gives no session to {self._wire.origin}; its ALLOWED_ORIGINS says to whom it does"
            raise Refused("credentials", why)
        self.runtime = given.runtime_id
        return given.token

    async def _log_in(self) -> None:
        user, secret = self._options.user, password(self._options)
        if user is None or secret is None:
            raise Refused("credentials", "it asks for a login, and none is set up")
        if not await self._wire.login(user, secret):
            raise Refused("credentials", "it does not accept our login")


class KeyClient:
    """As a program: each message is answered when the work is done, and only then is its chat's id told."""

    def __init__(self, options: AgentZeroOptions, outside: Outside) -> None:
        self._options = options
        self._wire = Wire(options, outside)

    async def look(self, context: str) -> Look:
        asked = {"context_id": context, "length": WHOLE_LOG}
        try:
            log = (await self._call("api_log_get", LogReply, json=asked)).log
        except Refused as refused:
            if refused.kind != "not_found":
                raise
            return Look(known=False)
        return Look(log.items, log.progress_active, guid=log.guid, version=log.total_items)

    async def ask(self, context: str, text: str, files: Sequence[File] = ()) -> Answer:
        """To a chat at work this is an intervention, and both calls are answered when it is done."""
        asked: dict[str, object] = {"message": text, "lifetime_hours": self._options.lifetime_hours}
        if context:
            asked["context_id"] = context
        if files:
            asked["attachments"] = [_attachment(file) for file in files]
        return await self._call("api_message", Answer, json=asked, wait_s=self._options.silence_s)

    async def stop(self, context: str) -> None:
        await self._call("api_terminate_chat", dict[str, Any], json={"context_id": context})

    async def fetch(self, path: str) -> bytes | Large | None:
        found = await self._call("api_files_get", dict[str, bytes], json={"paths": [path]})
        content = found.get(posixpath.basename(path))
        return Large(len(content)) if content is not None and len(content) > MAX_BYTES else content

    async def _call(self, name: str, wanted: type[Wanted], **more: Any) -> Wanted:
        headers = {"X-API-KEY": api_key(self._options) or ""}
        try:
            return await self._wire.call(name, wanted, headers=headers, **more)
        except Stale:
            raise Refused("credentials", "it does not accept the API key") from None


def _attachment(file: File) -> dict[str, str]:
    return {"filename": file.name, "base64": base64.b64encode(file.content).decode()}

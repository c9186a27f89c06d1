"""Agent-Zero's wire on a free port: the paths, the words and the quirks of the real one, and no agent behind it.

What the agent does is a coroutine of the test's own. What goes wrong is asked for in `troubles`, call by call.
"""

import asyncio
import base64
import hashlib
import inspect
import posixpath
import secrets
import socket
import time
import uuid
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from email.parser import BytesParser
from email.policy import HTTP
from typing import Any, Literal
from urllib.parse import parse_qsl

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from parley.http.server import Prompt

Json = dict[str, Any]
Work = Callable[["Chat", str], Awaitable[str]]
"""The agent's work on a message: it writes to the chat's log, and returns its response."""

KEY = "dGhlLWtleS1vZi1BMA"
HTML = "<!doctype html><title>502 Bad Gateway</title>"


@dataclass
class Trouble:
    """A fault that replaces the answer to one call; with `done` the call is still executed."""

    kind: Literal["drop", "html", "slow", "stale", "unauthorized", "error"]
    done: bool = False
    seconds: float = 0.0


@dataclass
class Chat:
    """A context: its log in items and versions, and the work that is under way in it."""

    id: str
    guid: str = field(default_factory=lambda: str(uuid.uuid4()))
    items: list[Json] = field(default_factory=list[Json])
    updates: list[int] = field(default_factory=list[int])
    progress: str = "Waiting for input"
    active: bool = False
    paused: bool = False
    task: "asyncio.Task[str] | None" = None
    interventions: "asyncio.Queue[str]" = field(default_factory=lambda: asyncio.Queue[str]())

    @property
    def running(self) -> bool:
        return self.task is not None and not self.task.done()

    def log(self, type_: str, heading: str = "", content: str = "", **more: Any) -> int:
        number = len(self.items)
        self.items.append(
            {
                "no": number, "id": more.pop("id", None), "type": type_, "heading": heading, "content": content,
                "kvps": more.pop("kvps", {}), "timestamp": time.time(), "agentno": more.pop("agentno", 0),
            }
        )  # fmt: skip
        self._touched(number, heading)
        return number

    def update(self, number: int, **changes: Any) -> None:
        self.items[number].update(changes)
        self._touched(number, changes.get("heading", ""))

    def _touched(self, number: int, heading: str) -> None:
        self.updates.append(number)
        if heading:
            self.progress, self.active = heading, True

    def output(self, start: int) -> list[Json]:
        return [self.items[number] for number in dict.fromkeys(self.updates[start:])]


async def answer(chat: Chat, text: str) -> str:
    """The plainest agent there is."""
    chat.log("agent", "icon://network_intelligence A0: Thinking... |||")
    chat.log("tool", "icon://construction A0: Using tool 'code_execution_tool'")
    return f"Answer to: {text}"


class FakeAgentZero:
    def __init__(self, work: Work = answer, *, prefix: str = "/api", user: str = "", password: str = "") -> None:
        self.work = work
        self.prefix = prefix
        self.user, self.password = user, password
        self.key = KEY
        self.chats: dict[str, Chat] = {}
        self.files: dict[str, bytes] = {}
        self.uploads: dict[str, bytes] = {}
        self.calls: list[tuple[str, Json]] = []
        self.troubles: dict[str, deque[Trouble]] = defaultdict(deque)
        self.sessions: dict[str, Json] = {}
        self.runtime_id = secrets.token_hex(8)
        self.port = 0
        self.down = False
        self._server: Prompt | None = None
        self._serving: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def called(self, name: str) -> list[Json]:
        return [body for call, body in self.calls if call == name]

    def trouble(self, name: str, *troubles: Trouble) -> None:
        self.troubles[name].extend(troubles)

    async def start(self) -> None:
        self.down = False
        listener = socket.create_server(("127.0.0.1", self.port))
        self.port = listener.getsockname()[1]
        config = uvicorn.Config(self._app(), log_level="critical", lifespan="off", ws="none")
        self._server = Prompt(config)
        self._serving = asyncio.get_running_loop().create_task(self._server.serve(sockets=[listener]))

    async def stop(self) -> None:
        """As a kill would: connections break, work is lost, sessions are forgotten."""
        assert self._server is not None
        assert self._serving is not None
        self.down = True
        self._server.should_exit = self._server.force_exit = True
        await self._serving
        for chat in self.chats.values():
            await self._kill(chat)
        self.sessions.clear()
        self.runtime_id = secrets.token_hex(8)

    async def restart(self, *, forget: bool = False) -> None:
        """Chats that were saved come back with their logs, one version for each item; or they do not come back."""
        await self.stop()
        if forget:
            self.chats.clear()
        for chat in self.chats.values():
            chat.updates = list(range(len(chat.items)))
            chat.progress, chat.active, chat.task = "Waiting for input", False, None
        await self.start()

    def forget_sessions(self) -> None:
        self.sessions.clear()

    def _app(self) -> Starlette:
        named: dict[str, tuple[str, Callable[[Json], Any]]] = {
            "message_async": ("session", self._message_async), "message": ("session", self._message),
            "poll": ("session", self._poll), "chat_remove": ("session", self._chat_remove),
            "pause": ("session", self._pause), "file_info": ("session", self._file_info),
            "download_work_dir_file": ("session", self._download),
            "api_message": ("key", self._api_message), "api_log_get": ("key", self._api_log_get),
            "api_terminate_chat": ("key", self._api_terminate), "api_files_get": ("key", self._api_files_get),
            "health": ("", self._health),
        }  # fmt: skip
        routes = [
            Route(f"{self.prefix}/{name}", _Handler(self, name, guard, handle), methods=["GET", "POST"])
            for name, (guard, handle) in named.items()
        ]
        routes.append(Route(f"{self.prefix}/csrf_token", self._csrf_token))
        routes.append(Route("/login", self._login, methods=["GET", "POST"]))
        return Starlette(routes=[*routes, Route("/{rest:path}", _no_page, methods=["GET", "POST"])])

    # Sessions.

    @property
    def _cookie(self) -> str:
        return f"session_{self.runtime_id}"

    def session(self, request: Request) -> Json:
        return self.sessions.get(request.cookies.get(self._cookie, ""), {})

    def logged_in(self, request: Request) -> bool:
        return not self.user or self.session(request).get("authentication") == self._credentials

    @property
    def _credentials(self) -> str:
        return hashlib.sha256(f"{self.user}:{self.password}".encode()).hexdigest()

    async def _csrf_token(self, request: Request) -> Response:
        self.calls.append(("csrf_token", {"origin": request.headers.get("origin")}))
        if not self.logged_in(request):
            return RedirectResponse("/login", 302)
        origin = request.headers.get("origin", "")
        if not self.user and not origin.startswith(("http://127.0.0.1", "http://localhost")):
            return JSONResponse({"ok": False, "error": f"Origin {origin} not allowed when login is disabled."})
        reply = JSONResponse({"ok": True, "token": "", "runtime_id": self.runtime_id})
        session = self._kept(request, reply)
        token = session.setdefault("csrf_token", secrets.token_urlsafe(32))
        body = JSONResponse({"ok": True, "token": token, "runtime_id": self.runtime_id})
        reply.body, reply.headers["content-length"] = body.body, str(len(body.body))
        return reply

    async def _login(self, request: Request) -> Response:
        form = dict(parse_qsl((await request.body()).decode()))
        self.calls.append(("login", {"user": form.get("username", "")}))
        if not form or (form.get("username"), form.get("password")) != (self.user, self.password):
            return HTMLResponse("<form>Login</form>")
        reply = RedirectResponse("/", 302)
        self._kept(request, reply)["authentication"] = self._credentials
        return reply

    def _kept(self, request: Request, reply: Response) -> Json:
        id_ = request.cookies.get(self._cookie, "")
        if id_ not in self.sessions:
            id_ = secrets.token_hex(8)
            reply.set_cookie(self._cookie, id_, httponly=True, samesite="lax")
        return self.sessions.setdefault(id_, {})

    # What the web page calls.

    async def _message_async(self, body: Json) -> Json:
        chat = self._communicate(body)
        return {"message": "Message received.", "context": chat.id}

    async def _message(self, body: Json) -> Json:
        chat = self._communicate(body)
        assert chat.task is not None
        return {"message": await asyncio.shield(chat.task), "context": chat.id}

    def _communicate(self, body: Json) -> Chat:
        chat = self.chats.setdefault(body["context"], Chat(body["context"]))
        return self._heard(chat, body["text"], body.get("attachments", []), body.get("message_id"))

    def _heard(self, chat: Chat, text: str, attachments: list[str], id_: str | None) -> Chat:
        """A message to a chat at work is an intervention; only the last one that nobody has read yet counts."""
        names = [posixpath.basename(path) for path in attachments]
        chat.log("user", "", text, id=id_, kvps={"attachments": names})
        chat.paused = False
        if chat.running:
            while not chat.interventions.empty():
                chat.interventions.get_nowait()
            chat.interventions.put_nowait(text)
        else:
            chat.task = asyncio.get_running_loop().create_task(self._worked(chat, text))
            chat.task.add_done_callback(lambda task: task.cancelled() or task.exception())
        return chat

    async def _worked(self, chat: Chat, text: str) -> str:
        chat.progress, chat.active = "A0: Receiving...", True
        try:
            said = await self.work(chat, text)
        except Exception as error:
            chat.log(
                "error", "", f"{type(error).__name__}: {error}\n\nTraceback (most recent call last):\n  File /a0/x.py"
            )
            raise
        if said:
            chat.log("response", "icon://chat A0: Responding", said, kvps={"finished": True})
        chat.progress, chat.active = "Waiting for input", False
        return said

    async def _poll(self, body: Json) -> Json:
        chat = self.chats.get(body.get("context") or "")
        start = body.get("log_from", 0)
        return {
            "deselect_chat": bool(body.get("context")) and chat is None,
            "context": chat.id if chat else "",
            "contexts": [self._shown(one) for one in self.chats.values()],
            "tasks": [],
            "logs": chat.output(start) if chat else [],
            "log_guid": chat.guid if chat else "",
            "log_version": len(chat.updates) if chat else 0,
            "log_progress": chat.progress if chat else 0,
            "log_progress_active": chat.active if chat else False,
            "paused": chat.paused if chat else False,
            "notifications": [], "notifications_guid": "n", "notifications_version": 0,
        }  # fmt: skip

    def _shown(self, chat: Chat) -> Json:
        return {
            "id": chat.id, "name": None, "no": 1, "log_guid": chat.guid, "log_version": len(chat.updates),
            "log_length": len(chat.items), "paused": chat.paused, "type": "user", "running": chat.running,
        }  # fmt: skip

    async def _chat_remove(self, body: Json) -> Json:
        await self._remove(body.get("context", ""))
        return {"message": "Context removed."}

    async def _remove(self, id_: str) -> bool:
        chat = self.chats.pop(id_, None)
        if chat is not None:
            await self._kill(chat)
        return chat is not None

    async def _kill(self, chat: Chat) -> None:
        if chat.task is not None:
            chat.task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await chat.task

    async def _pause(self, body: Json) -> Json:
        chat = self.chats[body["context"]]
        chat.paused = bool(body["paused"])
        return {"message": "Agent paused." if chat.paused else "Agent unpaused.", "pause": chat.paused}

    async def _file_info(self, body: Json) -> Json:
        content = self.files.get(body["path"])
        return {
            "input_path": body["path"], "abs_path": body["path"], "exists": content is not None, "is_dir": False,
            "is_file": content is not None, "is_link": False, "size": len(content or b""),
        }  # fmt: skip

    async def _download(self, body: Json) -> Response:
        if body["path"] not in self.files:
            raise ValueError(f"File {body['path']} not found")
        return Response(self.files[body["path"]], media_type="application/octet-stream")

    # What programs call with a key.

    async def _api_message(self, body: Json) -> Json | Response:
        if not body.get("message"):
            return JSONResponse({"error": "Message is required"}, 400)
        if body.get("context_id") and body["context_id"] not in self.chats:
            return JSONResponse({"error": "Context not found"}, 404)
        id_ = body.get("context_id") or secrets.token_urlsafe(12)[:8]
        chat = self.chats.setdefault(id_, Chat(id_))
        names: list[str] = []
        for one in body.get("attachments", []):
            self.uploads[one["filename"]] = base64.b64decode(one["base64"])
            names.append(f"/a0/usr/uploads/{one['filename']}")
        self._heard(chat, body["message"], names, str(uuid.uuid4()))
        assert chat.task is not None
        try:
            return {"context_id": id_, "response": await asyncio.shield(chat.task)}
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - as the real one does
            return JSONResponse({"error": str(error)}, 500)

    async def _api_log_get(self, body: Json) -> Json | Response:
        chat = self.chats.get(body.get("context_id", ""))
        if chat is None:
            return JSONResponse({"error": "Context not found"}, 404)
        start = max(0, len(chat.items) - body.get("length", 100))
        items = chat.output(start)
        log = {
            "guid": chat.guid, "total_items": len(chat.items), "returned_items": len(items), "start_position": start,
            "progress": chat.progress, "progress_active": chat.active, "items": items,
        }  # fmt: skip
        return {"context_id": chat.id, "log": log}

    async def _api_terminate(self, body: Json) -> Json | Response:
        if not await self._remove(body.get("context_id", "")):
            return JSONResponse({"error": "Chat context not found"}, 404)
        return {"success": True, "message": "Chat deleted successfully", "context_id": body["context_id"]}

    async def _api_files_get(self, body: Json) -> Json:
        found = {path: self.files[path] for path in body["paths"] if path in self.files}
        return {posixpath.basename(path): base64.b64encode(content).decode() for path, content in found.items()}

    async def _health(self, body: Json) -> Json:
        return {"gitinfo": {"branch": "main"}, "error": None}


class _Handler:
    """One endpoint: who may call it, what goes wrong with it, and what it answers."""

    def __init__(self, zero: FakeAgentZero, name: str, guard: str, handle: Callable[[Json], Any]) -> None:
        self._zero, self._name, self._guard, self._handle = zero, name, guard, handle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        body = await self._body(request)
        self._zero.calls.append((self._name, body))
        waiting = self._zero.troubles[self._name]
        trouble = waiting.popleft() if waiting else None
        if trouble is None or trouble.done or trouble.kind == "slow":
            await asyncio.sleep(trouble.seconds if trouble else 0)
            reply = self._refused(request, body) or await self._answered(body)
        else:
            reply = PlainTextResponse("")
        if self._zero.down or (trouble is not None and trouble.kind == "drop"):
            return await _drop(send)
        if trouble is not None and trouble.kind != "slow":
            reply = _spoiled(trouble)
        return await reply(scope, receive, send)

    async def _body(self, request: Request) -> Json:
        type_, raw = request.headers.get("content-type", ""), await request.body()
        if type_.startswith("multipart/form-data"):
            return self._form(type_, raw)
        return await request.json() if raw else dict(request.query_params)

    def _form(self, type_: str, raw: bytes) -> Json:
        """Fields as they are; what comes as attachments is kept where uploads are."""
        found = BytesParser(policy=HTTP).parsebytes(b"Content-Type: " + type_.encode() + b"\r\n\r\n" + raw)
        body: Json = {"attachments": []}
        for part in found.iter_parts():
            name, content = part.get_param("name", header="content-disposition"), part.get_payload(decode=True)
            assert isinstance(content, bytes)
            if name == "attachments":
                self._zero.uploads[part.get_filename() or ""] = content
                body["attachments"].append(f"/a0/usr/uploads/{part.get_filename()}")
            else:
                body[str(name)] = content.decode()
        return body

    def _refused(self, request: Request, body: Json) -> Response | None:
        zero = self._zero
        if self._guard == "key":
            given = request.headers.get("x-api-key") or body.get("api_key")
            if given != zero.key:
                return PlainTextResponse("Invalid API key" if given else "API key required", 401)
        if self._guard == "session":
            if not zero.logged_in(request):
                return RedirectResponse("/login", 302)
            token = zero.session(request).get("csrf_token")
            if not token or request.headers.get("x-csrf-token") != token:
                return PlainTextResponse("CSRF token missing or invalid", 403)
        return None

    async def _answered(self, body: Json) -> Response:
        try:
            found = self._handle(body)
            found = await found if inspect.isawaitable(found) else found
        except Exception as error:  # noqa: BLE001 - as the real one does
            return PlainTextResponse(f"{type(error).__name__}: {error}\n\nTraceback", 500)
        return found if isinstance(found, Response) else JSONResponse(found)


def _spoiled(trouble: Trouble) -> Response:
    match trouble.kind:
        case "html":
            return HTMLResponse(HTML, 200)
        case "stale":
            return PlainTextResponse("CSRF token missing or invalid", 403)
        case "unauthorized":
            return PlainTextResponse("Unauthorized", 401)
        case _:
            return PlainTextResponse("RuntimeError: the secret is 42\n\nTraceback", 500)


async def _drop(send: Send) -> None:
    """Less than what was promised: the server closes the connection."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"100")]})
    await send({"type": "http.response.body", "body": b"{"})


async def _no_page(request: Request) -> Response:
    return HTMLResponse("<!doctype html><title>404 Not Found</title>", 404)


@asynccontextmanager
async def agent_zero(work: Work = answer, **more: Any) -> AsyncGenerator[FakeAgentZero, None]:
    zero = FakeAgentZero(work, **more)
    await zero.start()
    try:
        yield zero
    finally:
        await zero.stop()

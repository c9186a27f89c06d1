"""The endpoint `/mcp`. It keeps no state between requests that another replica would need."""

import asyncio
import secrets
from collections.abc import AsyncGenerator
from contextlib import suppress

import msgspec
from msgspec import UNSET, Struct
from starlette.types import Receive, Scope, Send

from parley.errors import MediaTypeNotSupported, MethodNotAllowed, ParleyError, UnknownMethod
from parley.execution.agents import AGENTS
from parley.faces.mcp import messages
from parley.faces.mcp.calls import Following, Mark, McpCall, McpCalls, News
from parley.faces.mcp.contents import Block, refused, result_of
from parley.faces.mcp.messages import (
    BROKEN,
    CAPABILITIES,
    ELICITS,
    HANDSHAKE,
    MODERN,
    PRIMED,
    SERVER,
    SESSION,
    SUBSCRIPTION,
    VERSION,
    CallId,
    CallParams,
    ClientCapabilities,
    Hello,
    ListenParams,
    McpCancelParams,
    McpParams,
    ReadParams,
    failure,
    read,
)
from parley.faces.mcp.tasks import (
    EXTENSION,
    TASKS,
    McpListParams,
    McpTaskParams,
    McpTasks,
    RpcResponse,
    UpdateParams,
    question_id,
    related,
    response_in,
    shown_task,
    status_of,
)
from parley.faces.mcp.tools import TEMPLATES, Arguments, Resources, agent_of, tool_of, usable
from parley.http import sse
from parley.http.face import demanded
from parley.http.jsonrpc import Id, InvalidRequest, RpcRequest, id_of, parse
from parley.http.requests import MAX_BODY, Headers, answer, check_text, header, is_json, read_json, retry_headers
from parley.http.sse import KeepAlive
from parley.ids import RunId
from parley.runs.rules.access import Principal, demand
from parley.runs.service import Exchange
from parley.telemetry import span, tell

INSTRUCTIONS = (
    "Each tool is an agent: say what you want in `message`. When a result's state is input-required, call the same "
    "tool again with its taskId as `task` and the answer as `message`. To go on with what was said before, give its "
    "conversationId as `conversation`. Large files are resources: read them by their address."
)
METHODS = frozenset(
    (
        "initialize", "server/discover", "ping", "tools/list", "tools/call", "resources/list",
        "resources/templates/list", "resources/read", "subscriptions/listen",
        "tasks/get", "tasks/result", "tasks/list", "tasks/cancel", "tasks/update",
    )
)  # fmt: skip
"""Methods that are supported; the handling of each checks the revision."""
_CAPABILITIES = {"tools": {"listChanged": True}, "resources": {}}
_CHANGED = "notifications/tools/list_changed"
_LISTS = frozenset(("server/discover", "tools/list", "resources/list", "resources/templates/list", "resources/read"))
_FOR_NOBODY_ELSE = {"ttlMs": 0, "cacheScope": "private"}

_encode = msgspec.json.Encoder().encode


class _Asked(Struct):
    """Facts about a request, collected while it is read."""

    scope: Scope
    receive: Receive
    send: Send
    modern: bool
    id: Id = None

    @property
    def streams(self) -> bool:
        return "text/event-stream" in (header(self.scope, b"accept") or "")

    @property
    def session(self) -> str | None:
        return header(self.scope, SESSION)

    @property
    def primed(self) -> bool:
        """True for revision 2025-11-25: events without data, and tasks as a part of the protocol."""
        return header(self.scope, VERSION) == PRIMED

    @property
    def elicits(self) -> bool:
        return self.streams and (self.session or "").endswith(ELICITS)


# Why: docs/decisions/faces.md#implement-mcps-json-rpc-without-the-official-server
class Mcp:
    def __init__(self, exchange: Exchange, version: str, max_body: int = MAX_BODY) -> None:
        self._exchange = exchange
        self._server = {"name": "parley", "title": "Parley", "version": version}
        self._max_body = max_body
        self._calls = McpCalls(exchange)
        self._tasks = McpTasks(exchange)
        self._resources = Resources(exchange)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        match scope["method"]:
            case "POST":
                await self.post(scope, receive, send)
            case "GET":
                await self.get(scope, receive, send)
            case _:
                # DELETE ends a session, of which nothing is stored.
                await answer(send, 204, b"")

    async def post(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = _Asked(scope, receive, send, messages.is_modern(scope))
        try:
            await self._posted(asked)
        except ParleyError as error:
            await answer(send, *failure(asked.id, error, modern=asked.modern), retry_headers(error))

    async def get(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Resume an interrupted stream, or stream changes of the list of tools; for revisions up to 2025-11-25."""
        asked = _Asked(scope, receive, send, messages.is_modern(scope))
        try:
            principal = demanded(scope, "read")
            if asked.modern or not asked.streams:
                raise MethodNotAllowed("GET requires a revision up to 2025-11-25 and Accept: text/event-stream.")
            last = header(scope, b"last-event-id")
            if last is None:
                return await sse.write(receive, send, self._changes(b"", _note(_CHANGED)), _same)
            mark = Mark.parse(last)
            call = McpCall(principal, mark.id, asked.session, mark.token, task=mark.task)
            return await self._stream(asked, call, await self._calls.resume(call, mark), mark.cursor)
        except MethodNotAllowed as error:
            return await answer(send, 405, failure(None, error, modern=True)[1], [(b"allow", b"POST")])
        except ParleyError as error:
            return await answer(send, *failure(None, error, modern=True))

    async def _posted(self, asked: _Asked) -> None:
        body = await read_json(asked.receive, self._max_body)
        if not is_json(asked.scope):
            raise MediaTypeNotSupported("Content-Type must be application/json.")
        check_text(body)
        try:
            request = parse(body)
        except InvalidRequest:
            response = None if asked.modern else response_in(body)
            if response is not None:
                return await self._responded(asked, response)
            asked.id = id_of(body)
            raise
        if request.id is UNSET:
            return await self._notified(asked, request)
        if not isinstance(request.id, str | int):
            raise InvalidRequest("`id` must be a string or a whole number.")
        asked.id = request.id
        given = b"{}" if request.params is UNSET else request.params
        params = read(McpParams, given)
        if asked.modern:
            messages.check(asked.scope, request.method, params)
        if request.method not in METHODS:
            raise _unknown(request.method)
        if request.method == "tools/call":
            return await self._called(asked, request.id, read(CallParams, given), params)
        if request.method == "tasks/result" and not asked.modern:
            return await self._fetched(asked, request.id, read(McpTaskParams, given), params)
        if request.method == "subscriptions/listen" and asked.modern:
            return await self._listen(asked, request.id, read(ListenParams, given))
        result = await self._result(asked, request.method, given)
        started: Headers = []
        if request.method == "initialize":
            started = [(SESSION, _new_session(read(Hello, given)))]
        return await answer(asked.send, 200, self._reply(asked, request.method, result), started)

    async def _notified(self, asked: _Asked, request: RpcRequest) -> None:
        """Handle a notification. Revision 2026-07-28 has none for servers. A cancel is accepted only with the session
        id of its request."""
        principal = demanded(asked.scope)
        if asked.modern:
            messages.check_version(header(asked.scope, VERSION) or "")
        elif request.method == "notifications/cancelled" and request.params is not UNSET:
            cancel = read(McpCancelParams, request.params)
            await self._calls.cancel(McpCall(principal, cancel.request_id, asked.session), cancel.reason)
        await answer(asked.send, 202, b"")

    async def _result(self, asked: _Asked, method: str, given: bytes | msgspec.Raw) -> Block:
        principal = demanded(asked.scope)
        match method, asked.modern:
            case "initialize", False:
                offered = read(Hello, given).protocol_version
                version = offered if offered in HANDSHAKE else HANDSHAKE[-1]
                tasks: Block = {"tasks": TASKS} if version == PRIMED else {}
                return {"protocolVersion": version, "serverInfo": self._server, **self._about(tasks)}
            case "server/discover", True:
                return {"supportedVersions": list(MODERN), **self._about({"extensions": {EXTENSION: {}}})}
            case "ping", False:
                return {}
            case "tools/list", _:
                agents = usable(self._exchange, principal)
                return {"tools": [tool_of(agent, tasks=asked.primed) for agent in agents]}
            case "resources/list", _:
                return {"resources": await self._resources.recent(principal)}
            case "resources/templates/list", _:
                return {"resourceTemplates": TEMPLATES}
            case "resources/read", _:
                return {"contents": await self._resources.read(principal, read(ReadParams, given).uri)}
            case _:
                return await self._about_task(asked, principal, method, given)

    async def _about_task(self, asked: _Asked, principal: Principal, method: str, given: bytes | msgspec.Raw) -> Block:
        match method, asked.modern:
            case "tasks/get", modern:
                return await self._tasks.get(principal, read(McpTaskParams, given).task_id, modern=modern)
            case "tasks/list", False:
                return await self._tasks.list(principal, read(McpListParams, given).cursor)
            case "tasks/cancel", modern:
                run = await self._tasks.cancel(principal, read(McpTaskParams, given).task_id)
                return {} if modern else shown_task(run, modern=False)
            case "tasks/update", True:
                update = read(UpdateParams, given)
                await self._tasks.update(principal, update)
                return {}
            case _:
                raise _unknown(method)

    async def _responded(self, asked: _Asked, response: RpcResponse) -> None:
        """Take the answer to a question. An error means that the client could not ask it."""
        principal = demanded(asked.scope)
        if response.result is not UNSET:
            await self._tasks.answer(principal, str(response.id), response.result)
        await answer(asked.send, 202, b"")

    async def _fetched(self, asked: _Asked, id_: CallId, wanted: McpTaskParams, params: McpParams) -> None:
        """Answer with the result of a task, as soon as there is one."""
        principal = demanded(asked.scope)
        call = McpCall(principal, id_, asked.session, params.about.token, task=True)
        following = await self._tasks.follow(principal, wanted.task_id)
        if asked.streams:
            return await self._stream(asked, call, following)
        return await self._wait(asked, call, following)

    async def _called(self, asked: _Asked, id_: CallId, wanted: CallParams, params: McpParams) -> None:
        principal = demanded(asked.scope)
        key = header(asked.scope, b"idempotency-key") or params.about.key
        call = McpCall(principal, id_, None if asked.modern else asked.session, params.about.token, key)
        agent = agent_of(self._exchange, principal, wanted.name)
        try:
            following = await self._calls.begin(call, agent, read(Arguments, wanted.arguments, "arguments"))
        except BROKEN:
            raise
        except ParleyError as error:
            if asked.primed and wanted.task is not None:
                raise
            return await answer(asked.send, 200, self._reply(asked, "tools/call", refused(error)))
        if (wanted.task is not None and asked.primed) or (asked.modern and _has_tasks(params)):
            return await self._created(asked, call, following)
        if asked.streams:
            return await self._stream(asked, call, following)
        return await self._wait(asked, call, following)

    async def _created(self, asked: _Asked, call: McpCall, following: Following) -> None:
        """Answer a call with its task, whose result is fetched later."""
        following.close()
        self._calls.left(call)
        task = shown_task(following.view.run, modern=asked.modern)
        result: Block = {**task, "resultType": "task"} if asked.modern else {"task": task}
        await answer(asked.send, 200, self._reply(asked, "tools/call", result))

    async def _wait(self, asked: _Asked, call: McpCall, following: Following) -> None:
        """Answer a client that accepts one response and no events."""
        patience = KeepAlive(asked.send)
        try:
            async for _ in following.steps():
                pass
            status, reply = 200, self._reply(asked, "tools/call", await self._outcome(call, following))
        except ParleyError as error:
            status, reply = failure(call.id, error, modern=asked.modern)
        except BaseException:
            patience.stop()
            raise
        finally:
            following.close()
            self._calls.left(call)
        await patience.answer(status, reply)

    async def _stream(self, asked: _Asked, call: McpCall, following: Following, past: int = 0) -> None:
        """Stream the response to a call. `past` is the number of the last event that the client has received."""
        frames = self._frames(asked, call, following, past)
        with span("runtime.stream") as streamed:
            try:
                asked.id = call.id
                await sse.write(asked.receive, asked.send, frames, _same)
            except ParleyError as error:
                tell("stream.broken", code=error.code)
                streamed.outcome = "error"
                following.answered = True
                await sse.end(asked.send, sse.message(failure(call.id, error, modern=asked.modern)[1]))
            finally:
                await frames.aclose()
                following.close()
                self._calls.left(call)
        gone = not following.answered and not self._exchange.streams.stopping
        if gone and asked.modern and call.key is None:
            await self._calls.stop(call, following.view.run.id, "The client disconnected.")

    async def _frames(
        self, asked: _Asked, call: McpCall, following: Following, past: int
    ) -> AsyncGenerator[sse.Chunk, None]:
        if asked.primed:
            yield sse.message(b"", _mark(call, following, _before_question(following))), False
        status = status_of(following.view.run)
        past = past if call.task else 0
        while True:
            async for news in following.steps(past):
                told = news if call.token is not None else ()
                data = [self._told(asked, call, following, one) for one in told]
                if call.task and status != (status := status_of(following.view.run)):
                    note = _note("notifications/tasks/status", shown_task(following.view.run, modern=False))
                    data.append(sse.message(note, _mark(call, following, _before_question(following))))
                yield b"".join(data), False
            if not (call.task and asked.elicits) or following.view.run.ended:
                break
            past = following.cursor
            yield await self._asking(call, following), False
        reply = self._reply(asked, "tools/call", await self._outcome(call, following))
        following.answered = True
        yield sse.message(reply), True

    async def _asking(self, call: McpCall, following: Following) -> bytes:
        """Return the request for the answer to a question of a task. Its response comes with a request of its own."""
        params = await self._tasks.elicitation(following.view)
        request = {"jsonrpc": "2.0", "id": question_id(following.view.run), "method": "elicitation/create"}
        return sse.message(_encode(request | {"params": params}), _mark(call, following))

    def _told(self, asked: _Asked, call: McpCall, following: Following, news: News) -> bytes:
        params: Block = {"progressToken": call.token, "progress": news.seq, "message": news.text}
        id_ = "" if asked.modern else _mark(call, following, news.seq)
        return sse.message(_note("notifications/progress", params), id_)

    async def _outcome(self, call: McpCall, following: Following) -> Block:
        result = await result_of(self._exchange, following.view, following.made)
        return result | {"_meta": related(following.view.run)} if call.task else result

    async def _listen(self, asked: _Asked, id_: CallId, wanted: ListenParams) -> None:
        principal = demanded(asked.scope)
        demand(principal, "read")
        if not asked.streams:
            raise InvalidRequest("Notifications are sent as events: send Accept: text/event-stream.")
        about: Block = {"_meta": {SUBSCRIPTION: id_}}
        tasks = [(await self._tasks.visible(principal, one)).id for one in dict.fromkeys(wanted.notifications.task_ids)]
        tools = bool(wanted.notifications.tools_list_changed)
        agreed: Block = {"toolsListChanged": True} if tools else {}
        agreed |= {"taskIds": tasks} if tasks else {}
        heard = _note("notifications/subscriptions/acknowledged", {"notifications": agreed, **about})
        changed = _note(_CHANGED, about) if tools else b""
        steps = self._task_changes(heard, changed, tasks, about) if tasks else self._changes(heard, changed)
        await sse.write(asked.receive, asked.send, steps, _same)

    async def _task_changes(
        self, first: bytes, changed: bytes, tasks: list[RunId], about: Block
    ) -> AsyncGenerator[sse.Chunk, None]:
        """Yield the status of some tasks whenever it changes, and changes of the list of tools."""
        growth, agents = self._exchange.growth, self._exchange.agents.changes
        with growth.subscribed(tasks) as grown, agents.subscribed((AGENTS,)) as bell:
            yield sse.message(first), False
            known = dict.fromkeys(tasks, "")
            while True:
                notes: list[bytes] = []
                for id_, before in known.items():
                    run = await self._exchange.commands.state(id_)
                    known[id_] = status_of(run)
                    if known[id_] != before:
                        notes.append(_note("notifications/tasks", await self._tasks.detailed(run) | about))
                if bell.is_set():
                    bell.clear()
                    notes += [changed] if changed else []
                yield b"".join(map(sse.message, notes)), False
                grown.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(sse.KEEP_ALIVE_S):
                        await grown.wait()

    async def _changes(self, first: bytes, changed: bytes) -> AsyncGenerator[sse.Chunk, None]:
        with self._exchange.agents.changes.subscribed((AGENTS,)) as bell:
            yield sse.message(first) if first else b"", False
            while True:
                try:
                    async with asyncio.timeout(sse.KEEP_ALIVE_S):
                        await bell.wait()
                except TimeoutError:
                    yield b"", False
                    continue
                bell.clear()
                yield sse.message(changed) if changed else b"", False

    def _reply(self, asked: _Asked, method: str, result: Block) -> bytes:
        if asked.modern:
            about = {SERVER: self._server} | _meta(result)
            result = {"resultType": "complete", **result, "_meta": about}
            if method in _LISTS:
                result |= _FOR_NOBODY_ELSE
        return _encode({"jsonrpc": "2.0", "id": asked.id, "result": result})

    def _about(self, more: Block) -> Block:
        return {"capabilities": _CAPABILITIES | more, "instructions": INSTRUCTIONS}


def _unknown(method: str) -> UnknownMethod:
    return UnknownMethod(f"There is no method {method[:80]!r}.")


def _meta(result: Block) -> dict[str, object]:
    said = result.get("_meta")
    return msgspec.convert(said, dict[str, object]) if said is not None else {}


def _mark(call: McpCall, following: Following, cursor: int | None = None) -> str:
    at = following.cursor if cursor is None else cursor
    return str(Mark(following.view.run.id, at, following.since, call.id, call.token, call.task))


def _before_question(following: Following) -> int:
    """Return the place before the open question of a run, so that a stream which resumes there asks it."""
    run = following.view.run
    return following.cursor - 1 if run.settled and not run.ended else following.cursor


def _new_session(hello: Hello) -> bytes:
    return (secrets.token_urlsafe(24) + (ELICITS if "elicitation" in hello.capabilities else "")).encode()


def _has_tasks(params: McpParams) -> bool:
    """Return whether a client of revision 2026-07-28 declares the extension for tasks."""
    declared = read(ClientCapabilities, params.about.capabilities or b"{}", CAPABILITIES)
    return EXTENSION in declared.extensions


def _note(method: str, params: Block | None = None) -> bytes:
    said: Block = {"jsonrpc": "2.0", "method": method}
    return _encode(said | {"params": params} if params is not None else said)


def _same(chunk: sse.Chunk) -> sse.Chunk:
    return chunk

"""Routes of the actions (002).

`/api/agent2agent`: one endpoint for every action, and the present state of tasks; every response is an envelope.
`/api/exports/`: files for callers with a link.
"""

from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import ClassVar
from urllib.parse import quote

import msgspec
from msgspec import UNSET
from msgspec.structs import replace
from starlette.types import Receive, Send

from parley.clock import Clock, iso, now_ms
from parley.documents.action_log import ActionAttempt, ActionLog
from parley.documents.actions import Actions
from parley.documents.conversations import Conversations, Exported
from parley.documents.service import Documents
from parley.errors import (
    LinkExpired,
    LinkRefused,
    NotFound,
    ParamInvalid,
    ParleyError,
    RateLimited,
    Stopping,
    StoreUnavailable,
)
from parley.faces.actions.documents import shown_conversation
from parley.faces.actions.messages import (
    PREFIX,
    About,
    Envelope,
    action_of,
    check_media,
    decoded,
    envelope_of,
    key_of,
    params_of,
    refusal_of,
    wants_async,
)
from parley.faces.actions.params import NewConversation
from parley.faces.actions.results import ConversationBegun
from parley.faces.actions.table import STATUSES, Action, ActionCall, ActionHandlers, ActionResult, Row
from parley.faces.actions.tasks import Tasks, TaskStreaming, operation_envelope
from parley.http.face import Face, Proof, Request, Response, Streamed, allow_headers, match, operation
from parley.http.requests import ClientGone, Headers
from parley.ids import is_id, new_id
from parley.runs.log import Outcome
from parley.runs.rules.access import Principal, demand
from parley.runs.rules.agents import SLUG
from parley.runs.rules.events import Completed
from parley.runs.service import Exchange
from parley.security.secrets import Links

_new_conversation = msgspec.json.Decoder(NewConversation).decode


class ActionsFace(Face[Principal]):
    proof: ClassVar[Proof] = "caller"
    prefix = PREFIX
    headers: ClassVar[Headers] = []
    head = False

    def __init__(
        self,
        exchange: Exchange,
        actions: Actions,
        documents: Documents,
        conversations: Conversations,
        log: ActionLog,
        handlers: Mapping[Row, ActionHandlers],
        document: Callable[[], bytes],
        max_body: int,
        clock: Clock = now_ms,
    ) -> None:
        """`document` makes the OpenAPI document."""
        self.handlers = handlers
        self.document = document
        self.max_body = max_body
        self._exchange = exchange
        self._actions = actions
        self._documents = documents
        self._conversations = conversations
        self._log = log
        self._tasks = Tasks(exchange, log, handlers)
        self._streaming = TaskStreaming(exchange, self._tasks)
        self._clock = clock

    def refuse(self, request: Request[Principal], error: ParleyError) -> Response:
        """Return the envelope of a task that never started and is not stored; also used before requests are routed."""
        return refused(request.scope["path"], error)

    def crash(self, request: Request[Principal], error: Exception) -> Response:
        return refused(request.scope["path"], error)

    @operation(
        "POST",
        f"{PREFIX}/conversations/{{conversationId:id}}/tasks",
        name="performAction",
        summary="Perform an action in a conversation.",
    )
    async def perform(self, request: Request[Principal]) -> Response:
        id_ = request.path["conversationId"]
        attempt = ActionAttempt(request.caller, id_ if is_id(id_) else "", self._clock())
        try:
            call = await self._call(request, attempt)
            do = self.handlers[call.action.mode, call.action.name].perform
            made = await self._actions.perform(
                call.principal, call.conversation, call.params.agent_slug, call.action, lambda: do(call)
            )
            if isinstance(made, Outcome):
                return await self._of_run(made, attempt, later=wants_async(request.scope))
            return Response(200, await self._of_result(made, call, attempt))
        except (ClientGone, RateLimited, Stopping):
            # Not logged: a caller that sends too many requests must not fill the log of actions.
            raise
        except Exception as error:  # noqa: BLE001 - the contract answers defects with an envelope too
            return self._refused(error, attempt)

    @operation(
        "POST",
        f"{PREFIX}/conversations",
        permission="send",
        name="beginConversation",
        summary="Create a conversation, or return the one with the given id.",
    )
    async def begin(self, request: Request[Principal]) -> Response:
        at = now_ms()
        body = await request.body(self.max_body)
        check_media(request.scope, body)
        new = decoded(_new_conversation, body)
        if new.id is not None and not is_id(new.id):
            raise ParamInvalid("id must have 1 to 128 characters: letters, digits or ._:@/+=~-", field="id")
        self._actions.check(request.caller, new.agent_slug)
        conversation, is_new = await self._conversations.begin(request.caller, new.agent_slug, new.id)
        shown = ConversationBegun(shown_conversation(conversation))
        envelope = Envelope(new_id(), conversation.id, "completed", iso(at), result=shown, completed_at=iso(now_ms()))
        return Response(201 if is_new else 200, envelope)

    @operation(
        "GET",
        f"{PREFIX}/tasks/{{taskId:id}}/stream",
        permission="read",
        name="followTask",
        summary="Stream the events of a task, from the start or after any event. The last event is its envelope.",
    )
    async def follow(self, request: Request[Principal]) -> Streamed:
        task = await self._tasks.find(request.caller, request.path["taskId"])
        stream = await self._streaming.open(task, request.header(b"last-event-id"))
        return stream.write

    @operation(
        "GET",
        f"{PREFIX}/tasks/{{taskId:id}}",
        permission="read",
        name="readTask",
        summary="Return the present state of a task.",
    )
    async def read(self, request: Request[Principal]) -> Response:
        return Response(200, await self._tasks.read(request.caller, request.path["taskId"]))

    @operation("GET", f"{PREFIX}/openapi.json", name="openapi", summary="Return this OpenAPI document.")
    async def openapi(self, request: Request[Principal]) -> Response:
        return Response(200, self.document())

    async def _call(self, request: Request[Principal], attempt: ActionAttempt) -> ActionCall:
        """Parse the request into a call. Fill in `attempt` along the way, so that it is complete when the request is
        refused later."""
        body = await request.body(self.max_body)
        action = action_of(request.scope, body, self._offered)
        attempt.choose(action.mode, action.name)
        demand(attempt.principal, "send" if action.changes else "read")
        params = params_of(action, body)
        if SLUG.fullmatch(params.agent_slug):
            attempt.address(params.agent_slug)
        key = key_of(request.scope)
        return ActionCall(attempt.principal, attempt.conversation, action, params, key, attempt.started_at)

    def _offered(self, action: Action) -> bool:
        return (action.mode, action.name) in self.handlers

    async def _of_result(self, made: ActionResult, call: ActionCall, attempt: ActionAttempt) -> Envelope:
        """Return the envelope of an action without a run. With an idempotency key, store it as a completed run, so that
        a repeated request finds the same task."""
        if call.key is None:
            return replace(operation_envelope(self._log.record(attempt)), result=made.result)
        run = (await self._documents.record(call.request, {})).run
        return envelope_of(run, result=made.result, metadata=self._about(attempt))

    async def _of_run(self, outcome: Outcome, attempt: ActionAttempt, *, later: bool) -> Response:
        run, events = outcome.run, outcome.events
        if events and isinstance(ending := events[-1].payload, Completed):
            result = await self._tasks.result_of(run, ending.parts)
            return Response(200, envelope_of(run, result=result, metadata=self._about(attempt)))
        if later and not run.settled:
            begun = envelope_of(run)
            envelope = begun if outcome.replayed else replace(begun, status="pending")
            return Response(202, envelope, _later(run.id))
        envelope = await self._tasks.envelope(await self._exchange.settled(outcome))
        return Response(200 if envelope.error is UNSET else STATUSES[envelope.error.code], envelope)

    def _refused(self, error: Exception, attempt: ActionAttempt) -> Response:
        status, fault = refusal_of(error)
        noted = self._log.record(attempt, fault.code, fault.message)
        return Response(status, replace(operation_envelope(noted), error=fault), _headers(error))

    def _about(self, attempt: ActionAttempt) -> About:
        return About(self._clock() - attempt.started_at)


def _later(run: str) -> Headers:
    return [(b"preference-applied", b"respond-async"), (b"location", f"{PREFIX}/tasks/{run}".encode())]


def refused(path: str, error: Exception) -> Response:
    """Return a refusal as the envelope of a task that never started, with the conversation or task id of the path."""
    status, fault = refusal_of(error)
    ids = _ids_in(path)
    task, conversation, at = ids.get("taskId") or new_id(), ids.get("conversationId", ""), iso(now_ms())
    envelope = Envelope(task, conversation, "failed", at, error=fault, completed_at=at)
    return Response(status, envelope, _headers(error))


def _ids_in(path: str) -> dict[str, str]:
    for row in ActionsFace.operations():
        if (found := match(row, path)) is not None:
            return {name: id_ for name, id_ in found.items() if is_id(id_)}
    return {}


def _headers(error: Exception) -> Headers:
    return allow_headers(error) if isinstance(error, ParleyError) else []


EXPORTS = "/api/exports/"

_EXPORT_STATUSES: tuple[tuple[type[ParleyError], int], ...] = (
    (LinkRefused, 403),
    (LinkExpired, 410),
    (NotFound, 404),
    (StoreUnavailable, 503),
)
_POLICY = b"sandbox; default-src 'none'; style-src 'unsafe-inline'"
"""An exported HTML page may use its own styles and nothing else: no scripts, no requests, no origin."""


class ExportsFace(Face[None]):
    """Serves exported files. The link to a file is its credential."""

    def __init__(self, conversations: Conversations, links: Links, base_url: str) -> None:
        self._conversations = conversations
        self._links = links
        self._base_url = base_url

    def address(self, run_id: str, exported: Exported) -> str:
        """Return the link to the file that an export made."""
        link = self._links.link(run_id, exported.name, exported.expires_at)
        return f"{self._base_url.rstrip('/')}{link}"

    def refuse(self, request: Request[None], error: ParleyError) -> Response:
        for kind, status in _EXPORT_STATUSES:
            if isinstance(error, kind):
                return Response(status, {"error": {"code": error.code.upper(), "message": error.message}})
        raise error

    @operation("GET", f"{EXPORTS}{{id:id}}", open=True)
    async def fetch(self, request: Request[None]) -> Streamed:
        id_, query = request.path["id"], request.query
        self._links.check(id_, *(query.get(name, "") for name in ("name", "exp", "sig")))
        exported = await self._conversations.exported(id_)
        pieces = self._conversations.content(exported)
        # Read the first piece now, so that a missing file is found before the response starts.
        first = await anext(pieces)

        async def write(receive: Receive, send: Send) -> None:
            async with aclosing(pieces):
                await send({"type": "http.response.start", "status": 200, "headers": _file_headers(exported)})
                if request.scope["method"] != "HEAD":
                    await _send_piece(send, first)
                    async for piece in pieces:
                        await _send_piece(send, piece)
                await _send_piece(send, b"", last=True)

        return write


def _file_headers(exported: Exported) -> Headers:
    return [
        (b"content-type", exported.media_type.encode()),
        (b"content-length", b"%d" % exported.size),
        (b"content-disposition", _disposition(exported)),
        (b"x-content-type-options", b"nosniff"),
        (b"content-security-policy", _POLICY),
        (b"referrer-policy", b"no-referrer"),
        (b"cache-control", b"private, no-store"),
    ]


def _disposition(exported: Exported) -> bytes:
    """Return the Content-Disposition: browsers show an HTML page and save every other file."""
    how = "inline" if exported.format == "html" else "attachment"
    return f"{how}; filename*=UTF-8''{quote(exported.name, safe='')}".encode()


async def _send_piece(send: Send, piece: bytes, *, last: bool = False) -> None:
    await send({"type": "http.response.body", "body": piece, "more_body": not last})

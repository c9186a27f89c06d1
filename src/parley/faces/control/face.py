"""Routes of the runtime control plane (003), `/internal/v1`. Every request is signed; each operation is one method."""

import uuid
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache, partial
from typing import Any, ClassVar, NamedTuple, cast

from msgspec import Struct
from starlette.types import Receive, Send

from parley.clock import iso
from parley.errors import (
    AgentNotFound,
    Conflict,
    Forbidden,
    Invalid,
    KeyReused,
    ManifestInvalid,
    MethodNotAllowed,
    NotCancelable,
    NotFound,
    ParleyError,
    PayloadTooLarge,
    RateLimited,
    StaleCursor,
    Stopping,
    StoreUnavailable,
    ToolRequestInvalid,
    Unauthenticated,
)
from parley.faces.control.document import API, CURSOR, KEY, LAST_EVENT, MAX_KEY, TAIL, THREAD, Traits
from parley.faces.control.messages import (
    CancelAccepted,
    CancelAsk,
    Code,
    DeliveryAccepted,
    DeliveryEvent,
    Fault,
    FrameAccepted,
    Health,
    NewFrame,
    NewRun,
    Object,
    Refusal,
    RunAccepted,
    Snapshot,
    StreamEvent,
    ToolsAnswer,
    ToolsAsk,
    body_of,
    fields_in,
    status_of,
    tools_refusal,
)
from parley.faces.control.streams import Tail
from parley.http.face import Face, Handler, Operation, Proof, Request, Response, Streamed, allow_headers, operation
from parley.http.openapi import EventStream
from parley.http.requests import Headers
from parley.json_values import fields_of
from parley.runs.frames import Frames, MailDeliveries, MailDelivery
from parley.runs.requests import Opening
from parley.runs.rules.access import Principal, demand, may_see
from parley.runs.rules.frames import Frame
from parley.runs.rules.state import Run
from parley.runs.service import Exchange
from parley.security.signatures import BODY_SHA256, KEY_ID, SIGNATURE, Carried, Signatures, principal_of, user_id_of
from parley.telemetry import span, tell
from parley.tools.service import ToolAsk, ToolService

PREFIX = "/internal/v1"
_RUN = f"{PREFIX}/runs/{{run_id:id}}"
_NOT_FOUND = "run/thread ownership record not found"

# Parley's errors in the contract's envelope.


class Mapped(NamedTuple):
    status: int
    code: Code


_MAP: list[tuple[type[ParleyError], Mapped]] = [
    (Unauthenticated, Mapped(401, "unauthorized")),
    (Forbidden, Mapped(403, "forbidden")),
    (NotFound, Mapped(404, "not_found")),
    (MethodNotAllowed, Mapped(405, "invalid_request")),
    (Conflict, Mapped(409, "conflict")),
    (StaleCursor, Mapped(410, "stale_cursor")),
    (PayloadTooLarge, Mapped(413, "invalid_request")),
    (ManifestInvalid, Mapped(422, "invalid_request")),
    (ToolRequestInvalid, Mapped(422, "invalid_request")),
    (Invalid, Mapped(400, "invalid_request")),
    (RateLimited, Mapped(429, "rate_limited")),
    (Stopping, Mapped(503, "internal_error")),
    (StoreUnavailable, Mapped(503, "internal_error")),
]
_DEFECT = Refusal(Fault("internal_error", "internal error"))


def mapped_of(error: ParleyError) -> Mapped | None:
    """Return status and code of an error; None for a defect, which has no code in the contract."""
    return next((mapped for kind, mapped in _MAP if isinstance(error, kind)), None)


def _details(error: ParleyError) -> list[object]:
    problems: object = error.details.get("problems")
    if isinstance(problems, list):
        return cast("list[object]", problems)
    shown = {name: error.details[name] for name in ("cursor", "floor") if name in error.details}
    return [shown] if shown else []


class Signed(Struct, frozen=True):
    """A request with a valid signature: its principal, if it names one, and the members of its body, if it is an
    object."""

    principal: Principal | None
    fields: Object | None


class ControlFace(Face[Signed]):
    proof: ClassVar[Proof] = "signature"
    prefix: ClassVar[str] = PREFIX
    headers: ClassVar[Headers] = []
    head: ClassVar[bool] = False

    def __init__(
        self,
        signatures: Signatures,
        exchange: Exchange,
        frames: Frames,
        default: Callable[[], str | None],
        deliveries: MailDeliveries,
        tools: ToolService,
        version: str,
        max_body: int,
    ) -> None:
        self._signatures = signatures
        self._exchange = exchange
        self._frames = frames
        self._default = default
        self._deliveries = deliveries
        self._tools = tools
        self._tail = Tail(exchange)
        self._version = version
        self._document = cache(partial(API.document, self.operations(), version))
        self.max_body = max_body

    @operation(
        "GET",
        f"{PREFIX}/health",
        name="health",
        summary="Check that the service answers.",
        answers={200: Health},
        more=Traits(),
    )
    async def health(self, request: Request[Signed]) -> Response:
        return Response(200, Health("ok", "openagents-runtime", self._version))

    @operation(
        "POST",
        f"{PREFIX}/runs",
        body=NewRun,
        name="createRun",
        summary="Create a run that accepts frames until it is finished.",
        answers={200: RunAccepted, 202: RunAccepted},
        refusals=(404, 409),
        parameters=(KEY,),
        more=Traits("runtime.ingest", "user or guest"),
    )
    async def create(self, request: Request[Signed], asked: NewRun) -> Response:
        caller = _principal(request)
        demand(caller, "send")
        slug = asked.agent or self._default() or ""
        if slug not in self._exchange.agents:
            raise AgentNotFound("agent not found")
        run_id = asked.run_id or _named(caller, request.header(b"idempotency-key"))
        try:
            outcome = await self._exchange.open(Opening(slug, caller, asked.thread_id, run_id))
        except AgentNotFound:
            raise AgentNotFound("agent not found") from None
        except Conflict:
            raise Conflict("run_id exists with another thread, owner or agent") from None
        run = outcome.run
        shown = RunAccepted(run.id, run.conversation, run.agent, status_of(run), run.version, outcome.replayed)
        return Response(200 if outcome.replayed else 202, shown)

    @operation(
        "GET",
        f"{_RUN}/snapshot",
        name="snapshot",
        summary="Return the present state of a run.",
        answers={200: Snapshot},
        refusals=(400, 404),
        parameters=(THREAD,),
        more=Traits("runtime.persist", "user or guest"),
    )
    async def snapshot(self, request: Request[Signed]) -> Response:
        run = await self._owned(request, _thread(request))
        return Response(200, Snapshot(run.id, run.conversation, status_of(run), run.version, iso(run.updated_at)))

    @operation(
        "POST",
        f"{_RUN}/frames",
        body=NewFrame,
        name="appendFrame",
        summary="Append an input to a run, once per frame_id.",
        answers={200: FrameAccepted, 202: FrameAccepted},
        refusals=(404, 409),
        more=Traits("runtime.ingest", "user or guest"),
    )
    async def frames(self, request: Request[Signed], asked: NewFrame) -> Response:
        run = await self._owned(request, asked.thread_id)
        frame = Frame(asked.frame_id, asked.type, asked.payload, asked.occurred_at)
        try:
            first = await self._frames.take(run, _principal(request), frame)
        except KeyReused:
            raise Conflict("frame_id payload mismatch for existing frame") from None
        return Response(202 if first else 200, FrameAccepted(run.id, frame.id, "accepted", not first))

    @operation(
        "GET",
        f"{_RUN}/stream",
        name="stream",
        summary="Stream the events of a run, after any event.",
        answers={200: EventStream(StreamEvent)},
        refusals=(400, 404, 410),
        parameters=(THREAD, CURSOR, LAST_EVENT, TAIL),
        more=Traits("runtime.stream", "user or guest"),
    )
    async def stream(self, request: Request[Signed]) -> Streamed:
        run = await self._owned(request, _thread(request))
        return partial(self._tail.write, request, run, await self._tail.open(request, run))

    @operation(
        "POST",
        f"{_RUN}/cancel",
        body=CancelAsk,
        name="cancel",
        summary="Cancel a run. The request is stored; repeating it changes nothing.",
        answers={200: CancelAccepted, 202: CancelAccepted},
        refusals=(404,),
        more=Traits(None, "user or guest"),
    )
    async def cancel(self, request: Request[Signed], asked: CancelAsk) -> Response:
        run = await self._owned(request, asked.thread_id)
        reason = asked.reason or "cancel requested"
        try:
            outcome = await self._exchange.cancel(run.id, _principal(request), reason=reason)
        except NotCancelable:
            ended = await self._exchange.commands.state(run.id)
            return Response(
                200, CancelAccepted(run.id, status_of(ended), ended.cancel_requested, idempotent_replay=True)
            )
        if outcome.events:
            return Response(202, CancelAccepted(run.id, "canceling", cancel_requested=True, idempotent_replay=False))
        return Response(
            200, CancelAccepted(run.id, status_of(outcome.run), cancel_requested=True, idempotent_replay=True)
        )

    @operation(
        "POST",
        f"{PREFIX}/comms/delivery-events",
        body=DeliveryEvent,
        name="ingestDelivery",
        summary="Store a provider's delivery event, once per event_id.",
        answers={200: DeliveryAccepted, 202: DeliveryAccepted},
        refusals=(409,),
        more=Traits("runtime.ingest"),
    )
    async def ingest(self, request: Request[Signed], event: DeliveryEvent) -> Response:
        about = {
            "message_id": event.message_id,
            "integration_id": event.integration_id,
            "recipient": event.recipient,
            "occurred_at": event.occurred_at,
            "reason": event.reason,
        }
        delivery = MailDelivery(event.event_id, event.provider, event.delivery_state, event.payload, about)
        try:
            first = await self._deliveries.take(delivery)
        except KeyReused:
            raise Conflict("event_id payload mismatch for existing webhook event") from None
        return Response(202 if first else 200, DeliveryAccepted(event.event_id, "accepted", not first))

    @operation(
        "POST",
        f"{PREFIX}/tools/execute",
        body=ToolsAsk,
        name="executeTool",
        summary="Call a tool of a tool pack, or replay its decision.",
        answers={200: ToolsAnswer},
        refusals=(422,),
        more=Traits("runtime.tool", "user"),
    )
    async def execute(self, request: Request[Signed], asked: ToolsAsk) -> Response:
        ask = ToolAsk(
            _user(request),
            asked.tool_pack,
            asked.manifest,
            asked.request,
            asked.policy or {},
            asked.run_id,
            asked.thread_id,
            asked.mode,
            asked.user_id,
        )
        return Response(200, ToolsAnswer((await self._tools.execute(ask)).data))

    @operation(
        "GET",
        f"{PREFIX}/openapi.json",
        name="openapi",
        summary="Return this OpenAPI document.",
        answers={200: dict},
        more=Traits(),
    )
    async def openapi(self, request: Request[Signed]) -> Response:
        return Response(200, self._document())

    async def authenticate(self, request: Request[Signed], operation: Operation) -> Signed:
        """Check a signature in the contract's order. A token that is refused for any reason keeps its nonce unused.
        Only signed requests learn which paths exist."""
        signatures = self._signatures
        claims = signatures.check(request.header(SIGNATURE), request.header(KEY_ID))
        if not operation.handler:
            await self._nothing(request)
        body = await request.body(self.max_body)
        signatures.check_body(request.header(BODY_SHA256), body)
        fields = fields_in(body)
        signatures.bind(claims, carried(request, fields))
        await signatures.claim_nonce(claims)
        return Signed(principal_of(request.header(b"x-oa-user-id"), request.header(b"x-oa-guest-scope")), fields)

    async def handle(self, request: Request[Signed], row: Operation, handler: Handler) -> Response | Streamed:
        """Call the handler within the operation's trace span, which lasts as long as its stream."""
        with ExitStack() as opened:
            if row.more.span is not None:
                opened.enter_context(span(row.more.span))
            if row.body is None:
                reply = await handler(request)
            else:
                reply = await handler(request, body_of(request.caller.fields, row.body))
            return reply if isinstance(reply, Response) else partial(_within, opened.pop_all(), reply)

    def refuse(self, request: Request[Signed], error: ParleyError) -> Response:
        mapped = mapped_of(error)
        if mapped is None:
            return self.crash(request, error)
        return Response(
            mapped.status, Refusal(Fault(mapped.code, error.message, _details(error))), allow_headers(error)
        )

    def crash(self, request: Request[Signed], error: Exception) -> Response:
        """Log a defect; the client only gets "internal error"."""
        tell("http.crashed", path=PREFIX, error=error)
        return Response(500, _DEFECT)

    async def _nothing(self, request: Request[Signed]) -> Response:
        try:
            return await super()._nothing(request)
        except MethodNotAllowed as error:
            raise MethodNotAllowed("method not allowed", **error.details) from None
        except NotFound:
            raise NotFound("there is no resource at this path") from None

    async def _owned(self, request: Request[Signed], thread_id: str) -> Run:
        """Return the run if it belongs to this thread and to the caller, according to the store and not to the claims.

        As in the contract, another principal's run answers 403 and an unknown run 404. A run of an agent that the
        caller may no longer use answers 404 too.
        """
        caller = _principal(request)
        run = await self._exchange.commands.stored(request.path["run_id"])
        if run is None or run.conversation != thread_id:
            raise NotFound(_NOT_FOUND)
        if not may_see(caller, run.principal):
            raise Forbidden("run/thread does not belong to principal")
        if not self._exchange.permits(run, caller):
            raise NotFound(_NOT_FOUND)
        return run


def carried(request: Request[Any], fields: Object | None) -> Carried:
    """Collect every place in which a request names a run, a thread or a principal. All of them are checked against the
    claims, whichever a handler reads."""
    path = request.path.get("run_id")
    return Carried(
        (*((path,) if path else ()), *_said(request, fields, "run_id")),
        _said(request, fields, "thread_id"),
        user_id_of(request.header(b"x-oa-user-id")),
        request.header(b"x-oa-guest-scope") or None,
    )


def _said(request: Request[Any], fields: Object | None, name: str) -> tuple[str, ...]:
    """Return all values of a name in the query, the body and a tool request in the body. Values that are not strings
    are no ids; the code that reads them refuses them."""
    given = fields or {}
    said = [*request.query.getlist(name), given.get(name), fields_of(given.get("request")).get(name)]
    return tuple(one for one in said if isinstance(one, str))


async def _within(opened: ExitStack, stream: Streamed, receive: Receive, send: Send) -> None:
    with opened:
        await stream(receive, send)


def _principal(request: Request[Signed]) -> Principal:
    principal = request.caller.principal
    if principal is None:
        raise Unauthenticated("missing or invalid principal headers")
    return principal


def _user(request: Request[Signed]) -> Principal:
    caller = request.caller.principal
    if caller is None or caller.kind != "user" or int(caller.name) <= 0:
        raise tools_refusal(["x-oa-user-id header is required"])
    return caller


def _thread(request: Request[Signed]) -> str:
    """Return the thread id from the query, for requests without a body."""
    if not (thread := request.query.get("thread_id")):
        raise Invalid("thread_id is required")
    return thread


def _named(caller: Principal, key: str | None) -> str | None:
    """Derive a run id from the caller's idempotency key, so that a retry without a run id finds the same run."""
    if key is None:
        return None
    if not 1 <= len(key) <= MAX_KEY:
        raise Invalid(f"Idempotency-Key must have 1 to {MAX_KEY} characters")
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{caller}>{key}"))

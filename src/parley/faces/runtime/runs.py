"""Runs at the runtime contract: begin one, look at it, give it frames, cancel it."""

import uuid
from collections.abc import Callable

from parley.clock import iso
from parley.core.access import Principal, demand, may_see
from parley.core.frames import Frame
from parley.core.runs import Run
from parley.engine.exchange import Exchange
from parley.engine.frames import Frames
from parley.engine.requests import Opening
from parley.errors import AgentNotFound, Conflict, Forbidden, Invalid, KeyReused, NotCancelable, NotFound
from parley.faces.runtime.requests import Reply, Request
from parley.faces.runtime.words import (
    CancelAccepted,
    CancelAsk,
    FrameAccepted,
    NewFrame,
    NewRun,
    RunAccepted,
    Snapshot,
    status_of,
)

MAX_KEY = 255
_NOT_FOUND = "run/thread ownership record not found"


class Runs:
    def __init__(self, exchange: Exchange, frames: Frames, default: Callable[[], str | None]) -> None:
        self._exchange = exchange
        self._frames = frames
        self._default = default

    async def create(self, request: Request) -> Reply:
        asked, caller = request.body(NewRun), request.caller()
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
        return Reply(200 if outcome.replayed else 202, shown)

    async def snapshot(self, request: Request) -> Reply:
        run = await self.owned(request, request.thread_id())
        return Reply(200, Snapshot(run.id, run.conversation, status_of(run), run.version, iso(run.updated_at)))

    async def frames(self, request: Request) -> Reply:
        asked = request.body(NewFrame)
        run = await self.owned(request, asked.thread_id)
        frame = Frame(asked.frame_id, asked.type, asked.payload, asked.occurred_at)
        try:
            first = await self._frames.take(run, request.caller(), frame)
        except KeyReused:
            raise Conflict("frame_id payload mismatch for existing frame") from None
        return Reply(202 if first else 200, FrameAccepted(run.id, frame.id, "accepted", not first))

    async def cancel(self, request: Request) -> Reply:
        asked = request.body(CancelAsk)
        run = await self.owned(request, asked.thread_id)
        try:
            outcome = await self._exchange.cancel(run.id, request.caller(), reason=asked.reason or "cancel requested")
        except NotCancelable:
            ended = await self._exchange.commands.state(run.id)
            return Reply(200, CancelAccepted(run.id, status_of(ended), ended.cancel_requested, idempotent_replay=True))
        if outcome.events:
            return Reply(202, CancelAccepted(run.id, "canceling", cancel_requested=True, idempotent_replay=False))
        return Reply(200, CancelAccepted(run.id, status_of(outcome.run), cancel_requested=True, idempotent_replay=True))

    async def owned(self, request: Request, thread_id: str) -> Run:
        """The run, if it is one of this thread and of the caller: decided by what is stored, not by what is claimed.

        The contract tells another's run apart from one that does not exist. A run of an agent that the caller may no
        longer use does not exist.
        """
        caller = request.caller()
        run = await self._exchange.commands.stored(request.run_id)
        if run is None or run.conversation != thread_id:
            raise NotFound(_NOT_FOUND)
        if not may_see(caller, run.principal):
            raise Forbidden("run/thread does not belong to principal")
        if not self._exchange.permits(run, caller):
            raise NotFound(_NOT_FOUND)
        return run


def _named(caller: Principal, key: str | None) -> str | None:
    """Without a name of its own a run is found again by the caller's idempotency key."""
    if key is None:
        return None
    if not 1 <= len(key) <= MAX_KEY:
        raise Invalid(f"Idempotency-Key must have 1 to {MAX_KEY} characters")
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{caller}>{key}"))

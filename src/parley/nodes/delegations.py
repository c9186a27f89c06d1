"""Delegations: one node hands a task to another through this server. Each is a durable run of the target in the name of
the source, and its state is read from that run (the registry and proxy, 004)."""

import asyncio
import hashlib
import uuid
from collections.abc import Coroutine, Sequence
from typing import Literal

import msgspec
from msgspec import Struct

from parley.clock import Clock, now_ms
from parley.documents.rules import Assignment
from parley.errors import (
    AccessDenied,
    Conflict,
    Invalid,
    NotCancelable,
    ParleyError,
    RunEnded,
    RunNotFound,
    SelfDelegation,
    VersionConflict,
)
from parley.ids import ConversationId, RunId, new_id
from parley.nodes.capacity import NodeCapacity
from parley.nodes.proxy import DENIED
from parley.nodes.rules import NodeActivity, NodeEvent, NodeEventKind, RegisteredNode, slug_of
from parley.nodes.service import Nodes
from parley.runs.rules.access import Principal
from parley.runs.rules.commands import Begin, Cancel, Emit, Fail, Give, Start
from parley.runs.rules.content import Message, text_of, text_part
from parley.runs.rules.events import Completed, Event, InputRequired
from parley.runs.rules.state import WAITING, Run, State
from parley.runs.rules.view import View
from parley.runs.service import Exchange
from parley.runs.store import Key, Listing
from parley.telemetry import tell

MODE = "delegate"
RECORDED = "recorded"
"""Agent of delegations that a node carries out by itself and only reports: they have no driver here."""
PREVIEW = 200
RESTING = frozenset(("remote_unreachable", "node_unavailable"))
"""Errors after which a delegation is retried once: the target was not reachable, and nothing was sent."""

DelegationStatus = Literal["pending", "queued", "dispatched", "received", "in_progress", "completed", "failed"]


class Delegation(Struct, frozen=True):
    """Source, target and task; stored with the run as its assignment."""

    source: str
    target: str
    task: str
    id: str = ""
    """The source's own id of a delegation that it only reports."""


def assignment_of(delegation: Delegation, *, recorded: bool = False) -> Assignment:
    about = msgspec.json.encode(delegation).decode()
    return Assignment(MODE, "record" if recorded else "send", metadata=about)


def delegation_of(run: Run) -> Delegation | None:
    """Return the delegation of a run; None for a run that is not a delegation."""
    if run.assignment is None or run.assignment.mode != MODE:
        return None
    return msgspec.json.decode(run.assignment.metadata, type=Delegation)


def agent_of(delegation: Delegation, *, recorded: bool) -> str:
    return RECORDED if recorded else slug_of(delegation.target)


def conversation_of(source: str) -> ConversationId:
    """Return the conversation of all delegations of a node, by which they are listed; it is not shown to targets."""
    return ConversationId(f"delegations:{source}")


def status_of(run: Run, *, crowded: bool = False) -> DelegationStatus:
    """Return the status of a delegation. `crowded`: the target has no capacity at the moment. The contract has no
    status for canceled, so it is `failed`."""
    match run.state:
        case State.COMPLETED:
            return "completed"
        case State.FAILED | State.REJECTED | State.CANCELED:
            return "failed"
        case State.SUBMITTED if run.notes.get("task") is None:
            return "queued" if crowded else "pending"
        case _ if run.agent == RECORDED:
            return "dispatched"
        case _ if not run.notes.get("task"):
            return "dispatched"
        case _:
            heard = run.answering or run.state in WAITING or run.status_at > run.started_at or run.epoch > 1
            return "in_progress" if heard else "received"


NEWEST = 50
MAX_KEY = 255
_LIVE = (State.SUBMITTED, State.WORKING, State.INPUT_REQUIRED, State.AUTH_REQUIRED)
_EVENTS: dict[DelegationStatus, str] = {
    "pending": NodeEventKind.DELEGATION_SENT, "completed": NodeEventKind.DELEGATION_COMPLETE,
    "failed": NodeEventKind.DELEGATION_FAILED,
}  # fmt: skip


class Delegated(Struct, frozen=True):
    """A delegation and its state; `response` is the target's result or question."""

    run: Run
    delegation: Delegation
    status: DelegationStatus
    response: str = ""
    code: str = ""

    @property
    def id(self) -> str:
        return self.delegation.id or self.run.id


class Delegations:
    def __init__(
        self, exchange: Exchange, nodes: Nodes, capacity: NodeCapacity, *, ceiling_s: float, clock: Clock = now_ms
    ) -> None:
        self._exchange = exchange
        self._nodes = nodes
        self._capacity = capacity
        self._ceiling_ms = int(ceiling_s * 1000)
        self._clock = clock
        self._published: dict[RunId, DelegationStatus] = {}
        self._publishing = asyncio.Lock()
        """Keeps events in the order in which they happened."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def delegate(self, source: str, target: str, task: str, key: str | None) -> tuple[Delegated, bool]:
        """Start a delegation, durable on return. Also return whether the same key had started it before."""
        one, other = await self._pair(source, target)
        delegation = Delegation(one.id, other.id, task)
        outcome = await self._exchange.assign(self._start(delegation), _keyed(one.id, delegation, key))
        return await self._shown(outcome.run), outcome.replayed

    async def record(self, source: str, target: str, task: str, id_: str | None) -> Delegated:
        """Record a delegation that the source carries out by itself and reports on later."""
        one, other = await self._pair(source, target)
        delegation = Delegation(one.id, other.id, task, id_ or new_id())
        start = self._start(delegation, recorded=True)
        waiting = Emit(1, InputRequired((text_part("Carried out by the workspace itself."),)))
        run_id = _recorded(one.id, delegation.id)
        try:
            outcome = await self._exchange.commands.execute(run_id, start, waiting)
        except VersionConflict:
            run = await self._exchange.commands.state(run_id)
            if delegation_of(run) != delegation:
                raise Conflict("there is another delegation with this id") from None
            return await self._shown(run)
        return await self._shown(outcome.run)

    async def update(self, source: str, id_: str, status: str, response: str) -> Delegated:
        """End a delegation that the source carried out by itself."""
        found = await self._find(source, id_)
        if found.agent != RECORDED:
            raise Conflict("the status of this delegation is set by its task")
        if status == "failed":
            await self._exchange.commands.execute(found.id, Fail("delegation_failed", response or "it failed"))
        else:
            report = Message(new_id(), (text_part("completed"),))
            ended = Emit(found.epoch + 1, Completed((text_part(response),) if response else ()))
            await self._exchange.commands.execute(found.id, Give(report, Begin(RECORDED)), ended)
        return await self.get(source, id_)

    async def cancel(self, source: str, id_: str) -> Delegated:
        """Cancel a delegation and the target's task. A delegation that has ended is not changed."""
        run = await self._find(source, id_)
        if run.agent == RECORDED:
            await self._exchange.commands.execute(run.id, Cancel(run.principal, "canceled by its source"))
        elif not run.ended:
            try:
                await self._exchange.cancel(run.id, Principal("node", source), reason="canceled by its source")
            except NotCancelable:
                pass
        return await self.get(source, id_)

    async def get(self, source: str, id_: str) -> Delegated:
        return await self._shown(await self._find(source, id_))

    async def newest(self, source: str) -> Sequence[Delegated]:
        """Return the newest delegations, last change of status first."""
        listing = Listing(f"node:{source}", conversation=conversation_of(source), limit=NEWEST, counted=False)
        runs, _ = await self._exchange.store.list_runs(listing)
        return [await self._shown(run) for run in runs if delegation_of(run) is not None]

    async def tick(self) -> None:
        """Run one round: fail delegations that exceeded their time limit."""
        late = self._clock() - self._ceiling_ms
        for state in _LIVE:
            for run in await self._exchange.store.runs_in(state):
                if delegation_of(run) is not None and run.created_at < late and run.agent != RECORDED:
                    await self._expire(run)

    async def _expire(self, run: Run) -> None:
        try:
            seconds = self._ceiling_ms / 1000
            await self._exchange.give_up(run, Fail("timeout", f"The delegation took longer than {seconds:g} s."))
        except (RunEnded, RunNotFound):
            return

    def changed(self, run: Run, events: Sequence[Event]) -> None:
        """Publish a new status of a delegation to followers of its source. Called for every run that gets new events
        here."""
        delegation = delegation_of(run)
        if delegation is None:
            return
        status = status_of(run)
        again = status == "pending" and not (events and events[0].seq == 1)
        if again or self._published.get(run.id) == status:
            return
        self._published[run.id] = status
        if run.ended:
            del self._published[run.id]
        self._spawn(self._publish(run, delegation, status))

    async def close(self) -> None:
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _publish(self, run: Run, delegation: Delegation, status: DelegationStatus) -> None:
        async with self._publishing:
            try:
                shown = await self._shown(run)
                payload = {"delegation_id": shown.id, "target_id": delegation.target, "status": status}
                if run.ended:
                    payload["response_preview"] = shown.response[:PREVIEW]
                    await self._nodes.log(delegation.source, _activity(shown))
                name = _EVENTS.get(status, NodeEventKind.DELEGATION_STATUS)
                event = NodeEvent(name, delegation.source, self._clock(), msgspec.json.encode(payload))
                await self._nodes.tell(event)
            except ParleyError as error:
                tell("delegation.not_told", run=run.id, code=error.code)

    async def _pair(self, source: str, target: str) -> tuple[RegisteredNode, RegisteredNode]:
        one, other = await self._nodes.get(source), await self._nodes.get(target)
        if one.id == other.id:
            raise SelfDelegation("self-delegation not permitted")
        if not await self._nodes.hierarchy.allows(one, other):
            raise AccessDenied(DENIED)
        return one, other

    def _start(self, delegation: Delegation, *, recorded: bool = False) -> Start:
        source = delegation.source
        return Start(
            agent_of(delegation, recorded=recorded),
            conversation_of(source),
            f"node:{source}",
            Message(new_id(), (text_part(delegation.task),)),
            begin=Begin(RECORDED) if recorded else None,
            assignment=assignment_of(delegation, recorded=recorded),
        )

    async def _find(self, source: str, id_: str) -> Run:
        for run_id in (RunId(id_), _recorded(source, id_)):
            try:
                run = await self._exchange.visible(run_id, Principal("node", source))
            except RunNotFound:
                continue
            if delegation_of(run) is not None:
                return run
        raise RunNotFound("delegation not found")

    async def _shown(self, run: Run) -> Delegated:
        delegation = delegation_of(run)
        assert delegation is not None
        crowded = run.state is State.SUBMITTED and not (await self._capacity.load(delegation.target)).begins
        if not run.settled:
            return Delegated(run, delegation, status_of(run, crowded=crowded))
        view = await self._exchange.view(run.id, told=True)
        code = "canceled" if run.state is State.CANCELED else view.code
        return Delegated(run, delegation, status_of(run), _response(view), code)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _response(view: View) -> str:
    """Return the text that the target made, or its last message."""
    made = "".join(text_of(artifact.parts) for artifact in view.artifacts)
    said = view.reply or view.status.said
    return made or (text_of(said.parts) if said else "")


def _activity(shown: Delegated) -> NodeActivity:
    failed = shown.status == "failed"
    return NodeActivity(
        "delegation",
        shown.delegation.source,
        shown.delegation.target,
        "delegate",
        shown.delegation.task[:PREVIEW],
        max(0, shown.run.updated_at - shown.run.created_at),
        "error" if failed else "ok",
        shown.response[:PREVIEW] if failed else None,
    )


def _recorded(source: str, id_: str) -> RunId:
    """Return the run id of a reported delegation. It depends on the source, so an id cannot lead to a run of another
    source."""
    return RunId(str(uuid.uuid5(uuid.NAMESPACE_URL, f"delegation/{source}/{id_}")))


def _keyed(source: str, delegation: Delegation, key: str | None) -> Key | None:
    if key is None:
        return None
    if not 1 <= len(key) <= MAX_KEY:
        raise Invalid(f"idempotency_key must have 1 to {MAX_KEY} characters", field="idempotency_key")
    return Key(f"node:{source}>delegations", key, hashlib.sha256(msgspec.json.encode(delegation)).digest())

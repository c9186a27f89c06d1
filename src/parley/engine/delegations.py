"""What one node hands to another by way of us: a run of the target in the source's name, durable as every run is."""

import asyncio
import hashlib
import uuid
from collections.abc import Coroutine, Sequence

import msgspec
from msgspec import Struct

from parley.clock import Clock, now_ms
from parley.core.access import Principal
from parley.core.artifacts import text_of, text_part
from parley.core.commands import Begin, Cancel, Emit, Fail, Give, Start
from parley.core.conversations import Message
from parley.core.delegations import (
    PREVIEW,
    RECORDED,
    Delegation,
    DelegationStatus,
    agent_of,
    assignment_of,
    conversation_of,
    delegation_of,
    status_of,
)
from parley.core.events import Completed, Event, InputRequired
from parley.core.nodes import Activity, Happened, Node, NodeEvent
from parley.core.runs import Run, State
from parley.core.views import View
from parley.engine.exchange import Exchange
from parley.engine.nodes import Nodes
from parley.engine.ports import Key, Listing
from parley.engine.proxying import DENIED
from parley.engine.rooms import Rooms
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
from parley.ids import RunId, new_id
from parley.telemetry import tell

NEWEST = 50
MAX_KEY = 255
_LIVE = (State.SUBMITTED, State.WORKING, State.INPUT_REQUIRED, State.AUTH_REQUIRED)
_TOLD: dict[DelegationStatus, str] = {
    "pending": Happened.DELEGATION_SENT, "completed": Happened.DELEGATION_COMPLETE,
    "failed": Happened.DELEGATION_FAILED,
}  # fmt: skip


class Delegated(Struct, frozen=True):
    """A delegation as it stands; `response` is what the target made of it, or asks."""

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
        self, exchange: Exchange, nodes: Nodes, rooms: Rooms, *, ceiling_s: float, clock: Clock = now_ms
    ) -> None:  # fmt: skip
        self._exchange = exchange
        self._nodes = nodes
        self._rooms = rooms
        self._ceiling_ms = int(ceiling_s * 1000)
        self._clock = clock
        self._told: dict[RunId, DelegationStatus] = {}
        self._telling = asyncio.Lock()
        """What happened first is told first."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def delegate(self, source: str, target: str, task: str, key: str | None) -> tuple[Delegated, bool]:
        """Durable when it returns; whether it was before, under the same key."""
        one, other = await self._pair(source, target)
        delegation = Delegation(one.id, other.id, task)
        outcome = await self._exchange.assign(self._start(delegation), _keyed(one.id, delegation, key))
        return await self._shown(outcome.run), outcome.replayed

    async def record(self, source: str, target: str, task: str, id_: str | None) -> Delegated:
        """One that the source carries out by itself, and reports on later."""
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
        """How one that the source carried out by itself has ended."""
        found = await self._find(source, id_)
        if found.agent != RECORDED:
            raise Conflict("the status of this delegation follows from its task")
        if status == "failed":
            await self._exchange.commands.execute(found.id, Fail("delegation_failed", response or "it failed"))
        else:
            told = Message(new_id(), (text_part("completed"),))
            ended = Emit(found.epoch + 1, Completed((text_part(response),) if response else ()))
            await self._exchange.commands.execute(found.id, Give(told, Begin(RECORDED)), ended)
        return await self.get(source, id_)

    async def cancel(self, source: str, id_: str) -> Delegated:
        """Reaches the target's task. One that has ended stays as it is."""
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
        """Those whose status changed last come first."""
        listing = Listing(f"node:{source}", conversation=conversation_of(source), limit=NEWEST, counted=False)
        runs, _ = await self._exchange.store.list_runs(listing)
        return [await self._shown(run) for run in runs if delegation_of(run) is not None]

    async def tick(self) -> None:
        """One round: what has taken longer than a delegation may is over."""
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
        """Told of whatever grows here; what is news about a delegation is told to those who follow its source."""
        delegation = delegation_of(run)
        if delegation is None:
            return
        status = status_of(run)
        again = status == "pending" and not (events and events[0].seq == 1)
        if again or self._told.get(run.id) == status:
            return
        self._told[run.id] = status
        if run.ended:
            del self._told[run.id]
        self._spawn(self._tell(run, delegation, status))

    async def close(self) -> None:
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _tell(self, run: Run, delegation: Delegation, status: DelegationStatus) -> None:
        async with self._telling:
            try:
                shown = await self._shown(run)
                payload = {"delegation_id": shown.id, "target_id": delegation.target, "status": status}
                if run.ended:
                    payload["response_preview"] = shown.response[:PREVIEW]
                    await self._nodes.log(delegation.source, _activity(shown))
                name = _TOLD.get(status, Happened.DELEGATION_STATUS)
                event = NodeEvent(name, delegation.source, self._clock(), msgspec.json.encode(payload))
                await self._nodes.tell(event)
            except ParleyError as error:
                tell("delegation.not_told", run=run.id, code=error.code)

    async def _pair(self, source: str, target: str) -> tuple[Node, Node]:
        one, other = await self._nodes.get(source), await self._nodes.get(target)
        if one.id == other.id:
            raise SelfDelegation("self-delegation not permitted")
        if not await self._nodes.hierarchy.allows(one, other):
            raise AccessDenied(DENIED)
        return one, other

    def _start(self, delegation: Delegation, *, recorded: bool = False) -> Start:
        source = delegation.source
        return Start(
            agent_of(delegation, recorded=recorded), conversation_of(source), f"node:{source}",
            Message(new_id(), (text_part(delegation.task),)), begin=Begin(RECORDED) if recorded else None,
            assignment=assignment_of(delegation, recorded=recorded),
        )  # fmt: skip

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
        crowded = run.state is State.SUBMITTED and not (await self._rooms.load(delegation.target)).begins
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
    """What the target made, or said last."""
    made = "".join(text_of(artifact.parts) for artifact in view.artifacts)
    said = view.reply or view.status.said
    return made or (text_of(said.parts) if said else "")


def _activity(shown: Delegated) -> Activity:
    failed = shown.status == "failed"
    return Activity(
        "delegation", shown.delegation.source, shown.delegation.target, "delegate", shown.delegation.task[:PREVIEW],
        max(0, shown.run.updated_at - shown.run.created_at), "error" if failed else "ok",
        shown.response[:PREVIEW] if failed else None,
    )  # fmt: skip


def _recorded(source: str, id_: str) -> RunId:
    """Whatever a source calls its delegations, they are nobody else's runs."""
    return RunId(str(uuid.uuid5(uuid.NAMESPACE_URL, f"delegation/{source}/{id_}")))


def _keyed(source: str, delegation: Delegation, key: str | None) -> Key | None:
    if key is None:
        return None
    if not 1 <= len(key) <= MAX_KEY:
        raise Invalid(f"idempotency_key has 1 to {MAX_KEY} characters", field="idempotency_key")
    return Key(f"node:{source}>delegations", key, hashlib.sha256(msgspec.json.encode(delegation)).digest())

"""Calls to nodes through this server: checks whether the caller may make them and whether the node can take them
now."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from parley.errors import (
    AccessDenied,
    CallQueued,
    NodeNotFound,
    NodeNotRoutable,
    NodeOverBudget,
    NodeTimedOut,
    NodeUnavailable,
    NodeUnreachable,
    OutboundRefused,
    ParleyError,
)
from parley.nodes.capacity import NodeCapacity
from parley.nodes.rules import REACHABLE, ActivityStatus, NodeActivity, NodeStatus, RegisteredNode, node_of
from parley.nodes.service import Nodes
from parley.runs.log import Outcome
from parley.runs.requests import Send, send_key
from parley.runs.rules.state import Run, State
from parley.runs.rules.view import View
from parley.runs.service import Exchange
from parley.telemetry import tell

MAX_METHOD = 100
WAKING_S = 15
RESTARTING_S = 30
DENIED = "access denied: workspaces cannot communicate per hierarchy rules"
_NO_ANSWER = {
    "remote_unreachable": "failed to reach workspace agent",
    "remote_lost": "workspace agent closed the connection",
    "remote_too_large": "workspace response is too large",
    "remote_compressed": "workspace response is compressed",
}
_SILENT = "workspace agent did not answer"
_NOT_ROUTABLE = "workspace URL is not publicly routable"


class WaitingCall(Struct, frozen=True):
    """A waiting caller: `on_taken` is called when the node is working on the call after this time."""

    after_s: float
    on_taken: Callable[[], None]


class CallReport(Struct, frozen=True):
    """Report of an answered call: only sizes and ids, because the content may hold credentials."""

    method: str
    status: ActivityStatus
    duration_ms: int
    request: dict[str, str | int]
    response: dict[str, str | int]


class Proxying:
    def __init__(
        self, exchange: Exchange, nodes: Nodes, capacity: NodeCapacity, check_place: Callable[[str], Awaitable[None]]
    ) -> None:
        self._exchange = exchange
        self._nodes = nodes
        self._capacity = capacity
        self._check_place = check_place

    async def target(self, caller: RegisteredNode | None, id_: str) -> RegisteredNode:
        """Return the node to call, if it exists and the caller, if it is a node, may talk to it."""
        node = await self._nodes.get(id_)
        if caller is not None and not await self._nodes.hierarchy.allows(caller, node):
            raise AccessDenied(DENIED)
        return node

    async def check(self, node: RegisteredNode) -> None:
        """Raise unless the node can be called now."""
        beat = self._nodes.liveness.noted(node)
        if node.budget_limit is not None and beat.monthly_spend >= node.budget_limit > 0:
            raise NodeOverBudget("workspace budget limit exceeded")
        if node.status is NodeStatus.HIBERNATED:
            raise NodeUnavailable(
                "workspace is hibernated", status=node.status.value, waking=True, retry_after=WAKING_S
            )
        if not node.external_url:
            raise NodeUnavailable("workspace has no URL", status=node.status.value)
        if node.status is NodeStatus.PROVISIONING:
            raise NodeUnavailable(
                "workspace is restarting", status=node.status.value, restarting=True, retry_after=RESTARTING_S
            )
        if node.status not in REACHABLE:
            raise NodeUnavailable("workspace not available", status=node.status.value)
        try:
            await self._check_place(await self._nodes.url_of(node, internal=False))
        except OutboundRefused as error:
            raise NodeNotRoutable(_NOT_ROUTABLE) from error

    async def begin(self, send: Send) -> Outcome:
        """Start a call to the node that an agent's slug stands for, if it can be called now."""
        id_ = node_of(send.agent)
        if id_ is None:
            raise NodeNotFound("workspace not found")
        node = await self._nodes.get(id_)
        await self.check(node)
        return await self.accept(node, send)

    async def note(self, node: RegisteredNode, caller: RegisteredNode | None, report: CallReport) -> None:
        """Log a call among the activities of the node; failures are ignored."""
        activity = NodeActivity(
            "a2a_receive",
            caller.id if caller else None,
            node.id,
            report.method[:MAX_METHOD] or None,
            duration_ms=report.duration_ms,
            status=report.status,
            request_body=msgspec.Raw(msgspec.json.encode(report.request)),
            response_body=msgspec.Raw(msgspec.json.encode(report.response)),
        )
        try:
            await self._nodes.log(node.id, activity)
        except ParleyError as error:
            tell("activity.not_kept", node=node.id, code=error.code)

    async def accept(self, node: RegisteredNode, send: Send) -> Outcome:
        """Start a call. Raise CallQueued if the node has no capacity: the call is then stored, and carried out when
        there is capacity. A message that is queued or running already is not queued twice. Messages to a task that the
        node has started are never queued."""
        if send.run is not None:
            return await self._exchange.send(send)
        name, waiting = await self._named(send)
        if before := await self._exchange.sent_before(send):
            if not before.run.ready:
                return before
            waiting = before.run
        if waiting is None:
            if (await self._capacity.load(node.id)).free:
                return await self._exchange.send(send)
            waiting = (await self._exchange.send(replace(send, key=send.key or name))).run
        raise CallQueued(
            "the workspace is busy: the message is queued, and is delivered when the workspace has capacity",
            queue_id=waiting.id,
            queue_depth=max(1, (await self._capacity.load(node.id)).waiting),
        )

    async def _named(self, send: Send) -> tuple[str, Run | None]:
        """Return the key under which a message is queued, and the queued or running run with that key."""
        name = f"queued/{hashlib.sha256(send.message.id.encode()).hexdigest()}"
        while (key := send_key(replace(send, key=name))) is not None:
            found = await self._exchange.store.find_key(key.scope, key.name)
            if found is None:
                break
            run = await self._exchange.commands.state(found.run)
            if not run.ended:
                return name, run
            name = f"queued/{run.id}"
        return name, None

    async def settled(self, outcome: Outcome, timeout_s: float, waiting: WaitingCall) -> View:
        """Return the result of a call: the final one, or the state so far if it takes longer. Raise if the node was not
        reached."""
        watching = asyncio.ensure_future(self._watch(outcome, waiting))
        watching.add_done_callback(_read)
        try:
            async with asyncio.timeout(timeout_s):
                view = await self._exchange.settled(outcome)
        except TimeoutError:
            view = await self._exchange.view(outcome.run.id)
            if view.run.state is State.WORKING and not view.run.notes:
                raise NodeTimedOut(_SILENT, task_id=view.run.id) from None
        finally:
            watching.cancel()
        check_reached(view)
        return view

    async def _watch(self, outcome: Outcome, waiting: WaitingCall) -> None:
        """Report that the node works on the call, once the node has a task for it and the caller has waited for
        long."""
        await asyncio.sleep(waiting.after_s)
        view = await self._exchange.view(outcome.run.id)
        with await self._exchange.follow(outcome.run.id, view.run.version) as follower:
            while not (view.run.notes.get("task") or view.run.settled):
                view.feed(await follower.next())
        if not view.run.settled:
            waiting.on_taken()

    async def reached(self, outcome: Outcome, timeout_s: float) -> None:
        """Wait a short time until it is known whether the node was reached. Raise if it was not."""
        view = await self._exchange.view(outcome.run.id)
        follower = await self._exchange.follow(outcome.run.id, view.run.version)
        with follower:
            try:
                async with asyncio.timeout(timeout_s):
                    while not (view.run.notes or view.run.settled):
                        view.feed(await follower.next())
            except TimeoutError:
                return
        check_reached(view)


def _read(watching: "asyncio.Future[None]") -> None:
    """Read the error of a watcher, if any: the call itself raises the same error."""
    if not watching.cancelled():
        watching.exception()


def check_reached(view: View) -> None:
    """Raise if a run failed before it reached the node."""
    if view.run.state is not State.FAILED or view.run.notes.get("task") or view.artifacts:
        return
    task = view.run.id
    match view.code:
        case "remote_unreachable" | "remote_lost" | "remote_too_large" | "remote_compressed" as code:
            raise NodeUnreachable(_NO_ANSWER[code], task_id=task)
        case "remote_timeout":
            raise NodeTimedOut(_SILENT, task_id=task)
        case "outbound_refused":
            raise NodeNotRoutable(_NOT_ROUTABLE, task_id=task)
        case _:
            return

"""Calls of nodes that pass through this server: who may make them, and whether the node can take them now."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable

from msgspec import Struct
from msgspec.structs import replace

from parley.core.nodes import REACHABLE, Node, Status
from parley.core.runs import Run, State
from parley.core.views import View
from parley.engine.commands import Outcome
from parley.engine.exchange import Exchange
from parley.engine.nodes import Nodes
from parley.engine.requests import Send, send_key
from parley.engine.rooms import Rooms
from parley.errors import (
    AccessDenied,
    CallQueued,
    NodeNotRoutable,
    NodeOverBudget,
    NodeTimedOut,
    NodeUnavailable,
    NodeUnreachable,
    OutboundRefused,
)

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


class Waiting(Struct, frozen=True):
    """A caller that waits: `on_taken` is called when the node works on the call after this time."""

    after_s: float
    on_taken: Callable[[], None]


class Proxying:
    def __init__(
        self, exchange: Exchange, nodes: Nodes, rooms: Rooms, check_place: Callable[[str], Awaitable[None]]
    ) -> None:  # fmt: skip
        self._exchange = exchange
        self._nodes = nodes
        self._rooms = rooms
        self._check_place = check_place

    async def target(self, caller: Node | None, id_: str) -> Node:
        """The node that is called, if it exists and a caller that is a node may talk to it."""
        node = await self._nodes.get(id_)
        if caller is not None and not await self._nodes.hierarchy.allows(caller, node):
            raise AccessDenied(DENIED)
        return node

    async def check(self, node: Node) -> None:
        """Whether the node can be called as things are."""
        beat = self._nodes.liveness.noted(node)
        if node.budget_limit is not None and beat.monthly_spend >= node.budget_limit > 0:
            raise NodeOverBudget("workspace budget limit exceeded")
        if node.status is Status.HIBERNATED:
            raise NodeUnavailable(
                "workspace is hibernated", status=node.status.value, waking=True, retry_after=WAKING_S
            )  # fmt: skip
        if not node.external_url:
            raise NodeUnavailable("workspace has no URL", status=node.status.value)
        if node.status is Status.PROVISIONING:
            raise NodeUnavailable(
                "workspace is restarting", status=node.status.value, restarting=True, retry_after=RESTARTING_S
            )  # fmt: skip
        if node.status not in REACHABLE:
            raise NodeUnavailable("workspace not available", status=node.status.value)
        try:
            await self._check_place(await self._nodes.url_of(node, internal=False))
        except OutboundRefused as error:
            raise NodeNotRoutable(_NOT_ROUTABLE) from error

    async def accept(self, node: Node, send: Send) -> Outcome:
        """Begin a call, or CallQueued when the node has no room: then it is durable all the same, and carried out as
        soon as there is. A message that waits already, or is being worked on since, does not wait twice. What goes on
        with a task that the node has begun never waits."""
        if send.run is not None:
            return await self._exchange.send(send)
        name, waiting = await self._named(send)
        if before := await self._exchange.sent_before(send):
            if not before.run.ready:
                return before
            waiting = before.run
        if waiting is None:
            if (await self._rooms.load(node.id)).free:
                return await self._exchange.send(send)
            waiting = (await self._exchange.send(replace(send, key=send.key or name))).run
        raise CallQueued(
            "the workspace is busy: the message waits, and is delivered when it has room",
            queue_id=waiting.id, queue_depth=max(1, (await self._rooms.load(node.id)).waiting),
        )  # fmt: skip

    async def _named(self, send: Send) -> tuple[str, Run | None]:
        """The key under which a message waits, and the run that waits or is under way under it."""
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

    async def settled(self, outcome: Outcome, timeout_s: float, waiting: Waiting) -> View:
        """What came of a call: in the end, or so far, when that takes longer. Raises when the node was not reached."""
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

    async def _watch(self, outcome: Outcome, waiting: Waiting) -> None:
        """Report that the node works on the call, once it has a task there and the caller waits for long."""
        await asyncio.sleep(waiting.after_s)
        view = await self._exchange.view(outcome.run.id)
        with await self._exchange.follow(outcome.run.id, view.run.version) as follower:
            while not (view.run.notes.get("task") or view.run.settled):
                view.feed(await follower.next())
        if not view.run.settled:
            waiting.on_taken()

    async def reached(self, outcome: Outcome, timeout_s: float) -> None:
        """Wait until it shows whether the node was reached, but not for long. Raises when it was not."""
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
    """Take the error of a watcher, if any: the call itself meets the same trouble and raises it."""
    if not watching.cancelled():
        watching.exception()


def check_reached(view: View) -> None:
    """Whether a run that failed did so before the node had anything to do with it."""
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

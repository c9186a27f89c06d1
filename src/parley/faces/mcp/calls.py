"""Tool calls: each is a message to an agent, and lives as long as its run, whatever becomes of the connection."""

import uuid
from base64 import urlsafe_b64decode, urlsafe_b64encode

import msgspec
from msgspec import Struct

from parley.core.access import Principal, demand
from parley.core.agents import Agent
from parley.core.artifacts import text_part
from parley.core.conversations import Message
from parley.core.events import ArtifactAdded, InputReceived
from parley.core.runs import Run, State
from parley.core.views import view_of
from parley.engine.exchange import Exchange
from parley.engine.ports import Listing
from parley.engine.requests import Send
from parley.engine.streams import Follower, pages
from parley.errors import Invalid, NotCancelable, RunEnded, RunNotFound, StaleCursor
from parley.faces.mcp.following import Following
from parley.faces.mcp.tools import Arguments
from parley.faces.mcp.words import CallId, Token
from parley.ids import RunId, new_id

MOST_SEARCHED = 50
"""Tasks under way that are looked through for the one that another replica was called for."""


class Call(Struct, frozen=True):
    """A request of one client."""

    principal: Principal
    id: CallId
    session: str | None = None
    """What tells apart the requests of several clients of one principal, where the client was given one."""
    token: Token = None
    key: str | None = None


class Mark(Struct, frozen=True, array_like=True):
    """All that is needed to go on with a stream, on any replica: it is the id of each of its events."""

    run: str
    cursor: int
    since: int
    id: CallId
    token: Token

    def __str__(self) -> str:
        return urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")

    @staticmethod
    def parse(text: str) -> "Mark":
        try:
            return msgspec.json.decode(urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=Mark)
        except (msgspec.MsgspecError, ValueError):
            raise Invalid("Last-Event-ID is not one that this server gave out.", field="Last-Event-ID") from None


_Place = tuple[str, str, CallId]


class Calls:
    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._under_way: dict[_Place, RunId] = {}

    async def begin(self, call: Call, agent: Agent, said: Arguments) -> Following:
        demand(call.principal, "send")
        message = Message(_message_id(call, agent), (text_part(said.message),))
        exchange = self._exchange
        send = Send(agent.slug, call.principal, message, said.task, said.conversation, call.key)
        outcome = await exchange.send(send)
        run = outcome.run
        if outcome.replayed:
            view = await exchange.view(run.id)
            following = Following(view, await exchange.follow(run.id, view.run.version))
        elif outcome.events[0].seq == 1:
            following = Following(view_of(outcome.events), exchange.continue_from(outcome))
        else:
            # Followed first: what happens while the rest is read must not be missed.
            follower = exchange.continue_from(outcome)
            following = await self._from(run, run.version, outcome.events[0].seq - 1, follower)
        self._note(call, run.id)
        return following

    async def resume(self, call: Call, mark: Mark) -> Following:
        """Go on with a stream that broke off; from now on, where its events are no longer kept."""
        demand(call.principal, "read")
        run, cursor = await self._exchange.visible(mark.run, call.principal), mark.cursor
        try:
            follower = await self._exchange.follow(run.id, cursor)
        except StaleCursor:
            cursor = run.version
            follower = await self._exchange.follow(run.id, cursor)
        following = await self._from(run, cursor, mark.since, follower)
        self._note(call, run.id)
        return following

    async def cancel(self, call: Call, reason: str | None) -> None:
        """Whatever this request has led to. One that has ended, or that nobody knows, is none of our business."""
        demand(call.principal, "send")
        if call.session is None:
            return
        run_id = self._under_way.get(_place(call)) or await self._found(call)
        if run_id is not None:
            await self.stop(call, run_id, reason)

    async def stop(self, call: Call, run_id: RunId, reason: str | None) -> None:
        try:
            await self._exchange.cancel(run_id, call.principal, reason=reason)
        except (NotCancelable, RunEnded, RunNotFound):
            return

    def left(self, call: Call) -> None:
        """Nobody waits for its answer here any more."""
        if call.session is not None:
            self._under_way.pop(_place(call), None)

    def _note(self, call: Call, run_id: RunId) -> None:
        if call.session is not None:
            self._under_way[_place(call)] = run_id

    async def _found(self, call: Call) -> RunId | None:
        """The run that another replica was called for: it works on the message that this request has sent."""
        wanted = _mark_of(call)
        for state in (State.WORKING, State.SUBMITTED):
            runs, _ = await self._exchange.store.list_runs(
                Listing(str(call.principal), state=state, limit=MOST_SEARCHED)
            )  # fmt: skip
            for run in runs:
                given = await self._exchange.store.read_last(run.id, ("input",), 1)
                if any(isinstance(one.payload, InputReceived) and one.payload.message.id == wanted for one in given):
                    return run.id
        return None

    async def _from(self, run: Run, cursor: int, since: int, follower: Follower) -> Following:
        try:
            view = await self._exchange.view(run.id, upto=cursor)
            made = await self._made(run.id, since, cursor) if since else None
        except BaseException:
            follower.close()
            raise
        return Following(view, follower, since, made)

    async def _made(self, run_id: RunId, since: int, upto: int) -> set[str]:
        made: set[str] = set()
        async for page in pages(self._exchange.store, run_id, since, ("artifact",)):
            added = (event.payload for event in page if event.seq <= upto)
            made |= {payload.artifact for payload in added if isinstance(payload, ArtifactAdded)}
        return made


def _place(call: Call) -> _Place:
    return str(call.principal), call.session or "", call.id


def _message_id(call: Call, agent: Agent) -> str:
    """The same whenever the same is sent with the same key; else told by its request, so that it can be found."""
    if call.key is not None:
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{call.principal}>{agent.slug}>{call.key}"))
    return _mark_of(call) if call.session is not None else new_id()


def _mark_of(call: Call) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{call.principal}>{call.session}>{call.id!r}"))

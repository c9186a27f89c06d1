"""Tool calls of MCP clients. Each call is a message to an agent; its run continues even if the connection breaks."""

import uuid
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncGenerator

import msgspec
from msgspec import Struct

from parley.errors import Invalid, NotCancelable, RunEnded, RunNotFound, StaleCursor
from parley.faces.mcp.messages import CallId, Token
from parley.faces.mcp.tools import Arguments
from parley.http.sse import KEEP_ALIVE_S
from parley.ids import RunId, new_id
from parley.runs.requests import Send
from parley.runs.rules.access import Principal, demand
from parley.runs.rules.agents import Agent
from parley.runs.rules.content import Message, text_of, text_part
from parley.runs.rules.events import (
    ENDINGS,
    QUESTIONS,
    ArtifactAdded,
    ChildStarted,
    Event,
    InputReceived,
    Payload,
    Progress,
    Rescued,
    ToolCalled,
)
from parley.runs.rules.state import Run, State
from parley.runs.rules.view import View, view_of
from parley.runs.service import Exchange
from parley.runs.store import Listing
from parley.runs.streams import Follower, pages

# Follows a run until its call is answered, and reports progress meanwhile.

MOST_TOLD = 500
"""Number of characters of a growing text that are reported: its last ones, which are new."""


class News(Struct, frozen=True):
    """A progress text and the number of its event. `grown` marks a growing text, which the next one may replace."""

    seq: int
    text: str
    grown: bool = False


class Following:
    """One call and its run. Always close it."""

    def __init__(self, view: View, follower: Follower, since: int = 0, made: set[str] | None = None) -> None:
        self.view = view
        self.since = since
        """Number of the event after which the call started; 0 if the run started with the call."""
        self.made = made
        """Ids of the artifacts that this call made; None for all artifacts of the run."""
        self.answered = False
        self._follower = follower
        self._stop = view.run.version if view.run.settled else 0
        """Number of the last question or end."""
        self._growing = ""
        self._text = ""

    @property
    def cursor(self) -> int:
        return self.view.run.version

    async def steps(self, past: int = 0) -> AsyncGenerator[list[News], None]:
        """Yield progress as it happens; an empty list stands for silence. Stop when the run has ended or waits for an
        answer, other than to the question with the number `past`."""
        while not self.view.run.settled or (past and self._stop <= past):
            news: list[News] = []
            for event in await self._follower.next(KEEP_ALIVE_S):
                self._apply(event, news)
                if self.view.run.settled and (not past or event.seq == self._stop):
                    # Further events belong to a later call.
                    break
            yield news

    def close(self) -> None:
        self._follower.close()

    def _apply(self, event: Event, news: list[News]) -> None:
        self.view.apply(event)
        if event.type in ENDINGS or event.type in QUESTIONS:
            self._stop = event.seq
        if event.payload is None:
            return
        if isinstance(event.payload, ArtifactAdded) and self.made is not None:
            self.made.add(event.payload.artifact)
        told = self._told(event.seq, event.payload)
        if told is None:
            return
        if told.grown and news and news[-1].grown:
            news.pop()
        news.append(told)

    def _told(self, seq: int, payload: Payload) -> News | None:
        match payload:
            case Progress(parts):
                text = text_of(parts)
                return News(seq, text[:MOST_TOLD]) if text else None
            case ArtifactAdded():
                return self._grown(seq, payload)
            case ToolCalled(tool=tool):
                return News(seq, f"Calls the tool {tool}.")
            case ChildStarted(agent=agent):
                return News(seq, f"Calls the agent {agent}.")
            case Rescued():
                return News(seq, "Starts again: its process was lost.")
            case _:
                return None

    def _grown(self, seq: int, added: ArtifactAdded) -> News:
        text = text_of(part for part in added.parts if part.filename is None)
        if not text:
            return News(seq, f"Made the artifact {added.name or added.artifact}.")
        before = self._text if added.append and added.artifact == self._growing else ""
        self._growing, whole = added.artifact, before + text
        self._text = whole if len(whole) <= MOST_TOLD else f"…{whole[-MOST_TOLD:]}"
        return News(seq, self._text, grown=True)


MOST_SEARCHED = 50
"""Number of unfinished tasks that are searched for a call that another replica accepted."""


class McpCall(Struct, frozen=True):
    """A request of one client."""

    principal: Principal
    id: CallId
    session: str | None = None
    """Session id, which distinguishes several clients of one principal; None if the client has none."""
    token: Token = None
    key: str | None = None
    task: bool = False
    """True if the request asks for the result of a task."""


class Mark(Struct, frozen=True, array_like=True):
    """All data that any replica needs to resume a stream. Its encoding is the id of each event of the stream."""

    run: str
    cursor: int
    since: int
    id: CallId
    token: Token
    task: bool = False

    def __str__(self) -> str:
        return urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")

    @staticmethod
    def parse(text: str) -> "Mark":
        try:
            return msgspec.json.decode(urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=Mark)
        except (msgspec.MsgspecError, ValueError):
            raise Invalid("Last-Event-ID must be the id of an event of this server.", field="Last-Event-ID") from None


_Place = tuple[str, str, CallId]


class McpCalls:
    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._under_way: dict[_Place, RunId] = {}

    async def begin(self, call: McpCall, agent: Agent, said: Arguments) -> Following:
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
            # Follow first, so that events that occur while the earlier ones are read are not missed.
            follower = exchange.continue_from(outcome)
            following = await self._from(run, run.version, outcome.events[0].seq - 1, follower)
        self._note(call, run.id)
        return following

    async def resume(self, call: McpCall, mark: Mark) -> Following:
        """Resume an interrupted stream; from the present state if its events are no longer stored."""
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

    async def cancel(self, call: McpCall, reason: str | None) -> None:
        """Cancel the run of a request; ignore a request that is unknown or whose run has ended."""
        demand(call.principal, "send")
        if call.session is None:
            return
        run_id = self._under_way.get(_place(call)) or await self._found(call)
        if run_id is not None:
            await self.stop(call, run_id, reason)

    # Why: docs/decisions/faces.md#cancel-on-disconnect-only-as-revision-2026-07-28-demands
    async def stop(self, call: McpCall, run_id: RunId, reason: str | None) -> None:
        try:
            await self._exchange.cancel(run_id, call.principal, reason=reason)
        except (NotCancelable, RunEnded, RunNotFound):
            return

    def left(self, call: McpCall) -> None:
        """Forget a call that no client waits for on this replica."""
        if call.session is not None:
            self._under_way.pop(_place(call), None)

    def _note(self, call: McpCall, run_id: RunId) -> None:
        if call.session is not None:
            self._under_way[_place(call)] = run_id

    async def _found(self, call: McpCall) -> RunId | None:
        """Find the run of a call that another replica accepted, by the id of the message that the call sent."""
        wanted = _mark_of(call)
        for state in (State.WORKING, State.SUBMITTED):
            runs, _ = await self._exchange.store.list_runs(
                Listing(str(call.principal), state=state, limit=MOST_SEARCHED)
            )
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


def _place(call: McpCall) -> _Place:
    return str(call.principal), call.session or "", call.id


def _message_id(call: McpCall, agent: Agent) -> str:
    """Return the message id of a call. It is the same for the same key; without a key it is derived from the session
    and the request id, so that other replicas can find the run."""
    if call.key is not None:
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{call.principal}>{agent.slug}>{call.key}"))
    return _mark_of(call) if call.session is not None else new_id()


def _mark_of(call: McpCall) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{call.principal}>{call.session}>{call.id!r}"))

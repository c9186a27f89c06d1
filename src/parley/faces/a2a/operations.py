"""The operations of A2A, whatever binding and version asks for them."""

import asyncio
from collections.abc import Callable

from msgspec.structs import replace

from parley.core.access import demand, may_use
from parley.core.agents import Agent
from parley.core.conversations import Message
from parley.core.runs import Run, evolve
from parley.core.views import View
from parley.engine.commands import Outcome
from parley.engine.exchange import Exchange
from parley.engine.hooks import Hook
from parley.engine.ports import Listing
from parley.engine.push import Push
from parley.engine.requests import Branch, Send
from parley.engine.views import folded
from parley.errors import (
    AgentNotFound,
    ExtensionRequired,
    Forbidden,
    Invalid,
    InvalidCursor,
    ParleyError,
    PushNotSupported,
    Unauthenticated,
    Unsupported,
)
from parley.faces.a2a.card import Cards
from parley.faces.a2a.showing import Showing
from parley.faces.a2a.streaming import Stream, Streaming
from parley.faces.a2a.witness import Witness
from parley.faces.a2a.words import (
    Ask,
    Call,
    CancelParams,
    ForkAsk,
    HookRef,
    Page,
    Query,
    ReplyShown,
    TaskParams,
    TaskShown,
)
from parley.faces.paging import page_cursor, page_token
from parley.ids import is_id

CANCEL_WAIT_S = 5.0
ACCEPTED = 2
"""Where the first message of a task stands in its log."""

Default = Callable[[], str | None]
"""The agent behind the server's root, as of now."""


class Operations:
    def __init__(
        self, exchange: Exchange, push: Push, cards: Cards, default: Default, witness: Witness | None = None
    ) -> None:  # fmt: skip
        self._exchange = exchange
        self._push = push
        self._cards = cards
        self._default = default
        self._witness = witness
        self._showing = Showing(exchange, cards.base_url)
        self._streaming = Streaming(exchange, self._showing)

    async def send(self, call: Call, ask: Ask) -> TaskShown | ReplyShown:
        self._asked("message/send", call, ask.task, ask.message)
        call = await self._at_task(call, ask)
        agent = self._agent_for(call, ask)
        outcome = await self._accepted(self._send(call, agent, ask), ask)
        attaching = self._attach(outcome, ask)
        if ask.immediate and agent.replies != "message":
            view = await self._current(outcome)
        else:
            view = await self._settled(outcome)
        if attaching is not None:
            await attaching
        return await self._showing.answer(view, ask.history_length)

    async def get(self, call: Call, params: TaskParams) -> TaskShown:
        self._asked("tasks/get", call, params.id)
        _check_history(params.history_length)
        run = await self._visible(call, params.id)
        view = await self._exchange.view(run.id, history=params.history_length)
        shown = await self._showing.task(view, params.history_length)
        return await self._showing.queued(shown)

    async def list_tasks(self, call: Call, query: Query) -> Page:
        """The caller's own tasks; an administrator, too, lists only its own here."""
        self._asked("tasks/list", call)
        demand(call.principal, "read")
        agent = self._agent(call).slug if call.agent else None
        listing = Listing(
            str(call.principal), agent, query.context, query.state, query.since,
            page_cursor(query.page_token), query.page_size,
        )  # fmt: skip
        if query.context is not None and not is_id(query.context):
            return Page([], "", query.page_size, 0)
        runs, total = await self._exchange.store.list_runs(listing)
        tasks = [await self._listed(run, query) for run in runs]
        return Page(tasks, page_token(runs, query.page_size), query.page_size, total)

    async def cancel(self, call: Call, params: CancelParams) -> TaskShown:
        """The task once it has ended; or as it is, when its agent takes its time to stop."""
        self._asked("tasks/cancel", call, params.id)
        demand(call.principal, "send")
        visible = await self._visible(call, params.id)
        outcome = await self._exchange.cancel(visible.id, call.principal, call.agent, _reason(params))
        run = outcome.run
        with self._exchange.continue_from(outcome) as follower:
            while not run.ended:
                events = await follower.next(CANCEL_WAIT_S)
                if not events:
                    break
                for event in events:
                    if event.payload is not None:
                        run = evolve(run, run.id, event.seq, event.at, event.payload)
        return await self._showing.task(await self._exchange.view(run.id), None)

    async def fork(self, call: Call, ask: ForkAsk) -> TaskShown:
        """The new task as it was accepted."""
        demand(call.principal, "send")
        run = await self._visible(call, ask.task)
        self._agent(replace(call, agent=run.agent))
        branch = Branch(run.id, call.principal, call.agent, ask.at, ask.message, ask.context, call.key)
        return await self._showing.task(await self._current(await self._exchange.fork(branch)), None)

    async def stream(self, call: Call, ask: Ask) -> Stream:
        """Send and follow; ends when the run ends or waits. Resumable when it was sent with a key."""
        self._asked("message/stream", call, ask.task, ask.message)
        call = await self._at_task(call, ask)
        agent = self._agent_for(call, ask)
        _check_streaming(agent)
        cursor = _cursor(call)
        send = self._send(call, agent, ask)
        if cursor is not None:
            return await self._resumed(send, cursor)
        outcome = await self._accepted(send, ask)
        attaching = self._attach(outcome, ask)
        if agent.replies == "message":
            stream = self._streaming.reply(outcome, ask.history_length)
        elif outcome.replayed:
            stream = await self._streaming.from_now(outcome.run.id, ask.history_length, until_settled=True)
        else:
            open_ended = agent.replies == "either"
            stream = await self._streaming.from_accepted(outcome, ask.history_length, open_ended=open_ended)
        if attaching is not None:
            await attaching
        return await self._opened(stream, outcome)

    async def subscribe(self, call: Call, params: TaskParams) -> Stream:
        """The task as it is, then what happens; with a cursor only the latter. Stays open while the run waits."""
        self._asked("tasks/resubscribe", call, params.id)
        cursor = _cursor(call)
        run = await self._visible(call, params.id)
        _check_streaming(self._find(run.agent))
        if cursor is None and run.ended:
            raise Unsupported(f"The task is {run.state.value}; there is nothing left to subscribe to.")
        if cursor is None:
            return await self._streaming.from_now(run.id, until_settled=False)
        return await self._streaming.after(run, cursor, until_settled=False)

    async def set_hook(self, call: Call, hook: Hook) -> Hook:
        demand(call.principal, "send")
        run = await self._pushable(call, hook.task)
        return await self._push.add(run, hook)

    async def get_hook(self, call: Call, ref: HookRef) -> Hook:
        run = await self._pushable(call, ref.task)
        return await self._push.hooks.get(run.id, ref.id)

    async def list_hooks(self, call: Call, ref: HookRef, page_size: int | None, token: str) -> tuple[list[Hook], str]:
        run = await self._pushable(call, ref.task)
        hooks = await self._push.hooks.list(run.id, token, (page_size or 100) + 1)
        size = page_size or 100
        return hooks[:size], hooks[size - 1].id if len(hooks) > size else ""

    async def delete_hook(self, call: Call, ref: HookRef) -> None:
        demand(call.principal, "send")
        run = await self._pushable(call, ref.task)
        await self._push.remove(run.id, ref.id or "")

    async def card(self, call: Call, version: str) -> bytes:
        """The extended card. It needs a credential in every mode of `auth` (§13.3), also where nothing else does."""
        agent = self._agent(call, public=True)
        if agent.extended is None:
            raise Unsupported("This agent has no extended card.")
        owner = call.principal if call.owner is None else await call.owner()
        if owner is None or owner.kind == "local":
            raise Unauthenticated("The extended card needs credentials: Authorization: Bearer, or X-API-Key.")
        if not may_use(owner, agent):
            raise Forbidden("This credential does not allow the extended card of this agent.")
        return await self._cards.extended(agent, version)

    def refused(self, error: ParleyError) -> None:
        """Somebody's request came to nothing, for whatever reason."""
        if self._witness is not None:
            self._witness.refused(error)

    def _send(self, call: Call, agent: Agent, ask: Ask) -> Send:
        return Send(agent.slug, call.principal, ask.message, ask.task, ask.context, call.key)

    async def _accepted(self, send: Send, ask: Ask) -> Outcome:
        return await self._exchange.send(send)

    async def _settled(self, outcome: Outcome) -> View:
        return await self._exchange.settled(outcome)

    async def _opened(self, stream: Stream, outcome: Outcome) -> Stream:
        return stream

    def _find(self, slug: str) -> Agent | None:
        return self._exchange.agents.get(slug)

    def _asked(self, method: str, call: Call, task: str | None = None, message: Message | None = None) -> None:
        if self._witness is not None:
            self._witness.asked(method, call, task, message)

    def _agent(self, call: Call, *, public: bool = False) -> Agent:
        """The agent that is asked, if it exists for the caller. `public`: or if its card is public."""
        agent = self._find(call.agent or self._default() or "")
        if agent is None or not (may_use(call.principal, agent) or (public and may_use(None, agent))):
            raise AgentNotFound(f"There is no agent {call.agent!r} here." if call.agent else "There is no agent here.")
        missing = [one.uri for one in agent.extensions if one.required and one.uri not in call.extensions]
        if missing:
            raise ExtensionRequired(f"This agent needs the extension {missing[0]}.", extension=missing[0])
        return agent

    async def _at_task(self, call: Call, ask: Ask) -> Call:
        """At the server's root a follow-up goes to the agent of its task."""
        if call.agent is not None or ask.task is None:
            return call
        demand(call.principal, "send")
        return replace(call, agent=(await self._exchange.visible(ask.task, call.principal)).agent)

    def _agent_for(self, call: Call, ask: Ask) -> Agent:
        demand(call.principal, "send")
        agent = self._agent(call)
        if ask.hook is not None:
            if not agent.push:
                raise PushNotSupported("This agent sends no push notifications.")
            self._push.check(ask.hook)
        return agent

    async def _visible(self, call: Call, task: str) -> Run:
        demand(call.principal, "read")
        if call.agent is not None:
            self._agent(call)
        return await self._exchange.visible(task, call.principal, call.agent)

    async def _pushable(self, call: Call, task: str) -> Run:
        """Whether an agent pushes at all is no secret; whether a task exists may be."""
        if call.agent is not None and not self._agent(call).push:
            raise PushNotSupported("This agent sends no push notifications.")
        run = await self._visible(call, task)
        agent = self._find(run.agent)
        if agent is not None and not agent.push:
            raise PushNotSupported("This agent sends no push notifications.")
        return run

    def _attach(self, outcome: Outcome, ask: Ask) -> "asyncio.Task[Hook] | None":
        """Begun, not awaited: who follows what happens after a command must not wait for anything else first."""
        if ask.hook is None:
            return None
        attaching = self._push.attach(outcome.run, ask.hook, _accepted_at(outcome), replayed=outcome.replayed)
        return asyncio.get_running_loop().create_task(attaching)

    async def _resumed(self, send: Send, cursor: int) -> Stream:
        if send.key is None:
            raise Invalid("To resume this stream, send the Idempotency-Key it was begun with.", field="Last-Event-ID")
        outcome = await self._exchange.sent_before(send)
        if outcome is None:
            raise Invalid("Nothing was begun with this Idempotency-Key yet.", field="Last-Event-ID")
        return await self._streaming.after(outcome.run, cursor, until_settled=True)

    async def _current(self, outcome: Outcome) -> View:
        if outcome.events and outcome.events[0].seq == 1:
            return await folded(outcome.events)
        return await self._exchange.view(outcome.run.id)

    async def _listed(self, run: Run, query: Query) -> TaskShown:
        view = await self._exchange.view(run.id, history=query.history_length, artifacts=query.artifacts)
        return await self._showing.task(view, query.history_length, artifacts=query.artifacts)


def _accepted_at(outcome: Outcome) -> int:
    """Where the message of a send stands in the log; for one that was sent before, where a task's first one stands:
    who is told too much loses nothing."""
    return next((event.seq for event in outcome.events if event.type == "input"), ACCEPTED)


def _check_streaming(agent: Agent | None) -> None:
    if agent is not None and not agent.streaming:
        raise Unsupported("This agent does not stream.")


def _cursor(call: Call) -> int | None:
    if call.last_event_id is None:
        return None
    if not (call.last_event_id.isascii() and call.last_event_id.isdigit() and len(call.last_event_id) < 16):
        raise InvalidCursor("Last-Event-ID is the number of the last event you saw.", field="Last-Event-ID")
    return int(call.last_event_id)


def _check_history(length: int | None) -> None:
    if length is not None and length < 0:
        raise Invalid("historyLength is zero or more.", field="historyLength")


def _reason(params: CancelParams) -> str | None:
    reason = (params.metadata or {}).get("reason")
    return reason if isinstance(reason, str) and len(reason) <= 500 else None

"""Operations of A2A, shared by all bindings and versions."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from msgspec.structs import replace

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
from parley.faces.a2a.messages import (
    A2ACall,
    Ask,
    CancelParams,
    ForkAsk,
    HookRef,
    PollParams,
    Query,
    ReplyShown,
    TaskPage,
    TaskParams,
    TaskShown,
    int64,
    status_of,
)
from parley.faces.a2a.polls import LongPolls
from parley.faces.a2a.streams import A2AStream, A2AStreaming, Showing
from parley.http.requests import page_cursor, page_token
from parley.ids import RunId, is_id
from parley.push.hooks import Hook
from parley.push.service import Push
from parley.runs.log import Outcome
from parley.runs.requests import Branch, Send
from parley.runs.rules.access import demand, may_use
from parley.runs.rules.agents import Agent
from parley.runs.rules.content import Message
from parley.runs.rules.events import Event
from parley.runs.rules.state import Run, State, evolve
from parley.runs.rules.view import View
from parley.runs.service import Exchange
from parley.runs.store import Listing
from parley.runs.views import folded
from parley.telemetry import tell
from parley.tools.rules.redaction import preview

# Log of requests and states of tasks, if the operator enables it (section Logging of the organisation contract (001)).


class RequestLog:
    """Logs requests, refusals and state changes. A server without a request log spends no time on it."""

    def asked(self, method: str, call: A2ACall, task: str | None, message: Message | None) -> None:
        """Log a request with its method name in JSON-RPC 0.3, for every binding."""
        about = {"task": task} if task else {}
        if message is not None:
            about["message"] = preview(*(part.text for part in message.parts if part.text))
        tell("request.made", method=method, agent=call.agent or "", principal=str(call.principal), **about)

    def refused(self, error: ParleyError) -> None:
        tell("request.refused", code=error.code)

    def changed(self, run: Run, events: Sequence[Event]) -> None:
        """Log the state changes of a run. Progress messages of the agent are no change."""
        for event in events:
            state = State.SUBMITTED if event.type == "submitted" else _reached(event)
            if state is not None:
                tell("task.state", run=run.id, agent=run.agent, state=state.value, seq=event.seq)


def _reached(event: Event) -> State | None:
    status = status_of(event)
    return status.state if status is not None and event.type != "progress" else None


CANCEL_WAIT_S = 5.0
POLL_S = 30.0
ACCEPTED = 2
"""Event number of the first message in the log of a task."""

Default = Callable[[], str | None]
"""Returns the agent that is at the server's root at present."""


class Recipients(Protocol):
    """Finds agents and delivers messages to them."""

    def find(self, slug: str) -> Agent | None: ...

    def message(self, ask: Ask) -> Message:
        """Return the message in the form that the agent receives."""
        ...

    def accept(self, send: Send, ask: Ask) -> Awaitable[Outcome]: ...

    def settle(self, outcome: Outcome, call: A2ACall) -> Awaitable[View]:
        """Wait until the run has ended or waits for an answer; return its view."""
        ...

    def open(self, stream: A2AStream, outcome: Outcome) -> Awaitable[A2AStream]:
        """Return the stream of an accepted message; raise if the message is refused after all."""
        ...


class LocalAgents:
    """Agents of this server."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def find(self, slug: str) -> Agent | None:
        return self._exchange.agents.get(slug)

    def message(self, ask: Ask) -> Message:
        return ask.message

    def accept(self, send: Send, ask: Ask) -> Awaitable[Outcome]:
        return self._exchange.send(send)

    def settle(self, outcome: Outcome, call: A2ACall) -> Awaitable[View]:
        return self._exchange.settled(outcome)

    async def open(self, stream: A2AStream, outcome: Outcome) -> A2AStream:
        return stream


class Operations:
    def __init__(
        self,
        exchange: Exchange,
        push: Push,
        cards: Cards,
        default: Default,
        witness: RequestLog | None = None,
        recipients: Recipients | None = None,
        poll_s: float = POLL_S,
    ) -> None:
        """`poll_s` is the longest time for which a request waits for a higher generation."""
        self._exchange = exchange
        self._push = push
        self._cards = cards
        self._default = default
        self._witness = witness
        self._recipients: Recipients = recipients or LocalAgents(exchange)
        self._showing = Showing(exchange, cards.base_url)
        self._streaming = A2AStreaming(exchange, self._showing)
        self._polls = LongPolls(exchange, self._task, poll_s)

    async def send(self, call: A2ACall, ask: Ask) -> TaskShown | ReplyShown:
        self._asked("message/send", call, ask.task, ask.message)
        call = await self._at_task(call, ask)
        agent = self._agent_for(call, ask)
        outcome = await self._recipients.accept(self._send(call, agent, ask), ask)
        attaching = self._attach(outcome, ask)
        if ask.immediate and agent.replies != "message":
            view = await self._current(outcome)
        else:
            view = await self._recipients.settle(outcome, call)
        if attaching is not None:
            await attaching
        return await self._showing.answer(view, ask.history_length)

    async def get(self, call: A2ACall, params: TaskParams) -> TaskShown:
        self._asked("tasks/get", call, params.id)
        _check_history(params.history_length)
        run = await self._visible(call, params.id)
        known = int64(params.current_generation, "currentGeneration") if isinstance(params, PollParams) else None
        if known is not None and run.generation <= known and not run.ended:
            return await self._polls.outgrown(run, known, params.history_length)
        return await self._task(run.id, params.history_length)

    async def _task(self, run_id: RunId, history_length: int | None) -> TaskShown:
        view = await self._exchange.view(run_id, history=history_length)
        return await self._showing.queued(await self._showing.task(view, history_length))

    async def list_tasks(self, call: A2ACall, query: Query) -> TaskPage:
        """List the caller's own tasks; also for an administrator, only its own."""
        self._asked("tasks/list", call)
        demand(call.principal, "read")
        agent = self._agent(call).slug if call.agent else None
        listing = Listing(
            str(call.principal),
            agent,
            query.context,
            query.state,
            query.since,
            page_cursor(query.page_token),
            query.page_size,
        )
        if query.context is not None and not is_id(query.context):
            return TaskPage([], "", query.page_size, 0)
        runs, total = await self._exchange.store.list_runs(listing)
        tasks = [await self._listed(run, query) for run in runs]
        return TaskPage(tasks, page_token(runs, query.page_size), query.page_size, total)

    async def cancel(self, call: A2ACall, params: CancelParams) -> TaskShown:
        """Cancel a task and return it once it has ended, or in its present state if its agent takes long to stop."""
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

    async def fork(self, call: A2ACall, ask: ForkAsk) -> TaskShown:
        """Fork a task; return the new task as it was accepted."""
        demand(call.principal, "send")
        run = await self._visible(call, ask.task)
        self._agent(replace(call, agent=run.agent))
        branch = Branch(run.id, call.principal, call.agent, ask.at, ask.message, ask.context, call.key)
        return await self._showing.task(await self._current(await self._exchange.fork(branch)), None)

    async def stream(self, call: A2ACall, ask: Ask) -> A2AStream:
        """Send a message and follow its run until it ends or waits. The stream can be resumed if the request had an
        idempotency key."""
        self._asked("message/stream", call, ask.task, ask.message)
        call = await self._at_task(call, ask)
        agent = self._agent_for(call, ask)
        _check_streaming(agent)
        cursor = _cursor(call)
        send = self._send(call, agent, ask)
        if cursor is not None:
            return await self._resumed(send, cursor, counted=call.generations)
        outcome = await self._recipients.accept(send, ask)
        attaching = self._attach(outcome, ask)
        if agent.replies == "message":
            stream = self._streaming.reply(outcome, ask.history_length)
        elif outcome.replayed:
            stream = await self._streaming.from_now(
                outcome.run.id, ask.history_length, until_settled=True, counted=call.generations
            )
        else:
            stream = await self._streaming.from_accepted(
                outcome, ask.history_length, open_ended=agent.replies == "either", counted=call.generations
            )
        if attaching is not None:
            await attaching
        return await self._recipients.open(stream, outcome)

    async def subscribe(self, call: A2ACall, params: TaskParams) -> A2AStream:
        """Stream the task in its present state, then its updates; with a cursor only the updates. The stream stays open
        while the run waits for an answer."""
        self._asked("tasks/resubscribe", call, params.id)
        cursor = _cursor(call)
        run = await self._visible(call, params.id)
        _check_streaming(self._recipients.find(run.agent))
        if cursor is None and run.ended:
            raise Unsupported(f"The task is {run.state.value}: it has no further events to subscribe to.")
        if cursor is None:
            return await self._streaming.from_now(run.id, until_settled=False, counted=call.generations)
        return await self._streaming.after(run, cursor, until_settled=False, counted=call.generations)

    async def set_hook(self, call: A2ACall, hook: Hook) -> Hook:
        demand(call.principal, "send")
        run = await self._pushable(call, hook.task)
        return await self._push.add(run, hook)

    async def get_hook(self, call: A2ACall, ref: HookRef) -> Hook:
        run = await self._pushable(call, ref.task)
        return await self._push.hooks.get(run.id, ref.id)

    async def list_hooks(
        self, call: A2ACall, ref: HookRef, page_size: int | None, token: str
    ) -> tuple[list[Hook], str]:
        run = await self._pushable(call, ref.task)
        hooks = await self._push.hooks.list(run.id, token, (page_size or 100) + 1)
        size = page_size or 100
        return hooks[:size], hooks[size - 1].id if len(hooks) > size else ""

    async def delete_hook(self, call: A2ACall, ref: HookRef) -> None:
        demand(call.principal, "send")
        run = await self._pushable(call, ref.task)
        await self._push.remove(run.id, ref.id or "")

    async def card(self, call: A2ACall, version: str) -> bytes:
        """Return the extended card. It requires a credential in every mode of `auth` (§13.3), even if nothing else
        does."""
        agent = self._agent(call, public=True)
        if agent.extended is None:
            raise Unsupported("This agent has no extended card.")
        owner = call.principal if call.owner is None else await call.owner()
        if owner is None or owner.kind == "local":
            raise Unauthenticated("The extended card requires credentials: send Authorization: Bearer, or X-API-Key.")
        if not may_use(owner, agent):
            raise Forbidden("This credential gives no access to the extended card of this agent.")
        return await self._cards.extended(agent, version)

    def refused(self, error: ParleyError) -> None:
        """Log that a request was refused."""
        if self._witness is not None:
            self._witness.refused(error)

    def _send(self, call: A2ACall, agent: Agent, ask: Ask) -> Send:
        message = self._recipients.message(ask)
        return Send(agent.slug, call.principal, message, ask.task, ask.context, call.key, generation=ask.generation)

    def _asked(self, method: str, call: A2ACall, task: str | None = None, message: Message | None = None) -> None:
        if self._witness is not None:
            self._witness.asked(method, call, task, message)

    def _agent(self, call: A2ACall, *, public: bool = False) -> Agent:
        """Return the agent of a call; raise if it does not exist or the caller may not use it. With `public`, a public
        card is enough."""
        agent = self._recipients.find(call.agent or self._default() or "")
        if agent is None or not (may_use(call.principal, agent) or (public and may_use(None, agent))):
            raise AgentNotFound(
                f"There is no agent {call.agent!r} on this server."
                if call.agent
                else "This server has no default agent."
            )
        missing = [one.uri for one in agent.extensions if one.required and one.uri not in call.extensions]
        if missing:
            raise ExtensionRequired(f"This agent requires the extension {missing[0]}.", extension=missing[0])
        return agent

    async def _at_task(self, call: A2ACall, ask: Ask) -> A2ACall:
        """Address a follow-up at the server's root to the agent of its task."""
        if call.agent is not None or ask.task is None:
            return call
        demand(call.principal, "send")
        return replace(call, agent=(await self._exchange.visible(ask.task, call.principal)).agent)

    def _agent_for(self, call: A2ACall, ask: Ask) -> Agent:
        demand(call.principal, "send")
        agent = self._agent(call)
        if ask.hook is not None:
            if not agent.push:
                raise PushNotSupported("This agent sends no push notifications.")
            self._push.check(ask.hook)
        return agent

    async def _visible(self, call: A2ACall, task: str) -> Run:
        demand(call.principal, "read")
        if call.agent is not None:
            self._agent(call)
        return await self._exchange.visible(task, call.principal, call.agent)

    async def _pushable(self, call: A2ACall, task: str) -> Run:
        """Return the run if its agent sends push notifications. This is checked before the task is looked up: it is no
        secret, but the existence of a task may be."""
        if call.agent is not None and not self._agent(call).push:
            raise PushNotSupported("This agent sends no push notifications.")
        run = await self._visible(call, task)
        agent = self._recipients.find(run.agent)
        if agent is not None and not agent.push:
            raise PushNotSupported("This agent sends no push notifications.")
        return run

    def _attach(self, outcome: Outcome, ask: Ask) -> "asyncio.Task[Hook] | None":
        """Start to attach the webhook of a request. It is not awaited here, because following the outcome of a command
        must not be delayed."""
        if ask.hook is None:
            return None
        attaching = self._push.attach(outcome.run, ask.hook, _accepted_at(outcome), replayed=outcome.replayed)
        return asyncio.get_running_loop().create_task(attaching)

    async def _resumed(self, send: Send, cursor: int, *, counted: bool) -> A2AStream:
        if send.key is None:
            raise Invalid(
                "To resume this stream, send the Idempotency-Key of the request that started it.", field="Last-Event-ID"
            )
        outcome = await self._exchange.sent_before(send)
        if outcome is None:
            raise Invalid("No stream was started with this Idempotency-Key.", field="Last-Event-ID")
        return await self._streaming.after(outcome.run, cursor, until_settled=True, counted=counted)

    async def _current(self, outcome: Outcome) -> View:
        if outcome.events and outcome.events[0].seq == 1:
            return await folded(outcome.events)
        return await self._exchange.view(outcome.run.id)

    async def _listed(self, run: Run, query: Query) -> TaskShown:
        view = await self._exchange.view(run.id, history=query.history_length, artifacts=query.artifacts)
        return await self._showing.task(view, query.history_length, artifacts=query.artifacts)


def _accepted_at(outcome: Outcome) -> int:
    """Return the event number of the message of a send. For a repeated send, return that of the task's first message:
    the webhook may then get some updates twice, but misses none."""
    return next((event.seq for event in outcome.events if event.type == "input"), ACCEPTED)


def _check_streaming(agent: Agent | None) -> None:
    if agent is not None and not agent.streaming:
        raise Unsupported("This agent does not support streaming.")


def _cursor(call: A2ACall) -> int | None:
    if call.last_event_id is None:
        return None
    if not (call.last_event_id.isascii() and call.last_event_id.isdigit() and len(call.last_event_id) < 16):
        raise InvalidCursor("Last-Event-ID must be the number of the last event received.", field="Last-Event-ID")
    return int(call.last_event_id)


def _check_history(length: int | None) -> None:
    if length is not None and length < 0:
        raise Invalid("historyLength must be zero or more.", field="historyLength")


def _reason(params: CancelParams) -> str | None:
    reason = (params.metadata or {}).get("reason")
    return reason if isinstance(reason, str) and len(reason) <= 500 else None

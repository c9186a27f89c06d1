"""The operations of A2A, whatever binding asks for them."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from msgspec import Struct
from msgspec.structs import replace

from parley.core.access import Principal
from parley.core.events import Event
from parley.core.runs import Run, evolve
from parley.core.views import View, view_of
from parley.engine.commands import Outcome
from parley.engine.exchange import Exchange, Send
from parley.engine.streams import Follower
from parley.errors import AgentNotFound, Invalid, InvalidCursor, StaleCursor, Unsupported
from parley.faces.a2a import codec
from parley.faces.a2a.codec import CancelParams, SendParams, StreamResponse, TaskOut, TaskParams
from parley.faces.sse import KEEP_ALIVE_S
from parley.ids import RunId

CANCEL_WAIT_S = 5.0


class Call(Struct, frozen=True):
    """Who asks which agent, and what the transport's headers say.

    Without an agent the call came to the server's root: a new task goes to its default agent, and any task that
    the caller may see can be read, followed and canceled there.
    """

    agent: str | None
    principal: Principal
    key: str | None = None
    last_event_id: str | None = None


class Frame(Struct, frozen=True):
    """One step of a stream: the seq it brings its reader to. Without content it stands for silence."""

    seq: int
    content: StreamResponse | None


class Operations:
    def __init__(self, exchange: Exchange, default_agent: str | None = None) -> None:
        self._exchange = exchange
        self._default = default_agent

    async def send(self, call: Call, params: SendParams) -> StreamResponse:
        configuration = params.configuration or codec.Configuration()
        _check_history(configuration.history_length)
        outcome = await self._exchange.send(self._send(call, params))
        if configuration.return_immediately and self._exchange.agent(outcome.run.agent).replies == "task":
            view = await self._current(outcome)
        else:
            view = await self._exchange.settled(outcome)
        return await self._result(view, configuration.history_length)

    async def get(self, call: Call, params: TaskParams) -> TaskOut:
        _check_history(params.history_length)
        run = await self._exchange.visible(params.id, call.principal, call.agent)
        return await self._task(await self._exchange.view(run.id), params.history_length)

    async def cancel(self, call: Call, params: CancelParams) -> TaskOut:
        """The task once it has ended; or as it is, when its agent takes its time to stop."""
        reason = _reason(params)
        outcome = await self._exchange.cancel(params.id, call.principal, call.agent, reason)
        run = outcome.run
        with self._exchange.continue_from(outcome) as follower:
            while not run.ended:
                events = await follower.next(CANCEL_WAIT_S)
                if not events:
                    break
                for event in events:
                    if event.payload is not None:
                        run = evolve(run, run.id, event.seq, event.at, event.payload)
        return await self._task(await self._exchange.view(run.id), None)

    async def stream(self, call: Call, params: SendParams) -> AsyncGenerator[Frame, None]:
        """Send and follow; ends when the run ends or waits. Resumable when it was sent with a key."""
        cursor = _cursor(call)
        if cursor is not None and call.key is None:
            raise Invalid("To resume this stream, send the Idempotency-Key it was begun with.", field="Last-Event-ID")
        outcome = await self._exchange.send(self._send(call, params))
        if cursor is not None and not outcome.replayed:
            raise Invalid("Nothing was begun with this Idempotency-Key yet.", field="Last-Event-ID")
        if self._exchange.agent(outcome.run.agent).replies == "message" and cursor is None:
            return self._reply_stream(outcome)
        if cursor is not None:
            follower = await self._exchange.follow(outcome.run.id, cursor)
            return self._updates(outcome.run, follower, until_settled=True)
        return self._send_stream(outcome)

    async def subscribe(self, call: Call, params: TaskParams) -> AsyncGenerator[Frame, None]:
        """The task as it is, then what happens; with a cursor only the latter. Stays open while the run waits."""
        cursor = _cursor(call)
        run = await self._exchange.visible(params.id, call.principal, call.agent)
        if cursor is not None:
            try:
                return self._updates(run, await self._exchange.follow(run.id, cursor), until_settled=False)
            except StaleCursor:
                # What came after the cursor is no longer kept: begin with the task as it is.
                return self._from_now(run.id)
        if run.ended:
            raise Unsupported(f"The task is {run.state.value}; there is nothing left to subscribe to.")
        return self._from_now(run.id)

    async def _from_now(self, run_id: RunId) -> AsyncGenerator[Frame, None]:
        view = await self._exchange.view(run_id)
        follower = await self._exchange.follow(run_id, view.run.version)
        async with aclosing(self._task_then_updates(view, [], follower, until_settled=False)) as frames:
            async for frame in frames:
                yield frame

    def _send(self, call: Call, params: SendParams) -> Send:
        agent = call.agent or self._default
        if agent is None:
            raise AgentNotFound("There is no default agent here; post to /agents/{slug}.")
        wire = params.message
        return Send(
            agent, call.principal, codec.message_in(wire), wire.task_id or None, wire.context_id or None, call.key,
        )  # fmt: skip

    async def _send_stream(self, outcome: Outcome) -> AsyncGenerator[Frame, None]:
        """The first frame is the task as it was accepted; what the same commit added follows as updates."""
        if outcome.replayed:
            view, rest = await self._exchange.view(outcome.run.id), []
            follower = await self._exchange.follow(outcome.run.id, view.run.version)
        else:
            follower = self._exchange.continue_from(outcome)
            cut = next(index for index, event in enumerate(outcome.events, 1) if event.type == "input")
            accepted, rest = outcome.events[:cut], outcome.events[cut:]
            if accepted[0].seq == 1:
                view = view_of(accepted)
            else:
                view = await self._exchange.view(outcome.run.id, upto=accepted[-1].seq)
        async with aclosing(self._task_then_updates(view, rest, follower, until_settled=True)) as frames:
            async for frame in frames:
                yield frame

    async def _task_then_updates(
        self, view: View, rest: list[Event], follower: Follower, *, until_settled: bool
    ) -> AsyncGenerator[Frame, None]:
        try:
            yield Frame(view.run.version, StreamResponse(task=await self._task(view, None)))
        except BaseException:
            follower.close()
            raise
        async with aclosing(self._updates(view.run, follower, until_settled=until_settled, rest=rest)) as frames:
            async for frame in frames:
                yield frame

    async def _updates(
        self, run: Run, follower: Follower, *, until_settled: bool, rest: list[Event] | None = None
    ) -> AsyncGenerator[Frame, None]:
        """Frames from the follower's cursor on, or from `rest`, which leads up to it. `run`: the state there."""
        last = _LAST_WORDS if until_settled else _ENDINGS
        events = rest or []
        with follower:
            if not events and follower.cursor >= run.version and (run.settled if until_settled else run.ended):
                return
            while True:
                for event in events:
                    content = codec.update_out(run, await self._exchange.attachments.loaded_event(event))
                    if content is not None:
                        yield Frame(event.seq, content)
                    if event.type in last:
                        return
                events = await follower.next(KEEP_ALIVE_S)
                if not events:
                    yield Frame(follower.cursor, None)

    async def _reply_stream(self, outcome: Outcome) -> AsyncGenerator[Frame, None]:
        view = await self._exchange.settled(outcome)
        yield Frame(view.run.version, await self._result(view, None))

    async def _current(self, outcome: Outcome) -> View:
        if outcome.events and outcome.events[0].seq == 1:
            return view_of(outcome.events)
        return await self._exchange.view(outcome.run.id)

    async def _result(self, view: View, history_length: int | None) -> StreamResponse:
        if view.reply is not None:
            said = replace(view.reply, parts=await self._exchange.attachments.loaded(view.reply.parts))
            return StreamResponse(message=codec.message_out(view.run, said))
        return StreamResponse(task=await self._task(view, history_length))

    async def _task(self, view: View, history_length: int | None) -> TaskOut:
        task = codec.task_out(view, history_length)
        if not view.has_blobs:
            return task
        load = self._exchange.attachments.loaded
        artifacts = [replace(artifact, parts=await load(artifact.parts)) for artifact in task.artifacts]
        history = [replace(message, parts=await load(message.parts)) for message in task.history]
        return replace(task, artifacts=artifacts, history=history)


_ENDINGS = frozenset({"completed", "replied", "failed", "canceled", "rejected"})
_LAST_WORDS = _ENDINGS | {"input_required", "auth_required"}


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

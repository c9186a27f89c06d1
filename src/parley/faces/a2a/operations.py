"""The operations of A2A, whatever binding asks for them."""

from collections.abc import AsyncGenerator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from parley.core.access import Principal
from parley.core.events import ENDINGS, QUESTIONS, Event
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
    """What a stream shows, and the seq it brings its reader to."""

    seq: int
    content: StreamResponse


class Step(Struct, frozen=True):
    """What a stream shows at once; nothing stands for silence."""

    frames: list[Frame]
    last: bool = False


class Stream:
    """A stream that has been opened. Close it whatever happens: somebody is being kept up to date for it."""

    def __init__(self, steps: AsyncGenerator[Step, None], follower: Follower | None = None) -> None:
        self._steps = steps
        self._follower = follower

    def __aiter__(self) -> AsyncGenerator[Step, None]:
        return self._steps

    async def close(self) -> None:
        await self._steps.aclose()
        if self._follower is not None:
            self._follower.close()


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

    async def stream(self, call: Call, params: SendParams) -> Stream:
        """Send and follow; ends when the run ends or waits. Resumable when it was sent with a key."""
        cursor = _cursor(call)
        if cursor is not None and call.key is None:
            raise Invalid("To resume this stream, send the Idempotency-Key it was begun with.", field="Last-Event-ID")
        send = self._send(call, params)
        if cursor is not None:
            return await self._resumed(send, cursor)
        outcome = await self._exchange.send(send)
        if self._exchange.agent(outcome.run.agent).replies == "message":
            return Stream(self._reply_step(outcome))
        if outcome.replayed:
            return await self._from_now(outcome.run.id, until_settled=True)
        return await self._from_accepted(outcome)

    async def subscribe(self, call: Call, params: TaskParams) -> Stream:
        """The task as it is, then what happens; with a cursor only the latter. Stays open while the run waits."""
        cursor = _cursor(call)
        run = await self._exchange.visible(params.id, call.principal, call.agent)
        if cursor is None and run.ended:
            raise Unsupported(f"The task is {run.state.value}; there is nothing left to subscribe to.")
        if cursor is None:
            return await self._from_now(run.id, until_settled=False)
        try:
            follower = await self._exchange.follow(run.id, cursor)
        except StaleCursor:
            # What came after the cursor is no longer kept: begin with the task as it is.
            return await self._from_now(run.id, until_settled=False)
        return Stream(self._steps(run, follower, until_settled=False), follower)

    def _send(self, call: Call, params: SendParams) -> Send:
        agent = call.agent or self._default
        if agent is None:
            raise AgentNotFound("There is no default agent here; post to /agents/{slug}.")
        wire = params.message
        return Send(
            agent, call.principal, codec.message_in(wire), wire.task_id or None, wire.context_id or None, call.key,
        )  # fmt: skip

    async def _resumed(self, send: Send, cursor: int) -> Stream:
        outcome = await self._exchange.sent_before(send)
        if outcome is None:
            raise Invalid("Nothing was begun with this Idempotency-Key yet.", field="Last-Event-ID")
        follower = await self._exchange.follow(outcome.run.id, cursor)
        return Stream(self._steps(outcome.run, follower, until_settled=True), follower)

    async def _from_now(self, run_id: RunId, *, until_settled: bool) -> Stream:
        view = await self._exchange.view(run_id)
        follower = await self._exchange.follow(run_id, view.run.version)
        return Stream(self._steps(view.run, follower, until_settled=until_settled, view=view), follower)

    async def _from_accepted(self, outcome: Outcome) -> Stream:
        """First the task as it was accepted; what the same commit added follows as updates."""
        follower = self._exchange.continue_from(outcome)
        cut = next(index for index, event in enumerate(outcome.events, 1) if event.type == "input")
        accepted, rest = outcome.events[:cut], outcome.events[cut:]
        if accepted[0].seq == 1:
            view = view_of(accepted)
        else:
            view = await self._exchange.view(outcome.run.id, upto=accepted[-1].seq)
        return Stream(self._steps(view.run, follower, until_settled=True, view=view, rest=rest), follower)

    async def _steps(
        self,
        run: Run,
        follower: Follower,
        *,
        until_settled: bool,
        view: View | None = None,
        rest: Sequence[Event] = (),
    ) -> AsyncGenerator[Step, None]:
        """From the follower's cursor on. Before that, if given: the task as in `view`, and `rest`, which leads up to
        the cursor. `run` is the state where the stream begins."""
        frames = [Frame(run.version, StreamResponse(task=await self._task(view, None)))] if view else []
        if not rest and follower.cursor >= run.version and (run.settled if until_settled else run.ended):
            yield Step(frames, last=True)
            return
        last_words = _LAST_WORDS if until_settled else ENDINGS
        events = rest
        while True:
            last = False
            for event in events:
                content = codec.update_out(run, await self._exchange.attachments.loaded_event(event))
                if content is not None:
                    frames.append(Frame(event.seq, content))
                if event.type in last_words:
                    last = True
                    break
            if frames or last:
                yield Step(frames, last)
            if last:
                return
            frames = []
            events = await follower.next(KEEP_ALIVE_S)
            if not events:
                yield Step([])

    async def _reply_step(self, outcome: Outcome) -> AsyncGenerator[Step, None]:
        view = await self._exchange.settled(outcome)
        yield Step([Frame(view.run.version, await self._result(view, None))], last=True)

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


_LAST_WORDS = ENDINGS | QUESTIONS


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

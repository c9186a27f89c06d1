"""Streams of A2A: a task in its present state or as accepted, then its updates; resumable after any event."""

from collections.abc import AsyncGenerator, Sequence
from functools import partial
from urllib.parse import quote

from msgspec import Struct
from msgspec.structs import replace

from parley.errors import StaleCursor
from parley.faces.a2a.messages import ReplyShown, Shown, TaskShown, UpdateShown, counted_update, task_metadata
from parley.http.sse import KEEP_ALIVE_S
from parley.ids import RunId
from parley.offload import off_loop, paced
from parley.runs.listing import place_in_queue
from parley.runs.log import Outcome
from parley.runs.rules.content import Part, Parts, is_beside, merged, text_part
from parley.runs.rules.events import (
    ENDINGS,
    QUESTIONS,
    SPOKEN,
    ArtifactAdded,
    Event,
    Progress,
    Replied,
    is_usage,
    with_content,
)
from parley.runs.rules.state import Run, evolve
from parley.runs.rules.usage import added
from parley.runs.rules.view import StatusMessage, View, view_of
from parley.runs.service import Exchange
from parley.runs.streams import Follower

# The view of a run for a caller: limited to the requested history, with attachments loaded from outside the log.


class Showing:
    def __init__(self, exchange: Exchange, base_url: str) -> None:
        self._exchange = exchange
        self._base_url = base_url

    async def task(self, view: View, history_length: int | None, *, artifacts: bool = True) -> TaskShown:
        made = await off_loop(view.size, lambda: view.artifacts) if artifacts else ()
        about = task_metadata(view.run, view.metadata)
        shown = TaskShown(view.run, view.status, _latest(view.history, history_length), made, about)
        if not view.has_blobs:
            return shown
        return replace(
            shown,
            artifacts=[replace(one, parts=await self._made(view.run, one.id, one.parts)) for one in shown.artifacts],
            history=[said async for said in self._loaded(shown.history)],
            status=replace(shown.status, said=await self.said(shown.status.said))
            if shown.status.said
            else shown.status,
        )

    async def queued(self, shown: TaskShown) -> TaskShown:
        """Add its place in the queue to a waiting task. The place changes all the time, so it is not in the log."""
        place = None if shown.status.said else await place_in_queue(self._exchange, shown.run)
        if place is None:
            return shown
        words = text_part(f"Waiting for its turn: number {place} in the queue.")
        return replace(
            shown, status=replace(shown.status, said=StatusMessage("agent", f"{shown.run.id}.queue", (words,)))
        )

    async def answer(self, view: View, history_length: int | None) -> TaskShown | ReplyShown:
        if view.reply is not None:
            return ReplyShown(view.run, await self.said(view.reply))
        return await self.queued(await self.task(view, history_length))

    async def said(self, said: StatusMessage) -> StatusMessage:
        return replace(said, parts=await self._exchange.attachments.loaded(said.parts))

    async def _loaded(self, history: Sequence[StatusMessage]) -> AsyncGenerator[StatusMessage, None]:
        async for some in paced(history):
            for said in some:
                yield await self.said(said)

    async def event(self, run: Run, event: Event) -> Event:
        payload = event.payload
        if not isinstance(payload, SPOKEN) or all(part.blob is None for part in payload.parts):
            return event
        load = self._exchange.attachments.loaded
        if isinstance(payload, ArtifactAdded) and not payload.append:
            # Only for the first chunk: the part number of an appended chunk is unknown here, so it stays inline.
            load = partial(self._made, run, payload.artifact)
        return with_content(event, await load(payload.parts))

    async def _made(self, run: Run, artifact: str, parts: Parts) -> Parts:
        """Load parts. Parts above the agent's limit for inline content become links to download them."""
        agent = self._exchange.agents.get(run.agent)
        limit = agent.inline_bytes if agent else None
        if limit is not None:
            task, made = quote(run.id, safe=""), quote(artifact, safe="")
            url = f"{self._base_url}/agents/{run.agent}/tasks/{task}/artifacts/{made}"
            parts = tuple(_addressed(part, limit, f"{url}?part={n}" if n else url) for n, part in enumerate(parts))
        return merged(await self._exchange.attachments.loaded(parts))


def _addressed(part: Part, limit: int, url: str) -> Part:
    if part.blob is None or part.blob.size <= limit or is_beside(part):
        return part
    return replace(part, blob=None, url=url)


def _latest(history: Sequence[StatusMessage], length: int | None) -> Sequence[StatusMessage]:
    if length is None:
        return history
    return history[-length:] if length else ()


_LAST_WORDS = ENDINGS | QUESTIONS
_PRELUDE = frozenset(("submitted", "input", "started", "noted", "tool_call", "tool_result"))
"""Events that are written before an agent has produced anything visible."""


def _is_prelude(event: Event) -> bool:
    return event.type in _PRELUDE or is_usage(event.payload)


class StreamFrame(Struct, frozen=True):
    """Content of a frame, and the event number that its reader has then reached."""

    seq: int
    shown: Shown


class StreamStep(Struct, frozen=True):
    """Frames that a stream sends together; an empty step stands for silence."""

    frames: list[StreamFrame]
    last: bool = False
    after: Run | None = None
    """The run after the step, if generations are counted."""


_SILENCE = StreamStep([])


class A2AStream:
    """An open stream. Always close it: its follower receives events until then."""

    def __init__(self, steps: AsyncGenerator[StreamStep, None], follower: Follower | None = None) -> None:
        self.steps = steps
        self._follower = follower

    async def close(self) -> None:
        await self.steps.aclose()
        if self._follower is not None:
            self._follower.close()


class A2AStreaming:
    """Opens streams. With `until_settled`, a stream also ends when the run waits for an answer. `history_length` is the
    number of messages in the Task at its start; None for all."""

    def __init__(self, exchange: Exchange, showing: Showing) -> None:
        self._exchange = exchange
        self._showing = showing
        self._latest: dict[tuple[bool, bool], tuple[Sequence[Event], StreamStep]] = {}
        """The last step of each kind of stream, cached: all followers of a run get the same list of events at the same
        moment."""

    async def after(self, run: Run, cursor: int, *, until_settled: bool, counted: bool = False) -> A2AStream:
        """Stream the events after the cursor; if they are no longer stored, start with the task in its present
        state."""
        try:
            follower = await self._exchange.follow(run.id, cursor)
        except StaleCursor:
            return await self.from_now(run.id, until_settled=until_settled, counted=counted)
        before = await self._run_at(run, cursor) if counted else None
        steps = self._steps(run, follower, until_settled=until_settled, before=before, counted=counted)
        return A2AStream(steps, follower)

    async def _run_at(self, run: Run, cursor: int) -> Run | None:
        """Return the run at a cursor; None at the beginning of its log."""
        if cursor == run.version:
            return run
        return (await self._exchange.view(run.id, upto=cursor)).run if cursor else None

    async def from_now(
        self, run_id: RunId, history_length: int | None = None, *, until_settled: bool, counted: bool = False
    ) -> A2AStream:
        view = await self._exchange.view(run_id, history=history_length)
        follower = await self._exchange.follow(run_id, view.run.version)
        steps = self._steps(
            view.run, follower, until_settled=until_settled, view=view, history_length=history_length, counted=counted
        )
        return A2AStream(steps, follower)

    async def from_accepted(
        self, outcome: Outcome, history_length: int | None = None, *, open_ended: bool, counted: bool = False
    ) -> A2AStream:
        """Stream the task as it was accepted; events of the same commit follow as updates. With `open_ended`, the
        result may turn out to be a message instead of a task."""
        follower = self._exchange.continue_from(outcome)
        cut = next(index for index, event in enumerate(outcome.events, 1) if event.type == "input")
        follow_up = outcome.events[0].seq > 1
        if follow_up and cut < len(outcome.events) and outcome.events[cut].type == "started":
            # If the agent continues at once, a follow-up must not show the working task as submitted again.
            cut += 1
        accepted, rest = outcome.events[:cut], outcome.events[cut:]
        if accepted[0].seq == 1:
            view = view_of(accepted)
        else:
            view = await self._exchange.view(outcome.run.id, upto=accepted[-1].seq)
        if open_ended:
            return A2AStream(self._either(view, follower, rest, history_length, counted=counted), follower)
        steps = self._steps(
            view.run, follower, until_settled=True, view=view, rest=rest, history_length=history_length, counted=counted
        )
        return A2AStream(steps, follower)

    def reply(self, outcome: Outcome, history_length: int | None = None) -> A2AStream:
        return A2AStream(self._reply_step(outcome, history_length))

    async def _reply_step(self, outcome: Outcome, history_length: int | None) -> AsyncGenerator[StreamStep, None]:
        view = await self._exchange.settled(outcome)
        yield StreamStep([StreamFrame(view.run.version, await self._showing.answer(view, history_length))], last=True)

    async def _either(
        self, view: View, follower: Follower, rest: Sequence[Event], history_length: int | None, *, counted: bool
    ) -> AsyncGenerator[StreamStep, None]:
        """Stream one message, or a task and its updates: the first visible event of the agent decides which."""
        events = list(rest)
        while all(map(_is_prelude, events)):
            more = await follower.next(KEEP_ALIVE_S)
            events += more
            if not more:
                yield _SILENCE
        first = next(event for event in events if not _is_prelude(event))
        if isinstance(first.payload, Replied):
            view.feed(events)
            said = view.reply
            assert said is not None
            yield StreamStep([StreamFrame(first.seq, ReplyShown(view.run, await self._showing.said(said)))], last=True)
            return
        steps = self._steps(
            view.run,
            follower,
            until_settled=True,
            view=view,
            rest=events,
            history_length=history_length,
            counted=counted,
        )
        async for step in steps:
            yield step

    async def _steps(
        self,
        run: Run,
        follower: Follower,
        *,
        until_settled: bool,
        view: View | None = None,
        rest: Sequence[Event] = (),
        history_length: int | None = None,
        before: Run | None = None,
        counted: bool = False,
    ) -> AsyncGenerator[StreamStep, None]:
        """Yield the steps after the follower's cursor. If given, the task of `view` and the events in `rest`, which
        lead up to the cursor, come first. `run` is the state at the start of the stream. If updates are `counted`,
        `before` is the run at the cursor, unless it is the run of `view`."""
        first = [StreamFrame(run.version, await self._first(view, history_length))] if view else list[StreamFrame]()
        if not rest and follower.cursor >= run.version and (run.settled if until_settled else run.ended):
            yield StreamStep(first, last=True)
            return
        last_words = _LAST_WORDS if until_settled else ENDINGS
        run, before = _counted(run, rest), view.run if view is not None else before
        step = await self._step(before if counted else run, rest, last_words, counted=counted)
        before = step.after
        if first or step.frames:
            step = StreamStep(first + step.frames, step.last)
            yield step
        # An open stream may wait for long: keep nothing of its first step, and share the run.
        last, view, rest = step.last, None, ()
        del first, step
        if follower.run is not None and follower.run.version == run.version:
            run = follower.run
        while not last:
            events = await follower.next(KEEP_ALIVE_S)
            run = _counted(run, events)
            latest = self._latest.get((until_settled, counted))
            if not events:
                step = _SILENCE
            elif latest is not None and latest[0] is events:
                step, before = latest[1], latest[1].after
            else:
                step = await self._step(before if counted else run, events, last_words, counted=counted)
                self._latest[until_settled, counted] = events, step
                before = step.after
            yield step
            last = step.last

    async def _first(self, view: View, history_length: int | None) -> TaskShown:
        return await self._showing.queued(await self._showing.task(view, history_length))

    async def _step(
        self, run: Run | None, events: Sequence[Event], last_words: frozenset[str], *, counted: bool
    ) -> StreamStep:
        """Return the frames of events. If they are `counted`, `run` is the run before them."""
        frames: list[StreamFrame] = []
        for event in events:
            if counted and event.payload is not None:
                run = evolve(run, event.run, event.seq, event.at, event.payload)
            assert run is not None
            shown = await self._showing.event(run, event)
            update = counted_update(run, shown) if counted else UpdateShown(run, shown)
            frames.append(StreamFrame(event.seq, update))
            if event.type in last_words:
                return StreamStep(frames, last=True)
        return StreamStep(frames, after=run if counted else None)


def _counted(run: Run, events: Sequence[Event]) -> Run:
    """Return the run with the usage in events that are newer than it: the last update shows the usage of the whole
    run."""
    for event in events:
        if isinstance(event.payload, Progress) and event.payload.usage is not None and event.seq > run.version:
            run = replace(run, usage=added(run.usage, event.payload.usage))
    return run

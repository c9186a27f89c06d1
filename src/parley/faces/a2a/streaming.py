"""A2A's streams: a task as it is or as it was accepted, then what happens, resumable from any event."""

from collections.abc import AsyncGenerator, Sequence

from msgspec import Struct

from parley.core.events import ENDINGS, QUESTIONS, Event, Replied
from parley.core.runs import Run
from parley.core.views import View, view_of
from parley.engine.commands import Outcome
from parley.engine.exchange import Exchange
from parley.engine.streams import Follower
from parley.errors import StaleCursor
from parley.faces.a2a.showing import Showing
from parley.faces.a2a.words import ReplyShown, Shown, TaskShown, UpdateShown
from parley.faces.sse import KEEP_ALIVE_S
from parley.ids import RunId

_LAST_WORDS = ENDINGS | QUESTIONS
_PRELUDE = frozenset(("submitted", "input", "started", "noted", "tool_call", "tool_result"))
"""What is written before an agent has done anything that shows."""


class Frame(Struct, frozen=True):
    """What a stream shows, and the seq it brings its reader to."""

    seq: int
    shown: Shown


class Step(Struct, frozen=True):
    """What a stream shows at once; nothing stands for silence."""

    frames: list[Frame]
    last: bool = False


_SILENCE = Step([])


class Stream:
    """A stream that has been opened. Close it whatever happens: somebody is being kept up to date for it."""

    def __init__(self, steps: AsyncGenerator[Step, None], follower: Follower | None = None) -> None:
        self.steps = steps
        self._follower = follower

    async def close(self) -> None:
        await self.steps.aclose()
        if self._follower is not None:
            self._follower.close()


class Streaming:
    """`until_settled`: the stream ends also when the run waits for somebody. `history_length`: how many messages the
    Task at its beginning shows; all, if None."""

    def __init__(self, exchange: Exchange, showing: Showing) -> None:
        self._exchange = exchange
        self._showing = showing
        self._latest: tuple[Sequence[Event], frozenset[str], Step] = ((), ENDINGS, _SILENCE)
        """What was made last: everybody who follows a run is offered the same list of events at the same moment."""

    async def after(self, run: Run, cursor: int, *, until_settled: bool) -> Stream:
        """Only what came after the cursor; from the task as it is when that is no longer kept."""
        try:
            follower = await self._exchange.follow(run.id, cursor)
        except StaleCursor:
            return await self.from_now(run.id, until_settled=until_settled)
        return Stream(self._steps(run, follower, until_settled=until_settled), follower)

    async def from_now(self, run_id: RunId, history_length: int | None = None, *, until_settled: bool) -> Stream:
        view = await self._exchange.view(run_id, history=history_length)
        follower = await self._exchange.follow(run_id, view.run.version)
        steps = self._steps(
            view.run, follower, until_settled=until_settled, view=view, history_length=history_length
        )  # fmt: skip
        return Stream(steps, follower)

    async def from_accepted(self, outcome: Outcome, history_length: int | None = None, *, open_ended: bool) -> Stream:
        """First the task as it was accepted; what the same commit added follows as updates. `open_ended`: it may turn
        out to be a message instead."""
        follower = self._exchange.continue_from(outcome)
        cut = next(index for index, event in enumerate(outcome.events, 1) if event.type == "input")
        follow_up = outcome.events[0].seq > 1
        if follow_up and cut < len(outcome.events) and outcome.events[cut].type == "started":
            # A task that was at work before is not submitted again, when its agent goes on at once.
            cut += 1
        accepted, rest = outcome.events[:cut], outcome.events[cut:]
        if accepted[0].seq == 1:
            view = view_of(accepted)
        else:
            view = await self._exchange.view(outcome.run.id, upto=accepted[-1].seq)
        if open_ended:
            return Stream(self._either(view, follower, rest, history_length), follower)
        steps = self._steps(
            view.run, follower, until_settled=True, view=view, rest=rest, history_length=history_length
        )  # fmt: skip
        return Stream(steps, follower)

    def reply(self, outcome: Outcome, history_length: int | None = None) -> Stream:
        return Stream(self._reply_step(outcome, history_length))

    async def _reply_step(self, outcome: Outcome, history_length: int | None) -> AsyncGenerator[Step, None]:
        view = await self._exchange.settled(outcome)
        yield Step([Frame(view.run.version, await self._showing.answer(view, history_length))], last=True)

    async def _either(
        self, view: View, follower: Follower, rest: Sequence[Event], history_length: int | None
    ) -> AsyncGenerator[Step, None]:
        """A stream is one message or begins with a task: which one shows in what the agent does first."""
        events = list(rest)
        while all(event.type in _PRELUDE for event in events):
            more = await follower.next(KEEP_ALIVE_S)
            events += more
            if not more:
                yield _SILENCE
        first = next(event for event in events if event.type not in _PRELUDE)
        if isinstance(first.payload, Replied):
            view.feed(events)
            said = view.reply
            assert said is not None
            yield Step([Frame(first.seq, ReplyShown(view.run, await self._showing.said(said)))], last=True)
            return
        steps = self._steps(
            view.run, follower, until_settled=True, view=view, rest=events, history_length=history_length
        )  # fmt: skip
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
    ) -> AsyncGenerator[Step, None]:
        """From the follower's cursor on. Before that, if given: the task as in `view`, and `rest`, which leads up to
        the cursor. `run` is the state where the stream begins."""
        first = [Frame(run.version, await self._first(view, history_length))] if view else list[Frame]()
        if not rest and follower.cursor >= run.version and (run.settled if until_settled else run.ended):
            yield Step(first, last=True)
            return
        last_words = _LAST_WORDS if until_settled else ENDINGS
        step = await self._made(run, rest, last_words)
        if first or step.frames:
            step = Step(first + step.frames, step.last)
            yield step
        while not step.last:
            events = await follower.next(KEEP_ALIVE_S)
            if not events:
                step = _SILENCE
            elif self._latest[0] is events and self._latest[1] is last_words:
                step = self._latest[2]
            else:
                step = await self._made(run, events, last_words)
                self._latest = events, last_words, step
            yield step

    async def _first(self, view: View, history_length: int | None) -> TaskShown:
        return await self._showing.queued(await self._showing.task(view, history_length))

    async def _made(self, run: Run, events: Sequence[Event], last_words: frozenset[str]) -> Step:
        frames: list[Frame] = []
        for event in events:
            loaded = await self._showing.event(run, event)
            frames.append(Frame(event.seq, UpdateShown(run, loaded)))
            if event.type in last_words:
                return Step(frames, last=True)
        return Step(frames)

"""One turn with a remote agent: our input over there, what happens there into our log, once, whatever breaks."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from parley.core.artifacts import combined, text_of
from parley.core.conversations import Message
from parley.core.events import Failed, Rejected
from parley.core.runs import TERMINAL, WAITING, State
from parley.core.turns import ArtifactChunk, Done, NeedAuth, NeedInput, Note, Output, Reply, Status, Text, parts_of
from parley.drivers.remote.endings import ENDS, MAX_WORDS, REMOTE, Ends, ending, members
from parley.drivers.remote.options import RemoteOptions
from parley.drivers.remote.patience import Patience
from parley.drivers.remote.sdk import Peer
from parley.drivers.remote.shown import Shown, marked
from parley.drivers.remote.words import Answered, Heard, Lost, Made, Moved, Refused, Snapshot, Step, Words
from parley.engine.turns import Turn
from parley.errors import ParleyError

START_S = 5.0
"""How long a remote that cannot be reached is tried before there is a task to lose."""
_POLLS_S = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Pauses between two looks at a task; one that has just changed is looked at again after the third."""
_CHANGED = 2

_QUESTIONS = (Done, NeedInput, NeedAuth)

Steps = AsyncGenerator[Step, None]


class Dialogue:
    """Each input is sent on its own, under a key of its own, so that whatever a turn finds done is not done again."""

    def __init__(
        self, turn: Turn, connect: Callable[[], Awaitable[Peer]], options: RemoteOptions, hops: int,
        start_s: float = START_S, *, alone: bool = False,
    ) -> None:  # fmt: skip
        """`alone`: it has nothing to do with what was said before in its conversation."""
        notes = turn.notes
        self._turn = turn
        self._connect = connect
        self._options = options
        self._hops = hops
        self._start_s = start_s
        self._alone = alone
        self._task = notes.get("task") or None
        self._context = notes.get("context") or None
        self._sent = int(notes.get("sent", "0"))
        self._shown = Shown(turn.artifacts, turn.marks, self._task or "")
        self._cursor = _latest(turn.marks, notes.get("cursor", ""))
        self._message = turn.message
        self._metadata: Raw | UnsetType = UNSET
        """Metadata of the remote task so far."""
        self._waiting: Snapshot | None = None
        """The task as it waited when the stream began: that is its end only if nothing follows."""

    async def outputs(self) -> AsyncGenerator[Output, None]:
        try:
            for place, message in enumerate(self._turn.inputs, self._turn.offset):
                if place + 1 < self._sent:
                    continue
                last = place + 1 == self._turn.offset + len(self._turn.inputs)
                async for output in self._input(place, message):
                    if last or not isinstance(output, _QUESTIONS):
                        yield output
                    elif parts := parts_of(output.content):
                        # The next input is the answer, and has come already.
                        yield Status(parts)
                    if isinstance(output, Failed | Rejected):
                        return
        except Lost as lost:
            yield _lost(lost, self._task)
        except Refused as refused:
            yield _refused(refused)
        except ParleyError as error:
            yield Failed(error.code, error.message)

    async def _input(self, place: int, message: Message) -> AsyncGenerator[Output, None]:
        """From one input to the end of what the remote makes of it."""
        self._message = replace(message, parts=await self._turn.loaded(message.parts))
        if self._context is None and not self._alone:
            self._context = (await self._turn.earlier_notes()).get("context") or None
        if self._context is None and message.forwarded is not None:
            self._context = message.forwarded.context
        patience = Patience(self._start_s if self._task is None else self._options.patience_s)
        while True:
            fresh = place >= self._sent
            try:
                peer = await self._connect()
                steps = self._send(peer, place) if fresh else self._follow(peer)
                async with aclosing(steps):
                    async for step in steps:
                        patience = Patience(self._options.patience_s)
                        async for output in self._heard(step, place):
                            yield output
                            if isinstance(output, ENDS):
                                return
                if self._waiting is not None and (end := self._ending(self._waiting.state, self._waiting.said)):
                    yield end
                    return
                lost = Lost("the stream ended before the task did")
            except Lost as error:
                lost = error
                if fresh and place >= self._sent and not (lost.unsent or await self._may_repeat()):
                    raise
            except Refused as refused:
                if fresh and place < self._sent and refused.kind == "other":
                    # It had taken the message: what it refused afterwards was to go on telling.
                    lost = Lost(refused.words[:MAX_WORDS])
                elif self._is_over(refused, fresh=fresh):
                    continue
                else:
                    raise
            await patience.wait(lost)

    def _is_over(self, refused: Refused, *, fresh: bool) -> bool:
        """Whether the remote refused a message because its task had ended: then that end is what there is to say, or,
        if nobody was asked anything, the message begins a new task over there."""
        if not fresh or refused.kind != "over" or self._task is None:
            return False
        if self._turn.answers:
            self._sent = self._turn.offset + len(self._turn.inputs)
        else:
            self._task = None
        return True

    async def _may_repeat(self) -> bool:
        """Whether a message that may have arrived can be sent once more."""
        try:
            return (await self._connect()).idempotent
        except Lost:
            return False

    def _send(self, peer: Peer, place: int) -> Steps:
        key = f"{self._turn.run_id}/{place}"
        return peer.send(self._message, self._task, self._context, key, hops=self._hops)

    async def _follow(self, peer: Peer) -> Steps:
        """The rest of a task that is known: by a stream that leaves nothing out, else by looking again and again."""
        assert self._task is not None
        if peer.rejoins:
            streamed = False
            async with aclosing(self._rejoined(peer, self._task)) as steps:
                async for step in steps:
                    streamed = True
                    yield step
            if streamed:
                yield Step(await peer.get(self._task))
                return
        tries, before = 0, None
        while True:
            now = await peer.get(self._task)
            tries, before = (tries + 1 if now == before else min(tries, _CHANGED)), now
            yield Step(now)
            await asyncio.sleep(_POLLS_S[min(tries, len(_POLLS_S) - 1)])

    async def _rejoined(self, peer: Peer, task: str) -> Steps:
        """The stream of a task from where we are. Without numbers of events, only one that begins with the whole task
        has no gap, and its end counts only when the task itself was read and compared."""
        whole = peer.resumable
        try:
            async with aclosing(peer.subscribe(task, self._cursor)) as steps:
                async for step in steps:
                    whole = whole or isinstance(step.heard, Snapshot)
                    if not whole or (not peer.resumable and _ends(step.heard)):
                        return
                    yield step
        except Refused as refused:
            if refused.kind not in ("over", "unknown", "other"):
                raise

    async def _heard(self, step: Step, place: int) -> AsyncGenerator[Output, None]:
        """What one event of the remote means here. What ends the turn comes last."""
        if step.task and place >= self._sent:
            # Not every server begins with the task: an update of it says as well that our message was taken.
            for output in self._taken(step.task, step.context, place, step.cursor, shown=False):
                yield output
        match step.heard:
            case Snapshot() as now:
                async for output in self._seen(now, step.cursor, place):
                    yield output
            case Made() as made:
                for output in marked(self._shown.made(made), step.cursor):
                    yield output
            case Moved(state, said, metadata):
                self._metadata = combined(self._metadata, metadata)
                end = self._ending(state, said)
                outputs = [end] if end else marked(self._shown.said(said), step.cursor)
                for output in outputs:
                    yield output
            case Answered(context, said):
                for output in self._answer(context, said, place):
                    yield output
        if step.cursor is not None:
            self._cursor = step.cursor

    async def _seen(self, now: Snapshot, cursor: int | None, place: int) -> AsyncGenerator[Output, None]:
        fresh = place >= self._sent
        self._metadata = combined(self._metadata, now.metadata)
        outputs = self._shown.caught_up(now, self._message.id)
        for output in outputs if fresh else marked(outputs, cursor):
            yield output
        if fresh:
            for output in self._taken(now.task, now.context, place, cursor, shown=bool(outputs)):
                yield output
        # A task that is answered may still be shown as it was when it asked.
        self._waiting = now if fresh and now.state in WAITING else None
        end = self._ending(now.state, now.said)
        if end and (now.state in TERMINAL or not fresh):
            yield end

    def _ending(self, state: State, said: Words | None) -> Ends | None:
        return ending(state, said, REMOTE, self._metadata)

    def _taken(self, task: str, context: str, place: int, cursor: int | None, *, shown: bool) -> list[Output]:
        """The remote has taken our input: note so, and what its task is called."""
        begins = self._task != task
        self._task, self._context, self._sent = task, context, place + 1
        note = Note({"task": task, "context": context, "sent": str(self._sent), "cursor": str(cursor or "")})
        # A caller that does not know yet whether the answer will be a task learns it from an empty status.
        learns = begins and not shown and self._turn.agent.replies == "either"
        return [note, Status(())] if learns else [note]

    def _answer(self, context: str, said: Words, place: int) -> list[Output]:
        self._sent = place + 1
        note = Note({"context": context, "sent": str(self._sent), "task": "", "cursor": ""})
        if self._turn.agent.replies != "task":
            return [note, Reply(said.parts, members(said.metadata))]
        if all(part.text is not None for part in said.parts):
            return [note, Text(text_of(said.parts)), Done()]
        return [note, ArtifactChunk(said.parts, f"response-{self._turn.number}", "response"), Done()]


def _ends(heard: Heard) -> bool:
    return isinstance(heard, Moved) and ending(heard.state, heard.said) is not None


def _latest(marks: list[str], noted: str) -> int | None:
    """The number of the last event of the remote that is in our log."""
    numbers = [mark for mark in (noted, *marks) if mark.isdigit()]
    return int(numbers[-1]) if numbers else None


def _lost(lost: Lost, task: str | None) -> Failed:
    if task is not None:
        return Failed("remote_lost", f"The remote agent cannot be reached any more ({lost.why}).")
    if lost.unsent:
        return Failed("remote_unreachable", f"The remote agent cannot be reached ({lost.why}).")
    if lost.silent:
        reason = "The remote agent took the message and did not answer in time; it may have begun all the same."
        return Failed("remote_timeout", reason)
    return Failed(
        "remote_lost",
        f"The connection broke before the remote agent answered ({lost.why}); it may have begun all the same.",
    )


def _refused(refused: Refused) -> Failed:
    if refused.kind == "not_found":
        return Failed("remote_lost", "The remote agent does not know the task any more.")
    return Failed("remote_refused", f"The remote agent refused: {refused.words}"[:MAX_WORDS])

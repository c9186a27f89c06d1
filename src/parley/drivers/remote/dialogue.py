"""One turn with a remote agent: send our inputs, and copy the remote events to our log exactly once, even if
connections break."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from parley.client.generations import Updates
from parley.drivers.remote.connections import Backoff
from parley.drivers.remote.options import RemoteOptions
from parley.drivers.remote.translation import (
    ENDS,
    MAX_WORDS,
    REMOTE,
    ConnectionLost,
    Ends,
    Heard,
    RemoteArtifact,
    RemoteMessage,
    RemoteRefused,
    RemoteReply,
    RemoteStatus,
    RemoteStep,
    RemoteTask,
    ShownUpdates,
    ending,
    marked,
    members,
    usage_in,
)
from parley.drivers.remote.wire import RemotePeer
from parley.errors import ParleyError
from parley.execution.rules import (
    ArtifactChunk,
    Done,
    NeedAuth,
    NeedInput,
    Note,
    Output,
    Reply,
    Status,
    Text,
    Usage,
    parts_of,
)
from parley.execution.turn import Turn
from parley.runs.rules.content import Message, combined, text_of
from parley.runs.rules.events import Failed, Rejected
from parley.runs.rules.state import TERMINAL, WAITING, State
from parley.runs.rules.usage import added, missing

START_S = 5.0
"""Time to retry an unreachable remote agent before it has a task of ours."""
_POLLS_S = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Pauses between polls of a task, growing while nothing changes. After a change the next is at most the third."""
_CHANGED = 2
_HELD_S = 1.0
"""A remote that takes this long to return an unchanged task holds reads open (A2A 1.1)."""

_QUESTIONS = (Done, NeedInput, NeedAuth)

Steps = AsyncGenerator[RemoteStep, None]


class RemoteDialogue:
    """Sends each input separately, with its own idempotency key, so that a resumed turn repeats nothing."""

    def __init__(
        self,
        turn: Turn,
        connect: Callable[[], Awaitable[RemotePeer]],
        options: RemoteOptions,
        hops: int,
        start_s: float = START_S,
        *,
        alone: bool = False,
    ) -> None:
        """`alone`: the turn does not continue the earlier messages of its conversation."""
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
        self._shown = ShownUpdates(turn.artifacts, turn.marks, self._task or "")
        self._cursor = _latest(turn.marks, notes.get("cursor", ""))
        self._message = turn.message
        self._metadata: Raw | UnsetType = UNSET
        """Metadata of the remote task so far."""
        self._usage = turn.usage
        """Usage of the remote task that is in our log."""
        self._updates = Updates()
        """Updates of the remote task that were received, if it numbers them (A2A 1.1)."""
        self._waiting: RemoteTask | None = None
        """The task, if it was waiting when the stream began. That ends the turn only if nothing follows."""

    async def outputs(self) -> AsyncGenerator[Output, None]:
        try:
            for place, message in enumerate(self._turn.inputs, self._turn.offset):
                if place + 1 < self._sent:
                    continue
                last = place + 1 == self._turn.offset + len(self._turn.inputs)
                async for output in self._input(place, message):
                    if isinstance(output, ENDS):
                        for usage in self._used():
                            yield usage
                    if last or not isinstance(output, _QUESTIONS):
                        yield output
                    elif parts := parts_of(output.content):
                        # The next input is the answer to this question, and it is already here.
                        yield Status(parts)
                    if isinstance(output, Failed | Rejected):
                        return
        except ConnectionLost as lost:
            yield _lost(lost, self._task)
        except RemoteRefused as refused:
            yield _refused(refused)
        except ParleyError as error:
            yield Failed(error.code, error.message)

    def _used(self) -> list[Usage]:
        """Return the usage that the remote task reports and our log does not have yet. The remote reports totals."""
        found = list(missing(usage_in(self._metadata), self._usage))
        for usage in found:
            self._usage = added(self._usage, usage)
        return found

    async def _input(self, place: int, message: Message) -> AsyncGenerator[Output, None]:
        """Send one input, and yield outputs until the remote agent has finished with it."""
        self._message = replace(message, parts=await self._turn.loaded(message.parts))
        if self._context is None and not self._alone:
            self._context = (await self._turn.earlier_notes()).get("context") or None
        if self._context is None and message.forwarded is not None:
            self._context = message.forwarded.context
        patience = Backoff(self._start_s if self._task is None else self._options.patience_s)
        while True:
            fresh = place >= self._sent
            try:
                peer = await self._connect()
                steps = self._send(peer, place) if fresh else self._follow(peer)
                async with aclosing(steps):
                    async for step in steps:
                        patience = Backoff(self._options.patience_s)
                        async for output in self._outputs_of(step, place):
                            yield output
                            if isinstance(output, ENDS):
                                return
                if self._waiting is not None and (end := self._ending(self._waiting.state, self._waiting.said)):
                    yield end
                    return
                lost = ConnectionLost("the stream ended before the task did")
            except ConnectionLost as error:
                lost = error
                if fresh and place >= self._sent and not (lost.unsent or await self._may_repeat()):
                    raise
            except RemoteRefused as refused:
                if fresh and place < self._sent and refused.kind == "other":
                    # The remote had accepted the message; what it refused was to continue the stream.
                    lost = ConnectionLost(refused.words[:MAX_WORDS])
                elif self._is_over(refused, fresh=fresh):
                    continue
                else:
                    raise
            await patience.wait(lost)

    def _is_over(self, refused: RemoteRefused, *, fresh: bool) -> bool:
        """Tell whether the remote refused a message because its task had ended. Then that end is the result; or, if our
        message did not answer a question, it starts a new remote task."""
        if not fresh or refused.kind != "over" or self._task is None:
            return False
        if self._turn.answers:
            self._sent = self._turn.offset + len(self._turn.inputs)
        else:
            self._task = None
        return True

    async def _may_repeat(self) -> bool:
        """Tell whether a message that may have arrived can be sent again."""
        try:
            return (await self._connect()).idempotent
        except ConnectionLost:
            return False

    def _send(self, peer: RemotePeer, place: int) -> Steps:
        key = f"{self._turn.run_id}/{place}"
        return self._whole(peer, peer.send(self._message, self._task, self._context, key, hops=self._hops))

    async def _whole(self, peer: RemotePeer, steps: Steps) -> Steps:
        """Yield the steps of a stream; in place of an update after a gap, the whole task. A stream that can be resumed
        has no gaps, and reading the task would repeat what a later stream resumes."""
        async with aclosing(steps):
            async for step in steps:
                whole, number = isinstance(step.heard, RemoteTask), step.generation
                if peer.resumable:
                    yield step
                elif self._updates.missed(number, whole=whole) and self._task is not None:
                    now = await peer.get(self._task)
                    self._updates.caught_up(now.generation)
                    yield RemoteStep(now)
                elif whole or not self._updates.is_known(number):
                    yield step

    async def _follow(self, peer: RemotePeer) -> Steps:
        """Follow a known task: by a stream if that has no gaps, else by polling. A remote of A2A 1.1 answers a poll
        when something has changed."""
        assert self._task is not None
        if peer.rejoins:
            streamed = False
            async with aclosing(self._rejoined(peer, self._task)) as steps:
                async for step in steps:
                    streamed = True
                    yield step
            if streamed:
                yield RemoteStep(await peer.get(self._task))
                return
        tries, before = 0, None
        while True:
            began = time.monotonic()
            now = await self._polled(peer, self._task, before.generation if before else 0)
            tries, before = (tries + 1 if now == before else min(tries, _CHANGED)), now
            yield RemoteStep(now)
            held = now.generation and (tries <= _CHANGED or time.monotonic() - began >= _HELD_S)
            await asyncio.sleep(_POLLS_S[0 if held else min(tries, len(_POLLS_S) - 1)])

    async def _polled(self, peer: RemotePeer, task: str, generation: int) -> RemoteTask:
        """Return the task when it has a higher generation. A remote may hold the request longer than this server waits
        for a reply, so silence alone does not mean that the connection is lost."""
        if generation:
            try:
                return await peer.get(task, generation)
            except ConnectionLost as lost:
                if not lost.silent:
                    raise
        return await peer.get(task)

    async def _rejoined(self, peer: RemotePeer, task: str) -> Steps:
        """Resume the stream of a task. Without event numbers, only a stream that begins with the whole task has no gap,
        and its end counts only after the task itself was read and compared."""
        whole = peer.resumable
        try:
            async with aclosing(self._whole(peer, peer.subscribe(task, self._cursor))) as steps:
                async for step in steps:
                    whole = whole or isinstance(step.heard, RemoteTask)
                    if not whole or (not peer.resumable and _ends(step.heard)):
                        return
                    yield step
        except RemoteRefused as refused:
            if refused.kind not in ("over", "unknown", "other"):
                raise

    async def _outputs_of(self, step: RemoteStep, place: int) -> AsyncGenerator[Output, None]:
        """Translate one remote event to outputs. The output that ends the turn comes last."""
        if step.task and place >= self._sent:
            # Not every server begins with the task: an update of the task also shows that our message was accepted.
            for output in self._taken(step.task, step.context, place, step.cursor, shown=False):
                yield output
        match step.heard:
            case RemoteTask() as now:
                async for output in self._seen(now, step.cursor, place):
                    yield output
            case RemoteArtifact() as made:
                for output in marked(self._shown.made(made), step.cursor):
                    yield output
            case RemoteStatus(state, said, metadata):
                self._metadata = combined(self._metadata, metadata)
                end = self._ending(state, said)
                outputs = [end] if end else marked(self._shown.said(said), step.cursor)
                for output in outputs:
                    yield output
            case RemoteReply(context, said):
                for output in self._answer(context, said, place):
                    yield output
        if step.cursor is not None:
            self._cursor = step.cursor

    async def _seen(self, now: RemoteTask, cursor: int | None, place: int) -> AsyncGenerator[Output, None]:
        fresh = place >= self._sent
        self._metadata = combined(self._metadata, now.metadata)
        outputs = self._shown.caught_up(now, self._message.id)
        for output in outputs if fresh else marked(outputs, cursor):
            yield output
        if fresh:
            for output in self._taken(now.task, now.context, place, cursor, shown=bool(outputs)):
                yield output
        # After we answer a task, the remote may still show it in its waiting state.
        self._waiting = now if fresh and now.state in WAITING else None
        end = self._ending(now.state, now.said)
        if end and (now.state in TERMINAL or not fresh):
            yield end

    def _ending(self, state: State, said: RemoteMessage | None) -> Ends | None:
        return ending(state, said, REMOTE, self._metadata)

    def _taken(self, task: str, context: str, place: int, cursor: int | None, *, shown: bool) -> list[Output]:
        """Note that the remote has accepted our input, and the id of its task."""
        begins = self._task != task
        self._task, self._context, self._sent = task, context, place + 1
        note = Note({"task": task, "context": context, "sent": str(self._sent), "cursor": str(cursor or "")})
        # An empty status shows a caller, who may get a task or a message, that the answer is a task.
        learns = begins and not shown and self._turn.agent.replies == "either"
        return [note, Status(())] if learns else [note]

    def _answer(self, context: str, said: RemoteMessage, place: int) -> list[Output]:
        self._sent = place + 1
        note = Note({"context": context, "sent": str(self._sent), "task": "", "cursor": ""})
        if self._turn.agent.replies != "task":
            return [note, Reply(said.parts, members(said.metadata))]
        if all(part.text is not None for part in said.parts):
            return [note, Text(text_of(said.parts)), Done()]
        return [note, ArtifactChunk(said.parts, f"response-{self._turn.number}", "response"), Done()]


def _ends(heard: Heard) -> bool:
    return isinstance(heard, RemoteStatus) and ending(heard.state, heard.said) is not None


def _latest(marks: list[str], noted: str) -> int | None:
    """Return the number of the last remote event that is in our log."""
    numbers = [mark for mark in (noted, *marks) if mark.isdigit()]
    return int(numbers[-1]) if numbers else None


def _lost(lost: ConnectionLost, task: str | None) -> Failed:
    if task is not None:
        return Failed("remote_lost", f"The connection to the remote agent was lost ({lost.why}).")
    if lost.unsent:
        return Failed("remote_unreachable", f"The remote agent cannot be reached ({lost.why}).")
    if lost.silent:
        reason = "The remote agent accepted the message but did not answer in time; it may still have started the work."
        return Failed("remote_timeout", reason)
    return Failed(
        "remote_lost",
        f"The connection broke before the remote agent answered ({lost.why}); it may still have started the work.",
    )


def _refused(refused: RemoteRefused) -> Failed:
    if refused.kind == "not_found":
        return Failed("remote_lost", "The remote agent no longer knows the task.")
    return Failed("remote_refused", f"The remote agent refused: {refused.words}"[:MAX_WORDS])

"""Delegations to peers: questions that a turn of this node sends to other nodes. They are canceled with the run."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Iterator
from contextlib import aclosing
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import httpx2
from msgspec import structs

from parley.client import RemoteError
from parley.errors import OutboundRefused, ParleyError, ReplyTooLarge
from parley.execution.rules import ArtifactChunk, Done, NeedAuth, NeedInput, Note, Output, Status, Text
from parley.execution.turn import CURRENT, Turn
from parley.ids import RunId, new_id
from parley.node.caller import A2A, open_http
from parley.node.messages import (
    DATA,
    TERMINAL,
    TEXT,
    WAITING,
    Json,
    PeerRefused,
    PeerUnavailable,
    TooManyHops,
    artifacts_in,
    state_in,
)
from parley.node.peers import Peers
from parley.node.registration import ErrorWindow
from parley.runs.rules.commands import Emit
from parley.runs.rules.content import HOPS, Part, hops_of, text_part
from parley.runs.rules.events import RESPONSE, Event, Failed, Noted
from parley.runs.rules.state import Run, State
from parley.runs.rules.view import Answer, compose
from parley.runs.service import Exchange
from parley.security.netguard import Guard
from parley.telemetry import tell

# A peer that does one of our turns: its outputs become our outputs exactly once, even if connections break.

_SHORT = 8
MAX_ARTIFACTS = 40
"""Maximum number of artifacts to remember, the latest ones: the note is stored with the state of the run."""


class Relay:
    """Relays one turn. Artifacts that earlier turns have passed on are noted with the task and not repeated."""

    def __init__(self, turn: Turn, peer: str) -> None:
        self._turn = turn
        self._peer = peer
        task, _, passed = (turn.notes.get(f"relay:{peer}", "") if turn.answers else "").partition(" ")
        self.task: str | None = task or None
        self._before = passed.split()
        self._seen: dict[str, None] = {}
        """Artifacts that this turn has passed on, in whole or in part."""
        self._noted = self.task
        self._waiting: Json | None = None
        """The task, if it was waiting when the stream began. That ends the turn only if nothing follows."""

    def outputs(self, event: Json) -> Iterator[Output]:
        if event["id"] and event["id"] != self._noted:
            self._noted = event["id"]
            yield self._note()
        self._waiting = None
        if "artifact" in event:
            yield from self._piece(event["artifact"])
        elif not event.get("snapshot"):
            yield from self._ending(event)
        else:
            yield from self._caught_up(event["artifacts"])
            if event["status"] in WAITING:
                self._waiting = event
            else:
                yield from self._ending(event)

    def rest(self) -> Iterator[Output]:
        """Yield the outputs that remain when the stream has ended."""
        if self._waiting is not None:
            yield from self._ending(self._waiting)

    def _ending(self, event: Json) -> Iterator[Output]:
        status, message = event["status"], event["message"]
        match status:
            case "completed":
                yield Done(message) if message else Done()
            case "input-required" | "auth-required":
                yield self._note()
                yield NeedInput(message) if status == "input-required" else NeedAuth(message)
            case "failed" | "canceled" | "rejected":
                yield Failed("peer_failed", f"{self._peer} {status}: {message}"[:500])
            case _ if message:
                yield Status(message)
            case _:
                pass

    def _caught_up(self, contents: list[Json]) -> Iterator[Output]:
        """Yield the complete current contents, which replace what was passed on before."""
        fresh = [one for one in contents if one.get("artifact") not in self._before]
        text = "".join(one["content"] for one in fresh if is_answer(one))
        if text:
            yield self._said(text, anew=True)
        for one in fresh:
            self._seen[one["artifact"]] = None
            if not is_answer(one):
                yield self._made(one, append=False)

    def _piece(self, piece: Json) -> Iterator[Output]:
        again = piece["id"] in self._seen and not piece["append"]
        self._seen[piece["id"]] = None
        for one in piece["contents"]:
            yield self._said(one["content"], anew=again) if is_answer(one) else self._made(one, append=piece["append"])

    def _said(self, text: str, *, anew: bool) -> Output:
        """Return text as output. `anew`: an interrupted peer starts its answer again, and so do we."""
        if not anew:
            return Text(text)
        return ArtifactChunk(text, id=f"{RESPONSE}-{self._turn.number}", name=RESPONSE, append=False, last=False)

    def _made(self, content: Json, *, append: bool) -> Output:
        kind, given, name = content["type"], content["content"], content.get("name")
        id_ = f"{self._peer[:_SHORT]}.{content['artifact']}"
        if kind in (DATA, TEXT):
            return ArtifactChunk(given, id=id_, name=name, append=append)
        linked = Part(url=content.get("url")) if given is None else given
        filename = content.get("filename")
        return ArtifactChunk(linked, id=id_, name=name, filename=filename, media_type=kind, append=append)

    def _note(self) -> Note:
        passed = [*self._before, *self._seen][-MAX_ARTIFACTS:]
        return Note({f"relay:{self._peer}": " ".join([self._noted or "", *passed])})


def is_answer(content: Json) -> bool:
    """Tell whether a content is the answer: text without a name, or with the name used for answers. Anything else is an
    artifact."""
    return content["type"] == TEXT and content.get("name") in (None, RESPONSE)


MAX_HOPS = 10
OPEN = "peers"
"""Key of the note with a run's unfinished tasks at peers: one line `peer task` for each."""
CANCEL_S = 5.0
_PAUSES_S = (0.1, 0.5, 1.0, 2.0)
_LOST = frozenset((State.CANCELED, State.FAILED, State.REJECTED))


class PeerAnswer(Answer, frozen=True):
    """The answer of a peer: an `Answer`, with the words of the registry contract (004) as properties. While the peer
    asks a question (`answer.question`), answer with `task=answer.run_id`."""

    peer: str = ""
    contents: tuple[Json, ...] = ()
    """Its artifacts in the flat form of the contract."""
    message: str = ""
    """Its last message."""

    @property
    def id(self) -> str:
        """The id of its task."""
        return self.run_id

    @property
    def context(self) -> str | None:
        """Id of the conversation: the `contextId` in A2A."""
        return self.conversation or None

    @property
    def status(self) -> str:
        """The state in the words of A2A 0.3: `input-required`."""
        return self.state.replace("_", "-")


def _answer(peer: str, event: Json) -> PeerAnswer:
    """Return the answer in the last event of a task."""
    contents: list[Json] = event["artifacts"]
    said = (text_part(event["message"]),) if event["message"] else ()
    answer = compose(
        state_in(event["status"]),
        artifacts_in(contents),
        said,
        usage=event.get("usage"),
        run_id=event["id"],
        conversation=event["contextId"] or "",
        code=event.get("code", ""),
    )
    texts = [one for one in contents if one["type"] == TEXT]
    # A named text is a file; it counts as the answer only if there is no other text.
    text = "".join(one["content"] for one in [*filter(is_answer, texts)] or texts) or event["message"]
    fields: dict[str, Any] = {**structs.asdict(answer), "text": text}
    return PeerAnswer(**fields, peer=peer, contents=tuple(contents), message=event["message"])


class PeerDelegations:
    def __init__(
        self, exchange: asyncio.Future[Exchange], peers: Peers, window: ErrorWindow, guard: Guard | None = None
    ) -> None:
        self._exchange = exchange
        self._peers = peers
        self._window = window
        self._http = open_http(guard)
        self._open: dict[RunId, dict[str, str]] = {}
        """By run: unfinished tasks at peers, with the peer of each."""
        self._canceling: dict[RunId, frozenset[str]] = {}
        """By run that is being canceled: tasks at peers whose cancel was sent."""
        self._questions: WeakKeyDictionary[Turn, int] = WeakKeyDictionary()
        self._tasks: set[asyncio.Task[None]] = set()

    def a2a(self, peer: str) -> A2A:
        """Return the caller's object for one peer."""
        where = partial(self._peers.where, peer)
        return A2A(where, http=self._http, seen=partial(self._seen, peer), repeats=self._peers.repeats(peer))

    async def ask(self, peer: str, text: str, *, task: str | None = None, context: str | None = None) -> PeerAnswer:
        """Ask a peer, and wait until it is done or asks a question."""
        last: Json = {}
        async with aclosing(self.stream(peer, text, task=task, context=context)) as events:
            async for event in events:
                last = event
        return _answer(peer, last)

    async def stream(
        self, peer: str, text: str, *, task: str | None = None, context: str | None = None
    ) -> AsyncGenerator[Json, None]:
        """Ask a peer, and yield its flat events. A resumed turn finds the task that its question started before."""
        turn = CURRENT.get()
        message: Json = {"parts": [{"kind": "text", "text": text}], **_named(turn, task, context)}
        key = self._key(turn)
        if key is not None:
            message["messageId"] = key
        request = {"method": "message/stream", "params": {"message": message}}
        known = ""
        try:
            async with aclosing(self.a2a(peer).subscribe(request, key=key)) as events:
                async for event in events:
                    if event["id"] and event["id"] != known:
                        known = event["id"]
                        await self._opened(turn, peer, known)
                    if event["status"] in TERMINAL:
                        self._done(turn, known)
                    yield event
        except (RemoteError, OutboundRefused, ReplyTooLarge) as error:
            raise PeerRefused(f"{peer} refused: {error.message}"[:500]) from error
        except (asyncio.CancelledError, GeneratorExit):
            # In a turn the log decides: a turn that only this process gave up is resumed elsewhere with its task.
            if turn is None and known:
                self._spawn(self._cancel(peer, known))
            raise

    async def relay(self, turn: Turn, peer: str) -> AsyncGenerator[Output, None]:
        """Let a peer do this turn: its text, artifacts and questions become ours, and our answers go to the peer."""
        relay = Relay(turn, peer)
        async with aclosing(self.stream(peer, turn.text, task=relay.task)) as events:
            async for event in events:
                for output in relay.outputs(event):
                    yield output
        for output in relay.rest():
            yield output

    def changed(self, run: Run) -> None:
        """Cancel a run's tasks at peers when the run is canceled or lost."""
        if not (run.ended or run.cancel_requested):
            return
        asked = {**_noted(run), **self._open.pop(run.id, {})}
        canceling = self._canceling.pop(run.id, frozenset[str]())
        if run.cancel_requested or run.state in _LOST:
            for task, peer in asked.items():
                if task not in canceling:
                    self._spawn(self._cancel(peer, task))
        if not run.ended:
            # A peer may report its task only now; the end of the run finds it then.
            self._canceling[run.id] = canceling | asked.keys()

    async def close(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CANCEL_S)
        await self._http.aclose()

    def _key(self, turn: Turn | None) -> str | None:
        """Return the idempotency key: the same for the same question of the same turn, also in another process."""
        if turn is None:
            return None
        number = self._questions[turn] = self._questions.get(turn, 0) + 1
        return f"{turn.run_id}/{turn.number}/{number}"

    async def _opened(self, turn: Turn | None, peer: str, task: str) -> None:
        if turn is None:
            return
        still = self._open.setdefault(turn.run_id, {})
        still[task] = peer
        lines = "\n".join(f"{who} {what}" for what, who in still.items())
        # Stored before anything else happens, so that a cancel finds the task at any time, also after a crash.
        exchange = await self._exchange
        await exchange.commands.execute(turn.run_id, Emit(turn.epoch, Noted({OPEN: lines})))

    def _done(self, turn: Turn | None, task: str) -> None:
        if turn is not None:
            self._open.get(turn.run_id, {}).pop(task, None)

    async def _cancel(self, peer: str, task: str) -> None:
        """Cancel a task at a peer, with retries for a few seconds. A task that has ended refuses, which is fine."""
        try:
            async with asyncio.timeout(CANCEL_S):
                for pause in _PAUSES_S:
                    try:
                        await self.a2a(peer).cancel(task)
                        return
                    except PeerUnavailable:
                        await asyncio.sleep(pause)
        except (TimeoutError, ParleyError, httpx2.HTTPError) as error:
            if not isinstance(error, RemoteError):
                tell("node.not_canceled", peer=peer, task=task, code=getattr(error, "code", "timeout"))

    def _seen(self, peer: str, status: int | None, error: Exception | None) -> None:
        if status is not None:
            self._window.answered(status, peer)
        elif error is not None:
            self._window.raised(error, peer)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _named(turn: Turn | None, task: str | None, context: str | None) -> Json:
    """Return the task and conversation of a question, and the number of nodes that it has passed through."""
    hops = max(map(hops_of, turn.inputs), default=0) + 1 if turn is not None else 1
    if hops > MAX_HOPS:
        raise TooManyHops(f"The question passed through {MAX_HOPS} nodes already; they may form a loop.")
    named: Json = {"messageId": new_id(), "metadata": {HOPS: hops}}
    if task:
        named["taskId"] = task
    if context := context or (turn.conversation if turn is not None else None):
        named["contextId"] = context
    return named


def _noted(run: Run) -> dict[str, str]:
    lines = (line.partition(" ") for line in run.notes.get(OPEN, "").splitlines())
    return {task: peer for peer, _, task in lines if task}


def failure_of(event: Event) -> str | None:
    """Return the reason if a turn failed through a fault of this node; empty if it did not; None if the event does not
    end a turn."""
    if isinstance(event.payload, Failed):
        return event.payload.code if event.payload.code in ("agent_error", "timeout", "model_error") else ""
    return "" if event.type in ("completed", "input_required", "replied") else None

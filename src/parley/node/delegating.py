"""Asking peers: what a turn of this node asks of others, and that they hear when nobody wants it any more."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import httpx2
from msgspec import Struct

from parley.client import RemoteError
from parley.core.commands import Emit
from parley.core.conversations import HOPS, hops_of
from parley.core.events import Event, Failed, Noted
from parley.core.runs import Run, State
from parley.core.turns import Output
from parley.engine.exchange import Exchange
from parley.engine.turns import CURRENT, Turn
from parley.errors import OutboundRefused, ParleyError, ReplyTooLarge
from parley.ids import RunId, new_id
from parley.node.caller import A2A, open_http
from parley.node.flat import TERMINAL, TEXT
from parley.node.peers import Peers
from parley.node.relaying import Relay, is_answer
from parley.node.window import ErrorWindow
from parley.node.words import Json, PeerRefused, PeerUnavailable, TooManyHops
from parley.security.netguard import Guard
from parley.telemetry import tell

MAX_HOPS = 10
OPEN = "peers"
"""The name of the note in which a run says whom it has asked what is not done yet: `peer task`, one per line."""
CANCEL_S = 5.0
_PAUSES_S = (0.1, 0.5, 1.0, 2.0)
_LOST = frozenset((State.CANCELED, State.FAILED, State.REJECTED))


class PeerAnswer(Struct, frozen=True):
    """What a peer made of a question. One that is `input-required` asks back: answer with `task=answer.id`."""

    peer: str
    id: str
    context: str | None
    status: str
    message: str
    artifacts: list[Json]

    @property
    def text(self) -> str:
        """The text of its answer; where it made none, of its artifacts, or what it said last."""
        texts = [one for one in self.artifacts if one["type"] == TEXT]
        return "".join(one["content"] for one in [*filter(is_answer, texts)] or texts) or self.message


class Delegations:
    def __init__(
        self, exchange: asyncio.Future[Exchange], peers: Peers, window: ErrorWindow, guard: Guard | None = None
    ) -> None:
        self._exchange = exchange
        self._peers = peers
        self._window = window
        self._http = open_http(guard)
        self._open: dict[RunId, dict[str, str]] = {}
        """By run: the tasks of peers that are not done yet, and whose they are."""
        self._told: dict[RunId, frozenset[str]] = {}
        """By run that is to be canceled: the tasks of peers whose cancel is on its way."""
        self._asked: WeakKeyDictionary[Turn, int] = WeakKeyDictionary()
        self._tasks: set[asyncio.Task[None]] = set()

    def a2a(self, peer: str) -> A2A:
        """The caller's object for one peer."""
        where = partial(self._peers.where, peer)
        return A2A(where, http=self._http, seen=partial(self._seen, peer), repeats=self._peers.repeats(peer))

    async def ask(self, peer: str, text: str, *, task: str | None = None, context: str | None = None) -> PeerAnswer:
        """Ask and wait until the peer is done, or asks back."""
        last: Json = {}
        async with aclosing(self.stream(peer, text, task=task, context=context)) as events:
            async for event in events:
                last = event
        return PeerAnswer(peer, last["id"], last["contextId"], last["status"], last["message"], last["artifacts"])

    async def stream(
        self, peer: str, text: str, *, task: str | None = None, context: str | None = None
    ) -> AsyncGenerator[Json, None]:
        """The same as flat events. A turn that is taken up again finds the task that its question began before."""
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
            # In a turn the log decides what becomes of it: a turn that this process only gives up is taken up again.
            if turn is None and known:
                self._spawn(self._cancel(peer, known))
            raise

    async def relay(self, turn: Turn, peer: str) -> AsyncGenerator[Output, None]:
        """Let a peer do this turn: its words, artifacts and questions become ours, and the answers its."""
        relay = Relay(turn, peer)
        async with aclosing(self.stream(peer, turn.text, task=relay.task)) as events:
            async for event in events:
                for output in relay.outputs(event):
                    yield output
        for output in relay.rest():
            yield output

    def changed(self, run: Run) -> None:
        """A run has grown: when nobody wants its result any more, nobody wants what it has asked for."""
        if not (run.ended or run.cancel_requested):
            return
        asked = {**_noted(run), **self._open.pop(run.id, {})}
        told = self._told.pop(run.id, frozenset[str]())
        if run.cancel_requested or run.state in _LOST:
            for task, peer in asked.items():
                if task not in told:
                    self._spawn(self._cancel(peer, task))
        if not run.ended:
            # A peer may name its task only now: the end finds it.
            self._told[run.id] = told | asked.keys()

    async def close(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CANCEL_S)
        await self._http.aclose()

    def _key(self, turn: Turn | None) -> str | None:
        """The same for the same question of the same turn, whoever works on it."""
        if turn is None:
            return None
        number = self._asked[turn] = self._asked.get(turn, 0) + 1
        return f"{turn.run_id}/{turn.number}/{number}"

    async def _opened(self, turn: Turn | None, peer: str, task: str) -> None:
        if turn is None:
            return
        still = self._open.setdefault(turn.run_id, {})
        still[task] = peer
        lines = "\n".join(f"{who} {what}" for what, who in still.items())
        # Before anything else happens, so that a cancel finds it whenever it comes, also after a crash.
        exchange = await self._exchange
        await exchange.commands.execute(turn.run_id, Emit(turn.epoch, Noted({OPEN: lines})))

    def _done(self, turn: Turn | None, task: str) -> None:
        if turn is not None:
            self._open.get(turn.run_id, {}).pop(task, None)

    async def _cancel(self, peer: str, task: str) -> None:
        """Best effort within a few seconds; one that has ended refuses, which is as good."""
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
    """Which task and conversation a question belongs to, and through how many nodes its matter has come."""
    hops = max(map(hops_of, turn.inputs), default=0) + 1 if turn is not None else 1
    if hops > MAX_HOPS:
        raise TooManyHops(f"The matter came through {MAX_HOPS} nodes already: they may be asking in a circle.")
    named: Json = {"messageId": new_id(), "metadata": {HOPS: hops}}
    if task:
        named["taskId"] = task
    if context := context or (turn.conversation if turn is not None else None):
        named["contextId"] = context
    return named


def _noted(run: Run) -> dict[str, str]:
    lines = (line.partition(" ") for line in run.notes.get(OPEN, "").splitlines())
    return {task: peer for peer, _, task in lines if task}


def is_failure(event: Event) -> str | None:
    """Why a turn failed by the node's own fault; empty for one that did not, None for what ends no turn."""
    if isinstance(event.payload, Failed):
        return event.payload.code if event.payload.code in ("agent_error", "timeout", "model_error") else ""
    return "" if event.type in ("completed", "input_required", "replied") else None

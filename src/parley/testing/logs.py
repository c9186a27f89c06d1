"""Builds parts of a log by hand."""

import asyncio

from parley.errors import ParleyError
from parley.ids import ConversationId, RunId, new_run_id
from parley.runs.rules.content import Message, text_part
from parley.runs.rules.events import GENESIS, Event, InputReceived, Payload, Progress, Submitted, sealed
from parley.runs.rules.state import Run, evolve
from parley.runs.store import Append, Key, Store

WORDS = (text_part("words"),)


class LogWriter:
    """Builds the appends of one run, one after another, as the engine would."""

    def __init__(self, run_id: RunId | None = None, principal: str = "local", at: int = 1000) -> None:
        self.run_id = run_id or new_run_id()
        self.run: Run | None = None
        self.events: list[Event] = []
        self.principal = principal
        self._at = at

    def start(self, *keys: Key) -> Append:
        submitted = Submitted("agent", ConversationId("conversation"), self.principal)
        return self.append(submitted, InputReceived(Message("m", WORDS)), keys=keys)

    def append(self, *payloads: Payload, keys: tuple[Key, ...] = (), expired_before: int = 0) -> Append:
        expected = self.run.version if self.run else 0
        added = [self._next(payload) for payload in payloads]
        assert self.run is not None
        return Append(self.run, expected, added, list(keys), expired_before)

    def progress(self, count: int = 1, text: str = "words") -> Append:
        return self.append(*[Progress((text_part(text),)) for _ in range(count)])

    def _next(self, payload: Payload) -> Event:
        self._at += 1
        previous = self.events[-1].hash if self.events else GENESIS
        event = sealed(self.run_id, len(self.events) + 1, self._at, payload, previous)
        self.run = evolve(self.run, self.run_id, event.seq, event.at, payload)
        self.events.append(event)
        return event


def put(store: Store, append: Append) -> "asyncio.Future[None]":
    """Append to a store; await the future for the result."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def done(error: ParleyError | None) -> None:
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    store.append(append, done)
    return future

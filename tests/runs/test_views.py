"""Views of long runs are read and folded in small pieces."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from parley.ids import ConversationId, RunId
from parley.offload import LARGE
from parley.runs import log as commands_module
from parley.runs.log import Commands
from parley.runs.rules.commands import Fork, Start
from parley.runs.rules.content import Message, text_part
from parley.runs.rules.events import ArtifactAdded, Event, InputRequired, Origin, Payload, Started
from parley.runs.rules.state import Run
from parley.runs.rules.view import View, snapshot_messages, view_of
from parley.runs.store import Store
from parley.runs.streams import PAGE
from parley.runs.views import folded, read_view
from parley.stores.memory import MemoryStore
from parley.testing.logs import LogWriter, put

PAGES = 6


async def _long(store: Store) -> LogWriter:
    log = LogWriter()
    await put(store, log.start())
    await put(store, log.append(Started(1)))
    await put(store, log.progress(PAGE * PAGES))
    await put(store, log.append(*[ArtifactAdded("a", (text_part("x"),), append=n > 0) for n in range(PAGE)]))
    await put(store, log.append(InputRequired((text_part("Which name?"),))))
    return log


@asynccontextmanager
async def _rounds() -> AsyncIterator[list[int]]:
    """Counts the rounds that the event loop makes."""
    count = [0]

    async def turn() -> None:
        while True:
            count[0] += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(turn())
    yield count
    task.cancel()


async def test_the_loop_goes_on_between_the_pages_of_a_long_log(store: Store) -> None:
    log = await _long(store)
    head = await store.head(log.run_id)
    assert head is not None
    async with _rounds() as rounds:
        view = await read_view(store, head)
    assert rounds[0] >= PAGES
    whole = view_of(log.events)
    assert (view.run, view.status, view.history) == (whole.run, whole.status, whole.history)
    assert view.artifacts == whole.artifacts


async def test_the_loop_goes_on_while_events_at_hand_are_folded() -> None:
    log = await _long(MemoryStore())
    async with _rounds() as rounds:
        view = await folded(log.events)
    assert rounds[0] >= len(log.events) // LARGE
    assert view.run == log.run


async def test_nothing_is_read_beyond_the_event_that_was_asked_for(store: Store) -> None:
    log = await _long(store)
    head = await store.head(log.run_id)
    assert head is not None
    reads: list[int] = []
    read = store.read

    async def counted(run: RunId, after: int, limit: int) -> list[Event]:
        reads.append(after)
        return await read(run, after, limit)

    store.read = counted  # type: ignore[method-assign]
    assert (await read_view(store, head, upto=PAGE + 1)).run.version == PAGE + 1
    assert reads == [0, PAGE]


async def test_a_long_log_is_copied_into_a_fork_off_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    store, threads = MemoryStore(), list[threading.Thread]()
    log = await _long(store)
    decide = commands_module.decide

    def watched(run: Run | None, command: commands_module.Command) -> list[Payload]:
        threads.append(threading.current_thread())
        return decide(run, command)

    monkeypatch.setattr(commands_module, "decide", watched)
    payloads = tuple(event.payload for event in log.events if event.payload is not None)
    last = log.events[-1]
    message = Message("n", (text_part("x"),))
    fork = Fork(Origin(log.run_id, last.seq, last.hash.hex()), payloads, "local", message)
    commands = Commands(store, lambda run, events: None)
    outcome = await commands.execute(RunId("fork"), fork)
    assert outcome.run.version > len(payloads)
    await commands.execute(
        RunId("short"), Start("agent", ConversationId("c"), "local", Message("n", (text_part("x"),)))
    )
    assert [thread is threading.main_thread() for thread in threads] == [False, True]


async def test_a_snapshot_of_many_messages_is_restored_as_it_was() -> None:
    log = await _long(MemoryStore())
    view = view_of(log.events)
    snapshot = view.snapshot()
    again = View.restored(snapshot)
    assert (again.run, again.status, again.history) == (view.run, view.status, view.history)
    assert (again.artifacts, again.snapshot()) == (view.artifacts, snapshot)
    assert snapshot_messages(snapshot) == ()

"""Logs that are remembered from turn to turn: never wrong, never too many."""

import asyncio

import pytest

from parley.offload import LARGE
from parley.runs.rules.content import text_part
from parley.runs.rules.events import Completed, Event, InputRequired, Progress, Started
from parley.runs.rules.view import View, view_of
from parley.runs.store import LogStore
from parley.runs.streams import read_all
from parley.runs.views import RecentLogs
from parley.testing.logs import LogWriter, put


class Counted:
    """A store that counts what is read from it."""

    def __init__(self, store: LogStore) -> None:
        self._store = store
        self.reads: list[int] = []

    def __getattr__(self, name: str):
        return getattr(self._store, name)

    async def read(self, run_id, after, limit):
        self.reads.append(after)
        return await self._store.read(run_id, after, limit)


async def written(store: LogStore, words: int = 1) -> LogWriter:
    log = LogWriter()
    await put(store, log.start())
    for _ in range(words):
        await put(store, log.append(Progress((text_part("x"),))))
    return log


async def test_what_is_known_is_not_read_again(store: LogStore) -> None:
    counted = Counted(store)
    logs, log = RecentLogs(counted), await written(store)
    first = await logs.read(log.run_id, log.run.version)
    assert first == await read_all(store, log.run_id)
    assert await logs.read(log.run_id, log.run.version) == first
    assert counted.reads == [0]
    before = log.run.version
    await put(store, log.append(Progress((text_part("elsewhere"),))))
    assert await logs.read(log.run_id, log.run.version) == await read_all(store, log.run_id)
    assert counted.reads == [0, before]


async def test_what_is_heard_need_not_be_read(store: LogStore) -> None:
    counted = Counted(store)
    logs, log = RecentLogs(counted), await written(store)
    await logs.read(log.run_id, log.run.version)
    more = log.append(Progress((text_part("here"),)))
    await put(store, more)
    logs.heard(log.run_id, more.events)
    assert [event.seq for event in await logs.read(log.run_id, log.run.version)] == list(range(1, log.run.version + 1))
    assert counted.reads == [0]


async def test_a_gap_in_what_is_heard_is_read(store: LogStore) -> None:
    logs, log = RecentLogs(store), await written(store)
    await logs.read(log.run_id, log.run.version)
    await put(store, log.append(Progress((text_part("elsewhere"),))))
    more = log.append(Progress((text_part("here"),)))
    await put(store, more)
    logs.heard(log.run_id, more.events)
    assert await logs.read(log.run_id, log.run.version) == await read_all(store, log.run_id)


async def test_a_turn_keeps_the_log_it_was_given(store: LogStore) -> None:
    logs, log = RecentLogs(store), await written(store)
    given = await logs.read(log.run_id, log.run.version)
    before = list(given)
    more = log.append(Progress((text_part("later"),)))
    logs.heard(log.run_id, more.events)
    assert given == before


async def test_the_log_of_a_run_that_ended_is_forgotten(store: LogStore) -> None:
    logs, log = RecentLogs(store), await written(store)
    await logs.read(log.run_id, log.run.version)
    assert logs.size > 0
    logs.heard(log.run_id, log.append(Completed()).events)
    assert logs.size == 0


async def test_no_more_is_kept_than_allowed(store: LogStore) -> None:
    runs = [await written(store, 3) for _ in range(5)]
    all_of = RecentLogs(store)
    for log in runs:
        await all_of.read(log.run_id, log.run.version)
    some = RecentLogs(store, most=all_of.size // 2)
    for log in runs:
        assert await some.read(log.run_id, log.run.version) == await read_all(store, log.run_id)
        assert some.size <= all_of.size // 2
    assert some.size > 0


async def test_a_log_that_grows_without_being_read_is_forgotten_in_time(store: LogStore) -> None:
    log = await written(store)
    logs = RecentLogs(store, most=5_000)
    await logs.read(log.run_id, log.run.version)
    for _ in range(20):
        logs.heard(log.run_id, log.append(Progress((text_part("x" * 100),))).events)
        assert logs.size <= 5_000
    assert logs.size == 0


async def test_the_next_view_is_made_from_the_last_one(store: LogStore, monkeypatch: pytest.MonkeyPatch) -> None:
    applied: list[int] = []
    apply = View.apply

    def counted(view: View, event: Event, *rest: object) -> None:
        applied.append(event.seq)
        apply(view, event, *rest)  # type: ignore[arg-type]

    logs, log = RecentLogs(store), await written(store, LARGE)
    first = await logs.read(log.run_id, log.run.version)
    monkeypatch.setattr(View, "apply", counted)
    assert (await logs.view(log.run_id, first)).history == view_of(log.events).history
    more = log.append(Progress((text_part("later"),)))
    logs.heard(log.run_id, more.events)
    applied.clear()
    second = await logs.view(log.run_id, await logs.read(log.run_id, log.run.version))
    assert applied == [log.run.version]
    monkeypatch.undo()
    assert (second.history, second.status) == (view_of(log.events).history, view_of(log.events).status)
    # The log as it was: what is cached is newer.
    assert (await logs.view(log.run_id, first)).run.version == len(first)


async def test_a_view_that_was_broken_off_is_made_anew(store: LogStore) -> None:
    logs, log = RecentLogs(store), await written(store, 3 * LARGE)
    events = await logs.read(log.run_id, log.run.version)
    task = asyncio.create_task(logs.view(log.run_id, events))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait((task,))
    assert task.cancelled()
    assert (await logs.view(log.run_id, events)).history == view_of(log.events).history


async def test_the_last_event_of_a_type_is_found_up_to_a_version(store: LogStore) -> None:
    logs, log = RecentLogs(store), await written(store)
    assert logs.last(log.run, "input_required") is None
    await put(store, log.append(Started(1)))
    await put(store, log.append(InputRequired((text_part("Which name?"),))))
    asked = log.run
    await logs.read(log.run_id, asked.version)
    found = logs.last(asked, "input_required")
    assert found is not None
    assert found.seq == asked.version
    # Another replica wrote more: the cached log is too short to tell.
    log.append(InputRequired((text_part("And which number?"),)))
    assert logs.last(log.run, "input_required") is None

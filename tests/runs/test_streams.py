import asyncio

import pytest

from parley.errors import CursorBeyondEnd, InvalidCursor, RunNotFound, StaleCursor
from parley.ids import RunId
from parley.runs import streams as streams_module
from parley.runs.rules.events import Event
from parley.runs.store import Append, Store
from parley.runs.streams import Follower, Streams, read_all
from parley.testing.logs import LogWriter, put


class Source:
    """A log that grows, and tells its followers."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.streams = Streams(store)
        self.log = LogWriter()

    async def grow(self, count: int = 1, *, silently: bool = False) -> None:
        append = self.log.progress(count) if self.log.run else self.log.start()
        await put(self.store, append)
        if not silently:
            self.streams.publish(append.run.id, append.events)


@pytest.fixture
async def source(store: Store) -> Source:
    source = Source(store)
    await source.grow()
    return source


async def take(follower: Follower, count: int) -> list[int]:
    seen: list[Event] = []
    while len(seen) < count:
        seen += await follower.next(5)
    return [event.seq for event in seen]


async def test_replay_then_live_without_gap_or_duplicate(source: Source) -> None:
    await source.grow(5)
    with await source.streams.follow(source.log.run_id, 3) as follower:
        assert await take(follower, 4) == [4, 5, 6, 7]
        await source.grow(2)
        assert await take(follower, 2) == [8, 9]


@pytest.mark.parametrize("cursor", range(10))
async def test_every_cursor_sees_exactly_the_rest(source: Source, cursor: int) -> None:
    await source.grow(4)
    if cursor > 6:
        await source.grow(4)
    with await source.streams.follow(source.log.run_id, cursor) as follower:
        growing = asyncio.gather(*(source.grow() for _ in range(5)))
        end = 15 if cursor > 6 else 11
        assert await take(follower, end - cursor) == list(range(cursor + 1, end + 1))
        await growing


async def test_a_slow_reader_loses_nothing(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams_module, "MAX_BUFFERED", 3)
    with await source.streams.follow(source.log.run_id, 2) as follower:
        for _ in range(50):
            await source.grow()
        assert await take(follower, 50) == list(range(3, 53))


async def test_a_lost_notification_only_delays(source: Source) -> None:
    with await source.streams.follow(source.log.run_id, 2) as follower:
        await source.grow(silently=True)
        assert await follower.next(0.01) == []
        await source.grow()
        assert await take(follower, 2) == [3, 4]


async def test_what_grows_elsewhere_is_read_once_for_all_who_follow(source: Source) -> None:
    reads: list[int] = []
    read = source.store.read

    async def counted(run: RunId, after: int, limit: int) -> list[Event]:
        reads.append(after)
        return await read(run, after, limit)

    followers = [await source.streams.follow(source.log.run_id, 2) for _ in range(50)]
    source.store.read = counted  # type: ignore[method-assign]
    await source.grow(3, silently=True)
    source.streams.reach(source.log.run_id, 5)
    for follower in followers:
        assert await take(follower, 3) == [3, 4, 5]
        follower.close()
    assert reads == [2]


@pytest.mark.parametrize("how", ["follow", "begin"])
async def test_a_follower_that_comes_later_hides_nothing_from_the_earlier_ones(source: Source, how: str) -> None:
    """The later one finds the log longer than the earlier one was told, before a signal comes from elsewhere."""
    run = source.log.run_id
    with await source.streams.follow(run, 2) as earlier:
        await source.grow(silently=True)
        with await source.streams.follow(run, 3) if how == "follow" else source.streams.begin(run, 3):
            source.streams.reach(run, 3)
            assert [event.seq for event in await earlier.next(1)] == [3]


async def test_silence_is_told_after_the_timeout(source: Source) -> None:
    with await source.streams.follow(source.log.run_id, 2) as follower:
        assert await follower.next(0.001) == []
        assert follower.cursor == 2


async def test_each_of_many_followers_waits_for_its_own_time(source: Source) -> None:
    loop = asyncio.get_running_loop()
    head = len(source.log.events)
    times = (0.02, 0.35, 0.02, None)
    followers = [await source.streams.follow(source.log.run_id, head) for _ in times]
    begun = loop.time()

    async def silence(follower: Follower, time: float | None) -> float:
        assert await follower.next(time) == []
        return loop.time() - begun

    endless = asyncio.create_task(followers[3].next())
    waited = await asyncio.gather(*map(silence, followers[:3], times[:3]))
    assert all(time <= one < time + 1 for one, time in zip(waited, (0.02, 0.35, 0.02), strict=True))
    assert not endless.done()
    followers[0].close()
    await source.grow()
    assert await endless


async def test_followers_do_not_disturb_each_other(source: Source) -> None:
    followers = [await source.streams.follow(source.log.run_id, 0) for _ in range(20)]
    followers[3].close()
    await source.grow(3)
    for number, follower in enumerate(followers):
        if number != 3:
            assert await take(follower, 5) == [1, 2, 3, 4, 5]
            follower.close()
    assert source.streams._watches == {}


async def test_an_unknown_run_cannot_be_followed(source: Source) -> None:
    with pytest.raises(RunNotFound):
        await source.streams.follow(RunId("unknown"))
    assert source.streams._watches == {}


@pytest.mark.parametrize(("cursor", "error"), [(-1, InvalidCursor), (3, CursorBeyondEnd), (10**9, CursorBeyondEnd)])
async def test_a_cursor_outside_the_log_is_refused(source: Source, cursor: int, error: type[Exception]) -> None:
    with pytest.raises(error):
        await source.streams.follow(source.log.run_id, cursor)
    assert source.streams._watches == {}


async def test_a_cursor_below_the_floor_is_stale(source: Source) -> None:
    await source.grow(8)
    await source.store.trim(source.log.run_id, 6)
    with pytest.raises(StaleCursor) as refused:
        await source.streams.follow(source.log.run_id, 5)
    assert refused.value.details == {"cursor": 5, "floor": 6}
    with await source.streams.follow(source.log.run_id, 6) as follower:
        assert await take(follower, 4) == [7, 8, 9, 10]


async def test_a_reader_overtaken_by_the_floor_is_told(source: Source) -> None:
    await source.grow(8)
    with await source.streams.follow(source.log.run_id, 2) as follower:
        await source.store.trim(source.log.run_id, 6)
        with pytest.raises(StaleCursor):
            await follower.next(1)


async def test_a_whole_log_is_read_by_pages(source: Source) -> None:
    await source.grow(streams_module.PAGE * 2 - 2)
    assert len(await read_all(source.store, source.log.run_id)) == streams_module.PAGE * 2


async def test_followers_take_turns_to_read_what_is_stored(source: Source) -> None:
    await source.grow(streams_module.PAGE * 3)
    reading = most = 0
    read = source.store.read

    async def counted(run: RunId, after: int, limit: int) -> list[Event]:
        nonlocal reading, most
        reading += 1
        most = max(most, reading)
        try:
            return await read(run, after, limit)
        finally:
            reading -= 1

    source.store.read = counted  # type: ignore[method-assign]
    followers = [await source.streams.follow(source.log.run_id) for _ in range(30)]
    taken = await asyncio.gather(*(take(follower, streams_module.PAGE * 3) for follower in followers))
    assert most <= streams_module.READERS
    assert all(seqs[-1] >= streams_module.PAGE * 3 for seqs in taken)
    for follower in followers:
        follower.close()


async def test_a_follower_that_is_not_asked_reads_nothing(source: Source) -> None:
    await source.grow(streams_module.PAGE * 5)
    reads: list[int] = []
    read = source.store.read

    async def counted(run: RunId, after: int, limit: int) -> list[Event]:
        reads.append(after)
        return await read(run, after, limit)

    source.store.read = counted  # type: ignore[method-assign]
    with await source.streams.follow(source.log.run_id) as follower:
        assert len(await follower.next(5)) == streams_module.PAGE
        await source.grow(3)
        assert reads == [0]


async def test_large_events_are_returned_in_portions(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams_module, "PORTION_BYTES", 1000)
    await put(source.store, source.log.progress(7, "x" * 400))
    with await source.streams.follow(source.log.run_id, 2) as follower:
        sizes = [len(await follower.next(5)) for _ in range(4)]
        assert sizes == [2, 2, 2, 1]
        source.streams.publish(source.log.run_id, (await _put(source, 4)).events)
        assert [len(await follower.next(5)) for _ in range(2)] == [2, 2]


async def test_what_a_follower_buffers_is_bounded_in_bytes(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams_module, "MAX_BUFFERED_BYTES", 1000)
    with await source.streams.follow(source.log.run_id, 2) as follower:
        for _ in range(20):
            source.streams.publish(source.log.run_id, (await _put(source, 1)).events)
        assert follower._bytes < 2000
        assert await take(follower, 20) == list(range(3, 23))


async def _put(source: Source, count: int) -> Append:
    append = source.log.progress(count, "x" * 400)
    await put(source.store, append)
    return append

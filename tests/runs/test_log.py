import asyncio
import gc
import weakref

import pytest

from parley.errors import KeyReused, KeyTaken, NotReady, PayloadTooLarge, RunEnded, RunNotFound, VersionConflict
from parley.ids import ConversationId, RunId, new_run_id
from parley.runs.log import KEY_LIFE_MS, Commands, Outcome, verify_run
from parley.runs.rules.commands import Begin, Cancel, Emit, Give, Recover, Start
from parley.runs.rules.content import Message, text_part
from parley.runs.rules.events import Completed, Event, Progress
from parley.runs.rules.state import Run, State
from parley.runs.store import LASTING, Key, LogStore, Store

WORDS = (text_part("words"),)
START = Start("agent", ConversationId("c"), "local", Message("m", WORDS))


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000

    def __call__(self) -> int:
        return self.now


class Bench:
    """Commands over a store, with what they published."""

    def __init__(self, store: Store, max_payload: int = 10_000) -> None:
        self.clock = Clock()
        self.published: list[Event] = []
        self.commands = Commands(store, self.publish, self.clock, max_payload)

    def publish(self, run: Run, events: list[Event]) -> None:
        self.published += events

    async def started(self) -> RunId:
        run_id = new_run_id()
        await self.commands.execute(run_id, START, Begin())
        return run_id


@pytest.fixture
def bench(store: Store) -> Bench:
    return Bench(store)


async def test_what_is_durable_was_published_in_order(bench: Bench, store: Store) -> None:
    run_id = await bench.started()
    await bench.commands.execute(run_id, Emit(1, Progress(WORDS)), Emit(1, Completed()))
    assert [event.seq for event in bench.published] == [1, 2, 3, 4, 5]
    assert [event.hash for event in bench.published] == [event.hash for event in await store.read(run_id, 0, 10)]
    assert await verify_run(store, run_id) == 5


async def test_many_writers_of_one_run_are_put_in_order(bench: Bench, store: Store) -> None:
    run_id = await bench.started()
    words = [Progress((text_part(str(number)),)) for number in range(200)]
    outcomes = await asyncio.gather(*(bench.commands.execute(run_id, Emit(1, word)) for word in words))
    assert [outcome.events[0].seq for outcome in outcomes] == list(range(4, 204))
    assert await verify_run(store, run_id) == 203


async def test_a_refused_command_leaves_nothing_in_memory(bench: Bench) -> None:
    run_id = await bench.started()

    async def refused() -> "weakref.ref[BaseException]":
        with pytest.raises(NotReady) as raised:
            await bench.commands.execute(run_id, Begin())
        return weakref.ref(raised.value)

    error = await refused()
    gc.collect()
    assert error() is None


async def test_a_refused_command_does_not_hold_up_its_neighbours(bench: Bench) -> None:
    run_id = await bench.started()
    first = bench.commands.submit(run_id, Emit(1, Progress(WORDS)))
    wrong = bench.commands.submit(run_id, Begin())
    last = bench.commands.submit(run_id, Emit(1, Completed()))
    await asyncio.wait([first, wrong, last])
    assert isinstance(wrong.exception(), NotReady)
    assert first.result().run.version == 4
    assert last.result().run.state is State.COMPLETED


async def test_commands_handed_in_together_happen_together_or_not_at_all(bench: Bench, store: Store) -> None:
    run_id = await bench.started()
    with pytest.raises(NotReady):
        await bench.commands.execute(run_id, Emit(1, Progress(WORDS)), Begin())
    assert len(await store.read(run_id, 0, 10)) == 3


async def test_of_a_storm_of_endings_one_is_written(bench: Bench, store: Store) -> None:
    run_id = await bench.started()
    storm = [Emit(1, Completed()) if number % 2 else Cancel("local") for number in range(100)]
    await asyncio.gather(*(bench.commands.execute(run_id, command) for command in storm), return_exceptions=True)
    ends = [event.type for event in await store.read(run_id, 0, 100) if event.type in ("completed", "canceled")]
    assert len(ends) == 1


async def test_an_unknown_run_is_refused_and_nothing_is_written(bench: Bench, store: Store) -> None:
    with pytest.raises(RunNotFound):
        await bench.commands.execute(RunId("unknown"), Cancel("local"))
    with pytest.raises(RunNotFound):
        await bench.commands.state(RunId("unknown"))
    assert await store.run_ids("", 10) == []


async def test_a_wrong_expected_version_is_refused_and_nothing_is_written(bench: Bench, store: Store) -> None:
    run_id = await bench.started()
    with pytest.raises(VersionConflict) as refused:
        await bench.commands.execute(run_id, Emit(1, Completed()), expected=2)
    assert refused.value.details == {"expected": 2, "version": 3}
    assert len(await store.read(run_id, 0, 10)) == 3
    assert (await bench.commands.execute(run_id, Emit(1, Completed()), expected=3)).run.version == 4


async def test_a_payload_over_the_limit_is_refused_and_nothing_is_written(store: Store) -> None:
    bench = Bench(store, max_payload=1000)
    run_id = await bench.started()
    with pytest.raises(PayloadTooLarge) as refused:
        await bench.commands.execute(
            run_id, Emit(1, Progress(WORDS)), Emit(1, Progress((text_part("x" * 1000),))), Emit(1, Completed())
        )
    assert refused.value.details["limit"] == 1000
    assert len(await store.read(run_id, 0, 10)) == 3
    large = Start("agent", ConversationId("c"), "local", Message("m", (text_part("x" * 1000),)))
    with pytest.raises(PayloadTooLarge):
        await bench.commands.execute(new_run_id(), large)
    assert len(await store.run_ids("", 10)) == 1


async def test_a_rival_process_that_was_first_is_noticed(store: Store) -> None:
    """Two command handlers over one store, as two replicas: both sides' caches go stale all the time."""
    ours, theirs = Bench(store), Bench(store)
    run_id = await ours.started()
    both = [side.commands.execute(run_id, Emit(1, Progress(WORDS))) for _ in range(25) for side in (ours, theirs)]
    await asyncio.gather(*both)
    assert await verify_run(store, run_id) == 53
    await theirs.commands.execute(run_id, Emit(1, Completed()))
    with pytest.raises(RunEnded):
        await ours.commands.execute(run_id, Give(Message("late", WORDS)))


async def test_the_same_key_and_payload_lead_to_the_same_run(bench: Bench, store: Store) -> None:
    key = Key("scope", "key", b"digest")
    first = await bench.commands.execute(new_run_id(), START, key=key)
    again = await bench.commands.execute(new_run_id(), START, key=key)
    assert (first.replayed, again.replayed) == (False, True)
    assert again.run == first.run
    assert len(await store.run_ids("", 10)) == 1


async def test_the_same_key_with_another_payload_is_refused_and_nothing_is_written(bench: Bench, store: Store) -> None:
    await bench.commands.execute(new_run_id(), START, key=Key("scope", "key", b"digest"))
    with pytest.raises(KeyReused):
        await bench.commands.execute(new_run_id(), START, key=Key("scope", "key", b"other"))
    assert len(await store.run_ids("", 10)) == 1


async def test_a_key_raced_by_many_leads_to_one_run(bench: Bench, store: Store) -> None:
    key = Key("scope", "key", b"digest")
    outcomes = await asyncio.gather(*(bench.commands.execute(new_run_id(), START, key=key) for _ in range(20)))
    assert len({outcome.run.id for outcome in outcomes}) == 1
    assert sum(not outcome.replayed for outcome in outcomes) == 1
    assert len(await store.run_ids("", 10)) == 1


async def test_a_key_is_forgotten_after_its_time(bench: Bench) -> None:
    key = Key("scope", "key", b"digest")
    first = await bench.commands.execute(new_run_id(), START, key=key)
    bench.clock.now += KEY_LIFE_MS + 1
    second = await bench.commands.execute(new_run_id(), START, key=key)
    assert first.run.id != second.run.id


async def test_a_key_of_a_run_is_never_forgotten(bench: Bench, store: LogStore) -> None:
    run_id = await bench.started()
    key = Key(f"{LASTING}{run_id}", "frame", b"digest")
    await bench.commands.execute(run_id, Give(Message("m", WORDS)), key=key)
    bench.clock.now += 100 * KEY_LIFE_MS
    await store.forget_keys(bench.clock.now)
    again = await asyncio.gather(*(bench.commands.execute(run_id, Give(Message("m", WORDS)), key=key) for _ in "ab"))
    assert [outcome.replayed for outcome in again] == [True, True]
    with pytest.raises(KeyReused):
        await bench.commands.execute(run_id, Give(Message("m", WORDS)), key=Key(key.scope, "frame", b"other"))
    # Also when the append itself is the first to find out.
    with pytest.raises(KeyTaken):
        await bench.commands.submit(run_id, Give(Message("m", WORDS)), key=key)
    assert len(await store.read(run_id, 0, 10)) == 4


async def test_one_key_many_times_in_one_batch_of_a_run_counts_once(bench: Bench, store: Store) -> None:
    """They wait together behind another command, and would be decided together."""
    run_id = await bench.started()
    key = Key(f"{LASTING}{run_id}", "frame", b"digest")
    other = bench.commands.submit(run_id, Give(Message("first", WORDS)))
    same = [bench.commands.submit(run_id, Give(Message("m", WORDS)), key=key) for _ in range(5)]
    outcomes = await asyncio.gather(other, *same, return_exceptions=True)
    assert [isinstance(outcome, Outcome) for outcome in outcomes] == [True, True, False, False, False, False]
    assert all(isinstance(outcome, KeyTaken) for outcome in outcomes[2:])
    assert len(await store.read(run_id, 0, 20)) == 5
    assert await verify_run(store, run_id) == 5


async def test_when_the_first_of_a_key_is_refused_the_others_are_heard(bench: Bench, store: Store) -> None:
    run_id = await bench.started()
    key = Key(f"{LASTING}{run_id}", "frame", b"digest")
    give = Give(Message("m", WORDS))
    others = [bench.commands.submit(run_id, give), bench.commands.submit(run_id, give, key=key, expected=99)]
    others += [bench.commands.submit(run_id, give, key=key) for _ in range(3)]
    outcomes = await asyncio.gather(*others, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [Outcome, VersionConflict, Outcome, KeyTaken, KeyTaken]
    assert await verify_run(store, run_id) == 5


async def test_time_never_runs_backwards_within_a_run(bench: Bench, store: Store) -> None:
    run_id = await bench.started()
    bench.clock.now -= 5000
    await bench.commands.execute(run_id, Emit(1, Completed()))
    times = [event.at for event in await store.read(run_id, 0, 10)]
    assert times == sorted(times)


async def test_a_caller_that_gives_up_does_not_stop_what_was_begun(bench: Bench, store: Store) -> None:
    run_id = await bench.started()
    impatient = asyncio.ensure_future(bench.commands.execute(run_id, Emit(1, Progress(WORDS))))
    await asyncio.sleep(0)
    impatient.cancel()
    assert (await bench.commands.execute(run_id, Emit(1, Completed()))).run.version == 5
    assert await verify_run(store, run_id) == 5


async def test_nobody_is_refused_for_what_another_replica_has_changed_since(store: Store) -> None:
    here, there = (Commands(store, lambda run, events: None, shared=True) for _ in range(2))
    run_id = new_run_id()
    await here.execute(run_id, START)
    await there.execute(run_id, Begin("there"))
    outcome = await here.execute(run_id, Emit(1, Progress(WORDS)))
    assert outcome.run.owner == "there"
    await there.execute(run_id, Emit(1, Progress(WORDS)))
    await here.execute(run_id, Recover(1, "restart"))
    await there.execute(run_id, Begin("there"))
    rescued = await here.execute(run_id, Recover(3, "restart"))
    assert [event.type for event in rescued.events] == ["rescued"]
    assert await verify_run(store, run_id) == 8


async def test_events_of_another_replica_are_not_counted_as_written_here(store: Store) -> None:
    """A conditional append that conflicts loads them without publishing them: the signal must still be heard."""
    ours, theirs = Bench(store), Bench(store)
    run_id = await ours.started()
    await theirs.commands.execute(run_id, Cancel("local"))
    with pytest.raises(VersionConflict):
        await ours.commands.execute(run_id, Emit(1, Progress(WORDS)), expected=3)
    assert ours.commands.written(run_id) == 3
    await ours.commands.execute(run_id, Emit(1, Progress(WORDS)), expected=4)
    assert ours.commands.written(run_id) == 5

"""Contract suite of log stores. Subclass it and give it a `store` fixture:

class TestMyStore(StoreContract):
    @pytest.fixture
    async def store(self):
        ...
"""

import asyncio
import random
from collections.abc import Awaitable
from typing import Any

import pytest
from msgspec.structs import replace

from parley.budgets.rules import Spend, Spent
from parley.errors import KeyTaken, StoreUnavailable, VersionConflict
from parley.execution.turn_order import Served
from parley.ids import ConversationId, RunId, new_run_id
from parley.runs.log import all_runs, verify_run
from parley.runs.rules.content import Message, text_part
from parley.runs.rules.events import (
    Canceled,
    Completed,
    Event,
    Failed,
    InputReceived,
    Noted,
    Started,
    Submitted,
    Suspended,
    Woken,
)
from parley.runs.rules.state import Run, State, erased
from parley.runs.store import LASTING, READ_BYTES, Append, Head, Key, Listing
from parley.runs.store import LogStore as Store
from parley.stores.memory import MemoryStore
from parley.testing.logs import LogWriter, put

__all__ = ["StoreContract"]

NOBODY = RunId("00000000-0000-7000-8000-000000000000")


def bare(events: list[Event]) -> list[tuple[Any, ...]]:
    return [(event.run, event.seq, event.at, event.type, event.body, event.hash) for event in events]


def _said() -> InputReceived:
    return InputReceived(Message("m", (text_part("hi"),)))


class StoreContract:
    """Tests that every log store passes."""

    async def test_it_knows_how_much_it_takes_up(self, store: Store) -> None:
        assert await store.size() >= 0

    async def test_what_was_appended_is_read_back_byte_for_byte(self, store: Store) -> None:
        log = LogWriter()
        await put(store, log.start())
        await put(store, log.progress(3))
        assert bare(await store.read(log.run_id, 0, 100)) == bare(log.events)
        head = await store.head(log.run_id)
        assert head is not None
        assert (head.run, head.hash, head.floor) == (log.run, log.events[-1].hash, 0)

    async def test_reading_goes_on_from_a_cursor_and_stops_at_the_limit(self, store: Store) -> None:
        log = LogWriter()
        await put(store, log.start())
        await put(store, log.progress(8))
        assert [event.seq for event in await store.read(log.run_id, 4, 3)] == [5, 6, 7]
        assert [event.seq for event in await store.read(log.run_id, 9, 3)] == [10]
        assert await store.read(log.run_id, 10, 3) == []

    async def test_a_page_of_large_events_has_fewer_of_them(self, store: Store) -> None:
        log = LogWriter()
        await put(store, log.start())
        await put(store, log.progress(6, "x" * (READ_BYTES // 4)))
        assert [event.seq for event in await store.read(log.run_id, 2, 100)] == [3, 4, 5, 6]
        assert [event.seq for event in await store.read(log.run_id, 6, 100)] == [7, 8]
        await put(store, log.progress(2, "x" * READ_BYTES))
        assert [event.seq for event in await store.read(log.run_id, 8, 100)] == [9]

    async def test_events_of_some_types_are_read_from_either_end(self, store: Store) -> None:
        log = LogWriter()
        await put(store, log.start())
        await put(store, log.progress(5))
        types = ("submitted", "progress")
        assert [event.seq for event in await store.read_types(log.run_id, types, 0, 3)] == [1, 3, 4]
        assert [event.seq for event in await store.read_types(log.run_id, types, 4, 100)] == [5, 6, 7]
        assert bare(await store.read_last(log.run_id, types, 2)) == bare(log.events[-2:])
        assert [event.seq for event in await store.read_last(log.run_id, types, 6)] == [1, 3, 4, 5, 6, 7]
        assert [event.seq for event in await store.read_last(log.run_id, ("input",), 9)] == [2]
        assert await store.read_last(NOBODY, types, 2) == []

    async def test_unfinished_runs_are_counted_by_principal(self, store: Store) -> None:
        logs = [LogWriter() for _ in range(3)]
        for log in logs:
            await put(store, log.start())
        await put(store, logs[0].append(Completed()))
        assert await store.unfinished("local", 10) == 2
        assert await store.unfinished("local", 1) >= 1
        assert await store.unfinished("nobody", 10) == 0

        assert await store.unfinished_of("agent", 10) == await store.unfinished("local", 10)
        assert await store.unfinished_of("other", 10) == 0

    async def test_spending_is_added_up_with_the_appends_that_cause_it(self, store: Store) -> None:
        log = LogWriter()
        spends = (Spend("agent:a", "2026-01", 5, 7, 0, 1), Spend("tree:r", "tree", 1, 0, 1, 1))
        await put(store, replace(log.start(), spends=spends))
        lost = replace(log.progress(), spends=spends)
        with pytest.raises(VersionConflict):
            await put(store, replace(lost, expected=lost.expected - 1))
        await put(store, replace(lost, spends=(*spends, spends[0])))
        places = [("agent:a", "2026-01"), ("tree:r", "tree"), ("agent:a", "2026-02")]
        found = await store.spent(places)
        assert {place: found.get(place, Spent()) for place in places} == {
            places[0]: Spent(15, 21, 0), places[1]: Spent(2, 0, 2), places[2]: Spent(),
        }  # fmt: skip
        assert await store.spent([]) == {}
        assert await store.forget_spent(41 * 24 * 3600 * 1000) == 1
        assert list(await store.spent(places)) == places[:1]
        assert await store.forget_spent(500 * 24 * 3600 * 1000) == 1

    async def test_a_queue_has_the_first_run_of_each_principal(self, store: Store) -> None:
        logs = [LogWriter(principal=name) for name in ("ann", "ann", "bob", "ann", "cyn")]
        for log in logs:
            await put(store, log.append(Submitted("agent", ConversationId("c"), log.principal), _said()))
        await put(store, replace(logs[0].append(Started(1, "r")), served=Served("agent", "ann", 4)))
        await put(store, replace(logs[4].append(Started(1, "r")), served=Served("agent", "cyn", 5)))

        async def queue(*without: LogWriter) -> tuple[list[tuple[str, int, int]], int]:
            found = await store.queue("agent", [log.run_id for log in without])
            ids = [log.run_id for log in logs]
            return sorted((head.principal, ids.index(head.run), head.served) for head in found.heads), found.last

        assert await queue() == ([("ann", 1, 4), ("bob", 2, 0)], 5)
        assert await queue(logs[1], logs[2]) == ([("ann", 3, 4)], 5)
        found = await store.queue("agent", [])
        first, second = sorted(found.heads, key=lambda head: head.arrival)
        assert (first.principal, second.principal) == ("ann", "bob")
        assert (await store.queue("other", [])).heads == ()

    async def test_an_unknown_run_is_empty(self, store: Store) -> None:
        assert await store.head(NOBODY) is None
        assert await store.read(NOBODY, 0, 10) == []

    async def test_a_wrong_expected_version_writes_nothing(self, store: Store) -> None:
        log = LogWriter()
        await put(store, log.start())
        before = await store.head(log.run_id)
        for expected in (0, 1, 3, 99):
            append = LogWriter(log.run_id).start()
            append.expected = expected
            with pytest.raises(VersionConflict):
                await put(store, append)
        assert await store.head(log.run_id) == before
        assert len(await store.read(log.run_id, 0, 10)) == 2

    async def test_an_append_to_a_run_that_does_not_exist_writes_nothing(self, store: Store) -> None:
        log = LogWriter()
        log.start()
        with pytest.raises(VersionConflict):
            await put(store, log.progress())
        assert await store.head(log.run_id) is None

    async def test_of_rivals_exactly_one_wins(self, store: Store) -> None:
        log = LogWriter()
        await put(store, log.start())
        rivals: list[Append] = []
        for _ in range(8):
            rival = LogWriter(log.run_id)
            rival.start()
            rivals.append(rival.append(Completed()))
        results = await asyncio.gather(*(put(store, rival) for rival in rivals), return_exceptions=True)
        assert sum(result is None for result in results) == 1
        assert sum(isinstance(result, VersionConflict) for result in results) == 7
        assert len(await store.read(log.run_id, 0, 10)) == 3

    async def test_a_conflict_of_one_run_does_not_touch_the_others_of_its_batch(self, store: Store) -> None:
        logs = [LogWriter() for _ in range(20)]
        await asyncio.gather(*(put(store, log.start()) for log in logs))
        appends = [log.progress(2) for log in logs]
        appends[7].expected = 99
        results = await asyncio.gather(*(put(store, append) for append in appends), return_exceptions=True)
        assert [index for index, result in enumerate(results) if result is not None] == [7]
        lengths = [len(await store.read(log.run_id, 0, 10)) for log in logs]
        assert lengths == [4] * 7 + [2] + [4] * 12

    async def test_a_key_is_stored_with_the_run_it_led_to(self, store: Store) -> None:
        log = LogWriter()
        await put(store, log.start(Key("scope", "key", b"digest")))
        found = await store.find_key("scope", "key")
        assert found is not None
        assert (found.run, found.version, found.digest) == (log.run_id, 2, b"digest")
        assert await store.find_key("other", "key") is None
        assert await store.find_key("scope", "other") is None

    async def test_a_key_that_is_taken_writes_nothing(self, store: Store) -> None:
        await put(store, LogWriter().start(Key("scope", "key", b"digest")))
        rival = LogWriter()
        with pytest.raises(KeyTaken):
            await put(store, rival.start(Key("scope", "key", b"digest")))
        assert await store.head(rival.run_id) is None
        assert await store.read(rival.run_id, 0, 10) == []

    async def test_of_rivals_for_a_key_exactly_one_wins(self, store: Store) -> None:
        logs = [LogWriter() for _ in range(8)]
        key = Key("scope", "key", b"digest")
        results = await asyncio.gather(*(put(store, log.start(key)) for log in logs), return_exceptions=True)
        assert sum(result is None for result in results) == 1
        assert sum(isinstance(result, KeyTaken) for result in results) == 7
        assert len([run async for run in all_runs(store)]) == 1

    async def test_an_expired_key_can_be_used_again(self, store: Store) -> None:
        await put(store, LogWriter(at=1000).start(Key("scope", "key", b"old")))
        later = LogWriter(at=9000)
        append = later.start(Key("scope", "key", b"new"))
        append.keys_expired_before = 5000
        await put(store, append)
        found = await store.find_key("scope", "key")
        assert found is not None
        assert (found.run, found.digest) == (later.run_id, b"new")

    async def test_a_key_of_a_run_never_expires(self, store: Store) -> None:
        log = LogWriter(at=1000)
        lasting, other = Key(f"{LASTING}{log.run_id}", "frame", b"digest"), Key("runs", "frame", b"digest")
        await put(store, log.start(lasting, other))
        assert await store.forget_keys(10_000) == 1
        assert await store.find_key("runs", "frame") is None
        found = await store.find_key(lasting.scope, "frame")
        assert found is not None
        assert (found.run, found.version) == (log.run_id, 2)
        again = log.append(Canceled(), keys=(lasting,), expired_before=10_000)
        with pytest.raises(KeyTaken):
            await put(store, again)
        assert await store.find_key(lasting.scope, "frame") == found

    async def test_of_the_keys_of_one_append_each_expires_or_lasts_by_itself(self, store: Store) -> None:
        lasting, usual = Key(f"{LASTING}x", "key", b"digest"), Key("scope", "key", b"digest")
        await put(store, LogWriter(at=1000).start(usual))
        both = LogWriter(at=9000)
        append = both.start(lasting, usual)
        append.keys_expired_before = 5000
        await put(store, append)
        rival = LogWriter(at=99_000).start(usual, lasting)
        rival.keys_expired_before = 50_000
        with pytest.raises(KeyTaken):
            await put(store, rival)
        found = await store.find_key("scope", "key")
        assert found is not None
        assert found.run == both.run_id

    async def test_the_keys_of_a_run_go_with_its_log(self, store: Store) -> None:
        log, other = LogWriter(), LogWriter()
        scope, others = f"{LASTING}{log.run_id}", f"{LASTING}{other.run_id}"
        await put(store, other.start(Key(others, "a", b"digest")))
        await put(store, log.start(Key(scope, "a", b"digest"), Key("scope", "a", b"digest")))
        await put(store, log.append(Canceled(), keys=(Key(scope, "b", b"digest"),)))
        await store.trim(log.run_id, 2)
        assert [await store.find_key(scope, name) is not None for name in "ab"] == [False, True]
        await store.trim(log.run_id, 3)
        assert await store.find_key(scope, "b") is None
        assert await store.find_key("scope", "a") is not None
        assert await store.find_key(others, "a") is not None

    async def test_what_waits_is_counted_up_to_a_limit_and_before_a_run(self, store: Store) -> None:
        logs = [LogWriter(at=9 - number) for number in range(5)]
        for log in logs:
            await put(store, log.start())
        await put(store, logs[1].append(Started(1, "r")))
        assert [await store.waiting("agent", most) for most in (2, 4, 9)] == [2, 4, 4]
        assert [await store.ahead(log.run_id, "agent", 2) for log in logs] == [0, None, 1, 2, 2]
        assert (await store.waiting("other", 9), await store.ahead(new_run_id(), "agent", 9)) == (0, None)

    async def test_runs_in_a_state_come_in_order_of_arrival(self, store: Store) -> None:
        logs = [LogWriter(at=9), LogWriter(at=8), LogWriter(at=7), LogWriter(at=6)]
        for log in logs:
            await put(store, log.start())
        await put(store, logs[1].append(Canceled()))
        await put(store, logs[3].append(Started(1, "replica")))
        waiting: list[Run] = await store.runs_in(State.SUBMITTED)
        assert [run.id for run in waiting] == [logs[0].run_id, logs[2].run_id]
        assert await store.runs_in(State.SUBMITTED, agent="agent", limit=1) == waiting[:1]
        assert await store.runs_in(State.SUBMITTED, agent="other") == []
        assert [run.id for run in await store.runs_in(State.WORKING, owner="replica")] == [logs[3].run_id]
        assert await store.runs_in(State.WORKING, owner="other") == []

    async def test_sleeping_runs_are_found_when_their_time_has_come(self, store: Store) -> None:
        logs = [LogWriter() for _ in range(4)]
        for log, due in zip(logs, (3_000, 1_000, 2_000_000_000_000, 2_000), strict=True):
            await put(store, log.start())
            await put(store, log.append(Started(1, "replica"), Suspended(due)))
        await put(store, logs[3].append(Woken()))
        assert [run.id for run in await store.sleepers(3_000, 9)] == [logs[1].run_id, logs[0].run_id]
        assert [run.due for run in await store.sleepers(3_000, 1)] == [1_000]
        assert [run.id for run in await store.runs_in(State.SUBMITTED)] == [logs[3].run_id]
        assert (await store.waiting("agent", 9), await store.runs_in(State.WORKING)) == (1, [])
        listed, total = await store.list_runs(Listing(principal="local", state=State.SUBMITTED))
        assert (len(listed), total) == (4, 4)
        await put(store, logs[1].append(Canceled()))
        assert [run.id for run in await store.sleepers(3_000, 9)] == [logs[0].run_id]

    async def test_all_runs_are_listed_by_pages(self, store: Store) -> None:
        logs = [LogWriter() for _ in range(7)]
        for log in logs:
            await put(store, log.start())
        ids = sorted(log.run_id for log in logs)
        assert await store.run_ids("", 3) == ids[:3]
        assert await store.run_ids(ids[2], 10) == ids[3:]

    async def test_a_listing_is_ordered_by_status_and_read_by_pages(self, store: Store) -> None:
        logs = [LogWriter(at=1000 * number, principal="user:a" if number % 3 else "user:b") for number in range(1, 10)]
        for log in logs:
            await put(store, log.start())
        await put(store, logs[0].append(Started(1, "r"), Completed()))
        await put(store, logs[4].append(Started(1, "r"), Completed()))
        mine = [log.run for log in logs if log.run and log.run.principal == "user:a"]
        expected = sorted(mine, key=lambda run: (run.status_at, run.id), reverse=True)
        found: list[Run] = []
        after: tuple[int, str] | None = None
        while True:
            page, total = await store.list_runs(Listing(principal="user:a", after=after, limit=4))
            assert total == 6
            found += page
            if len(page) < 4:
                break
            after = (page[-1].status_at, page[-1].id)
        assert found == expected

    async def test_a_conversation_is_listed_as_it_went(self, store: Store) -> None:
        logs = [LogWriter(at=1000 * number) for number in (3, 1, 2, 5, 4)]
        for log in logs:
            await put(store, log.start())
        await put(store, logs[1].append(Started(1, "r"), Completed()))
        await put(store, LogWriter(principal="user:x").start())
        asked = Listing(principal="local", conversation="conversation", oldest=True, limit=3)
        first, total = await store.list_runs(asked)
        place = (first[-1].created_at, str(first[-1].id))
        rest, _ = await store.list_runs(replace(asked, after=place))
        assert [run.created_at for run in (*first, *rest)] == [1001, 2001, 3001, 4001, 5001]
        assert total == 5
        assert await store.list_runs(replace(asked, counted=False)) == (first, 0)

    async def test_the_newest_come_first_wherever_they_stand(self, store: Store) -> None:
        logs = [LogWriter(at=1000 * number) for number in (3, 1, 2, 5, 4)]
        for log in logs:
            await put(store, log.start())
        await put(store, logs[1].append(Started(1, "r"), Completed()))
        asked = Listing(newest=True, limit=3)
        first, _ = await store.list_runs(asked)
        rest, _ = await store.list_runs(replace(asked, after=(first[-1].created_at, first[-1].id)))
        assert [run.created_at for run in (*first, *rest)] == [5001, 4001, 3001, 2001, 1001]
        for log in logs:
            beginning = log.run_id[:-1]
            expected = {one.run_id for one in logs if one.run_id.startswith(beginning)}
            found, _ = await store.list_runs(Listing(newest=True, prefix=beginning))
            assert {run.id for run in found} == expected
        assert await store.list_runs(Listing(prefix="nothing-like-it")) == ([], 0)

    async def test_what_is_erased_is_nobodys_and_says_nothing(self, store: Store) -> None:
        lasting, other, live = LogWriter(), LogWriter(), LogWriter()
        for log in (lasting, other, live):
            await put(store, log.start(Key(f"{LASTING}{log.run_id}", "k", b"d")))
            await put(store, log.append(Noted({"secret": "words"}), Started(1, "r")))
        for log in (lasting, other):
            await put(store, log.append(Completed()))
        await store.trim(other.run_id, 3, b"snapshot")
        for log in (lasting, other, live):
            await store.erase(log.run_id)
        for log in (lasting, other):
            head = await store.head(log.run_id)
            assert head is not None
            assert head == Head(erased(head.run), log.events[-1].hash, 5, log.events[-1].hash)
            assert (head.run.principal, head.run.notes, head.run.state) == ("", {}, State.COMPLETED)
            assert await store.read(log.run_id, 0, 10) == []
            assert await store.find_key(f"{LASTING}{log.run_id}", "k") is None
            assert await verify_run(store, log.run_id) == 5
            await store.erase(log.run_id)
        for listing in (Listing(), Listing(principal="local"), Listing(conversation="conversation")):
            assert [run.id for run in (await store.list_runs(listing))[0]] == [live.run_id]
        assert len(await store.read(live.run_id, 0, 10)) == 4
        assert await store.expired(10**9, 10) == []

    async def test_a_listing_filters(self, store: Store) -> None:
        logs = [LogWriter(at=1000 * number) for number in range(1, 6)]
        for log in logs:
            await put(store, log.start())
        await put(store, logs[1].append(Started(1, "r"), Completed()))

        async def listed(**asked: Any) -> list[int]:
            runs, total = await store.list_runs(Listing(**asked))
            assert total == len(runs)
            return [[log.run_id for log in logs].index(run.id) for run in runs]

        assert await listed() == [4, 3, 2, 1, 0]
        assert await listed(state=State.COMPLETED) == [1]
        assert await listed(since=3000) == [4, 3, 2]
        assert await listed(since=3002) == [4, 3]
        assert await listed(conversation="conversation", agent="agent", principal="local") == [4, 3, 2, 1, 0]
        for nobody in ({"conversation": "x"}, {"agent": "x"}, {"principal": "user:x"}):
            assert await listed(**nobody) == []

    async def test_runs_are_found_by_the_words_of_their_first_message_and_error(self, store: Store) -> None:
        asked = ["Zürich, by train", "Lisbon by TRAIN", "東京 by ship", "lisbon train"]
        logs = [LogWriter(principal=f"user:{number // 2}", at=1000 * number) for number in range(1, 5)]
        for log, text in zip(logs, asked, strict=True):
            submitted = Submitted("agent", ConversationId("c"), log.principal)
            await put(store, log.append(submitted, InputReceived(Message("m", (text_part(text),)))))
        await put(store, logs[0].append(Started(1, "r"), Failed("agent_error", "No ticket left.")))
        await put(store, logs[1].append(InputReceived(Message("n", (text_part("and a ticket"),)))))

        async def found(text: str, **more: Any) -> list[int]:
            runs = await store.search(Listing(text=text, **more))
            return [[log.run_id for log in logs].index(run.id) for run in runs]

        assert await found("train") == [3, 1, 0]
        assert await found("Lisbon train!") == [3, 1]
        assert await found("zurich") == [0]
        assert await found("京") == [2]
        assert await found("ticket") == [0]
        assert await found("agent_error") == [0]
        assert await found("tra") == []
        assert await found("train", principal="user:1") == [1]
        assert await found("train", agent="other") == []
        assert await found("train", limit=1) == [3]
        assert await found("train", after=(logs[3].events[0].at, logs[3].run_id)) == [1, 0]
        assert await found("train", after=(2000, "")) == [0]
        assert await found("train", after=(1 << 62, "")) == [3, 1, 0]
        await put(store, logs[3].append(Completed()))
        await store.erase(logs[3].run_id)
        assert await found("train") == [1, 0]

    async def test_what_is_trimmed_is_gone_and_the_rest_still_verifies(self, store: Store) -> None:
        log = LogWriter()
        await put(store, log.start())
        await put(store, log.progress(8))
        await store.trim(log.run_id, 6, b"snapshot")
        assert [event.seq for event in await store.read(log.run_id, 0, 100)] == [7, 8, 9, 10]
        head = await store.head(log.run_id)
        assert head is not None
        assert (head.floor, head.floor_hash, head.snapshot) == (6, log.events[5].hash, b"snapshot")
        await put(store, log.progress())
        assert await verify_run(store, log.run_id) == 11

    async def test_a_nonce_can_be_claimed_once(self, store: Store) -> None:
        assert await store.claim("nonce", 1000)
        assert not await store.claim("nonce", 1000)
        assert not await store.claim("nonce", 9000)
        assert await store.claim("Nonce", 1000)

    async def test_of_rivals_for_a_nonce_exactly_one_wins(self, store: Store) -> None:
        claims = await asyncio.gather(*(store.claim(f"nonce-{number % 50}", 1000) for number in range(400)))
        assert claims == [True] * 50 + [False] * 350

    async def test_any_text_will_do_as_a_nonce(self, store: Store) -> None:
        texts = ["", "\0", "a\0b", "a", "a ", "é", "e\u0301", "漢" * 256, "'; --"]
        assert await asyncio.gather(*(store.claim(text, 1000) for text in texts)) == [True] * len(texts)
        assert await asyncio.gather(*(store.claim(text, 1000) for text in texts)) == [False] * len(texts)

    async def test_claims_and_appends_of_one_batch_leave_each_other_alone(self, store: Store) -> None:
        """Used nonces, wrong versions and taken keys among valid ones: each affects only its own caller."""
        logs = [LogWriter() for _ in range(30)]
        await put(store, LogWriter().start(Key("scope", "key", b"digest")))
        await store.claim("known", 1000)
        work: list[Awaitable[object]] = []
        for number, log in enumerate(logs):
            append = log.start(*([Key("scope", "key", b"digest")] if number == 4 else []))
            append.expected += number == 9
            work += [put(store, append), store.claim("known" if number in (2, 7) else f"nonce-{number}", 1000)]
        results = await asyncio.gather(*work, return_exceptions=True)
        appended, claimed = results[::2], results[1::2]
        assert [number for number, result in enumerate(appended) if result is not None] == [4, 9]
        assert [number for number, result in enumerate(claimed) if result is not True] == [2, 7]
        assert (claimed[2], claimed[7]) == (False, False)
        assert [await store.head(log.run_id) is not None for log in logs] == [
            number not in (4, 9) for number in range(30)
        ]

    async def test_a_caller_that_gives_up_does_not_hold_up_the_others(self, store: Store) -> None:
        tasks = [asyncio.ensure_future(store.claim(f"nonce-{number}", 1000)) for number in range(10)]
        await asyncio.sleep(0)
        tasks[3].cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [result is True for result in results].count(True) >= 9

    async def test_nonces_are_forgotten_when_their_time_has_passed(self, store: Store) -> None:
        await asyncio.gather(*(store.claim(f"nonce-{number}", 1000 + number) for number in range(2500)))
        assert await store.forget_nonces(1000) == 0
        assert await store.forget_nonces(3400) == 2400
        assert await store.claim("nonce-2399", 9000)
        assert not await store.claim("nonce-2400", 9000)

    async def test_a_claim_after_close_is_refused(self, store: Store) -> None:
        await store.close()
        with pytest.raises(StoreUnavailable):
            await store.claim("nonce", 1000)

    async def test_an_append_after_close_is_refused(self, store: Store) -> None:
        await store.close()
        with pytest.raises(StoreUnavailable):
            await put(store, LogWriter().start())

    async def test_it_does_what_the_reference_does(self, store: Store) -> None:
        """The same random appends, valid and invalid, many at once, to this store and to the reference."""
        oracle, dice = MemoryStore(), random.Random(7)
        logs = [LogWriter(at=number) for number in range(12)]
        for _ in range(40):
            appends = [_random_append(dice, log) for log in dice.sample(logs, 6)]
            ours = await asyncio.gather(*(put(store, append) for append in appends), return_exceptions=True)
            theirs = await asyncio.gather(*(put(oracle, append) for append in appends), return_exceptions=True)
            assert [type(result) for result in ours] == [type(result) for result in theirs]
        for log in logs:
            assert await store.head(log.run_id) == await oracle.head(log.run_id)
            assert bare(await store.read(log.run_id, 0, 1000)) == bare(await oracle.read(log.run_id, 0, 1000))
        assert await store.runs_in(State.SUBMITTED) == await oracle.runs_in(State.SUBMITTED)
        for name in "abc":
            assert await store.find_key("scope", name) == await oracle.find_key("scope", name)


def _random_append(dice: random.Random, log: LogWriter) -> Append:
    """Return the run's next append; sometimes with a stale version or a key that may be taken."""
    keys = [Key("scope", dice.choice("abc"), b"digest")] if dice.random() < 0.1 else []
    if log.run is None or dice.random() < 0.1:
        fresh = LogWriter(log.run_id)
        append = fresh.start(*keys)
        if log.run is None and not keys:
            log.run, log.events = fresh.run, fresh.events
        return append
    append = log.progress(dice.randint(1, 3))
    if dice.random() < 0.1:
        append.expected += 1
        for event in append.events:
            log.events.remove(event)
        log.run = LogWriter(log.run_id).start().run if not log.events else _rewound(log)
    return append


def _rewound(log: LogWriter) -> Run:
    from parley.runs.rules.view import view_of

    return view_of(log.events).run

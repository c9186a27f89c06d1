"""Deliveries: in order, from where they stopped, and never more than what was asked for."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from parley.errors import ConfigurationError, Conflict, Invalid, StoreUnavailable
from parley.push.delivery import BACKOFF_S, LOOK_S, MAX_ATTEMPTS, Verdict
from parley.push.hooks import KIND, MAX_PER_RUN, Hook, HookEntry, Hooks, StoredHook
from parley.push.service import MAX_POSTS, MAX_POSTS_PER_RECEIVER, Push
from parley.records import Record
from parley.runs.rules.events import Completed, Event
from parley.runs.rules.state import Run
from parley.stores.memory import MemoryStore
from parley.stores.records import MemoryRecords
from parley.telemetry import attach
from parley.testing.logs import LogWriter, put
from parley.testing.processes import until

OK = Verdict("delivered")
NO = Verdict("refused", "HTTP 500")


class Clock:
    now = 1_800_000_000_000

    def __call__(self) -> int:
        return self.now

    def pass_s(self, seconds: float) -> None:
        self.now += int(seconds * 1000)


class Plain:
    """Encrypts nothing, but knows its own."""

    def encrypt(self, secret: bytes) -> bytes:
        return b"sealed" + secret

    def decrypt(self, kept: bytes) -> bytes:
        if not kept.startswith(b"sealed"):
            raise ConfigurationError("Not ours.")
        return kept[6:]


class World:
    """A store, a receiver that answers as told, and replicas that share both."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.store = MemoryStore()
        self.records = MemoryRecords()
        self.hooks = Hooks(self.records, Plain(), self.clock)
        self.posts: list[tuple[str, int]] = []
        self.answers: list[Verdict] = []
        self.always = OK
        self.gate: asyncio.Event | None = None
        self.pushes: list[Push] = []

    def replica(self, leads: bool = True) -> Push:
        leading = [leads]
        push = Push(self.hooks, self.store, self.deliver, lambda: leading[0], lambda url: None, clock=self.clock)
        push.leading = leading  # type: ignore[attr-defined]
        self.pushes.append(push)
        return push

    async def deliver(self, hook: Hook, run: Run, event: Event) -> Verdict:
        self.posts.append((hook.id, event.seq))
        if self.gate is not None:
            await self.gate.wait()
        return self.answers.pop(0) if self.answers else self.always

    async def run(self, progress: int = 0) -> LogWriter:
        writer = LogWriter()
        await put(self.store, writer.start())
        if progress:
            await put(self.store, writer.progress(progress))
        return writer

    async def grow(self, writer: LogWriter, push: Push, *, end: bool = False) -> None:
        await put(self.store, writer.append(Completed()) if end else writer.progress())
        push.grown(writer.run_id)

    async def entry(self, hook: Hook) -> HookEntry:
        found = await self.hooks.entry(*hook.place)
        assert found is not None
        return found

    async def quiet(self, push: Push) -> None:
        def rests() -> bool:
            awaited = [one for hooks in push._watched.values() for one in hooks.values() if one.awaited]
            return not awaited and len(push._lanes) == 0

        await until(rests)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    yield world
    for push in world.pushes:
        await push.close()
    await world.store.close()


def state(writer: LogWriter) -> Run:
    assert writer.run is not None
    return writer.run


def wanted(id_: str = "h", url: str = "http://a.example/x", **more: object) -> Hook:
    return Hook("", url, id_, **more)  # type: ignore[arg-type]


async def test_updates_are_told_in_order_and_the_hook_ends_with_its_run(world: World) -> None:
    push = world.replica()
    await push.tick()
    writer = await world.run()
    hook = await push.add(state(writer), wanted())
    for _ in range(3):
        await world.grow(writer, push)
    await world.quiet(push)
    assert world.posts == [("h", 3), ("h", 4), ("h", 5)]
    await world.grow(writer, push, end=True)
    await world.quiet(push)
    entry = await world.entry(hook)
    assert (world.posts[-1], entry.state, entry.record.due) == (("h", 6), "finished", None)
    assert push._watched == {}


async def test_one_made_with_the_send_is_told_all_that_came_after_the_message(world: World) -> None:
    push = world.replica()
    writer = await world.run(progress=3)
    await push.attach(state(writer), wanted(), 2)
    await world.quiet(push)
    assert [seq for _, seq in world.posts] == [3, 4, 5]


async def test_one_made_after_the_end_has_nothing_to_tell(world: World) -> None:
    push = world.replica()
    writer = await world.run()
    await put(world.store, writer.append(Completed()))
    hook = await push.add(state(writer), wanted())
    await world.quiet(push)
    assert (world.posts, (await world.entry(hook)).state) == ([], "finished")


async def test_a_refused_update_is_told_again_later_and_nothing_before_it(world: World) -> None:
    push = world.replica()
    await push.tick()
    writer = await world.run()
    hook = await push.add(state(writer), wanted())
    world.answers = [NO, NO]
    await world.grow(writer, push)
    await world.quiet(push)
    await world.grow(writer, push)
    await push.tick()
    await world.quiet(push)
    assert world.posts == [("h", 3)]
    entry = await world.entry(hook)
    assert (entry.state, entry.kept.attempts, entry.kept.reason) == ("retrying", 1, "HTTP 500")
    assert entry.record.due is not None
    assert 500 <= entry.record.due - world.clock.now <= 1000
    for _ in range(2):
        world.clock.pass_s(2)
        await push.tick()
        await world.quiet(push)
    assert world.posts == [("h", 3), ("h", 3), ("h", 3), ("h", 4)]
    assert (await world.entry(hook)).state == "live"


async def test_pauses_grow_and_then_it_is_given_up_and_can_be_redriven(world: World) -> None:
    told: list[str] = []
    detach = attach(lambda name, fields: told.append(name))
    push = world.replica()
    await push.tick()
    writer = await world.run()
    hook = await push.add(state(writer), wanted())
    world.always = NO
    await world.grow(writer, push)
    for attempt in range(1, MAX_ATTEMPTS):
        await world.quiet(push)
        due = (await world.entry(hook)).record.due
        assert due is not None
        longest = BACKOFF_S[min(attempt, len(BACKOFF_S)) - 1]
        assert longest * 0.5 <= (due - world.clock.now) / 1000 <= longest
        world.clock.pass_s(longest)
        await push.tick()
    await world.quiet(push)
    detach()
    assert len(world.posts) == MAX_ATTEMPTS
    dead = await world.entry(hook)
    assert (dead.state, dead.kept.cursor) == ("dead", 2)
    assert (told.count("push.refused"), told.count("push.dead")) == (MAX_ATTEMPTS, 1)
    await world.grow(writer, push)
    await world.quiet(push)
    assert len(world.posts) == MAX_ATTEMPTS
    await world.grow(writer, push, end=True)
    await world.quiet(push)
    assert world.posts[MAX_ATTEMPTS:] == [("h", 5)], "completion is attempted once, also by one that was given up"
    dead = await world.entry(hook)
    assert (dead.state, dead.kept.cursor, dead.record.due) == ("dead", 2, None)
    assert [entry.hook.id for entry in (await world.hooks.page(("", ""), dead=True))[0]] == ["h"]
    world.always = OK
    await world.hooks.redrive(*hook.place)
    await push.tick()
    await world.quiet(push)
    assert world.posts[MAX_ATTEMPTS + 1 :] == [("h", 3), ("h", 4), ("h", 5)]
    assert (await world.entry(hook)).state == "finished"
    with pytest.raises(Conflict):
        await world.hooks.redrive(*hook.place)


async def test_completion_is_attempted_when_an_ended_run_is_given_up(world: World) -> None:
    push = world.replica()
    await push.tick()
    writer = await world.run(progress=2)
    await put(world.store, writer.append(Completed()))
    world.always = NO
    hook = await push.attach(state(writer), wanted(), 2)
    for _ in range(MAX_ATTEMPTS):
        await world.quiet(push)
        world.clock.pass_s(BACKOFF_S[-1])
        await push.tick()
    await world.quiet(push)
    assert world.posts == [("h", 3)] * MAX_ATTEMPTS + [("h", 5)]
    assert ((await world.entry(hook)).state, (await world.entry(hook)).record.due) == ("dead", None)


async def test_an_update_that_is_rejected_is_recorded_and_the_next_is_told(world: World) -> None:
    told: list[dict[str, object]] = []
    detach = attach(lambda name, fields: told.append({"name": name, **fields}))
    push = world.replica()
    writer = await world.run(progress=2)
    await put(world.store, writer.append(Completed()))
    world.answers = [OK, Verdict("rejected", "HTTP 400"), OK]
    hook = await push.attach(state(writer), wanted(), 2)
    await world.quiet(push)
    detach()
    entry = await world.entry(hook)
    assert world.posts == [("h", 3), ("h", 4), ("h", 5)]
    assert (entry.state, entry.kept.rejected, entry.kept.reason) == ("finished", 1, "HTTP 400")
    (rejected,) = [one for one in told if one["name"] == "push.rejected"]
    assert (rejected["seq"], rejected["reason"], rejected["receiver"]) == (4, "HTTP 400", "http://a.example/x")


async def test_a_receiver_that_is_gone_is_asked_no_more(world: World) -> None:
    push = world.replica()
    writer = await world.run(progress=2)
    world.answers = [OK, Verdict("gone", "HTTP 410")]
    hook = await push.attach(state(writer), wanted(), 2)
    await world.quiet(push)
    await world.grow(writer, push)
    await push.tick()
    await world.quiet(push)
    assert ((await world.entry(hook)).state, len(world.posts)) == ("gone", 2)


async def test_a_pause_that_is_asked_for_is_kept_within_bounds(world: World) -> None:
    push = world.replica()
    writer = await world.run(progress=1)
    for asked, kept in ((30, 30), (10**9, 3600)):
        world.answers = [Verdict("refused", "HTTP 429", asked)]
        hook = await push.attach(state(writer), wanted(f"h{asked}"), 2)
        await world.quiet(push)
        assert (await world.entry(hook)).record.due == world.clock.now + kept * 1000


async def test_a_clock_that_was_wrong_puts_nothing_off_for_longer_than_a_pause(world: World) -> None:
    """Holds if the clock is corrected under the same leader, and under another one."""
    for id_, leader in (("a", world.replica()), ("b", None)):
        writer = await world.run(progress=1)
        push = leader or world.replica()
        await push.tick()
        world.clock.pass_s(600)
        await push.tick()
        world.answers = [NO]
        hook = await push.attach(state(writer), wanted(id_), 2)
        await world.quiet(push)
        assert (await world.entry(hook)).state == "retrying"
        world.clock.pass_s(-600)
        again = leader or world.replica()
        await again.tick()
        await world.quiet(again)
        assert world.posts[-2:] == [(id_, 3), (id_, 3)]
        assert (await world.entry(hook)).state == "live"


async def test_one_made_by_a_replica_whose_clock_is_ahead_is_found_at_once(world: World) -> None:
    leader, other = world.replica(), world.replica(leads=False)
    await leader.tick()
    writer = await world.run(progress=1)
    world.clock.pass_s(600)
    await other.attach(state(writer), wanted(), 2)
    world.clock.pass_s(-600)
    await leader.tick()
    await world.quiet(leader)
    assert world.posts == [("h", 3)]


async def test_a_pause_is_kept_when_the_clock_is_right(world: World) -> None:
    push = world.replica()
    writer = await world.run(progress=1)
    world.answers = [Verdict("refused", "HTTP 429", 600)]
    await push.attach(state(writer), wanted(), 2)
    await world.quiet(push)
    other = world.replica()
    for seconds in (0, 590):
        world.clock.pass_s(seconds)
        for one in (push, other):
            await one.tick()
            await world.quiet(one)
        assert world.posts == [("h", 3)]


async def test_what_could_not_be_read_when_a_run_grew_is_told_in_the_next_round(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not when a hook that was quiet for long would be looked at by itself."""
    push = world.replica()
    await push.tick()
    writer = await world.run()
    await push.attach(state(writer), wanted(), 2)
    await world.quiet(push)

    async def away(*_: object) -> None:
        raise StoreUnavailable("x")

    with monkeypatch.context() as broken:
        broken.setattr(world.store, "head", away)
        await world.grow(writer, push)
        await world.quiet(push)
    await push.tick()
    await world.quiet(push)
    assert world.posts == [("h", 3)]


async def test_what_breaks_on_our_side_counts_as_in_vain(world: World) -> None:
    async def broken(hook: Hook, run: Run, event: Event) -> Verdict:
        raise StoreUnavailable("x") if hook.id == "a" else RuntimeError("x")

    push = Push(world.hooks, world.store, broken, lambda: True, lambda url: None, clock=world.clock)
    world.pushes.append(push)
    writer = await world.run(progress=1)
    for id_, reason in (("a", "store_unavailable"), ("b", "RuntimeError")):
        hook = await push.attach(state(writer), wanted(id_), 2)
        await world.quiet(push)
        kept = (await world.entry(hook)).kept
        assert (kept.attempts, kept.reason) == (1, reason)


async def test_another_replica_goes_on_where_the_leader_stopped(world: World) -> None:
    first, second = world.replica(), world.replica(leads=False)
    await first.tick()
    writer = await world.run()
    await first.add(state(writer), wanted())
    await world.grow(writer, first)
    await world.quiet(first)
    first.leading[0] = False  # type: ignore[attr-defined]
    await world.grow(writer, first)
    await world.grow(writer, second)
    await first.tick()
    await second.tick()
    assert world.posts == [("h", 3)]
    second.leading[0] = True  # type: ignore[attr-defined]
    await second.tick()
    await world.quiet(second)
    assert world.posts == [("h", 3), ("h", 4), ("h", 5)]
    await world.grow(writer, second, end=True)
    await world.quiet(second)
    assert world.posts[-1] == ("h", 6)
    assert first._watched == {}


async def test_one_made_at_a_replica_that_does_not_lead_is_found_by_the_leader(world: World) -> None:
    leader, other = world.replica(), world.replica(leads=False)
    await leader.tick()
    writer = await world.run()
    await other.add(state(writer), wanted())
    await world.grow(writer, leader)
    await leader.tick()
    await world.quiet(leader)
    assert world.posts == [("h", 3)]


async def test_progress_never_brings_back_what_was_deleted(world: World) -> None:
    """Deleted at another replica, in the middle of a post."""
    leader, other = world.replica(), world.replica(leads=False)
    writer = await world.run(progress=3)
    world.gate = asyncio.Event()
    hook = await leader.attach(state(writer), wanted(), 2)
    await until(lambda: len(world.posts) == 1)
    await other.remove(writer.run_id, "h")
    world.gate.set()
    await world.quiet(leader)
    await leader.tick()
    await world.quiet(leader)
    assert await world.hooks.entry(*hook.place) is None


async def test_after_a_removal_nothing_is_posted(world: World) -> None:
    push = world.replica()
    writer = await world.run(progress=3)
    world.gate = asyncio.Event()
    await push.attach(state(writer), wanted(), 2)
    await until(lambda: len(world.posts) == 1)
    await push.remove(writer.run_id, "h")
    world.gate.set()
    await world.grow(writer, push)
    await push.tick()
    assert (len(world.posts), len(push._lanes), push._watched) == (1, 0, {})
    await push.remove(writer.run_id, "h")
    await push.remove(writer.run_id, "not an id")


async def test_closing_keeps_what_was_told(world: World) -> None:
    push = world.replica()
    writer = await world.run(progress=3)
    gates = [asyncio.Event() for _ in range(3)]

    async def deliver(hook: Hook, run: Run, event: Event) -> Verdict:
        world.posts.append((hook.id, event.seq))
        await gates[event.seq - 3].wait()
        return OK

    push._delivery._deliver = deliver
    gates[0].set()
    hook = await push.attach(state(writer), wanted(), 2)
    await until(lambda: len(world.posts) == 2)
    await push.close()
    assert (await world.entry(hook)).kept.cursor == 3
    after = world.replica()
    await after.tick()
    await world.quiet(after)
    assert world.posts == [("h", 3), ("h", 4), ("h", 4), ("h", 5)]


async def test_setting_a_hook_again_changes_where_and_not_how_far(world: World) -> None:
    push = world.replica()
    writer = await world.run(progress=1)
    world.always = NO
    await push.attach(state(writer), wanted(), 2)
    await world.quiet(push)
    world.always = OK
    changed = await push.add(state(writer), wanted(url="http://b.example/"))
    await world.quiet(push)
    assert world.posts == [("h", 3), ("h", 3)]
    entry = await world.entry(changed)
    assert (entry.hook.url, entry.state) == ("http://b.example/", "live")


async def test_a_quiet_hook_is_looked_at_less_and_less(world: World) -> None:
    push = world.replica()
    await push.tick()
    writer = await world.run()
    hook = await push.add(state(writer), wanted())
    await world.quiet(push)
    pauses: list[float] = []
    for _ in range(20):
        due = (await world.entry(hook)).record.due
        assert due is not None
        pauses.append((due - world.clock.now) / 1000)
        world.clock.now = due
        await push.tick()
        await world.quiet(push)
    assert pauses[0] <= LOOK_S[0] * 1.5
    assert LOOK_S[1] <= pauses[-1] <= LOOK_S[1] * 1.5
    # Even when nobody told of it, an update is found.
    await put(world.store, writer.progress())
    world.clock.pass_s(LOOK_S[1] * 1.5)
    await push.tick()
    await world.quiet(push)
    assert world.posts == [("h", 3)]


async def test_thousands_of_quiet_hooks_hold_no_task_and_wake_one_by_one(world: World) -> None:
    push = world.replica()
    writers = [await world.run() for _ in range(2000)]
    for writer in writers:
        await push.add(state(writer), wanted())
    await world.quiet(push)
    before = len(asyncio.all_tasks())
    assert push._lanes.running == 0
    await push.tick()
    await world.quiet(push)
    await world.grow(writers[7], push)
    await world.quiet(push)
    assert (world.posts, len(asyncio.all_tasks())) == ([("h", 3)], before)


async def test_dead_receivers_hold_few_places(world: World) -> None:
    push = world.replica()
    world.gate = asyncio.Event()
    for number in range(30):
        writer = await world.run(progress=1)
        await push.attach(state(writer), wanted(f"dead{number}", "http://dead.example/"), 2)
    await until(lambda: len(world.posts) == MAX_POSTS_PER_RECEIVER)
    for number in range(100):
        writer = await world.run(progress=1)
        await push.attach(state(writer), wanted(f"h{number}", f"http://r{number}.example/"), 2)
    await until(lambda: push._lanes.running == MAX_POSTS)
    assert sum(id_.startswith("dead") for id_, _ in world.posts) == MAX_POSTS_PER_RECEIVER
    world.gate.set()
    await world.quiet(push)
    assert len(world.posts) == 130


async def test_hooks_of_a_forgotten_run_are_forgotten(world: World) -> None:
    push = world.replica()
    writer, other = await world.run(), await world.run()
    for number in range(3):
        await push.add(state(writer), wanted(f"h{number}"))
    await push.add(state(other), wanted())
    await world.quiet(push)
    await push.forget(writer.run_id)
    assert [record.scope for record in await world.records.list(KIND)] == [other.run_id]
    assert list(push._watched) == [other.run_id]


async def test_updates_that_are_no_longer_kept_end_it(world: World) -> None:
    push = world.replica()
    writer = await world.run(progress=3)
    await put(world.store, writer.append(Completed()))
    await world.store.trim(writer.run_id, 6)
    hook = await push.attach(state(writer), wanted(), 2)
    await world.quiet(push)
    assert ((await world.entry(hook)).state, world.posts) == ("finished", [])


async def test_one_that_cannot_be_decrypted_holds_up_no_other(world: World) -> None:
    told: list[str] = []
    detach = attach(lambda name, fields: told.append(name))
    push = world.replica()
    writer = await world.run(progress=1)
    await world.records.put(Record(KIND, "0", "x", b"foreign", 1, 1))
    await world.hooks.set(state(writer), wanted(), 2)
    await push.tick()
    await world.quiet(push)
    await push.tick()
    detach()
    assert world.posts == [("h", 3)]
    assert told.count("push.unreadable") == 1
    entries, more = await world.hooks.page(("", ""))
    assert ([entry.hook.id for entry in entries], more) == (["h"], None)


async def test_a_task_has_so_many_at_most(world: World) -> None:
    writer = await world.run()
    for number in range(MAX_PER_RUN):
        await world.hooks.set(state(writer), wanted(f"h{number}"), 2)
    with pytest.raises(Invalid):
        await world.hooks.set(state(writer), wanted("one-more"), 2)
    await world.hooks.set(state(writer), wanted("h0"), 2)


async def test_a_page_goes_on_where_the_last_one_ended(world: World) -> None:
    writer = await world.run()
    for number in range(5):
        await world.hooks.set(state(writer), wanted(f"h{number}"), 2)
    found, after = await world.hooks.page(("", ""), limit=3)
    assert after is not None
    rest, end = await world.hooks.page(after, limit=3)
    assert ([entry.hook.id for entry in found + rest], end) == ([f"h{number}" for number in range(5)], None)


def test_what_is_shown_of_a_receiver_holds_no_secret() -> None:
    hook = wanted(url="https://me:pw@a.example:8443/in/side?token=x#y")
    assert (hook.receiver, hook.origin) == ("https://a.example:8443/in/side", "https://a.example:8443")
    assert replace(hook, url="http://a.example").origin == "http://a.example"


async def test_progress_is_not_written_for_every_update_of_a_busy_run(world: World) -> None:
    saves = 0
    save = world.hooks.save

    async def counted(entry: HookEntry, kept: StoredHook, due: int | None) -> HookEntry | None:
        nonlocal saves
        saves += 1
        return await save(entry, kept, due)

    world.hooks.save = counted
    push = world.replica()
    writer = await world.run()
    await push.add(state(writer), wanted())
    for _ in range(50):
        await world.grow(writer, push)
        await asyncio.sleep(0.01)
    await world.quiet(push)
    assert [seq for _, seq in world.posts] == list(range(3, 53))
    assert saves <= 8

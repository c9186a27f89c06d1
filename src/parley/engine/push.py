"""Push notifications: whoever asked to be told of a run's updates is told, in order, until the run has ended.

The leader delivers. What was delivered is recorded beside the address, so that a restart or another replica goes on
from there. A hook whose run does nothing costs a row and an entry in a dict: it is woken when its run grows, and looked
at now and then in case that was missed. A slow or dead receiver delays nobody: no stream and no run waits for it, and
it holds only a few of the places in which posts are made.
"""

import asyncio
import time
from collections.abc import Callable

from msgspec import Struct

from parley.clock import Clock, now_ms
from parley.core.runs import Run
from parley.engine.delivery import BACKOFF_S, SAVE_S, Deliver, Delivery, Log
from parley.engine.hooks import ALWAYS, STATES, Entry, Hook, Hooks, check_hook
from parley.engine.lanes import Lanes
from parley.engine.membership import Loop
from parley.engine.ports import Moment, Place
from parley.errors import ConfigurationError, ParleyError
from parley.ids import RunId, is_id
from parley.telemetry import tell

SWEEP_S = 1.0
MAX_POSTS = 64
MAX_POSTS_PER_RECEIVER = 4
UNREADABLE_S = 60.0
PAGE = 100
STEP_MS = 2000


class _Watched(Struct):
    """A hook on a run that may grow: who receives, and until when (ms) not to try."""

    lane: str
    not_before: int
    rested_at: float = float("-inf")
    """When its last turn ended, by the loop's clock."""
    awaited: bool = False


class Push:
    def __init__(
        self,
        hooks: Hooks,
        log: Log,
        deliver: Deliver,
        leads: Callable[[], bool],
        check_url: Callable[[str], None],
        *,
        backoff_s: tuple[float, ...] = BACKOFF_S,
        clock: Clock = now_ms,
    ) -> None:
        self.hooks = hooks
        self._delivery = Delivery(hooks, log, deliver, leads, clock, backoff_s)
        self._leads = leads
        self._check_url = check_url
        self._clock = clock
        self._led = False
        self._ahead_ms = clock() - int(time.monotonic() * 1000)
        """How far the clock is ahead of one that nobody sets."""
        self._watched: dict[RunId, dict[str, _Watched]] = {}
        self._broken: set[Place] = set()
        """Those whose last turn came to nothing, for reasons of ours."""
        self._lanes: Lanes[Place] = Lanes(self._turn, MAX_POSTS, MAX_POSTS_PER_RECEIVER)
        self._loop = Loop("push", SWEEP_S, self.tick)

    def start(self) -> None:
        self._loop.start()

    async def close(self) -> None:
        await self._loop.stop()
        self._watched.clear()
        await self._lanes.clear()

    def check(self, hook: Hook) -> None:
        check_hook(hook)
        self._check_url(hook.url)

    async def add(self, run: Run, hook: Hook) -> Hook:
        """Updates are told from now on; what stands already, the caller has seen."""
        self.check(hook)
        return self._wake(await self.hooks.set(run, hook, run.version))

    async def attach(self, run: Run, hook: Hook, cursor: int, *, replayed: bool = False) -> Hook:
        """As part of a send: everything is told that comes after its message. `replayed`: it was sent before, so only a
        hook that was lost on the way is missing."""
        return self._wake(await self.hooks.set(run, hook, cursor, unless=STATES if replayed else ("live", "retrying")))

    async def remove(self, run: RunId, hook_id: str) -> None:
        """Also when there is none: what is wanted holds. Nothing is posted after this returns."""
        if is_id(hook_id):
            await self.hooks.remove(run, hook_id)
            self._unwatch((run, hook_id))
            await self._lanes.drop((run, hook_id))

    async def forget(self, run: RunId) -> None:
        """The run's events are being forgotten, and its hooks with them."""
        await self.hooks.forget(run)
        self._watched.pop(run, None)

    def grown(self, run: RunId) -> None:
        """A run has new events, written here or elsewhere. Called for every append, never waits."""
        if run in self._watched:
            now = self._clock()
            for hook_id, watched in self._watched[run].items():
                if watched.not_before <= now:
                    self._soon(watched, (run, hook_id))

    async def tick(self) -> None:
        """One round: the leader takes up what is due; a new one, or one whose clock was set, looks at everything that
        is not over."""
        stepped = self._stepped()
        if not self._leads():
            self._led = False
            self._watched.clear()
            return
        broken, self._broken = self._broken, set()
        for place in broken:
            self._now(place)
        if self._led and not stepped:
            await self._take_up(self._clock())
        else:
            await self._take_up(ALWAYS)
            self._led = True

    def _stepped(self) -> bool:
        """Whether the clock was set since the last round: then nobody knows what is due."""
        before, self._ahead_ms = self._ahead_ms, self._clock() - int(time.monotonic() * 1000)
        return abs(self._ahead_ms - before) > STEP_MS

    async def _take_up(self, until: int) -> None:
        after: Moment = (-1, "", "")
        unreadable = 0
        while records := await self.hooks.due(until, PAGE, after):
            for record in records:
                place = (record.scope, record.id)
                if place in self._lanes:
                    continue
                try:
                    self._wake(self.hooks.opened(record).hook)
                except ConfigurationError:
                    unreadable += 1
                    await self.hooks.postpone(record, self._clock() + int(UNREADABLE_S * 1000))
            after = (records[-1].due or 0, records[-1].scope, records[-1].id)
        if unreadable:
            tell("push.unreadable", hooks=unreadable, hint="Replicas need the same secret_key_file.")

    def _wake(self, hook: Hook) -> Hook:
        if self._leads():
            self._watch(hook, 0)
            self._lanes.put(hook.origin, hook.place)
        return hook

    def _soon(self, watched: _Watched, place: Place) -> None:
        """At once; or a moment after its last turn, together with what comes until then."""
        loop = asyncio.get_running_loop()
        pause = watched.rested_at + SAVE_S - loop.time()
        if pause <= 0:
            self._lanes.put(watched.lane, place)
        elif not watched.awaited:
            watched.awaited = True
            loop.call_later(pause, self._now, place)

    def _now(self, place: Place) -> None:
        watched = self._watched.get(RunId(place[0]), {}).get(place[1])
        if watched is not None:
            watched.awaited = False
            self._lanes.put(watched.lane, place)

    def _watch(self, hook: Hook, not_before: int, rested_at: float = float("-inf")) -> None:
        self._watched.setdefault(RunId(hook.task), {})[hook.id] = _Watched(hook.origin, not_before, rested_at)

    def _unwatch(self, place: Place) -> None:
        run, hook_id = place
        hooks = self._watched.get(RunId(run), {})
        hooks.pop(hook_id, None)
        if not hooks:
            self._watched.pop(RunId(run), None)

    async def _turn(self, place: Place) -> bool:
        """Deliver for a while; whether there is more."""
        if not self._leads():
            return False
        try:
            entry = await self.hooks.entry(*place)
            if entry is None:
                self._unwatch(place)
                return False
            if entry.record.due is None or self._delivery.waits(entry):
                return self._left(entry)
            left = await self._delivery.turn(entry)
            return left is not None and self._left(left)
        except ParleyError as error:
            tell("push.broken", run=place[0], hook=place[1], code=error.code)
        except Exception as error:  # noqa: BLE001 - taken up again in the next round
            tell("push.broken", run=place[0], hook=place[1], error=error)
        self._broken.add(place)
        return False

    def _left(self, entry: Entry) -> bool:
        """Whether there is more to tell at once; else when to think of it again."""
        due = entry.record.due
        if due is None:
            self._unwatch(entry.hook.place)
            return False
        self._watch(entry.hook, due if entry.state == "retrying" else 0, asyncio.get_running_loop().time())
        return due <= self._clock() and self._leads()

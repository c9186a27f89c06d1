"""Push notifications: posts a run's updates to its receivers, in order, until the run has ended.

The leader delivers. Progress is stored with the hook, so that delivery continues there after a restart or on another
replica. A hook whose run is idle costs a row and an entry in a dict: it wakes when its run grows, and is checked from
time to time in case that signal was missed. A slow or dead receiver delays nothing else: no stream and no run waits for
it, and it uses only a few of the slots for posts.
"""

import asyncio
import random
import time
from collections.abc import Callable

from msgspec import Struct

from parley.clock import Clock, Monotonic, now_ms
from parley.errors import ConfigurationError, ParleyError
from parley.execution.membership import Loop
from parley.ids import RunId, is_id
from parley.push.delivery import BACKOFF_S, SAVE_S, Deliver, HookDelivery, LogReader, Variation
from parley.push.fair_queue import FairQueue
from parley.push.hooks import ALWAYS, STATES, Hook, HookEntry, Hooks, check_hook
from parley.records import Moment, Place
from parley.runs.rules.state import Run
from parley.telemetry import tell

SWEEP_S = 1.0
MAX_POSTS = 64
MAX_POSTS_PER_RECEIVER = 4
UNREADABLE_S = 60.0
PAGE = 100
STEP_MS = 2000


class _Watched(Struct):
    """A hook on a run that may grow: its receiver, and the time (ms) before which it must not be tried."""

    lane: str
    not_before: int
    rested_at: float = float("-inf")
    """Time at which its last delivery ended, by the loop's clock."""
    awaited: bool = False


# Why: docs/decisions/push.md#deliver-from-the-leader-woken-by-the-run
class Push:
    def __init__(
        self,
        hooks: Hooks,
        log: LogReader,
        deliver: Deliver,
        leads: Callable[[], bool],
        check_url: Callable[[str], None],
        *,
        backoff_s: tuple[float, ...] = BACKOFF_S,
        clock: Clock = now_ms,
        monotonic: Monotonic = time.monotonic,
        variation: Variation = random.uniform,
    ) -> None:
        self.hooks = hooks
        self._delivery = HookDelivery(hooks, log, deliver, leads, clock, backoff_s, monotonic, variation)
        self._leads = leads
        self._check_url = check_url
        self._clock = clock
        self._monotonic = monotonic
        self._led = False
        self._ahead_ms = clock() - int(monotonic() * 1000)
        """Milliseconds by which the clock is ahead of the monotonic clock, which is never set."""
        self._watched: dict[RunId, dict[str, _Watched]] = {}
        self._broken: dict[Place, None] = {}
        """Hooks whose last delivery failed because of an error in this server."""
        self._lanes: FairQueue[Place] = FairQueue(self._turn, MAX_POSTS, MAX_POSTS_PER_RECEIVER)
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
        """Store a hook that delivers updates from now on; the caller has seen the current state."""
        self.check(hook)
        return self._wake(await self.hooks.set(run, hook, run.version))

    # Why: docs/decisions/push.md#attach-a-missing-configuration-on-a-repeated-send
    async def attach(self, run: Run, hook: Hook, cursor: int, *, replayed: bool = False) -> Hook:
        """Store a hook as part of a send: it delivers every event after the message. `replayed`: the message was sent
        before, so the hook is only stored if it was lost then."""
        return self._wake(await self.hooks.set(run, hook, cursor, unless=STATES if replayed else ("live", "retrying")))

    async def remove(self, run: RunId, hook_id: str) -> None:
        """Delete a hook; no error if there is none, because the wish is fulfilled. Nothing is posted after this
        returns."""
        if is_id(hook_id):
            await self.hooks.remove(run, hook_id)
            self._unwatch((run, hook_id))
            await self._lanes.drop((run, hook_id))

    async def forget(self, run: RunId) -> None:
        """Delete the hooks of a run whose events are being deleted."""
        await self.hooks.forget(run)
        self._watched.pop(run, None)

    @property
    def watching(self) -> bool:
        return bool(self._watched)

    def grown(self, run: RunId) -> None:
        """Wake the hooks of a run that has new events, written by any replica. Called for every append; never
        blocks."""
        if run in self._watched:
            now = self._clock()
            for hook_id, watched in self._watched[run].items():
                if watched.not_before <= now:
                    self._soon(watched, (run, hook_id))

    async def tick(self) -> None:
        """Do one round: the leader processes the hooks that are due. A new leader, or one whose clock was set, checks
        all unfinished hooks."""
        stepped = self._stepped()
        if not self._leads():
            self._led = False
            self._watched.clear()
            return
        broken, self._broken = self._broken, {}
        for place in broken:
            self._now(place)
        if self._led and not stepped:
            await self._take_up(self._clock())
        else:
            await self._take_up(ALWAYS)
            self._led = True

    def _stepped(self) -> bool:
        """Return whether the clock was set since the last round: then due times cannot be trusted."""
        before, self._ahead_ms = self._ahead_ms, self._clock() - int(self._monotonic() * 1000)
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
        """Queue a hook at once, or shortly after its last delivery, so that updates in between are delivered
        together."""
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
        """Deliver for a limited time. Return whether there is more to deliver."""
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
        self._broken[place] = None
        return False

    def _left(self, entry: HookEntry) -> bool:
        """Return whether there is more to deliver at once; otherwise note when to try again."""
        due = entry.record.due
        if due is None:
            self._unwatch(entry.hook.place)
            return False
        self._watch(entry.hook, due if entry.state == "retrying" else 0, asyncio.get_running_loop().time())
        return due <= self._clock() and self._leads()

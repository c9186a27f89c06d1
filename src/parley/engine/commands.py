"""The one write path: load, decide, append. Commands of one run pass through its mailbox, in order."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial

from msgspec import Struct

from parley.clock import Clock, now_ms
from parley.core.commands import Command, Fork, Start, decide
from parley.core.documents import Change
from parley.core.events import GENESIS, Event, sealed
from parley.core.nesting import MAX_STORED_DEPTH, is_deeper, too_deep
from parley.core.runs import Run, State, evolve
from parley.engine.offload import LARGE
from parley.engine.ports import Append, Done, Key, Store, StoredKey
from parley.errors import (
    Conflict,
    KeyReused,
    KeyTaken,
    Outdated,
    ParleyError,
    PayloadTooLarge,
    RunNotFound,
    StoreUnavailable,
    VersionConflict,
)
from parley.ids import RunId, is_id
from parley.telemetry import tell

MAX_PAYLOAD = 1 << 20
KEY_LIFE_MS = 24 * 3600 * 1000
MAX_IDLE_BOXES = 10_000
MAX_TRIES = 50


Fulfil = Callable[[Run, list[Event]], Awaitable[tuple[Change, ...]]]


class Outcome(Struct, frozen=True):
    """What came of a command: the run after it and the events it added (none when it held already)."""

    run: Run
    events: list[Event]
    replayed: bool = False


class _Entry(Struct, gc=False):
    """One caller's commands: all of them happen, or none."""

    commands: tuple[Command, ...]
    key: Key | None
    expected: int | None
    changes: tuple[Change, ...]
    future: "asyncio.Future[Outcome]"
    outcome: Outcome | None = None
    tries: int = 0

    def fail(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)

    def succeed(self) -> None:
        if not self.future.done() and self.outcome is not None:
            self.future.set_result(self.outcome)


class _Decisions(Struct):
    """What becomes of some entries: the run after them, and what they add to its log."""

    run: Run | None
    hash: bytes
    events: list[Event] = []
    entries: list[_Entry] = []
    refused: list[tuple[_Entry, Exception]] = []
    idle: bool = False


class _Box:
    """The mailbox of one run, with its state as last committed."""

    __slots__ = ("busy", "hash", "id", "loaded", "rivals", "run", "waiting")

    def __init__(self, run_id: RunId, *, fresh: bool) -> None:
        self.id = run_id
        self.run: Run | None = None
        self.hash = GENESIS
        self.loaded = fresh
        self.busy = False
        self.waiting: list[_Entry] = []
        self.rivals: list[_Entry] = []
        """Those with the key of one that is under way: they wait to see what becomes of it."""


class Commands:
    def __init__(
        self,
        store: Store,
        published: Callable[[Run, list[Event]], None],
        clock: Clock = now_ms,
        max_payload: int = MAX_PAYLOAD,
        *,
        shared: bool = False,
    ) -> None:
        self._store = store
        self._published = published
        self._clock = clock
        self._max_payload = max_payload
        self._shared = shared
        self._boxes: OrderedDict[RunId, _Box] = OrderedDict()
        self._background: set[asyncio.Task[None]] = set()
        self.fulfil: Fulfil | None = None
        """Asked what becomes of the answer when a run completes that was made for a document."""

    def submit(
        self, run_id: RunId, *commands: Command, key: Key | None = None, expected: int | None = None,
        changes: tuple[Change, ...] = (),
    ) -> "asyncio.Future[Outcome]":  # fmt: skip
        """Put commands into the run's mailbox. They are decided together, after all that came before."""
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        box = self._boxes.get(run_id)
        if box is None:
            box = self._open(run_id, fresh=isinstance(commands[0], Start | Fork))
        entry = _Entry(commands, key, expected, changes, future)
        if box.busy:
            box.waiting.append(entry)
        else:
            box.busy = True
            self._take(box, [entry])
        return future

    def execute(
        self, run_id: RunId, *commands: Command, key: Key | None = None, expected: int | None = None,
        changes: tuple[Change, ...] = (),
    ) -> Awaitable[Outcome]:  # fmt: skip
        """Submit, to be awaited until it is durable. A key that was used before answers with what it led to then."""
        if key is None:
            return self.submit(run_id, *commands, expected=expected, changes=changes)
        if key.lasting:
            return self._execute_unless_done(run_id, commands, key, expected)
        return self._execute_once(run_id, commands, key, expected, changes)

    async def _execute_unless_done(
        self, run_id: RunId, commands: Sequence[Command], key: Key, expected: int | None
    ) -> Outcome:
        """Write first and look only when refused: such a key is rarely used twice."""
        try:
            outcome = await self.submit(run_id, *commands, key=key, expected=expected)
        except Conflict:
            if before := await self.replayed(key):
                return before
            raise
        return outcome if outcome.events else await self.replayed(key) or outcome

    async def _execute_once(
        self, run_id: RunId, commands: Sequence[Command], key: Key, expected: int | None, changes: tuple[Change, ...]
    ) -> Outcome:
        if before := await self.replayed(key):
            return before
        try:
            return await self.submit(run_id, *commands, key=key, expected=expected, changes=changes)
        except KeyTaken:
            if rival := await self.replayed(key):
                return rival
            raise

    async def replayed(self, key: Key) -> Outcome | None:
        """What the key led to before, if it was used."""
        stored = await self._store.find_key(key.scope, key.name)
        if stored is None or not self._holds(key, stored):
            return None
        if stored.digest != key.digest:
            raise KeyReused("This idempotency key was used with another payload.")
        return Outcome(await self.state(stored.run), [], replayed=True)

    def version(self, run_id: RunId) -> int:
        """How far this process knows a run; 0 if it does not."""
        box = self._boxes.get(run_id)
        return box.run.version if box is not None and box.run is not None else 0

    async def stored(self, run_id: str) -> Run | None:
        """The run of this id, whoever's it is."""
        try:
            return await self.state(RunId(run_id)) if is_id(run_id) else None
        except RunNotFound:
            return None

    async def state(self, run_id: RunId) -> Run:
        """The run as last committed: here, where nobody else writes; else as the store has it."""
        box = self._boxes.get(run_id)
        if box is not None and box.run is not None and not self._shared:
            return box.run
        head = await self._store.head(run_id)
        if head is None:
            raise RunNotFound("Task not found.")
        return head.run

    def _open(self, run_id: RunId, *, fresh: bool) -> _Box:
        box = self._boxes[run_id] = _Box(run_id, fresh=fresh)
        if len(self._boxes) > MAX_IDLE_BOXES:
            self._evict()
        return box

    def _evict(self) -> None:
        """Forget the idle boxes that were opened first; their runs are read again when needed."""
        idle = [box.id for box in self._boxes.values() if not box.busy]
        for run_id in idle[: max(1, len(idle) // 10)]:
            del self._boxes[run_id]

    def _advance(self, box: _Box) -> None:
        """Take everything that waits and decide it, or rest."""
        if box.rivals:
            entries, box.rivals = box.rivals, []
            self._spawn(self._retry(box, entries, KeyTaken("The idempotency key was used in the meantime.")))
            return
        if box.waiting:
            entries, box.waiting = box.waiting, []
            self._take(box, entries)
            return
        box.busy = False
        if box.run is None or box.run.ended:
            self._boxes.pop(box.id, None)

    def _take(self, box: _Box, entries: list[_Entry]) -> None:
        if box.loaded:
            self._decide(box, entries)
        else:
            self._spawn(self._load(box, entries))

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _load(self, box: _Box, entries: list[_Entry]) -> None:
        try:
            head = await self._store.head(box.id)
        except Exception as error:  # noqa: BLE001 - whatever the store says reaches the callers
            for entry in entries:
                entry.fail(error)
            return self._advance(box)
        box.run, box.hash = (head.run, head.hash) if head else (None, GENESIS)
        box.loaded = True
        return self._decide(box, entries, fresh=True)

    def _decide(self, box: _Box, entries: list[_Entry], *, fresh: bool = False) -> None:
        if len(entries) > 1:
            entries, rivals = _distinct(entries)
            box.rivals += rivals
        if any(_is_long(entry) for entry in entries):
            self._spawn(self._decide_off_loop(box, entries, fresh))
        else:
            self._write(box, entries, self._decided(box, entries), fresh)

    async def _decide_off_loop(self, box: _Box, entries: list[_Entry], fresh: bool) -> None:
        """Decide in a thread. Nothing else touches the box meanwhile: it is busy."""
        self._write(box, entries, await asyncio.to_thread(self._decided, box, entries), fresh)

    def _decided(self, box: _Box, entries: list[_Entry]) -> "_Decisions":
        made = _Decisions(box.run, box.hash)
        for entry in entries:
            try:
                after, hash_after, added = self._apply(box.id, made.run, made.hash, entry)
            except Exception as error:  # noqa: BLE001 - a defect in a rule must reach its caller, not stall the box
                made.refused.append((entry, error))
                continue
            entry.outcome = Outcome(after, added)
            made.run, made.hash = after, hash_after
            made.events += added
            made.entries.append(entry)
            made.idle = made.idle or not added
        return made

    def _write(self, box: _Box, entries: list[_Entry], made: "_Decisions", fresh: bool) -> None:
        run, hash_, events, decided = made.run, made.hash, made.events, made.entries
        refused, idle = made.refused, made.idle
        if self._shared and not fresh and (refused or idle):
            # Another replica may have written since. An append would find out; what appends nothing has to look.
            box.loaded = False
            return self._take(box, entries)
        for entry, error in refused:
            entry.fail(error)
        if run is None or not events:
            for entry in decided:
                entry.succeed()
            return self._advance(box)
        keys = [entry.key for entry in decided if entry.key is not None]
        expected = box.run.version if box.run else 0
        expired = self._clock() - KEY_LIFE_MS if keys else 0
        changes = tuple(change for entry in decided for change in entry.changes)
        append = Append(run, expected, events, keys, expired, changes)
        done = partial(self._appended, box, decided, run, hash_, events)
        if run.assignment is not None and run.inputs and run.state is State.COMPLETED and self.fulfil is not None:
            self._spawn(self._fulfilled(append, done, self.fulfil))
        else:
            self._store.append(append, done)
        return None

    async def _fulfilled(self, append: Append, done: Done, fulfil: Fulfil) -> None:
        """Append the end of a run together with what is made of its answer."""
        try:
            append.changes = await fulfil(append.run, append.events)
        except Exception as error:  # noqa: BLE001 - whatever is wrong must reach the caller, not stall the box
            tell("document.failed", run=append.run.id, agent=append.run.agent, error=error)
            return done(StoreUnavailable("The answer could not be kept as a document."))

        def appended(error: ParleyError | None) -> None:
            if not isinstance(error, Outdated):
                return done(error)
            # Its conversation was deleted meanwhile: the run ends all the same, and nothing is made of it.
            append.changes = ()
            return self._store.append(append, done)

        return self._store.append(append, appended)

    def _apply(self, run_id: RunId, run: Run | None, hash_: bytes, entry: _Entry) -> tuple[Run, bytes, list[Event]]:
        if entry.expected is not None and entry.expected != (run.version if run else 0):
            raise VersionConflict(
                "The run has changed since it was read.",
                expected=entry.expected,
                version=run.version if run else 0,
            )
        at = max(self._clock(), run.updated_at if run else 0)
        added: list[Event] = []
        for command in entry.commands:
            for payload in decide(run, command):
                event = sealed(run_id, (run.version if run else 0) + 1, at, payload, hash_)
                if event.body is not None and len(event.body) > self._max_payload:
                    raise PayloadTooLarge(
                        f"An event of {len(event.body)} bytes is over the limit of {self._max_payload}.",
                        size=len(event.body), limit=self._max_payload,
                    )  # fmt: skip
                if event.body is not None and is_deeper(event.body, MAX_STORED_DEPTH):
                    raise too_deep()
                run, hash_ = evolve(run, run_id, event.seq, at, payload), event.hash
                added.append(event)
        if run is None:
            raise RunNotFound("Task not found.")
        return run, hash_, added

    def _appended(
        self, box: _Box, entries: list[_Entry], run: Run, hash_: bytes, events: list[Event], error: ParleyError | None
    ) -> None:
        if error is None:
            box.run, box.hash = run, hash_
            self._published(run, events)
            for entry in entries:
                entry.succeed()
            return self._advance(box)
        box.loaded = False
        if isinstance(error, VersionConflict | KeyTaken):
            tell("append.conflict", run=box.id, code=error.code)
            self._spawn(self._retry(box, entries, error))
            return None
        for entry in entries:
            entry.fail(error)
        return self._advance(box)

    async def _retry(self, box: _Box, entries: list[_Entry], error: ParleyError) -> None:
        """A rival was first: those whose key is taken are told so, the others are decided again."""
        again: list[_Entry] = []
        for entry in entries:
            entry.tries += 1
            if entry.tries >= MAX_TRIES:
                entry.fail(error)
            elif isinstance(error, KeyTaken) and entry.key is not None and await self._is_taken(entry.key):
                entry.fail(KeyTaken("The idempotency key was used in the meantime."))
            else:
                again.append(entry)
        await self._load(box, again)

    async def _is_taken(self, key: Key) -> bool:
        try:
            stored = await self._store.find_key(key.scope, key.name)
        except ParleyError:
            # Then its append will say what is wrong.
            return False
        return stored is not None and self._holds(key, stored)

    def _holds(self, key: Key, stored: StoredKey) -> bool:
        return key.lasting or stored.at >= self._clock() - KEY_LIFE_MS


def _is_long(entry: _Entry) -> bool:
    """Whether to decide it takes long: a fork copies, folds and hashes every event of another run."""
    return any(isinstance(command, Fork) and len(command.entries) > LARGE for command in entry.commands)


def _distinct(entries: list[_Entry]) -> tuple[list[_Entry], list[_Entry]]:
    """An append holds a key once: the first entry of each key, and the others."""
    first: list[_Entry] = []
    others: list[_Entry] = []
    seen: set[tuple[str, str]] = set()
    for entry in entries:
        place = (entry.key.scope, entry.key.name) if entry.key is not None else None
        (others if place in seen else first).append(entry)
        if place is not None:
            seen.add(place)
    return first, others

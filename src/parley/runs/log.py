"""The single write path: load, decide, append. Commands of one run pass through its mailbox in order."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from parley.budgets.rules import spends_of
from parley.clock import Clock, now_ms
from parley.documents.rules import AddVersion, Change
from parley.errors import (
    BrokenChain,
    Conflict,
    KeyReused,
    KeyTaken,
    Outdated,
    ParleyError,
    PayloadTooLarge,
    RunNotFound,
    StaleVersion,
    StoreUnavailable,
    VersionConflict,
)
from parley.execution.turn_order import Served
from parley.ids import RunId, is_id
from parley.json_values import MAX_STORED_DEPTH, is_deeper, too_deep
from parley.offload import LARGE
from parley.runs.rules.commands import Command, Fork, Start, decide
from parley.runs.rules.events import GENESIS, Ending, Event, Failed, sealed, verify
from parley.runs.rules.state import Run, State, evolve
from parley.runs.store import Append, Key, Readable, Store, StoredKey
from parley.telemetry import Span, tell

MAX_PAYLOAD = 1 << 20
KEY_LIFE_MS = 24 * 3600 * 1000
MAX_IDLE_BOXES = 10_000
MAX_TRIES = 50


Fulfil = Callable[[Run, list[Event]], Awaitable[tuple[Change, ...]]]


class Outcome(Struct, frozen=True):
    """The result of a command: the run after it, and the events it added (none if it had no effect)."""

    run: Run
    events: list[Event]
    replayed: bool = False


def noted(ingest: Span, outcome: Outcome) -> Outcome:
    """Add the run to the span in which it was accepted."""
    ingest.note(run=outcome.run.id, conversation=outcome.run.conversation)
    return outcome


class _Entry(Struct):
    """The commands of one caller: all of them are applied, or none. The garbage collector must see entries: the
    error of a refused one refers to it by its traceback."""

    commands: tuple[Command, ...]
    key: Key | None
    expected: int | None
    changes: tuple[Change, ...]
    future: "asyncio.Future[Outcome]"
    served: Served | None = None
    outcome: Outcome | None = None
    tries: int = 0

    def fail(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)

    def succeed(self) -> None:
        if not self.future.done() and self.outcome is not None:
            self.future.set_result(self.outcome)


class _Decisions(Struct):
    """The decisions on some entries: the resulting run, and the events to append."""

    run: Run | None
    hash: bytes
    events: list[Event] = []
    entries: list[_Entry] = []
    refused: list[tuple[_Entry, Exception]] = []
    idle: bool = False


class _Box:
    """The mailbox of one run, with its last committed state."""

    __slots__ = ("busy", "hash", "id", "loaded", "rivals", "run", "waiting", "written")

    def __init__(self, run_id: RunId, *, fresh: bool) -> None:
        self.id = run_id
        self.run: Run | None = None
        self.hash = GENESIS
        self.loaded = fresh
        self.written = 0
        """Version after the last append of this process."""
        self.busy = False
        self.waiting: list[_Entry] = []
        self.rivals: list[_Entry] = []
        """Entries whose key is in use by an append in progress: they wait for its result."""


class Commands:
    def __init__(
        self,
        store: Store,
        published: Callable[[Run, list[Event]], None],
        clock: Clock = now_ms,
        max_payload: int = MAX_PAYLOAD,
        *,
        shared: bool = False,
        fulfil: Fulfil | None = None,
        counts_runs: Callable[[], bool] = lambda: False,
    ) -> None:
        """`counts_runs` returns whether the runs of each tree are counted."""
        self._store = store
        self._published = published
        self._clock = clock
        self._max_payload = max_payload
        self._shared = shared
        self._boxes: OrderedDict[RunId, _Box] = OrderedDict()
        self._background: set[asyncio.Task[None]] = set()
        self._counts_runs = counts_runs
        self._fulfil = fulfil
        """Called when a run that was made for a document completes; returns the changes of the document."""

    def submit(
        self,
        run_id: RunId,
        *commands: Command,
        key: Key | None = None,
        expected: int | None = None,
        changes: tuple[Change, ...] = (),
        served: Served | None = None,
    ) -> "asyncio.Future[Outcome]":
        """Put commands into the run's mailbox. They are decided together, after all earlier commands. `served` is the
        turn that they begin."""
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        box = self._boxes.get(run_id)
        if box is None:
            box = self._open(run_id, fresh=isinstance(commands[0], Start | Fork))
        entry = _Entry(commands, key, expected, changes, future, served)
        if box.busy:
            box.waiting.append(entry)
        else:
            box.busy = True
            self._take(box, [entry])
        return future

    def execute(
        self,
        run_id: RunId,
        *commands: Command,
        key: Key | None = None,
        expected: int | None = None,
        changes: tuple[Change, ...] = (),
    ) -> Awaitable[Outcome]:
        """Submit commands; awaiting the result waits until they are durable. A key that was used before returns its
        earlier outcome."""
        if key is None:
            return self.submit(run_id, *commands, expected=expected, changes=changes)
        if key.lasting:
            return self._execute_unless_done(run_id, commands, key, expected)
        return self._execute_once(run_id, commands, key, expected, changes)

    async def _execute_unless_done(
        self, run_id: RunId, commands: Sequence[Command], key: Key, expected: int | None
    ) -> Outcome:
        """Write first, and look up the key only after a conflict: such a key is rarely used twice."""
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
        """Return the earlier outcome of a key, if it was used."""
        stored = await self._store.find_key(key.scope, key.name)
        if stored is None or not self._holds(key, stored):
            return None
        if stored.digest != key.digest:
            raise KeyReused("This idempotency key was used with another payload.")
        return Outcome(await self.state(stored.run), [], replayed=True)

    def written(self, run_id: RunId) -> int:
        """Return the version of a run after the last append of this process; 0 if there was none. Later events were
        not published here, even if the mailbox has loaded them after a conflict."""
        box = self._boxes.get(run_id)
        return box.written if box is not None else 0

    async def stored(self, run_id: str) -> Run | None:
        """Return the run with this id, regardless of its owner; None if there is none."""
        try:
            return await self.state(RunId(run_id)) if is_id(run_id) else None
        except RunNotFound:
            return None

    async def state(self, run_id: RunId) -> Run:
        """Return the run as last committed: from memory if only this process writes, otherwise from the store."""
        box = self._boxes.get(run_id)
        if box is not None and box.run is not None and not self._shared:
            return box.run
        head = await self._store.head(run_id)
        if head is None:
            raise RunNotFound("Task not found.")
        return head.run

    async def lineage(self, run_id: RunId) -> list[Run]:
        """Return the run, the run that started it, and so on up to the outermost one that still exists."""
        found: list[Run] = []
        while (run := await self.stored(run_id)) is not None:
            found.append(run)
            if run.parent is None:
                break
            run_id = run.parent
        return found

    def _open(self, run_id: RunId, *, fresh: bool) -> _Box:
        box = self._boxes[run_id] = _Box(run_id, fresh=fresh)
        if len(self._boxes) > MAX_IDLE_BOXES:
            self._evict()
        return box

    def _evict(self) -> None:
        """Drop the oldest idle boxes; their runs are read again when needed."""
        idle = [box.id for box in self._boxes.values() if not box.busy]
        for run_id in idle[: max(1, len(idle) // 10)]:
            del self._boxes[run_id]

    def _advance(self, box: _Box) -> None:
        """Decide everything that waits; if nothing waits, become idle."""
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
        except Exception as error:  # noqa: BLE001 - every error of the store is passed to the callers
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
        """Decide in a thread. Nothing else touches the box meanwhile, because it is busy."""
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

    # Why: docs/decisions/runs.md#decide-again-on-the-stored-state-before-refusing
    def _write(self, box: _Box, entries: list[_Entry], made: "_Decisions", fresh: bool) -> None:
        run, events, decided = made.run, made.events, made.entries
        refused, idle = made.refused, made.idle
        if self._shared and not fresh and (refused or idle):
            # Another replica may have written since. An append would detect that; without an append, the state must be
            # reloaded.
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
        served = next((entry.served for entry in decided if entry.served is not None), None)
        spends = spends_of(run, events, count_runs=self._counts_runs())
        append = Append(run, expected, events, keys, expired, changes, spends, served)
        if run.assignment is not None and run.inputs and run.state is State.COMPLETED and self._fulfil is not None:
            self._spawn(self._fulfilled(box, made, append, self._fulfil))
        else:
            self._store.append(append, partial(self._appended, box, made))
        return None

    async def _fulfilled(self, box: _Box, made: "_Decisions", append: Append, fulfil: Fulfil) -> None:
        """Append the end of a run together with the document changes that result from its answer."""
        done = partial(self._appended, box, made)
        try:
            append.changes = await fulfil(append.run, append.events)
        except Exception as error:  # noqa: BLE001 - every error must reach the caller, not stall the box
            tell("document.failed", run=append.run.id, agent=append.run.agent, error=error)
            return done(StoreUnavailable("The answer could not be stored as a document."))

        def appended(error: ParleyError | None) -> None:
            if not isinstance(error, Outdated):
                return done(error)
            if (late := _refusal(append.changes)) is not None:
                return self._append_otherwise(box, append, _ended_otherwise(box, made, late))
            # The conversation was deleted meanwhile: the run still ends, but without a document.
            append.changes = ()
            return self._store.append(append, done)

        return self._store.append(append, appended)

    def _append_otherwise(self, box: _Box, append: Append, made: "_Decisions") -> None:
        """Append other decisions in place of those that were refused, without document changes."""
        assert made.run is not None
        other = replace(append, run=made.run, events=made.events, changes=())
        self._store.append(other, partial(self._appended, box, made))

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
                        size=len(event.body),
                        limit=self._max_payload,
                    )
                if event.body is not None and is_deeper(event.body, MAX_STORED_DEPTH):
                    raise too_deep()
                run, hash_ = evolve(run, run_id, event.seq, at, payload), event.hash
                added.append(event)
        if run is None:
            raise RunNotFound("Task not found.")
        return run, hash_, added

    def _appended(self, box: _Box, made: "_Decisions", error: ParleyError | None) -> None:
        entries = made.entries
        if error is None:
            assert made.run is not None
            box.run, box.hash, box.written = made.run, made.hash, made.run.version
            self._published(made.run, made.events)
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
        """Handle a conflict with a concurrent append: fail the entries whose key is taken, and decide the others
        again."""
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
            # Then the append will fail with the store's error.
            return False
        return stored is not None and self._holds(key, stored)

    def _holds(self, key: Key, stored: StoredKey) -> bool:
        return key.lasting or stored.at >= self._clock() - KEY_LIFE_MS


def _refusal(changes: tuple[Change, ...]) -> Failed | None:
    """Return the failure of a run whose answer required a version that is no longer current; None if there is none."""
    late = next((one for one in changes if isinstance(one, AddVersion) and one.expected), None)
    if late is None:
        return None
    return Failed(
        StaleVersion.code,
        f"The {late.kind} has changed while this version was written: expectedVersionId is no longer its current "
        "version. Nothing was changed; read it and decide again.",
    )


def _ended_otherwise(box: _Box, made: _Decisions, ending: Ending) -> _Decisions:
    """Return the same decisions with another last event, which ends the run."""
    *events, last = made.events
    run = box.run
    for event in events:
        assert event.payload is not None
        run = evolve(run, box.id, event.seq, event.at, event.payload)
    other = sealed(box.id, last.seq, last.at, ending, events[-1].hash if events else box.hash)
    run = evolve(run, box.id, last.seq, last.at, ending)
    for entry in made.entries:
        if entry.outcome is not None and entry.outcome.run.ended:
            added = [other if event is last else event for event in entry.outcome.events]
            entry.outcome = Outcome(run, added)
    return _Decisions(run, other.hash, [*events, other], made.entries)


def _is_long(entry: _Entry) -> bool:
    """Return whether deciding takes long: a fork copies, folds and hashes every event of another run."""
    return any(isinstance(command, Fork) and len(command.entries) > LARGE for command in entry.commands)


def _distinct(entries: list[_Entry]) -> tuple[list[_Entry], list[_Entry]]:
    """Split entries into the first one of each key and the others, because an append may contain a key only once."""
    first: list[_Entry] = []
    others: list[_Entry] = []
    seen: set[tuple[str, str]] = set()
    for entry in entries:
        place = (entry.key.scope, entry.key.name) if entry.key is not None else None
        (others if place in seen else first).append(entry)
        if place is not None:
            seen.add(place)
    return first, others


# Verification of a log: walk its hash chain from the floor to the head.

_PAGE = 1000


async def all_runs(store: Readable) -> AsyncIterator[RunId]:
    after = ""
    while page := await store.run_ids(after, _PAGE):
        for run_id in page:
            yield run_id
        after = page[-1]


async def verify_run(store: Readable, run_id: RunId) -> int:
    """Check the hash chain of a run. Return the number of its last event. BrokenChain names the first wrong event."""
    head = await store.head(run_id)
    if head is None:
        raise RunNotFound(f"There is no run {run_id}.")
    seq, hash_ = head.floor, head.floor_hash
    while page := await store.read(run_id, seq, _PAGE):
        seq, hash_ = verify(page, seq, hash_)
    if seq < head.run.version or (seq == head.run.version and hash_ != head.hash):
        raise BrokenChain(f"The log ends at {seq}, but its head says {head.run.version}.", run=run_id, seq=seq)
    return seq

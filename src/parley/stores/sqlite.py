"""The log in one SQLite file: a writer thread that commits all waiting appends in one transaction, and readers.

WAL with `synchronous=FULL`: acknowledged writes are on disk as far as the operating system can tell. One process per
data directory, enforced by a lock file.
"""

import asyncio
import os
import queue
import sqlite3
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from parley.budgets.rules import CounterPlace, Spent
from parley.errors import KeyTaken, Outdated, ParleyError, StoreUnavailable, VersionConflict
from parley.execution.turn_order import AgentQueue
from parley.ids import RunId
from parley.runs.rules.events import Event, restored
from parley.runs.rules.state import Run, State, erased
from parley.runs.store import LASTING, READ_BYTES, Append, Done, Head, Listing, StoredKey, Trim
from parley.security.files import make_private_folder
from parley.stores import queries
from parley.stores.documents import NOTE, DatabaseLibrary, sqlite_text, statements
from parley.stores.group_commit import Settled, answer
from parley.stores.nonces import (
    FORGET_BATCH,
    NonceClaim,
    check_committing,
    claiming,
    forget_some,
    in_batches,
    write_claims,
)
from parley.stores.queries import SLEEPING, filters, owner_column, paged, refolded, state_column, wake_time
from parley.stores.schema import migrate_sqlite
from parley.stores.search import Indexer, index_queued, queue_runs, sqlite_search
from parley.stores.sqlite_file import LOCK, check, connect, lock, opening, unavailable
from parley.telemetry import tell

T = TypeVar("T")
Row = tuple[Any, ...]


class WriteJob(Struct, frozen=True):
    """Other work for the writer, done in a transaction of its own."""

    work: Callable[[sqlite3.Connection], None]


Waiting = tuple[Append | NonceClaim | WriteJob, Done]

MAX_BATCH = 512
PROBE_BYTES = 4096
"""Larger than the free space of a page, so that a database which cannot grow refuses it."""
FILE = "parley.db"
TRIM_PIECE = 2000
"""Number of events that one transaction deletes, so that appends do not wait long for it."""

_INSERT_RUN = """
INSERT INTO runs
  (run_id, version, hash, arrival, agent, principal, conversation, state, owner, ended, created_at, updated_at,
   status_at, body)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (run_id) DO NOTHING"""
_UPDATE_RUN = """
UPDATE runs SET version = ?, hash = ?, state = ?, owner = ?, ended = ?, updated_at = ?, status_at = ?, body = ?
WHERE run_id = ? AND version = ?"""
_SELECT_EVENTS = "SELECT seq, at, type, payload, digest, hash FROM events WHERE run_id = ? AND seq > ?"
_INSERT_EVENT = "INSERT INTO events (run_id, seq, at, type, payload, hash) VALUES (?, ?, ?, ?, ?, ?)"
_INSERT_KEY = f"""
INSERT INTO keys (scope, name, run_id, version, digest, at) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (scope, name) DO UPDATE
  SET run_id = excluded.run_id, version = excluded.version, digest = excluded.digest, at = excluded.at
  WHERE keys.at < ? AND substr(keys.scope, 1, 4) <> '{LASTING}'"""
_FORGET_KEYS = f"""
DELETE FROM keys WHERE (scope, name) IN (
  SELECT scope, name FROM keys WHERE at < ? AND substr(scope, 1, 4) <> '{LASTING}' ORDER BY at LIMIT ?)"""

# The state is in the SQL text, so that the partial index is used, and nothing else.
_WAITING = "SELECT count(*) FROM (SELECT 1 FROM runs WHERE state = 'submitted' AND agent = ? LIMIT ?)"
_SLEEPERS = f"SELECT body FROM runs WHERE state = '{SLEEPING}' AND owner <= ? ORDER BY owner LIMIT ?"
_AHEAD = """
SELECT (SELECT count(*) FROM (
  SELECT 1 FROM runs AS other WHERE state = 'submitted' AND agent = ? AND other.arrival < run.arrival LIMIT ?))
FROM runs AS run WHERE run_id = ? AND state = 'submitted'"""

_encode_run = msgspec.msgpack.Encoder().encode
_decode_run = msgspec.msgpack.Decoder(Run).decode


class _Rival(Exception):
    """An append of the batch met a conflict; the appends are then tried one by one to find which."""


class _Stale(_Rival):
    """The conflict concerns a document."""


class SqliteReader:
    """Reads a database, also while a server is writing to it. Create it inside a running event loop."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._loop = asyncio.get_running_loop()
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []
        self._readers = ThreadPoolExecutor(2, thread_name_prefix="parley-read")
        self._closed = False
        self.library = DatabaseLibrary(lambda sql, *values: self._all(sqlite_text(sql), *values), self._note)

    async def head(self, run: RunId) -> Head | None:
        row = await self._one("SELECT body, hash, floor, floor_hash, snapshot FROM runs WHERE run_id = ?", run)
        return await refolded(Head(_decode_run(row[0]), *row[1:]), self.read) if row else None

    async def read(self, run: RunId, after: int, limit: int) -> list[Event]:
        sql = f"{_SELECT_EVENTS} ORDER BY seq LIMIT ?"
        return await self._call(lambda connection: _page(run, connection.execute(sql, (run, after, limit))))

    async def read_types(self, run: RunId, types: Collection[str], after: int, limit: int) -> list[Event]:
        sql = f"{_SELECT_EVENTS} AND {_one_of(types)} ORDER BY seq LIMIT ?"
        values = (run, after, *types, limit)
        return await self._call(lambda connection: _page(run, connection.execute(sql, values)))

    async def read_last(self, run: RunId, types: Collection[str], limit: int) -> list[Event]:
        sql = f"{_SELECT_EVENTS} AND {_one_of(types)} ORDER BY seq DESC LIMIT ?"
        rows = await self._all(sql, run, 0, *types, limit)
        return [restored(run, *row) for row in reversed(rows)]

    async def find_key(self, scope: str, name: str) -> StoredKey | None:
        row = await self._one("SELECT run_id, version, digest, at FROM keys WHERE scope = ? AND name = ?", scope, name)
        return StoredKey(*row) if row else None

    async def runs_in(
        self, state: State, *, agent: str | None = None, owner: str | None = None, limit: int = 1000
    ) -> list[Run]:
        # The state is in the SQL text and not a parameter, so that the partial indexes are used.
        where, values = f"state = '{state.value}'", list[object]()
        for column, value in (("agent", agent), ("owner", owner)):
            if value is not None:
                where += f" AND {column} = ?"
                values.append(value)
        rows = await self._all(f"SELECT body FROM runs WHERE {where} ORDER BY arrival LIMIT ?", *values, limit)
        return [_decode_run(row[0]) for row in rows]

    async def sleepers(self, now: int, limit: int) -> list[Run]:
        rows = await self._all(_SLEEPERS, wake_time(now), limit)
        return [_decode_run(row[0]) for row in rows]

    async def unfinished(self, principal: str, most: int) -> int:
        sql = "SELECT count(*) FROM (SELECT 1 FROM runs WHERE principal = ? AND ended = 0 LIMIT ?)"
        row = await self._one(sql, principal, most)
        return row[0] if row else 0

    async def unfinished_of(self, agent: str, most: int) -> int:
        row = await self._one(*queries.unfinished_of(agent, most))
        return row[0] if row else 0

    async def waiting(self, agent: str, most: int) -> int:
        row = await self._one(_WAITING, agent, most)
        return row[0] if row else 0

    async def queue(self, agent: str, without: Collection[RunId]) -> AgentQueue:
        return queries.queue_of(await self._all(*queries.queue_sql(agent, without)))

    async def spent(self, places: Collection[CounterPlace]) -> dict[CounterPlace, Spent]:
        if not places:
            return {}
        sql, values = queries.spent_sql(places)
        return queries.spent_of(await self._all(sql, *values))

    async def ahead(self, run: RunId, agent: str, most: int) -> int | None:
        row = await self._one(_AHEAD, agent, most, run)
        return row[0] if row else None

    async def list_runs(self, listing: Listing) -> tuple[list[Run], int]:
        where, values = filters(listing)
        sql, given = paged(listing, where, values)
        rows = await self._all(sql, *given)
        count = f"SELECT count(*) FROM runs WHERE {where}"
        total = await self._one(count, *values) if listing.counted else None
        return [_decode_run(row[0]) for row in rows], total[0] if total else 0

    async def search(self, listing: Listing) -> list[Run]:
        sql, values = sqlite_search(listing)
        return [_decode_run(row[0]) for row in await self._all(sql, *values)]

    async def run_ids(self, after: str, limit: int) -> list[RunId]:
        rows = await self._all("SELECT run_id FROM runs WHERE run_id > ? ORDER BY run_id LIMIT ?", after, limit)
        return [RunId(row[0]) for row in rows]

    async def size(self) -> int:
        rows = await self._all("SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()")
        return int(rows[0][0])

    async def _note(self, rows: Sequence[Row]) -> None:
        await self._call(lambda connection: _note_all(connection, rows))

    async def close(self) -> None:
        self._closed = True
        self._readers.shutdown(wait=True)
        for connection in self._connections:
            connection.close()

    async def _one(self, sql: str, *parameters: object) -> Row | None:
        return await self._call(lambda connection: connection.execute(sql, parameters).fetchone())

    async def _all(self, sql: str, *parameters: object) -> list[Row]:
        return await self._call(lambda connection: connection.execute(sql, parameters).fetchall())

    async def _call(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if self._closed:
            raise StoreUnavailable("The store is closed.")
        try:
            return await self._loop.run_in_executor(self._readers, lambda: work(self._connection()))
        except sqlite3.Error as error:
            raise unavailable(self._path, error, "The store could not be read.") from error

    def _connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = connect(self._path)
            self._connections.append(connection)
        return connection


def _one_of(types: Collection[str]) -> str:
    return f"type IN ({', '.join('?' * len(types))})"


def _page(run: RunId, rows: Iterable[Row]) -> list[Event]:
    """Read and decode some events. Runs in a reader's thread."""
    events: list[Event] = []
    size = 0
    for row in rows:
        events.append(restored(run, *row))
        size += len(row[3] or b"")
        if size >= READ_BYTES:
            break
    return events


def _opened(path: Path) -> sqlite3.Connection:
    """Open a database with all migrations, and check it for damage."""
    connection = connect(path)
    try:
        check(path, connection)
        migrate_sqlite(connection)
    except BaseException:
        connection.close()
        raise
    return connection


class SqliteStore(SqliteReader):
    """The single writer of a data directory."""

    def __init__(self, directory: Path) -> None:
        path = directory / FILE
        with opening(path):
            make_private_folder(directory)
            self._lock = lock(directory / LOCK)
            try:
                self._writing = _opened(path)
                first = self._writing.execute("SELECT coalesce(max(arrival), 0) + 1 FROM runs").fetchone()[0]
            except BaseException:
                os.close(self._lock)
                raise
        super().__init__(path)
        self._arrivals = count(first)
        self._waiting: list[Waiting] = []
        self._backlog: list[Waiting] = []
        self._closing = False
        self._committed = 0
        """Number of batches that the writer has committed."""
        self._queue: queue.SimpleQueue[list[Waiting] | None] = queue.SimpleQueue()
        self._writer = threading.Thread(target=self._write, name="parley-write", daemon=True)
        self._writer.start()
        self._indexer = Indexer(lambda: self._do(index_queued))
        self._indexer.wake()

    def append(self, append: Append, done: Done) -> None:
        self._hand_in(append, done)
        if append.expected == 0 or append.run.ended:
            self._indexer.wake()

    async def search(self, listing: Listing) -> list[Run]:
        await self._indexer.finish()
        return await super().search(listing)

    async def claim(self, nonce: str, until: int) -> bool:
        return await claiming(self._hand_in, nonce, until)

    async def check_writing(self, patience_s: float) -> None:
        await check_committing(self.claim, patience_s, lambda: self._committed, PROBE_BYTES)

    # Why: docs/decisions/stores.md#wake-sqlites-writer-once-per-round-of-the-event-loop
    def _hand_in(self, work: Append | NonceClaim | WriteJob, done: Done) -> None:
        if self._closed:
            self._loop.call_soon(done, StoreUnavailable("The store is closed."))
            return
        if not self._waiting:
            # Once per round of the event loop, not once per append: waking a thread costs more than the work itself.
            self._loop.call_soon(self._hand_over)
        self._waiting.append((work, done))

    def _hand_over(self) -> None:
        if self._waiting:
            self._queue.put(self._waiting)
            self._waiting = []

    async def expired(self, before: int, limit: int) -> list[Run]:
        sql = "SELECT body FROM runs WHERE ended = 1 AND floor < version AND updated_at < ? LIMIT ?"
        return [_decode_run(row[0]) for row in await self._all(sql, before, limit)]

    async def forget_keys(self, before: int) -> int:
        return await in_batches(lambda: self._do(lambda connection: _forget_keys(connection, before)))

    async def forget_nonces(self, before: int) -> int:
        return await in_batches(lambda: self._do(lambda connection: forget_some(connection, before)))

    async def forget_spent(self, now: int) -> int:
        await self._do(lambda connection: connection.execute(queries.FORGET_TURNS).rowcount)
        before = queries.forgotten_before(now)
        return await self._do(lambda connection: connection.execute(queries.FORGET, before).rowcount)

    async def trim(self, run: RunId, floor: int, snapshot: bytes | None = None) -> None:
        await self.trim_all([Trim(run, floor, snapshot)])

    async def trim_all(self, trims: Sequence[Trim]) -> None:
        left = list(trims)
        while left:
            left = await self._do(partial(_trim_some, trims=left))

    async def erase(self, run: RunId) -> None:
        head = await self.head(run)
        if head is None or not head.run.ended:
            return
        if head.run.version - head.floor > TRIM_PIECE:
            # Trim in pieces first. If this is interrupted, the caller has not been told of success and asks again.
            await self.trim(run, head.run.version)
        await self._do(lambda connection: _erase(connection, run))

    async def _do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Have the writer run work in a transaction of its own. Another connection would have to wait for the writer's
        lock, for as long as SQLite decides."""
        future: asyncio.Future[T] = self._loop.create_future()
        result: list[T] = []

        def done(error: ParleyError | None) -> None:
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result[0])

        self._hand_in(WriteJob(lambda connection: result.append(work(connection))), done)
        return await future

    async def close(self) -> None:
        """Commit everything that was handed in, then stop."""
        if self._closed:
            return
        await self._indexer.close()
        self._hand_over()
        self._queue.put(None)
        await asyncio.to_thread(self._writer.join)
        await super().close()
        self._writing.close()
        os.close(self._lock)

    def _write(self) -> None:
        """Writer thread: take all waiting appends, commit them together, call back."""
        while batch := self._take():
            together = [one for one in batch if not isinstance(one[0], WriteJob)]
            if together:
                self._settle(together, partial(self._commit, together))
            for work, done in batch:
                if isinstance(work, WriteJob):
                    self._settle([(work, done)], partial(self._carry_out, work, done))

    def _settle(self, batch: list[Waiting], commit: Callable[[], list[Settled]]) -> None:
        settled: list[Settled]
        try:
            settled = commit()
            self._committed += 1
        except Exception as error:  # noqa: BLE001 - if the writer died silently, all callers would wait forever
            tell("append.failed", error=error)
            reason = StoreUnavailable("The store refused the write; nothing was saved.")
            settled = [(done, reason) for _, done in batch]
        self._loop.call_soon_threadsafe(answer, settled)

    def _carry_out(self, job: WriteJob, done: Done) -> list[Settled]:
        with _transaction(self._writing):
            job.work(self._writing)
        return [(done, None)]

    def _take(self) -> list[Waiting]:
        """Return waiting appends up to the size of a batch, at least one; empty when the store is closing."""
        backlog = self._backlog
        while not self._closing and (not backlog or not self._queue.empty()):
            waiting = self._queue.get()
            if waiting is None:
                self._closing = True
            else:
                backlog += waiting
        batch, self._backlog = backlog[:MAX_BATCH], backlog[MAX_BATCH:]
        return batch

    def _commit(self, batch: list[Waiting]) -> list[Settled]:
        appends = [(work, done) for work, done in batch if isinstance(work, Append)]
        claims = [(work, done) for work, done in batch if isinstance(work, NonceClaim)]
        try:
            with _transaction(self._writing):
                if appends:
                    _write_all(self._writing, [append for append, _ in appends], self._arrivals)
                return [*((done, None) for _, done in appends), *write_claims(self._writing, claims)]
        except _Rival:
            with _transaction(self._writing):
                settled = [(done, _write_singly(self._writing, append, self._arrivals)) for append, done in appends]
                return [*settled, *write_claims(self._writing, claims)]


class _transaction:  # noqa: N801 - reads as a statement
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        if self._connection.in_transaction:
            # An earlier ROLLBACK failed together with the disk.
            self._connection.execute("ROLLBACK")
        self._connection.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            try:
                self._connection.execute("COMMIT")
            except sqlite3.Error:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
        elif self._connection.in_transaction:
            self._connection.execute("ROLLBACK")


def _write_all(connection: sqlite3.Connection, appends: list[Append], arrivals: Iterator[int]) -> None:
    """Write a batch with one statement of each kind. Each run occurs once: its mailbox has only one append in
    progress."""
    new = [_new_row(append, next(arrivals)) for append in appends if append.expected == 0]
    known = [_known_row(append) for append in appends if append.expected > 0]
    keys = [row for append in appends if append.keys for row in _key_rows(append)]
    for sql, rows in ((_INSERT_RUN, new), (_UPDATE_RUN, known), (_INSERT_KEY, keys)):
        if rows and connection.executemany(sql, rows).rowcount != len(rows):
            raise _Rival
    connection.executemany(_INSERT_EVENT, [_event_row(event) for append in appends for event in append.events])
    queue_runs(connection, appends)
    for sql, rows in queries.ledger_rows(appends, queries.SQLITE_LEDGER):
        connection.executemany(sql, rows)
    for append in appends:
        for change in append.changes:
            for sql, values, must in statements(change):
                if connection.execute(sqlite_text(sql), values).rowcount < 1 and must:
                    raise _Stale


def _note_all(connection: sqlite3.Connection, rows: Sequence[Row]) -> None:
    with _transaction(connection):
        connection.executemany(sqlite_text(NOTE), rows)


def _write_singly(connection: sqlite3.Connection, append: Append, arrivals: Iterator[int]) -> ParleyError | None:
    connection.execute("SAVEPOINT one")
    try:
        _write_all(connection, [append], arrivals)
    except _Stale:
        connection.execute("ROLLBACK TO one")
        return Outdated("The document has changed since it was read.")
    except _Rival:
        connection.execute("ROLLBACK TO one")
        row = connection.execute("SELECT version FROM runs WHERE run_id = ?", (append.run.id,)).fetchone()
        if (row[0] if row else 0) != append.expected:
            return VersionConflict("The run has changed since it was read.")
        return KeyTaken("The idempotency key was used before.")
    finally:
        connection.execute("RELEASE one")
    return None


def _new_row(append: Append, arrival: int) -> Row:
    run = append.run
    return (
        run.id,
        run.version,
        append.hash,
        arrival,
        run.agent,
        run.principal,
        run.conversation,
        state_column(run),
        owner_column(run),
        run.ended,
        run.created_at,
        run.updated_at,
        run.status_at,
        _encode_run(run),
    )


def _known_row(append: Append) -> Row:
    run = append.run
    return (
        run.version,
        append.hash,
        state_column(run),
        owner_column(run),
        run.ended,
        run.updated_at,
        run.status_at,
        _encode_run(run),
        run.id,
        append.expected,
    )


def _key_rows(append: Append) -> Iterable[Row]:
    run = append.run
    for key in append.keys:
        yield (
            key.scope,
            key.name,
            run.id,
            run.version,
            key.digest,
            run.updated_at,
            append.keys_expired_before,
        )


def _event_row(event: Event) -> Row:
    return (event.run, event.seq, event.at, event.type, event.body, event.hash)


def _forget_keys(connection: sqlite3.Connection, before: int) -> int:
    return connection.execute(_FORGET_KEYS, (before, FORGET_BATCH)).rowcount


def _trim_some(connection: sqlite3.Connection, trims: Sequence[Trim]) -> list[Trim]:
    """Trim as many of them as together delete one piece of events; return the rest."""
    budget, left = TRIM_PIECE, list(trims)
    while left and budget > 0:
        gone, done = _trim(connection, left[0], budget)
        budget -= gone
        if not done:
            break
        del left[0]
    return left


def _trim(connection: sqlite3.Connection, one: Trim, most: int) -> tuple[int, bool]:
    """Delete at most this many events, oldest first; return the number, and whether none is left up to the floor.

    The floor is raised with the first piece, so that deleted events are not visible any more.
    """
    row = connection.execute(
        "SELECT seq, hash FROM events WHERE run_id = ? AND seq <= ? ORDER BY seq DESC LIMIT 1", (one.run, one.floor)
    ).fetchone()
    if row is None:
        return 0, True
    raised = "UPDATE runs SET floor = ?, floor_hash = ?, snapshot = ? WHERE run_id = ? AND floor < ?"
    connection.execute(raised, (*row, one.snapshot, one.run, row[0]))
    upto = connection.execute(
        "SELECT seq FROM events WHERE run_id = ? AND seq <= ? ORDER BY seq LIMIT 1 OFFSET ?",
        (one.run, one.floor, most - 1),
    ).fetchone()
    floor = upto[0] if upto else one.floor
    gone = connection.execute("DELETE FROM events WHERE run_id = ? AND seq <= ?", (one.run, floor)).rowcount
    if floor < row[0]:
        return gone, False
    connection.execute("DELETE FROM keys WHERE scope = ? AND version <= ?", (LASTING + one.run, one.floor))
    return gone, True


def _erase(connection: sqlite3.Connection, run: RunId) -> None:
    row = connection.execute("SELECT body FROM runs WHERE run_id = ? AND ended = 1", (run,)).fetchone()
    if row is None:
        return
    connection.execute(
        "UPDATE runs SET floor = version, floor_hash = hash, snapshot = NULL, principal = '', conversation = '', "
        "body = ? WHERE run_id = ?",
        (_encode_run(erased(_decode_run(row[0]))), run),
    )
    connection.execute("DELETE FROM events WHERE run_id = ?", (run,))
    connection.execute("DELETE FROM keys WHERE scope = ?", (LASTING + run,))

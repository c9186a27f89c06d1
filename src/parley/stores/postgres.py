"""The log in PostgreSQL, for many replicas: waiting appends are committed together by one statement.

Rows are locked in the order of their ids, so that two replicas with batches over the same runs cannot deadlock. A
conflict affects only its own run: that run's events are left out of the same statement, and its caller gets the error.
"""

import asyncio
from collections.abc import Collection, Sequence
from zlib import crc32

import msgspec

from parley.budgets.rules import CounterPlace, Spent
from parley.errors import KeyTaken, Outdated, ParleyError, StoreUnavailable, VersionConflict
from parley.execution.turn_order import AgentQueue
from parley.ids import RunId
from parley.runs.rules.events import Event, restored
from parley.runs.rules.state import Run, State, erased
from parley.runs.store import LASTING, READ_BYTES, Append, Done, Head, Listing, StoredKey, Trim
from parley.stores import queries
from parley.stores.documents import NOTE, DatabaseLibrary, statements
from parley.stores.group_commit import MAX_BATCH, Writer
from parley.stores.nonces import FORGET_BATCH, PostgresNonces, check_committing, in_batches
from parley.stores.postgres_pool import MAX_CONNECTIONS, RIVALRY, TROUBLE, Connection, Pool, Row
from parley.stores.queries import (
    SLEEPING,
    filters,
    numbered,
    owner_column,
    paged,
    refolded,
    state_column,
    wake_time,
)
from parley.stores.schema import Phase, migrate_postgres
from parley.stores.search import POSTGRES_QUEUE, Indexer, index_queued_there, postgres_search, with_new_words
from parley.telemetry import tell

MAX_TRIES = 5
SPARE_CONNECTIONS = 4
RECORD_CONNECTIONS, AUDIT_CONNECTIONS, NODE_CONNECTIONS, SIGNAL_CONNECTIONS = 2, 2, 4, 1
"""Connections of their own, so that records, the audit log, nodes and signals do not wait behind the log."""


def log_connections(writers: int) -> int:
    """Return the number of connections for the log, of which each writer may use one."""
    return max(MAX_CONNECTIONS, writers + SPARE_CONNECTIONS)


def replica_connections(writers: int) -> int:
    """Return the number of connections that a replica opens at most."""
    return log_connections(writers) + RECORD_CONNECTIONS + AUDIT_CONNECTIONS + NODE_CONNECTIONS + SIGNAL_CONNECTIONS


"""Connections for readers while all writers are busy."""

_LOCK = "SELECT run_id, version FROM runs WHERE run_id = ANY($1::text[]) ORDER BY run_id FOR UPDATE"
_UPDATE = """
  UPDATE runs SET version = given.version, hash = given.hash, state = given.state, owner = given.owner,
    ended = given.ended, updated_at = given.updated_at, status_at = given.status_at, body = given.body
  FROM given JOIN locked USING (run_id)
  WHERE runs.run_id = given.run_id AND locked.version = given.expected AND runs.version = given.expected
  RETURNING runs.run_id"""
_LOG = """
  INSERT INTO events (run_id, seq, at, type, payload, hash)
  SELECT row.run_id, row.seq, row.at, row.type, row.payload, row.hash
  FROM unnest(${}::text[], ${}::bigint[], ${}::bigint[], ${}::text[], ${}::bytea[], ${}::bytea[])
    AS row (run_id, seq, at, type, payload, hash)
  JOIN written USING (run_id)"""

_SELECT_EVENTS = f"""
SELECT seq, at, type, payload, digest, hash FROM (
  SELECT *, sum(coalesce(octet_length(payload), 0)) OVER (ORDER BY seq ROWS UNBOUNDED PRECEDING)
    - coalesce(octet_length(payload), 0) AS before
  FROM (
    SELECT seq, at, type, payload, digest, hash FROM events
    WHERE run_id = $1 AND seq > $2 {{}} ORDER BY seq LIMIT $3
  ) AS page
) AS sized
WHERE before < {READ_BYTES} ORDER BY seq"""
_SELECT_ALL = _SELECT_EVENTS.format("")
_SELECT_TYPES = _SELECT_EVENTS.format("AND type = ANY($4::text[])")
_SELECT_LAST = """
SELECT seq, at, type, payload, digest, hash FROM events
WHERE run_id = $1 AND type = ANY($2::text[]) ORDER BY seq DESC LIMIT $3"""

_WRITE_KNOWN = f"""
WITH given AS (
  SELECT * FROM unnest(
    $1::text[], $2::bigint[], $3::bigint[], $4::bytea[], $5::text[], $6::text[], $7::boolean[], $8::bigint[],
    $9::bigint[], $10::bytea[]
  ) AS row (run_id, expected, version, hash, state, owner, ended, updated_at, status_at, body)
), locked AS ({_LOCK}), written AS ({_UPDATE}), logged AS ({_LOG.format(*range(11, 17))})
SELECT run_id FROM written"""

_WRITE_ALL = f"""
WITH given AS (
  SELECT * FROM unnest(
    $1::text[], $2::bigint[], $3::bigint[], $4::bytea[], $5::text[], $6::text[], $7::boolean[], $8::bigint[],
    $9::bigint[], $10::bytea[], $11::text[], $12::text[], $13::text[], $14::bigint[]
  ) WITH ORDINALITY AS row (run_id, expected, version, hash, state, owner, ended, updated_at, status_at, body,
                            agent, principal, conversation, created_at, place)
), locked AS ({_LOCK}), updated AS ({_UPDATE}), inserted AS (
  INSERT INTO runs (run_id, version, hash, state, owner, ended, updated_at, status_at, body,
                    agent, principal, conversation, created_at)
  SELECT run_id, version, hash, state, owner, ended, updated_at, status_at, body,
         agent, principal, conversation, created_at
  FROM given WHERE expected = 0 ORDER BY place
  ON CONFLICT (run_id) DO NOTHING RETURNING run_id
), written AS (
  SELECT run_id FROM updated UNION ALL SELECT run_id FROM inserted
), logged AS ({_LOG.format(*range(15, 21))}), queued AS ({POSTGRES_QUEUE.format(21)})
SELECT run_id FROM written"""

_WRITE_KEYS = f"""
INSERT INTO keys (scope, name, run_id, version, digest, at)
SELECT row.scope, row.name, row.run_id, row.version, row.digest, row.at
FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bytea[], $6::bigint[])
  AS row (scope, name, run_id, version, digest, at)
ORDER BY row.scope, row.name
ON CONFLICT (scope, name) DO UPDATE
  SET run_id = excluded.run_id, version = excluded.version, digest = excluded.digest, at = excluded.at
  WHERE keys.at < $7 AND substr(keys.scope, 1, 4) <> '{LASTING}'
RETURNING scope"""
_FORGET_KEYS = f"""
DELETE FROM keys WHERE (scope, name) IN (
  SELECT scope, name FROM keys WHERE at < $1 AND substr(scope, 1, 4) <> '{LASTING}' ORDER BY at LIMIT $2
) RETURNING 1"""
_TRIM = """
WITH gone AS (DELETE FROM events WHERE run_id = $1 AND seq <= $2 RETURNING seq, hash),
last AS (SELECT seq, hash FROM gone ORDER BY seq DESC LIMIT 1),
released AS (DELETE FROM keys WHERE scope = $4 AND version <= $2)
UPDATE runs SET floor = last.seq, floor_hash = last.hash, snapshot = $3 FROM last WHERE run_id = $1"""

_WAITING = "SELECT count(*) FROM (SELECT FROM runs WHERE state = 'submitted' AND agent = $1 LIMIT $2) AS few"
_SLEEPERS = f"SELECT body FROM runs WHERE state = '{SLEEPING}' AND owner <= $1 ORDER BY owner LIMIT $2"
_AHEAD = """
SELECT (SELECT count(*) FROM (
  SELECT FROM runs AS other WHERE state = 'submitted' AND agent = $1 AND other.arrival < run.arrival LIMIT $2) AS few)
FROM runs AS run WHERE run_id = $3 AND state = 'submitted'"""

_NOTHING = frozenset(("INSERT 0 0", "UPDATE 0", "DELETE 0"))

_encode_run = msgspec.msgpack.Encoder().encode
_decode_run = msgspec.msgpack.Decoder(Run).decode


class _Rival(Exception):
    """A key of the batch is taken, or a change does not fit; the appends are then tried one by one to find which."""


class _Stale(_Rival):
    """The conflict concerns a document."""


async def open_pool(url: str, phases: tuple[Phase, ...] | None = None, most: int = MAX_CONNECTIONS) -> Pool:
    """Connect and apply missing migrations; none if `phases` is empty."""
    pool = await Pool.open(url, most)
    if phases != ():
        async with pool.acquire() as connection:
            await migrate_postgres(connection, phases)
    return pool


class PostgresStore:
    """The store. `writers` commit in parallel; each has the runs that its share of the ids selects. A statement holds
    at most `batch` runs. With a batch of one, every statement changes the rows of one run only, wherever a distributed
    database keeps them."""

    def __init__(self, pool: Pool, writers: int = 1, batch: int = MAX_BATCH) -> None:
        self._pool = pool
        self._closed = False
        self._nonces = PostgresNonces(pool)
        self.library = DatabaseLibrary(pool.fetch, self._note)
        self._writers = [Writer(self._commit, batch) for _ in range(writers)]
        self._indexer = Indexer(lambda: index_queued_there(pool))
        self._indexer.wake()

    def append(self, append: Append, done: Done) -> None:
        if self._closed:
            asyncio.get_running_loop().call_soon(done, StoreUnavailable("The store is closed."))
            return
        # A run always has the same writer, so that its appends stay in order.
        place = crc32(append.run.id.encode()) % len(self._writers) if len(self._writers) > 1 else 0
        self._writers[place].take(append, done)

    async def head(self, run: RunId) -> Head | None:
        row = await self._one("SELECT body, hash, floor, floor_hash, snapshot FROM runs WHERE run_id = $1", run)
        return await refolded(Head(_decode_run(row[0]), row[1], row[2], row[3], row[4]), self.read) if row else None

    async def read(self, run: RunId, after: int, limit: int) -> list[Event]:
        rows = await self._pool.fetch(_SELECT_ALL, run, after, limit)
        return [restored(run, *row) for row in rows]

    async def read_types(self, run: RunId, types: Collection[str], after: int, limit: int) -> list[Event]:
        rows = await self._pool.fetch(_SELECT_TYPES, run, after, limit, list(types))
        return [restored(run, *row) for row in rows]

    async def read_last(self, run: RunId, types: Collection[str], limit: int) -> list[Event]:
        rows = await self._pool.fetch(_SELECT_LAST, run, list(types), limit)
        return [restored(run, *row) for row in reversed(rows)]

    async def find_key(self, scope: str, name: str) -> StoredKey | None:
        sql = "SELECT run_id, version, digest, at FROM keys WHERE scope = $1 AND name = $2"
        row = await self._one(sql, scope, name)
        return StoredKey(*row) if row else None

    async def runs_in(
        self, state: State, *, agent: str | None = None, owner: str | None = None, limit: int = 1000
    ) -> list[Run]:
        # The state is in the SQL text and not a parameter, so that the partial indexes are used.
        rows = await self._pool.fetch(
            f"SELECT body FROM runs WHERE state = '{state.value}' AND ($1::text IS NULL OR agent = $1) "
            "AND ($2::text IS NULL OR owner = $2) ORDER BY arrival LIMIT $3",
            agent,
            owner,
            limit,
        )
        return [_decode_run(row[0]) for row in rows]

    async def sleepers(self, now: int, limit: int) -> list[Run]:
        rows = await self._pool.fetch(_SLEEPERS, wake_time(now), limit)
        return [_decode_run(row[0]) for row in rows]

    async def unfinished(self, principal: str, most: int) -> int:
        sql = "SELECT count(*) FROM (SELECT FROM runs WHERE principal = $1 AND NOT ended LIMIT $2) AS few"
        row = await self._one(sql, principal, most)
        return row[0] if row else 0

    async def unfinished_of(self, agent: str, most: int) -> int:
        sql, *values = queries.unfinished_of(agent, most)
        row = await self._one(numbered(sql), *values)
        return row[0] if row else 0

    async def waiting(self, agent: str, most: int) -> int:
        row = await self._one(_WAITING, agent, most)
        return row[0] if row else 0

    async def queue(self, agent: str, without: Collection[RunId]) -> AgentQueue:
        sql, *values = queries.queue_sql(agent, without)
        return queries.queue_of(await self._pool.fetch(numbered(sql), *values))

    async def spent(self, places: Collection[CounterPlace]) -> dict[CounterPlace, Spent]:
        if not places:
            return {}
        sql, values = queries.spent_sql(places)
        return queries.spent_of(await self._pool.fetch(numbered(sql), *values))

    async def forget_spent(self, now: int) -> int:
        await self._pool.fetch(queries.FORGET_TURNS)
        gone = await self._pool.fetch(numbered(f"{queries.FORGET} RETURNING 1"), *queries.forgotten_before(now))
        return len(gone)

    async def ahead(self, run: RunId, agent: str, most: int) -> int | None:
        row = await self._one(_AHEAD, agent, most, run)
        return row[0] if row else None

    async def list_runs(self, listing: Listing) -> tuple[list[Run], int]:
        where, values = filters(listing, "~>=~", "~<~")
        sql, given = paged(listing, where, values)
        rows = await self._pool.fetch(numbered(sql), *given)
        count = numbered(f"SELECT count(*) FROM runs WHERE {where}")
        total = await self._one(count, *values) if listing.counted else None
        return [_decode_run(row[0]) for row in rows], total[0] if total else 0

    async def search(self, listing: Listing) -> list[Run]:
        await self._indexer.finish()
        sql, values = postgres_search(listing)
        return [_decode_run(row[0]) for row in await self._pool.fetch(numbered(sql), *values)]

    async def run_ids(self, after: str, limit: int) -> list[RunId]:
        rows = await self._pool.fetch(
            "SELECT run_id FROM runs WHERE run_id > $1 ORDER BY run_id LIMIT $2", after, limit
        )
        return [RunId(row[0]) for row in rows]

    async def size(self) -> int:
        return int((await self._pool.fetch("SELECT pg_database_size(current_database())"))[0][0])

    async def expired(self, before: int, limit: int) -> list[Run]:
        sql = "SELECT body FROM runs WHERE ended AND floor < version AND updated_at < $1 LIMIT $2"
        return [_decode_run(row[0]) for row in await self._pool.fetch(sql, before, limit)]

    async def forget_keys(self, before: int) -> int:
        return await in_batches(lambda: self._forget_keys(before))

    async def _forget_keys(self, before: int) -> int:
        return len(await self._pool.fetch(_FORGET_KEYS, before, FORGET_BATCH))

    async def claim(self, nonce: str, until: int) -> bool:
        return await self._nonces.claim(nonce, until)

    async def check_writing(self, patience_s: float) -> None:
        if any(writer.stuck(patience_s) for writer in self._writers):
            raise StoreUnavailable("The store cannot write at the moment.")
        await check_committing(self.claim, patience_s)

    async def forget_nonces(self, before: int) -> int:
        return await self._nonces.forget_nonces(before)

    async def trim(self, run: RunId, floor: int, snapshot: bytes | None = None) -> None:
        await self.trim_all([Trim(run, floor, snapshot)])

    async def trim_all(self, trims: Sequence[Trim]) -> None:
        rows = [(one.run, one.floor, one.snapshot, LASTING + one.run) for one in trims]
        try:
            async with self._pool.acquire() as connection:
                await connection.executemany(_TRIM, rows)
        except TROUBLE as error:
            raise StoreUnavailable("The database does not answer.") from error

    async def erase(self, run: RunId) -> None:
        head = await self.head(run)
        if head is None or not head.run.ended:
            return
        await self._one(
            "WITH gone AS (DELETE FROM events WHERE run_id = $1), "
            "released AS (DELETE FROM keys WHERE scope = $3) "
            "UPDATE runs SET floor = version, floor_hash = hash, snapshot = NULL, principal = '', conversation = '', "
            "body = $2 WHERE run_id = $1",
            run,
            _encode_run(erased(head.run)),
            LASTING + run,
        )

    async def _note(self, rows: Sequence[Row]) -> None:
        try:
            async with self._pool.acquire() as connection:
                await connection.executemany(NOTE, rows)
        except TROUBLE as error:
            raise StoreUnavailable("The database does not answer.") from error

    async def close(self) -> None:
        """Commit everything that was handed in, then stop."""
        if not self._closed:
            self._closed = True
            await self._indexer.close()
            for writer in self._writers:
                await writer.close()
            await self._nonces.close()
            await self._pool.close()

    async def _one(self, sql: str, *values: object) -> Row | None:
        rows = await self._pool.fetch(sql, *values)
        return rows[0] if rows else None

    async def _commit(self, appends: list[Append]) -> dict[RunId, ParleyError]:
        """Write a batch in which each run occurs once; return the errors of the runs that could not be written."""
        for attempt in range(1, MAX_TRIES + 1):
            try:
                async with self._pool.acquire() as connection:
                    failed = await _write_all(connection, appends)
                if any(append.expected == 0 or append.run.ended for append in appends):
                    self._indexer.wake()
                return failed
            except _Rival:
                return await self._commit_singly(appends)
            except RIVALRY:
                tell("append.deadlock", attempt=attempt)
                if attempt == MAX_TRIES:
                    raise
        return {}

    async def _commit_singly(self, appends: list[Append]) -> dict[RunId, ParleyError]:
        failed: dict[RunId, ParleyError] = {}
        async with self._pool.acquire() as connection:
            for append in appends:
                try:
                    failed |= await _write_all(connection, [append])
                except _Stale:
                    failed[append.run.id] = Outdated("The document has changed since it was read.")
                except _Rival:
                    failed[append.run.id] = KeyTaken("The idempotency key was used before.")
        return failed


async def _write_all(connection: Connection, appends: list[Append]) -> dict[RunId, ParleyError]:
    more = [one for one in appends if one.keys or one.changes or one.spends or one.served is not None]
    if not more:
        return await _write_runs(connection, appends)
    async with connection.transaction():
        failed = await _write_runs(connection, appends)
        more = [append for append in more if append.run.id not in failed]
        await _write_keys(connection, more)
        await _write_changes(connection, more)
        for sql, rows in queries.ledger_rows(more, queries.POSTGRES_LEDGER):
            await connection.execute(sql, *map(list, zip(*rows, strict=True)))
    return failed


async def _write_runs(connection: Connection, appends: list[Append]) -> dict[RunId, ParleyError]:
    queued = with_new_words(appends)
    known = not queued and all(append.expected for append in appends)
    rows = zip(*map(_known_row if known else _full_row, appends), strict=True)
    events = zip(*(_event_row(event) for append in appends for event in append.events), strict=True)
    statement = (_WRITE_KNOWN, *rows, *events) if known else (_WRITE_ALL, *rows, *events, queued)
    written = {row[0] for row in await connection.fetch(*statement)}
    return {
        append.run.id: VersionConflict("The run has changed since it was read.")
        for append in appends
        if append.run.id not in written
    }


async def _write_keys(connection: Connection, appends: list[Append]) -> None:
    rows = [_key_row(append, number) for append in appends for number in range(len(append.keys))]
    if len({row[:2] for row in rows}) < len(rows):
        raise _Rival
    if rows:
        expired = min(append.keys_expired_before for append in appends)
        stored = await connection.fetch(_WRITE_KEYS, *zip(*rows, strict=True), expired)
        if len(stored) != len(rows):
            raise _Rival


async def _write_changes(connection: Connection, appends: list[Append]) -> None:
    for append in appends:
        for change in append.changes:
            for sql, values, must in statements(change):
                if await connection.execute(sql, *values) in _NOTHING and must:
                    raise _Stale


def _known_row(append: Append) -> Row:
    run = append.run
    return (
        run.id,
        append.expected,
        run.version,
        append.hash,
        state_column(run),
        owner_column(run),
        run.ended,
        run.updated_at,
        run.status_at,
        _encode_run(run),
    )


def _full_row(append: Append) -> Row:
    run = append.run
    return (*_known_row(append), run.agent, run.principal, run.conversation, run.created_at)


def _event_row(event: Event) -> Row:
    return (event.run, event.seq, event.at, event.type, event.body, event.hash)


def _key_row(append: Append, number: int) -> Row:
    run, key = append.run, append.keys[number]
    return (key.scope, key.name, run.id, run.version, key.digest, run.updated_at)

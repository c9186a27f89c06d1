"""Search for runs by the words of their first message and of their error.

Each run has one row with its words, in an index of words: FTS5 in SQLite, GIN in PostgreSQL. The row also holds a token
for its principal and one for its agent, so that a search within them reads only what it returns. An append that gives
its run new words only puts the run into a queue; the rows are written from there in batches, within a second, and
before every search. A trigger removes the row of an erased run, also when an older process erases it.

In SQLite, the rowid is made of the creation time and the arrival of the run. FTS5 reads matches in the order of their
rowids, so that the newest are found without sorting, however many there are.
"""

# Why: docs/decisions/console.md#search-the-first-message-and-the-error-only

import asyncio
import hashlib
import re
import sqlite3
import unicodedata
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import lru_cache

import msgspec

from parley.errors import ParleyError, StoreUnavailable
from parley.ids import RunId
from parley.runs.rules.state import Run
from parley.runs.store import Append, Listing
from parley.stores.postgres_pool import TROUBLE, Pool

MAX_WORDS = 48
MAX_WORD = 40
_ARRIVALS = 20
"""Bits of a rowid for the arrival: enough to tell runs of the same millisecond apart."""
_LAST_MOMENT = (1 << (63 - _ARRIVALS)) - 1
_WITHOUT_SPACES = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
"""Kana and ideographs, which are written without spaces: each is a word of its own."""
_WORD = re.compile(f"[{_WITHOUT_SPACES}]|(?:(?![{_WITHOUT_SPACES}])[^\\W_])+")
_PLAIN_WORD = re.compile("[a-z0-9]+")
_ERRORS = frozenset(("failed", "rejected"))

BATCH = 512
"""Runs that one transaction indexes, a few milliseconds of the writer. As many as it can begin in one transaction, so
that the queue does not grow."""
MOST_BATCHES = 4
"""Batches indexed before a search; in a longer queue the oldest are first, and the rest follows soon."""
INDEX_AFTER_S = 0.5
"""Time in which runs are collected for one batch."""

_decode_run = msgspec.msgpack.Decoder(Run).decode


def words_in(text: str) -> list[str]:
    """Return the words of a text as they are indexed: lower case, without accents, each once."""
    if text.isascii():
        return list(dict.fromkeys([word[:MAX_WORD] for word in _PLAIN_WORD.findall(text.lower())]))[:MAX_WORDS]
    plain = unicodedata.normalize("NFKD", text.casefold())
    bare = "".join(one for one in plain if not unicodedata.combining(one))
    return list(dict.fromkeys(_ascii(word[:MAX_WORD]) for word in _WORD.findall(bare)))[:MAX_WORDS]


def _ascii(word: str) -> str:
    """Return a word in ASCII, so that no database splits it by rules of its own."""
    return word if word.isascii() else f"u{word.encode(errors='replace').hex()}"


def row_words(run: Run) -> list[str]:
    """Return the words of a run, with those for its principal and agent."""
    found = words_in(f"{run.title} {run.code} {run.reason}")
    return [_token("p", run.principal), _token("a", run.agent), *found]


def query_words(listing: Listing) -> list[str]:
    principal = [] if listing.principal is None else [_token("p", listing.principal)]
    agent = [] if listing.agent is None else [_token("a", listing.agent)]
    return [*principal, *agent, *words_in(listing.text)]


@lru_cache(1024)
def _token(kind: str, name: str) -> str:
    return kind + hashlib.sha256(name.encode(errors="replace")).hexdigest()[:24]


def with_new_words(appends: Iterable[Append]) -> list[RunId]:
    """Return the runs whose words these appends change: the first input, and an error at the end."""
    return [append.run.id for append in appends if _changes_words(append)]


def _changes_words(append: Append) -> bool:
    inputs = sum(event.type == "input" for event in append.events)
    return 0 < append.run.inputs <= inputs or append.events[-1].type in _ERRORS


class Indexer:
    """Empties the queue of runs with new words: a moment after it got one, and before a search."""

    def __init__(self, index: Callable[[], Awaitable[int]]) -> None:
        """`index` writes the words of a batch and returns the number of entries that it took from the queue."""
        self._index = index
        self._task: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()
        self._closed = False

    def wake(self) -> None:
        """Index soon. Costs nothing while that is planned already."""
        if self._task is None and not self._closed:
            self._task = asyncio.get_running_loop().create_task(self._later())

    async def finish(self) -> None:
        """Index what is in the queue, up to a number of batches."""
        async with self._lock:
            for _ in range(MOST_BATCHES):
                if await self._index() < BATCH:
                    break

    async def close(self) -> None:
        """Stop. What is left in the queue is indexed by the next process."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def _later(self) -> None:
        await asyncio.sleep(INDEX_AFTER_S)
        # Runs that arrive from now on wake it again.
        self._task, left = None, BATCH
        with suppress(ParleyError):  # a search or the next run tries again
            while left >= BATCH and not self._closed:
                async with self._lock:
                    left = await self._index()


# SQLite

_ROWID = f"(SELECT (created_at << {_ARRIVALS}) | (arrival & {(1 << _ARRIVALS) - 1}) FROM runs WHERE run_id = ?)"
_QUEUE = "INSERT INTO run_search_queue (run_id) VALUES (?)"
_QUEUED = f"""
SELECT queue.place, (created_at << {_ARRIVALS}) | (arrival & {(1 << _ARRIVALS) - 1}), principal > '', body
FROM run_search_queue AS queue JOIN runs USING (run_id) ORDER BY queue.place LIMIT {BATCH}"""
_NOTE = "INSERT OR REPLACE INTO run_search (rowid, run_id, words) VALUES (?, ?, ?)"


def queue_runs(connection: sqlite3.Connection, appends: Sequence[Append]) -> None:
    """Note the runs of some appends that have new words, in their transaction."""
    if runs := with_new_words(appends):
        connection.executemany(_QUEUE, [(run,) for run in runs])


def index_queued(connection: sqlite3.Connection) -> int:
    """Index a batch of the queue, in a transaction; return the number of its entries."""
    rows = connection.execute(_QUEUED).fetchall()
    runs = {row[1]: _decode_run(row[3]) for row in rows if row[2]}
    connection.executemany(_NOTE, [(place, run.id, " ".join(row_words(run))) for place, run in runs.items()])
    if rows:
        connection.execute("DELETE FROM run_search_queue WHERE place <= ?", (rows[-1][0],))
    return len(rows)


def sqlite_search(listing: Listing) -> tuple[str, list[object]]:
    """Return the statement of a search, and its values."""
    where, values = "run_search MATCH ?", list[object]([" ".join(f'"{word}"' for word in query_words(listing))])
    if listing.after is not None:
        at, run = listing.after
        where += f" AND rowid < coalesce({_ROWID}, ?)"
        values += [run, min(at, _LAST_MOMENT) << _ARRIVALS]
    ids = f"SELECT run_id FROM run_search WHERE {where} ORDER BY rowid DESC LIMIT ?"
    sql = f"SELECT body FROM runs WHERE run_id IN ({ids}) AND principal > '' ORDER BY created_at DESC, arrival DESC"
    return sql, [*values, listing.limit]


# PostgreSQL

POSTGRES_QUEUE = """
  INSERT INTO run_search_queue (run_id) SELECT run_id FROM written WHERE run_id = ANY(${}::text[])"""
# One replica at a time: another's search waits a moment, and then finds what is indexed here.
_ALONE = "SELECT pg_advisory_xact_lock(hashtext('parley.search'))"
# The rows are locked, so that no append and no erasure comes between reading a run and writing its words.
_QUEUED_THERE = f"""
SELECT queue.place, runs.run_id, runs.created_at, runs.principal > '', runs.body
FROM run_search_queue AS queue JOIN runs USING (run_id) ORDER BY queue.place LIMIT {BATCH}
FOR NO KEY UPDATE SKIP LOCKED"""
_NOTE_THERE = """
INSERT INTO run_search (run_id, created_at, words)
SELECT row.run_id, row.created_at, string_to_array(row.words, ' ')
FROM unnest($1::text[], $2::bigint[], $3::text[]) AS row (run_id, created_at, words)
ON CONFLICT (run_id) DO UPDATE SET words = excluded.words"""


async def index_queued_there(pool: Pool) -> int:
    """Index a batch of the queue, beside other replicas; return the number of its entries."""
    try:
        async with pool.acquire() as connection, connection.transaction():
            await connection.execute(_ALONE)
            rows = await connection.fetch(_QUEUED_THERE)
            if runs := {row[1]: (row[2], _decode_run(row[4])) for row in rows if row[3]}:
                words = [" ".join(row_words(run)) for _, run in runs.values()]
                await connection.execute(_NOTE_THERE, list(runs), [at for at, _ in runs.values()], words)
            if rows:
                places = [row[0] for row in rows]
                await connection.execute("DELETE FROM run_search_queue WHERE place = ANY($1::bigint[])", places)
            return len(rows)
    except TROUBLE as error:
        raise StoreUnavailable("The database does not answer.") from error


def postgres_search(listing: Listing) -> tuple[str, list[object]]:
    where, values = "words @> ?::text[]", list[object]([query_words(listing)])
    if listing.after is not None:
        where, values = f"{where} AND (created_at, run_id) < (?, ?)", [*values, *listing.after]
    order = "ORDER BY created_at DESC, run_id DESC"
    ids = f"SELECT run_id FROM run_search WHERE {where} {order} LIMIT ?"
    return f"SELECT body FROM runs WHERE run_id IN ({ids}) AND principal > '' {order}", [*values, listing.limit]

"""Search for runs by the words of their first message and of their error.

Each run has one row with its words, in an index of words: FTS5 in SQLite, GIN in PostgreSQL. The row also holds a token
for its principal and one for its agent, so that a search within them reads only what it returns. The row is written
with the run, and removed with it by a trigger, also when an older process erases the run.

In SQLite, the rowid is made of the creation time and the arrival of the run. FTS5 reads matches in the order of their
rowids, so that the newest are found without sorting, however many there are.
"""

# Why: docs/decisions/console.md#search-the-first-message-and-the-error-only

import hashlib
import re
import sqlite3
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

from parley.runs.rules.state import Run
from parley.runs.store import Append, Listing

MAX_WORDS = 48
MAX_WORD = 40
_ARRIVALS = 20
"""Bits of a rowid for the arrival: enough to tell runs of the same millisecond apart."""
_LAST_MOMENT = (1 << (63 - _ARRIVALS)) - 1
_WITHOUT_SPACES = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
"""Kana and ideographs, which are written without spaces: each is a word of its own."""
_WORD = re.compile(f"[{_WITHOUT_SPACES}]|(?:(?![{_WITHOUT_SPACES}])[^\\W_])+")
_ERRORS = frozenset(("failed", "rejected"))


def words_in(text: str) -> list[str]:
    """Return the words of a text as they are indexed: lower case, without accents, each once."""
    bare = text.lower()
    if not text.isascii():
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


def _token(kind: str, name: str) -> str:
    return kind + hashlib.sha256(name.encode(errors="replace")).hexdigest()[:24]


def searchable(appends: Iterable[Append]) -> list[Run]:
    """Return the runs whose words these appends change: the first input, and an error at the end."""
    return [append.run for append in appends if _changes_words(append)]


def _changes_words(append: Append) -> bool:
    types = [event.type for event in append.events]
    inputs = types.count("input")
    return 0 < append.run.inputs <= inputs or types[-1] in _ERRORS


# SQLite

_ROWID = f"(SELECT (created_at << {_ARRIVALS}) | (arrival & {(1 << _ARRIVALS) - 1}) FROM runs WHERE run_id = ?)"
_FORGET = f"DELETE FROM run_search WHERE rowid = {_ROWID}"
_NOTE = f"INSERT INTO run_search (rowid, run_id, words) SELECT {_ROWID}, ?, ?"


def write_search(connection: sqlite3.Connection, appends: Sequence[Append]) -> None:
    """Index the runs of some appends, in their transaction."""
    runs = searchable(appends)
    known = {append.run.id for append in appends if append.expected > 0}
    if old := [(run.id,) for run in runs if run.id in known]:
        connection.executemany(_FORGET, old)
    if runs:
        connection.executemany(_NOTE, [(run.id, run.id, " ".join(row_words(run))) for run in runs])


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

POSTGRES_NOTE = """
  INSERT INTO run_search (run_id, created_at, words)
  SELECT row.run_id, row.created_at, string_to_array(row.words, ' ')
  FROM unnest(${}::text[], ${}::bigint[], ${}::text[]) AS row (run_id, created_at, words)
  JOIN written USING (run_id)
  ON CONFLICT (run_id) DO UPDATE SET words = excluded.words"""


def postgres_rows(appends: Sequence[Append]) -> tuple[list[Any], list[Any], list[Any]]:
    """Return the columns of the rows to write: ids, times and words."""
    runs = searchable(appends)
    return [run.id for run in runs], [run.created_at for run in runs], [" ".join(row_words(run)) for run in runs]


def postgres_search(listing: Listing) -> tuple[str, list[object]]:
    where, values = "words @> ?::text[]", list[object]([query_words(listing)])
    if listing.after is not None:
        where, values = f"{where} AND (created_at, run_id) < (?, ?)", [*values, *listing.after]
    order = "ORDER BY created_at DESC, run_id DESC"
    ids = f"SELECT run_id FROM run_search WHERE {where} {order} LIMIT ?"
    return f"SELECT body FROM runs WHERE run_id IN ({ids}) AND principal > '' {order}", [*values, listing.limit]

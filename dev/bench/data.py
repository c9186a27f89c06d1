"""Data of the benchmarks: scratch directories on the measured disk, and long logs made once."""

import asyncio
import hashlib
import os
import shutil
import tempfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvloop

from parley.clock import now_ms
from parley.ids import RunId, new_conversation_id, new_run_id
from parley.runs.rules.commands import Start
from parley.runs.rules.content import Message, text_part
from parley.runs.rules.events import (
    GENESIS,
    Completed,
    Event,
    InputReceived,
    Payload,
    Progress,
    Started,
    Submitted,
    sealed,
)
from parley.runs.rules.state import evolve
from parley.runs.store import Append
from parley.stores.schema import migrations
from parley.stores.sqlite import FILE, SqliteStore
from parley.testing.logs import put

BUILD = Path(__file__).parents[2] / "build"
DATA = BUILD / "bench-data"

AGENT = "bench"
PRINCIPAL = "local"
QUESTION = (text_part("What did the third quarter bring?"),)
REPORT = Progress((text_part("Reading page 12 of 40 of the quarterly report."),))
ANSWER = Completed((text_part("More than the second."),))

CHUNK = 1000
AT_ONCE = 256


@dataclass(frozen=True)
class Log:
    """A filled data directory, and its longest run."""

    directory: Path
    run: RunId


def start() -> Start:
    return Start(AGENT, new_conversation_id(), PRINCIPAL, Message("m", QUESTION))


@contextmanager
def scratch() -> Generator[Path, None, None]:
    """A scratch directory. Not under /tmp, which may be in memory: all commits must reach the same disk."""
    DATA.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=DATA, prefix="scratch-") as directory:
        yield Path(directory)


@contextmanager
def copied(log: Log) -> Generator[Path, None, None]:
    """A writable copy, flushed to disk before the measurement starts."""
    with scratch() as directory:
        copy = Path(shutil.copy(log.directory / FILE, directory / FILE))
        with copy.open("rb") as file:
            os.fsync(file.fileno())
        yield directory


def filled(name: str, lengths: Sequence[int]) -> Log:
    """A log with runs of these lengths, made on the first call and kept for later ones."""
    directory = DATA / f"{name}-{_recipe(lengths)}"
    stamp = directory / "longest.txt"
    if not stamp.exists():
        for outdated in DATA.glob(f"{name}-*"):
            shutil.rmtree(outdated)
        ids = [new_run_id() for _ in lengths]
        uvloop.run(_fill(directory, list(zip(ids, lengths, strict=True))))
        # Written last, so that a log whose filling was interrupted is made anew.
        stamp.write_text(ids[lengths.index(max(lengths))])
    return Log(directory, RunId(stamp.read_text()))


def _recipe(lengths: Sequence[int]) -> str:
    """Cache key: another schema or other lengths need another log."""
    recipe = f"{list(lengths)} {[one.sql for one in migrations('sqlite')]}"
    return hashlib.sha256(recipe.encode()).hexdigest()[:12]


async def _fill(directory: Path, runs: list[tuple[RunId, int]]) -> None:
    store = SqliteStore(directory)
    for first in range(0, len(runs), AT_ONCE):
        await asyncio.gather(*(_write(store, run, length) for run, length in runs[first : first + AT_ONCE]))
    await store.close()


async def _write(store: SqliteStore, run: RunId, length: int) -> None:
    for append in _appends(run, length):
        await put(store, append)


def _appends(run_id: RunId, length: int) -> Iterator[Append]:
    """A whole run in few appends: one by one, a million would take minutes."""
    run, previous, expected, at = None, GENESIS, 0, now_ms()
    events: list[Event] = []
    for seq, payload in enumerate(_history(length), 1):
        event = sealed(run_id, seq, at, payload, previous)
        run, previous = evolve(run, run_id, seq, at, payload), event.hash
        events.append(event)
        if len(events) == CHUNK or seq == length:
            yield Append(run, expected, events, [])
            expected, events = seq, []


def begun() -> list[Payload]:
    """First events of every run in the benchmarks, written by the engine or not."""
    submitted = Submitted(AGENT, new_conversation_id(), PRINCIPAL)
    return [submitted, InputReceived(Message("m", QUESTION)), Started(1, AGENT)]


def _history(length: int) -> Iterator[Payload]:
    yield from begun()
    for _ in range(length - 4):
        yield REPORT
    yield ANSWER

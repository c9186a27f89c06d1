"""Durable appends through the engine, beside a bare loop that writes the same rows."""

import asyncio
import sqlite3
from collections.abc import Callable
from functools import cache, partial
from itertools import chain
from pathlib import Path
from time import perf_counter

import msgspec
import uvloop

from dev.bench.data import AGENT, ANSWER, REPORT, begun, copied, filled, scratch, start
from dev.bench.rows import Case
from parley import Text, Turn, agent
from parley.app import open_exchange
from parley.clock import now_ms
from parley.ids import new_run_id
from parley.runs.log import Commands
from parley.runs.rules.commands import Begin, Emit
from parley.runs.rules.state import ELSEWHERE
from parley.settings import Settings, load
from parley.stores.schema import migrate_sqlite
from parley.stores.sqlite import FILE
from parley.stores.sqlite_file import connect
from parley.testing.logs import LogWriter

WARMUP_S = 0.3
WINDOW_S = 2.0
WRITERS = 32
RUN_LENGTH = 20
MARKED_LENGTH = 1000
"""Length of one run in the middle of the million events, used for reads."""

MILLION = [RUN_LENGTH] * 24_975 + [MARKED_LENGTH] + [RUN_LENGTH] * 24_975
TEN_THOUSAND = [RUN_LENGTH] * 500

Values = tuple[object, ...]
Write = Callable[[sqlite3.Connection, list[Values], list[Values]], int]


def cases() -> list[Case]:
    return [
        _rate_case(1),
        Case(
            "appends.32",
            "appends/s",
            partial(engine_rate, 32),
            "bare loop",
            partial(bare_rate, 32),
            "min",
            0.8,
        ),
        _rate_case(256),
        Case("append.10k-log", "µs", partial(cost_after, "10k", TEN_THOUSAND), "empty log", cost_in_empty),
        Case(
            "append.long-log",
            "µs",
            partial(cost_after, "million", MILLION),
            "empty log",
            cost_in_empty,
            "max",
            1.3,
            note=lambda _: f"1 million events, {WRITERS} writers",
        ),
        Case("steps.32", "µs", step_cost, "appends of the engine", cost_in_empty, "max", 1.3),
    ]


def _rate_case(writers: int) -> Case:
    return Case(
        f"appends.{writers}", "appends/s", partial(engine_rate, writers), "bare loop", partial(bare_rate, writers)
    )


class Window:
    """Counts what is done after the warm-up and before the end."""

    def __init__(self) -> None:
        self._opens = perf_counter() + WARMUP_S
        self._closes = self._opens + WINDOW_S
        self._count = 0

    def is_open(self, done: int) -> bool:
        """Count one operation; True if there is time for more."""
        now = perf_counter()
        if self._opens < now <= self._closes:
            self._count += done
        return now <= self._closes

    @property
    def rate(self) -> float:
        return self._count / WINDOW_S


def engine_rate(writers: int, directory: Path | None = None) -> float:
    if directory is not None:
        return uvloop.run(_engine_rate(directory, writers))
    with scratch() as empty:
        return uvloop.run(_engine_rate(empty, writers))


async def _engine_rate(directory: Path, writers: int) -> float:
    return await rate_of(load(data_dir=directory, store="sqlite"), writers)


async def rate_of(settings: Settings, writers: int) -> float:
    """Appends per second with this many concurrent writers."""
    async with open_exchange(settings, []) as exchange:
        window = Window()
        await asyncio.gather(*(_emit_in(window, exchange.commands) for _ in range(writers)))
    return window.rate


async def _emit_in(window: Window, commands: Commands) -> None:
    """One writer: a run of its own, and each append awaited before the next."""
    run_id = new_run_id()
    await commands.execute(run_id, start())
    # As if worked on elsewhere: what no replica that lives is seen to work on would be taken up.
    run = (await commands.execute(run_id, Begin(ELSEWHERE + AGENT))).run
    emit = Emit(run.epoch, REPORT)
    while window.is_open(1):
        await commands.execute(run_id, emit)
    await commands.execute(run_id, Emit(run.epoch, ANSWER))


def cost_after(name: str, lengths: list[int]) -> float:
    """Microseconds for an append of a new run to a log that is already that long."""
    with copied(filled(name, lengths)) as directory:
        return 1e6 / engine_rate(WRITERS, directory)


def cost_in_empty() -> float:
    return 1e6 / engine_rate(WRITERS)


def step_cost() -> float:
    """Microseconds for a durable step that does nothing, in as many runs at once as there are writers of appends."""
    with scratch() as directory:
        return 1e6 / uvloop.run(_step_rate(load(data_dir=directory, store="sqlite")))


async def _step_rate(settings: Settings) -> float:
    @agent(AGENT)
    async def stepper(turn: Turn):
        while window.is_open(1):
            await turn.step("nothing", _nothing)
        done.release()
        yield Text("done")

    async with open_exchange(settings, [stepper]) as exchange:
        window, done = Window(), asyncio.Semaphore(0)
        await asyncio.gather(*(exchange.begin(new_run_id(), start()) for _ in range(WRITERS)))
        for _ in range(WRITERS):
            await done.acquire()
    return window.rate


async def _nothing() -> None:
    """Does the work of a step that costs nothing itself."""


def bare_rate(writers: int) -> float:
    return _bare_rate(writers, fastest(writers))


@cache
def fastest(writers: int) -> Write:
    """The faster way to hand many rows to SQLite, found in a trial of its own: the better of two figures in every
    round would flatter the bare loop with the machine's noise."""
    return max((write_one_by_one, write_together), key=partial(_bare_rate, writers))


def _bare_rate(writers: int, write: Write) -> float:
    with scratch() as directory:
        connection = connect(directory / FILE)
        migrate_sqlite(connection)
        runs = [_insert_run(connection) for _ in range(writers)]
        window, done = Window(), 0
        while window.is_open(done):
            updates, inserts = _rows(runs)
            connection.execute("BEGIN IMMEDIATE")
            done = write(connection, updates, inserts)
            connection.execute("COMMIT")
            if done != writers:
                raise RuntimeError(f"{done} of {writers} rows were updated")
        connection.close()
    return window.rate


class BareRun:
    """Values of the engine's own making, so that they have the engine's sizes; only the version changes."""

    __slots__ = ("body", "event", "run", "version")

    def __init__(self) -> None:
        writer = LogWriter(at=now_ms())
        self.run = writer.append(*begun(), REPORT).run
        self.event = writer.events[-1]
        self.body = msgspec.msgpack.encode(self.run)
        self.version = 1


def _insert_run(connection: sqlite3.Connection) -> BareRun:
    bare = BareRun()
    run, hash_ = bare.run, bare.event.hash
    connection.execute(
        "INSERT INTO runs (run_id, version, hash, arrival, agent, principal, conversation, state, owner, ended,"
        " created_at, updated_at, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (run.id, bare.version, hash_, 1, run.agent, run.principal, run.conversation, run.state.value, run.owner, False,
         run.created_at, run.updated_at, bare.body),
    )  # fmt: skip
    return bare


def _rows(runs: list[BareRun]) -> tuple[list[Values], list[Values]]:
    updates: list[Values] = []
    inserts: list[Values] = []
    for bare in runs:
        run, event, version = bare.run, bare.event, bare.version
        bare.version = new = version + 1
        updates.append((new, event.hash, "working", run.owner, False, event.at, bare.body, run.id, version))
        inserts.append((run.id, new, event.at, event.type, event.body, event.hash))
    return updates, inserts


_UPDATE = """
UPDATE runs SET version = ?, hash = ?, state = ?, owner = ?, ended = ?, updated_at = ?, body = ?
WHERE run_id = ? AND version = ?"""
_INSERT = "INSERT INTO events (run_id, seq, at, type, payload, hash) VALUES (?, ?, ?, ?, ?, ?)"
_UPDATE_MANY = """
UPDATE runs SET version = new.column1, hash = new.column2, state = new.column3, owner = new.column4,
  ended = new.column5, updated_at = new.column6, body = new.column7
FROM (VALUES {rows}) AS new WHERE runs.run_id = new.column8 AND runs.version = new.column9"""
_INSERT_MANY = "INSERT INTO events (run_id, seq, at, type, payload, hash) VALUES {rows}"


def write_one_by_one(connection: sqlite3.Connection, updates: list[Values], inserts: list[Values]) -> int:
    done = connection.executemany(_UPDATE, updates).rowcount
    connection.executemany(_INSERT, inserts)
    return done


def write_together(connection: sqlite3.Connection, updates: list[Values], inserts: list[Values]) -> int:
    done = connection.execute(_many(_UPDATE_MANY, updates), list(chain.from_iterable(updates))).rowcount
    connection.execute(_many(_INSERT_MANY, inserts), list(chain.from_iterable(inserts)))
    return done


def _many(sql: str, rows: list[Values]) -> str:
    row = f"({', '.join('?' * len(rows[0]))})"
    return sql.format(rows=", ".join([row] * len(rows)))

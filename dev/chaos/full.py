"""One server on SQLite under load whose file may not grow for a while (full disk), and then may again."""

import asyncio
import random
import sqlite3
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, closing
from pathlib import Path

from dev.chaos.agents import LIMIT
from dev.chaos.checking import Violation, check
from dev.chaos.clients import Crowd, message
from dev.chaos.history import History
from dev.chaos.outcome import Outcome
from dev.chaos.resting import REST_S, read, rested
from dev.chaos.seats import Server
from dev.chaos.wire import envelope
from dev.chaos.world import HERE, Logs, Place, defined
from parley.ids import new_id
from parley.stores.sqlite import FILE, SqliteReader
from parley.testing.processes import until
from parley.testing.receivers import receiving

CLIENTS = 20
BEFORE_S, FULL_S, AFTER_S = 4.0, 6.0, 3.0
SPARE = 10
"""Free pages at the start of the fault."""


class Small(Place):
    def __init__(self, folder: Path, history: History, server: Server) -> None:
        super().__init__(folder, history, server.url)
        self.server = server

    @property
    def file(self) -> Path:
        return self.server.folder / "data" / FILE

    async def store(self) -> Logs:
        return SqliteReader(self.file)

    def fill(self) -> None:
        """Fill the database until almost nothing fits."""
        with closing(sqlite3.connect(self.file)) as connection:
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
        self.server.control.set(pages=pages + SPARE)


async def run(folder: Path, seed: int, say: Callable[[str], None]) -> Outcome:
    history, began = History(), time.monotonic()
    async with AsyncExitStack() as stack:
        env = {"CHAOS_MARKS": str(folder), "PARLEY_RELOAD": "false"}
        agents = [HERE / "agents.py", defined(folder / "agents")]
        server = Server("sqlite", folder / "sqlite", history, agents, env)
        await server.start()
        stack.push_async_callback(server.stop)
        world = Small(folder, history, server)
        world.receivers = [await stack.enter_async_context(receiving())]
        crowd = Crowd(world, CLIENTS, random.Random(seed))
        await crowd.begin()
        wrong = await _filled(world, crowd, say)
        began = time.monotonic()
        if not await rested(world, crowd):
            say("not everything has come to its end")
        rest_s = time.monotonic() - began
        logs = await read(world, crowd)
        await crowd.close()
    seconds = BEFORE_S + FULL_S + AFTER_S
    return Outcome(seed, seconds, history, logs, [*wrong, *check(history, logs, LIMIT)], rest_s)


async def _filled(world: Small, crowd: Crowd, say: Callable[[str], None]) -> list[Violation]:
    stop, pid = asyncio.Event(), world.server.pid
    working = asyncio.ensure_future(crowd.work(stop))
    await asyncio.sleep(BEFORE_S)
    say("the file is full")
    world.fill()
    await asyncio.sleep(FULL_S)
    wrong = [] if await _reads(crowd) else [Violation("full", "GetTask", "what is there cannot be read")]
    if not any(refusal.code in ("store_unavailable", "database_error") for refusal in world.history.refusals):
        wrong.append(Violation("full", "SendMessage", "nothing was refused"))
    say("the file may grow again")
    world.server.control.set(pages=0)
    world.history.faults["full file"] += 1
    try:
        await until(lambda: _writes(crowd), REST_S)
    except TimeoutError:
        wrong.append(Violation("full", "SendMessage", "it does not write again"))
    await asyncio.sleep(AFTER_S)
    stop.set()
    crowd.give_up_at(time.monotonic() + REST_S)
    await working
    if world.server.pid != pid:
        wrong.append(Violation("full", "server", "it did not survive"))
    return wrong


async def _reads(crowd: Crowd) -> bool:
    path, task = crowd.tasks[0]
    answer = await crowd.clients[0].line.once("GetTask", "POST", path, envelope("GetTask", {"id": task}))
    return answer is not None and answer.good


async def _writes(crowd: Crowd) -> bool:
    """True if a write succeeds at the first attempt."""
    params = {"message": message("again"), "configuration": {"returnImmediately": True}}
    line = crowd.clients[0].line
    answer = await line.once("SendMessage", "POST", "/agents/steps", envelope("SendMessage", params), new_id())
    return answer is not None and answer.good

"""Pages of the console: what the server needs for one must not depend on how many runs there are."""

import asyncio
import hashlib
import statistics
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

import uvloop
from msgspec import Struct
from starlette.types import ASGIApp

from dev.bench.data import AT_ONCE, DATA
from dev.bench.rows import Case
from parley import Text, Turn, agent
from parley.app import open_exchange, open_faces
from parley.clock import iso, now_ms
from parley.ids import RunId, new_conversation_id
from parley.runs.rules.content import Message, text_part
from parley.runs.rules.events import (
    Completed,
    Failed,
    InputReceived,
    InputRequired,
    Payload,
    Progress,
    Started,
    Submitted,
)
from parley.runs.rules.usage import Usage
from parley.runs.store import Listing
from parley.settings import Settings
from parley.stores.schema import migrations
from parley.stores.sqlite import SqliteStore
from parley.testing.logs import LogWriter, put
from parley.testing.waiting import until

FEW, MANY = 10_000, 1_000_000
ASKS = 120
UNFINISHED = b"<usage-progress>"
"""In a report whose runs are still being added up, once after the start. The reports after that are measured."""
PAGES = {
    "inbox": "/inbox",
    "runs": "/runs",
    "runs-failed": "/runs?state=failed",
    "runs-waiting": "/runs?state=waiting",
    "runs-of-one": "/runs?agent=rare",
    "runs-of-one-done": "/runs?agent=rare&state=completed",
    "runs-of-all-done": "/runs?agent=common&state=completed",
    "runs-by-id": "/runs?id={beginning}",
    "runs-by-word": "/runs?q=quarter",
    "runs-by-rare-word": "/runs?q=quarter+flamingo",
    "runs-by-word-failed": "/runs?q=report&state=failed",
    "runs-of-a-day": "/runs?since={day}&until={day}",
    "runs-of-a-principal": "/runs?principal=local&agent=rare",
    "compare": "/runs/{run}/compare?other={run}",
    "usage": "/usage",
    "run": "/runs/{run}",
    "raw": "/runs/{run}/raw",
    "agents": "/agents",
    "agent": "/agents/common",
    "agents-by-word": "/agents?q=now+and+then",
    "agent-rare": "/agents/rare",
    "conversations": "/conversations",
    "conversation": "/conversations/{conversation}",
    "orchestrations": "/orchestrations",
    "organisation": "/organisation",
    "topology": "/topology",
    "operations": "/operations",
    "dead-letters": "/operations/dead",
    "keys": "/operations/keys",
    "settings": "/operations/settings",
    "api": "/docs",
}


@agent("common")
async def common(turn: Turn):
    """Did most of it."""
    yield Text(turn.text)


@agent("rare")
async def rare(turn: Turn):
    """Was asked now and then."""
    yield Text(turn.text)


class Filled(Struct, frozen=True):
    directory: Path
    run: RunId
    conversation: str


def cases() -> list[Case]:
    return [
        Case(
            f"console.{name}", "ms", partial(page_cost, MANY, path), f"with {FEW} runs",
            partial(page_cost, FEW, path), "max", 1.5,
        )
        for name, path in PAGES.items()
    ]  # fmt: skip


def page_cost(count: int, path: str) -> float:
    """Milliseconds of processor time, of all threads, for one page without a network: the first quartile, as a page
    takes a millisecond or two and collecting garbage takes as much."""
    return uvloop.run(_page_cost(_filled(count), path))


async def _page_cost(filled: Filled, path: str) -> float:
    async with _serving(filled.directory) as app:
        day, beginning = iso(now_ms())[:10], filled.run[:-1]
        asked = path.format(run=filled.run, conversation=filled.conversation, beginning=beginning, day=day)
        await until(lambda: _is_whole(app, f"/console{asked}"), 120)
        times = [(await _asked(app, f"/console{asked}"))[0] for _ in range(ASKS)]
    return statistics.quantiles(times[ASKS // 6 :], n=4)[0] * 1e3


@asynccontextmanager
async def _serving(directory: Path) -> AsyncGenerator[ASGIApp, None]:
    settings = Settings(data_dir=directory)
    async with (
        open_exchange(settings, [common, rare]) as exchange,
        open_faces(exchange, settings, "http://127.0.0.1:8200") as app,
    ):
        yield app


async def _is_whole(app: ASGIApp, address: str) -> bool:
    return UNFINISHED not in (await _asked(app, address))[1]


async def _asked(app: ASGIApp, address: str) -> tuple[float, bytes]:
    """Return the processor time of a page in seconds, and the page."""
    path, _, query = address.partition("?")
    statuses: list[int] = []
    pieces: list[bytes] = []
    scope: dict[str, Any] = {
        "type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": query.encode(),
        "headers": [(b"host", b"127.0.0.1:8200")], "scheme": "http", "root_path": "", "http_version": "1.1",
    }  # fmt: skip

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])
        else:
            pieces.append(message.get("body", b""))

    started = process_time()
    await app(scope, receive, send)
    took = process_time() - started
    assert statuses == [200], (address, statuses)
    return took, b"".join(pieces)


def _filled(count: int) -> Filled:
    recipe = hashlib.sha256(repr([one.sql for one in migrations("sqlite")]).encode()).hexdigest()[:12]
    directory = DATA / f"console-{count}-{recipe}"
    stamp = directory / "run.txt"
    if not stamp.exists():
        stamp.write_text(" ".join(uvloop.run(_fill(directory, count))))
    run, conversation = stamp.read_text().split()
    return Filled(directory, RunId(run), conversation)


async def _fill(directory: Path, count: int) -> tuple[str, str]:
    """Return a run in the middle, and its conversation."""
    store = SqliteStore(directory)
    end, middle = now_ms(), ("", "")
    for first in range(0, count, AT_ONCE):
        numbers = range(first, min(first + AT_ONCE, count))
        # A second between two runs: the same runs are within the last day, however many there are.
        logs = [LogWriter(at=end - (count - number) * 1000) for number in numbers]
        appends = [log.append(*_history(number, count)) for number, log in zip(numbers, logs, strict=True)]
        await asyncio.gather(*(put(store, append) for append in appends))
        if count // 2 in numbers:
            middle = appends[0].run.id, appends[0].run.conversation
        await store.search(Listing(text="quarter", limit=1))  # which indexes the words of all these
    await store.close()
    return middle


def _history(number: int, count: int) -> Iterator[Payload]:
    """However many there are, twenty wait, twenty have failed and twenty are of the agent that is rarely asked."""
    kind = number * 100 // count if number % (count // 100) == 0 else 100
    yield Submitted("rare" if 40 <= kind < 60 else "common", new_conversation_id(), "local")
    word = " The flamingo asks." if 60 <= kind < 80 else ""
    yield InputReceived(Message("m", (text_part(f"What did the third quarter bring?{word}"),)))
    yield Started(1, "r")
    yield Progress((), usage=Usage("gpt-4.1", 1200, 300, cost=0.0048))
    if kind < 20:
        yield InputRequired((text_part("Of which year?"),))
    elif kind < 40:
        yield Failed("agent_failed", "The report cannot be read.")
    else:
        yield Completed((text_part("More than the second."),))

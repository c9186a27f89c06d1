"""Fair queues: an agent with a limit serves principals in turn, on every replica and every store."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from parley import Text, Turn, agent
from parley.app import open_exchange
from parley.ids import new_id
from parley.runs.requests import Send
from parley.runs.rules.access import Principal
from parley.runs.rules.content import Message, text_part
from parley.runs.service import Exchange
from parley.settings import Settings

ORDER: list[str] = []


@agent("narrow", max_concurrent=1)
async def narrow(turn: Turn):
    """Works on one task at a time, once it is let go."""
    await GO.wait()
    ORDER.append(turn.principal.name)
    yield Text("done")


GO = asyncio.Event()


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
async def exchanges(request: pytest.FixtureRequest, tmp_path: Path, database: str) -> AsyncIterator[list[Exchange]]:
    global GO
    GO = asyncio.Event()
    ORDER.clear()
    settings = Settings.model_validate({"data_dir": tmp_path, "store": request.param, "postgres_url": database})
    async with open_exchange(settings, [narrow]) as one:
        if request.param != "postgres":
            yield [one]
            return
        async with open_exchange(settings, [narrow]) as other:
            yield [one, other]


async def send(exchange: Exchange, name: str) -> str:
    principal, message = Principal("user", name), Message(new_id(), (text_part("go"),))
    return (await exchange.send(Send("narrow", principal, message))).run.id


async def test_no_principal_starves_the_others(exchanges: list[Exchange]) -> None:
    waiting = [await send(exchanges[0], "ann") for _ in range(8)]
    waiting += [await send(exchanges[-1], name) for name in ("bob", "bob", "cyn")]
    GO.set()
    for run_id in waiting:
        run = await exchanges[0].visible(run_id, Principal("admin", scopes=frozenset(("admin",))))
        with await exchanges[0].follow(run.id, 0) as follower:
            while not any(event.type == "completed" for event in await follower.next()):
                pass
    assert len(ORDER) == 11
    assert ORDER[:5] in (["ann", "bob", "cyn", "ann", "bob"], ["ann", "cyn", "bob", "ann", "bob"])
    assert ORDER[5:] == ["ann"] * 6

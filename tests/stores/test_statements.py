"""The page about scaling lists every statement that is asked again and again, with the key that it finds its rows by:
what is really asked during a day in small is compared with it."""

import asyncio
import re
from pathlib import Path
from typing import Any

import httpx2
import pytest

from parley import NeedInput, Text, Turn, agent
from parley.stores import postgres_pool as pools
from parley.testing.processes import until
from parley.testing.servers import serving
from tests.faces.actions.agents import writer
from tests.permissions.house import SECRET, signed

PAGE = Path(__file__).parents[2] / "docs" / "scaling.md"
FRAMES = ("BEGIN;", "COMMIT;", "ROLLBACK;")
"""Statements that frame others (transactions)."""
OF_THE_DRIVER = re.compile(r"typeinfo_tree|set_config\('jit'|pg_advisory_xact_lock\(hashtext\('parley.migrations")


@agent("echo")
async def echo(turn: Turn):
    """Answers, or asks first."""
    yield NeedInput("Really?") if turn.text == "ask" else Text("hello")


@agent("capped", max_concurrent=1)
async def capped(turn: Turn):
    """Does one thing at a time."""
    yield Text("hello")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, None]:
    """Every statement of every connection of the server, in the order of the first time."""
    seen: dict[str, None] = {}
    original, single = pools._asyncpg.create_pool, pools._asyncpg.connect

    def heard(record: Any) -> None:
        seen.setdefault(" ".join(record.query.split()))

    async def listened(connection: Any) -> None:
        connection.add_query_logger(heard)

    async def connected(*given: Any, **more: Any) -> Any:
        connection = await single(*given, **more)
        await listened(connection)
        return connection

    monkeypatch.setattr(pools._asyncpg, "create_pool", lambda *a, **k: original(*a, **k, init=listened))
    monkeypatch.setattr(pools._asyncpg, "connect", connected)
    return seen


def listed() -> tuple[list[str], list[str]]:
    """The statements of the page, up to `…` where they go on: of every request, and of now and then."""
    always, found, seldom = PAGE.read_text().partition("\nNow and then")
    assert found
    rows = [re.findall(r"^\| `([A-Z][^`]*)` \|", part, re.MULTILINE) for part in (always, seldom)]
    assert all(len(part) > 10 for part in rows)
    return rows[0], rows[1]


def fits(row: str, statement: str) -> bool:
    pieces = [re.escape(piece.strip()) for piece in row.split("…")]
    return re.fullmatch(".*".join(pieces), statement) is not None


async def day(http: httpx2.AsyncClient) -> None:
    """Usual work of clients."""

    async def send(slug: str, text: str = "hello", how: str = "send", **headers: str) -> httpx2.Response:
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]}
        reply = await http.post(f"/agents/{slug}/message:{how}", json={"message": message}, headers=headers)
        assert reply.status_code == 200, reply.text
        return reply

    for headers in ({}, {"Idempotency-Key": "a"}, {"Idempotency-Key": "a"}):
        await send("echo", **headers)
    await asyncio.gather(*(send("capped") for _ in range(3)))
    await send("echo", how="stream")
    task = (await send("echo", "ask")).json()["task"]["id"]
    answer = {"messageId": "n", "role": "ROLE_USER", "parts": [{"text": "yes"}], "taskId": task}
    await http.post("/agents/echo/message:send", json={"message": answer})
    waiting = (await send("echo", "ask")).json()["task"]["id"]
    await documents(http)
    signed_ = signed(user_id=42)
    assert (await http.get("/internal/v1/health", headers=signed_)).status_code == 200
    for method, path in (("GET", f"/tasks/{task}"), ("GET", "/tasks"), ("POST", f"/tasks/{waiting}:cancel")):
        reply = await http.request(method, f"/agents/echo{path}", json={} if method == "POST" else None)
        assert reply.status_code == 200, reply.text


async def documents(http: httpx2.AsyncClient) -> None:
    """A plan that is made, changed and read."""
    begun = (await http.post("/api/agent2agent/conversations", json={"agentSlug": "writer"})).json()["conversationId"]
    found = await http.post("/api/agent2agent/conversations", json={"agentSlug": "writer", "id": begun})
    assert found.status_code == 200, found.text
    for action in (
        {"action": "create", "message": "Hi"},
        {"action": "edit", "editedContent": "# Hi"},
        {"action": "read"},
    ):
        body = {"mode": "plan", "agentSlug": "writer", **action}
        reply = await http.post(f"/api/agent2agent/conversations/{begun}/tasks", json=body)
        assert reply.status_code == 200, reply.text


@pytest.mark.slow
async def test_every_statement_of_a_day_is_on_the_page(tmp_path: Path, database: str, asked: dict[str, None]) -> None:
    settings: dict[str, Any] = {"store": "postgres", "postgres_url": database, "max_unfinished": 100, "lease_s": 1.5}
    settings["runtime_keys"] = {"v1": SECRET}
    async with (
        serving(tmp_path, [echo, capped, writer], **settings) as server,
        httpx2.AsyncClient(base_url=server.url, headers={"A2A-Version": "1.0"}) as http,
    ):
        made = (await http.post("/admin/keys", json={"name": "ann"})).json()["token"]
        http.headers["Authorization"] = f"Bearer {made}"
        asked.clear()
        await day(http)
        # What is done now and then is part of the day.
        await until(lambda: any(one.startswith("UPDATE replicas SET alive_until") for one in asked))
    statements = [one for one in asked if one not in FRAMES and not OF_THE_DRIVER.search(one)]
    always, seldom = listed()
    missing = [one for one in statements if not any(fits(row, one) for row in (*always, *seldom))]
    assert not missing, "Add to the tables in docs/scaling.md, with the key that finds the rows:\n" + "\n".join(missing)
    unasked = [row for row in always if not any(fits(row, one) for one in statements)]
    assert not unasked, f"docs/scaling.md lists what nobody asks: {unasked}"

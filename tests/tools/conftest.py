"""An exchange, records and a GitHub, on every kind of store; and asks as the contract shows them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from parley import NeedInput, Text, Turn, agent
from parley.app import open_exchange, open_records
from parley.ids import RunId
from parley.records import Records
from parley.runs.requests import Opening
from parley.runs.rules.access import Principal
from parley.runs.rules.events import Event
from parley.runs.rules.state import Run
from parley.runs.service import Exchange
from parley.runs.streams import read_all
from parley.security.netguard import LOOPBACK, Guard, Outbound
from parley.settings import Settings
from parley.testing.databases import fresh_database
from parley.tools.github import Coding, GitHub, fixed_token
from parley.tools.service import ToolAsk, ToolOutcome, ToolService
from tests.tools.github import TOKEN, GitHubServer, github
from tests.tools.rules.test_packs import MANIFEST

USER, OTHER = Principal("user", "42"), Principal("user", "7")
POLICY: dict[str, Any] = {
    "authorization_id": "auth_abc",
    "authorization_mode": "delegated_budget",
    "budget": {"max_total_sats": 5000},
}


@agent("keeper")
async def keeper(turn: Turn):
    """Works when told to, until it is canceled; else asks for more."""
    if turn.text == "work":
        yield Text("working")
        await asyncio.Event().wait()
    yield NeedInput("More?")


class Clock:
    now = 1_771_500_000_000

    def __call__(self) -> int:
        return self.now

    def pass_s(self, seconds: float) -> None:
        self.now += int(seconds * 1000)


class World:
    """`tools` is one process's; `another` is that of another process on the same store."""

    def __init__(self, settings: Settings, hub: GitHubServer, stack: AsyncExitStack) -> None:
        self.settings = settings
        self.hub = hub
        self.clock = Clock()
        self._stack = stack
        self._numbers = iter(range(1, 10_000))

    async def open(self) -> "World":
        self.exchange = await self._stack.enter_async_context(open_exchange(self.settings, [keeper]))
        self.records = await self._stack.enter_async_context(open_records(self.settings))
        self.tools = self.another()
        return self

    def another(self, **options: Any) -> ToolService:
        return self.tools_on(self.exchange, self.records, **options)

    def tools_on(self, exchange: Exchange, records: Records, **options: Any) -> ToolService:
        outbound = Outbound(Guard(LOOPBACK))
        coding = Coding(GitHub(outbound, fixed_token(TOKEN), self.hub.url))
        tools = ToolService(exchange, records, [coding], **{"clock": self.clock, "look_s": 0.01, **options})
        self._stack.push_async_callback(outbound.close)
        self._stack.push_async_callback(tools.close)
        return tools

    def ask(self, operation: str = "get_issue", **changes: Any) -> ToolAsk:
        """One that is allowed; `changes` are of the request, or of the ask where it has such a member."""
        request: dict[str, Any] = {
            "integration_id": "github.primary", "operation": operation, "repository": "octo/hello", "issue_number": 7,
            "pull_number": 8, "tool_call_id": f"call_{next(self._numbers)}",
        }  # fmt: skip
        if operation == "add_issue_comment":
            request |= {"body": "Thank you.", "write_approved": True}
        known = set(ToolAsk.__struct_fields__)
        fields = {name: value for name, value in changes.items() if name in known}
        request |= {name: value for name, value in changes.items() if name not in known}
        base: dict[str, Any] = {"principal": USER, "tool_pack": "coding.v1", "manifest": MANIFEST, "policy": POLICY}
        return ToolAsk(**{**base, "request": request, **fields})

    async def run(self, principal: Principal = USER) -> Run:
        return (await self.exchange.open(Opening("keeper", principal, "thread_abc"))).run

    async def log(self, run: str) -> list[Event]:
        return await read_all(self.exchange.store, RunId(run))

    async def entries(self, run: str) -> list[Any]:
        """Tool events of the log."""
        return [event.payload for event in await self.log(run) if event.type in ("tool_call", "tool_result")]


@pytest.fixture
async def hub() -> AsyncIterator[GitHubServer]:
    async with github() as server:
        yield server


async def settings_for(kind: str, request: pytest.FixtureRequest, directory: Path) -> Settings:
    values: dict[str, Any] = {"data_dir": directory / "data", "store": kind}
    if kind == "postgres":
        values["postgres_url"] = await fresh_database(request.getfixturevalue("postgres"))
    return Settings.model_validate(values)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def world(request: pytest.FixtureRequest, tmp_path: Path, hub: GitHubServer) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        yield await World(await settings_for(request.param, request, tmp_path), hub, stack).open()


@pytest.fixture
async def small(tmp_path: Path, hub: GitHubServer) -> AsyncIterator[World]:
    """In memory only, for what no store makes a difference to."""
    async with AsyncExitStack() as stack:
        yield await World(Settings(store="memory", data_dir=tmp_path), hub, stack).open()


def summary(outcome: ToolOutcome) -> tuple[Any, Any, Any]:
    return outcome.data["state"], outcome.data["decision"], outcome.data["reason_code"]

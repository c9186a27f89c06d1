"""Agents that are added while a server runs."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from parley import Text, Turn, agent
from parley.app import open_exchange, open_records
from parley.client import Client
from parley.definitions.added import Added
from parley.errors import DefinitionForbidden, DefinitionInvalid, NameTaken, NotFound, OutboundRefused
from parley.records import Record
from parley.security.netguard import LOOPBACK, Guard
from parley.settings import Settings
from parley.testing.databases import fresh_database, give_back
from parley.testing.servers import serving

EDGE = "slug: helper\nname: Helper\ndriver: edge\n"


@agent("echo")
async def echo(turn: Turn):
    """Says what you said."""
    yield Text(turn.text)


@pytest.fixture(params=["sqlite", "postgres"])
async def settings(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Settings]:
    if request.param == "sqlite":
        yield Settings(data_dir=tmp_path)
        return
    server = request.getfixturevalue("postgres")
    url = await fresh_database(server)
    yield Settings.model_validate({"data_dir": tmp_path, "store": "postgres", "postgres_url": url})
    await give_back(server, url)


async def test_what_is_added_is_served_by_every_replica_and_after_a_restart(settings: Settings) -> None:
    async with open_exchange(settings, [echo]) as exchange, open_records(settings) as records:
        one, other = (Added(exchange, records, guard=None) for _ in range(2))
        assert (await one.add(EDGE)).name == "Helper"
        assert list(exchange.agents) == ["echo", "helper"]
        await other.tick()
        assert "helper" in other
        exchange.replace([echo])
        assert "helper" in exchange.agents, "definitions that are read again leave it alone"
        with pytest.raises(NameTaken):
            await other.add(EDGE)
        with pytest.raises(NameTaken):
            await one.add("driver: edge", "echo")
        await other.remove("helper")
        await one.tick()
        assert list(exchange.agents) == ["echo"]
        with pytest.raises(NotFound):
            await one.remove("helper")
        assert (await one.add("driver: edge", "later")).slug == "later"
    async with open_exchange(settings, [echo]) as exchange, open_records(settings) as records:
        again = Added(exchange, records, guard=None)
        await again.tick()
        assert "later" in exchange.agents


async def test_a_definition_that_is_wrong_says_where(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    async with open_exchange(settings, [echo]) as exchange, open_records(settings) as records:
        added = Added(exchange, records, guard=None)
        with pytest.raises(DefinitionInvalid, match="definition:3: drivr"):
            await added.add("slug: x\ndriver: edge\ndrivr: y\n")
        for wrong in ("", "[", "slug: x\ndriver: nothing", "driver: edge", f"slug: x\nname: {'y' * 300_000}"):
            with pytest.raises(DefinitionInvalid):
                await added.add(wrong)
        assert list(exchange.agents) == ["echo"]


async def test_from_afar_nobody_can_name_programs_files_or_secrets(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    async with open_exchange(settings, [echo]) as exchange, open_records(settings) as records:
        added = Added(exchange, records, guard=Guard())
        for wrong in (
            "driver: command\ncommand: {run: [cat]}",
            "driver: llm\nmodel: offline",
            "driver: function\nfunction: {call: 'os:getcwd'}",
            "driver: remote\nremote: {url: 'http://x.example', token_from: PATH}",
            "driver: edge\nmcp: [{name: t, run: [cat]}]",
        ):
            with pytest.raises((DefinitionForbidden, DefinitionInvalid)) as refused:
                await added.add(wrong, "x")
            assert refused.value.code == "definition_forbidden", wrong
        await added.add("driver: remote\nremote: {url: 'http://x.example'}", "x")
        assert "x" in exchange.agents


NEAR = "slug: near\ndriver: remote\nremote: {{url: '{url}', patience_s: 0.1}}\n"


async def test_from_afar_nobody_can_name_an_address_that_is_not_public(tmp_path: Path) -> None:
    async with (
        serving(tmp_path / "far", [echo]) as far,
        serving(tmp_path / "here", [echo]) as here,
        open_records(Settings(data_dir=tmp_path / "here")) as records,
    ):
        text = NEAR.format(url=far.agent("echo"))
        added = Added(here.exchange, records, guard=Guard())
        with pytest.raises(OutboundRefused):
            await added.add(text)
        assert "near" not in here.exchange.agents
        with pytest.raises(DefinitionInvalid, match="JSONRPC"):
            await added.add("driver: remote\nremote: {url: 'http://x.example', bindings: [GRPC]}", "x")
        # One that was added before it was checked is not called either.
        await records.add(Record("agent", "", "near", text.encode(), 1))
        await added.tick()
        async with Client(here.agent("near")) as client:
            task = (await client.send("hello"))["task"]
        assert task["status"]["state"] == "TASK_STATE_FAILED"
        assert "is not a public address" in task["status"]["message"]["parts"][0]["text"]
        await added.close()


async def test_from_afar_an_address_that_is_allowed_can_be_named(tmp_path: Path) -> None:
    async with (
        serving(tmp_path / "far", [echo]) as far,
        serving(tmp_path / "here", [echo]) as here,
        open_records(Settings(data_dir=tmp_path / "here")) as records,
    ):
        added = Added(here.exchange, records, guard=Guard(LOOPBACK))
        await added.add(NEAR.format(url=far.agent("echo")))
        async with Client(here.agent("near")) as client:
            task = (await client.send("hello"))["task"]
        assert task["status"]["state"] == "TASK_STATE_COMPLETED"
        await added.close()

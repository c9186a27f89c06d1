"""Definitions that change under a running server."""

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from parley import Text, Turn, agent
from parley.client import Client
from parley.definitions.loader import Sources
from parley.definitions.watcher import Definitions, following
from parley.errors import ConfigurationError
from parley.telemetry import attach
from parley.testing.processes import ServerProcess, until
from parley.testing.servers import Server, serving

CODE = "async def {name}(turn):\n    return {answer!r}\n"


def define(folder: Path, slug: str, name: str, call: str = "code.py:answer") -> None:
    (folder / f"{slug}.yaml").write_text(f"name: {name}\nfunction: {{call: '{call}'}}\n")


@agent("demo")
async def demo(turn: Turn):
    yield Text("demo")


class Told:
    """Reports about agents, with a way to wait for the next one."""

    def __init__(self) -> None:
        self.all: list[tuple[str, dict[str, Any]]] = []

    def hear(self, name: str, fields: dict[str, Any]) -> None:
        if name.startswith("agents."):
            self.all.append((name, fields))

    async def next(self) -> tuple[str, dict[str, Any]]:
        await until(lambda: bool(self.all))
        return self.all.pop(0)


@pytest.fixture
def told() -> Iterator[Told]:
    told = Told()
    detach = attach(told.hear)
    yield told
    detach()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "agents"
    folder.mkdir()
    (folder / "code.py").write_text(CODE.format(name="answer", answer="first"))
    define(folder, "bot", "One")
    modules = set(sys.modules)
    yield folder
    for name in set(sys.modules) - modules:
        del sys.modules[name]


@pytest.fixture
async def server(folder: Path, tmp_path: Path) -> AsyncIterator[Server]:
    definitions = Definitions(Sources((str(folder),), tmp_path / "parley.toml"), [demo])
    async with (
        serving(tmp_path / "data", definitions.drivers, store="memory") as server,
        following(definitions, server.exchange),
    ):
        yield server


async def say(server: Server, slug: str = "bot") -> str:
    async with Client(server.agent(slug)) as client:
        task = (await client.send("hi"))["task"]
    return task["artifacts"][0]["parts"][0]["text"]


async def test_an_edit_is_in_force_without_a_restart(server: Server, folder: Path, told: Told) -> None:
    define(folder, "bot", "Two")
    assert await told.next() == ("agents.reloaded", {"added": [], "replaced": ["bot"], "removed": []})
    assert server.exchange.agent("bot").name == "Two"
    (folder / "code.py").write_text(CODE.format(name="answer", answer="second"))
    assert (await told.next())[1]["replaced"] == ["bot"]
    assert await say(server) == "second"


async def test_an_agent_comes_with_its_file_and_goes_with_it(server: Server, folder: Path, told: Told) -> None:
    define(folder, "more", "More")
    assert (await told.next())[1]["added"] == ["more"]
    assert await say(server, "more") == "first"
    (folder / "more.yaml").unlink()
    assert (await told.next())[1]["removed"] == ["more"]
    assert list(server.exchange.agents) == ["demo", "bot"]


async def test_a_fault_is_told_and_changes_nothing(server: Server, folder: Path, told: Told) -> None:
    define(folder, "other", "Other")
    assert (await told.next())[0] == "agents.reloaded"
    (folder / "bot.yaml").write_text("name: Two\nlimits: {max_concurrent: two}\nfunction: {call: 'code.py:answer'}\n")
    name, fields = await told.next()
    assert name == "agents.refused"
    assert fields["message"] == f"{folder}/bot.yaml:2: limits.max_concurrent: expected int, got str"
    assert (fields["line"], fields["field"]) == (2, "limits.max_concurrent")
    (folder / "other.yaml").write_text("")
    assert (await told.next())[1]["message"] == f"{folder}/other.yaml:1: the file is empty"
    assert server.exchange.agent("bot").name == "One"
    assert await say(server, "other") == "first"
    define(folder, "bot", "Three")
    define(folder, "other", "Other")
    await until(lambda: server.exchange.agent("bot").name == "Three")


async def test_code_that_cannot_be_imported_leaves_the_old_in_force(server: Server, folder: Path, told: Told) -> None:
    (folder / "code.py").write_text("def answer(\n")
    name, fields = await told.next()
    assert (name, fields["line"]) == ("agents.refused", 2)
    assert "code.py:1: '(' was never closed" in fields["message"]
    assert await say(server) == "first"
    (folder / "code.py").write_text(CODE.format(name="answer", answer="mended"))
    assert (await told.next())[0] == "agents.reloaded"
    assert await say(server) == "mended"
    assert len([name for name in sys.modules if name.startswith("code__")]) == 1


async def test_a_file_that_is_put_away_and_written_anew_does_not_take_its_agent_along(
    server: Server, folder: Path, told: Told
) -> None:
    (folder / "bot.yaml").unlink()
    await asyncio.sleep(0.15)
    define(folder, "bot", "Two")
    assert (await told.next())[1] == {"added": [], "replaced": ["bot"], "removed": []}


async def test_a_file_may_be_replaced_by_another(server: Server, folder: Path, told: Told) -> None:
    for name in ("Two", "Three"):
        define(folder.parent, "new", name)
        os.replace(folder.parent / "new.yaml", folder / "bot.yaml")
        assert (await told.next())[1]["replaced"] == ["bot"]
        assert server.exchange.agent("bot").name == name


async def test_a_folder_that_goes_and_comes_is_followed(server: Server, folder: Path, told: Told) -> None:
    shutil.move(folder, folder.parent / "away")
    assert (await told.next())[0] == "agents.refused"
    assert await say(server) == "first"
    shutil.move(folder.parent / "away", folder)
    await until(lambda: folder.is_dir())
    define(folder, "bot", "Two")
    await until(lambda: server.exchange.agent("bot").name == "Two")


async def test_a_definition_takes_the_place_of_a_demo_agent(server: Server, folder: Path, told: Told) -> None:
    define(folder, "demo", "Mine")
    assert (await told.next())[1]["replaced"] == ["demo"]
    assert await say(server, "demo") == "first"
    (folder / "demo.yaml").unlink()
    assert (await told.next())[1]["replaced"] == ["demo"]
    assert await say(server, "demo") == "demo"


async def test_a_broken_file_does_not_hold_up_the_others(server: Server, folder: Path, told: Told) -> None:
    (folder / "bot.yaml").write_text("")
    define(folder, "other", "Other")
    assert {(await told.next())[0], (await told.next())[0]} == {"agents.refused", "agents.reloaded"}
    assert await say(server, "other") == "first"
    assert server.exchange.agent("bot").name == "One"
    define(folder, "other", "Changed")
    await until(lambda: server.exchange.agent("other").name == "Changed")
    assert server.exchange.agent("bot").name == "One"


async def test_a_broken_table_keeps_the_agents_of_the_other_tables(folder: Path, tmp_path: Path) -> None:
    tables = tmp_path / "parley.toml"
    good = f'[[agent]]\nslug = "{{}}"\nname = "{{}}"\nfunction = {{{{call = "{folder}/code.py:answer"}}}}\n'
    tables.write_text(good.format("one", "One") + good.format("two", "Two"))
    definitions = Definitions(Sources((), tables))
    async with serving(tmp_path / "data", definitions.drivers, store="memory") as server:
        tables.write_text(good.format("one", "Changed") + '[[agent]]\nslug = "two"\nname = 2\n')
        await definitions.refresh(server.exchange)
        assert {slug: one.name for slug, one in server.exchange.agents.items()} == {"one": "Changed", "two": "Two"}
        assert {problem.serving for problem in definitions.problems()} == {("one", "two")}


def test_the_other_files_are_served_though_one_is_broken_at_the_start(folder: Path, told: Told) -> None:
    (folder / "late.yaml").write_text("name: [broken")
    definitions = Definitions(Sources((str(folder),)))
    assert [driver.agent.slug for driver in definitions.drivers] == ["bot"]
    assert [(one.file, one.serving) for one in definitions.problems()] == [(str(folder / "late.yaml"), ())]
    assert [name for name, _ in told.all] == ["agents.refused"]


def test_what_is_wrong_at_the_start_is_raised_when_nothing_else_can_be_served(folder: Path) -> None:
    (folder / "bot.yaml").write_text("")
    with pytest.raises(ConfigurationError, match="the file is empty"):
        Definitions(Sources((str(folder),)))


@pytest.mark.slow
async def test_over_the_wire(folder: Path, tmp_path: Path) -> None:
    running = await ServerProcess.start([folder], tmp_path / "data")
    async with httpx2.AsyncClient() as http:

        async def card() -> httpx2.Response:
            return await http.get(f"{running.url}/agents/bot/.well-known/agent-card.json")

        async def named(name: str) -> bool:
            return (await card()).json().get("name") == name

        async def gone() -> bool:
            return (await card()).status_code == 404

        assert await named("One")
        define(folder, "bot", "Two")
        await until(lambda: named("Two"))
        (folder / "bot.yaml").write_text("name: [broken\n")
        define(folder, "late", "Late")
        await running.said("agents.refused")
        assert await named("Two")
        agents = (await http.get(f"{running.url}/console/agents")).text
        assert "Its last valid version still serves bot." in agents
        assert f"{folder}/bot.yaml:" in agents
        await until(lambda: any("late" in line for line in running.said_all))
        define(folder, "bot", "Three")
        await until(lambda: named("Three"))
        (folder / "bot.yaml").unlink()
        await until(gone)
    assert await running.stop() == 0


async def test_a_folder_that_is_made_later_is_served(tmp_path: Path, told: Told) -> None:
    folder = tmp_path / "agents"
    definitions = Definitions(Sources((), tmp_path / "parley.toml", folder), [demo])
    async with (
        serving(tmp_path / "data", definitions.drivers, store="memory") as server,
        following(definitions, server.exchange),
    ):
        folder.mkdir()
        (folder / "code.py").write_text(CODE.format(name="answer", answer="first"))
        define(folder, "bot", "One")
        assert (await told.next())[1]["added"] == ["bot"]
        assert await say(server) == "first"

"""The definitions in docs/drivers.md are complete, and do what the page says."""

import re
from pathlib import Path

import pytest

from parley.client import Client
from parley.definitions.agents import KINDS
from parley.definitions.loader import LoadedDefinitions, Sources
from parley.drivers.command import _Line, _Made
from parley.testing.servers import serving

PAGE = (Path(__file__).parent.parent.parent / "docs" / "drivers.md").read_text()


@pytest.fixture
def reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LoadedDefinitions:
    monkeypatch.chdir(tmp_path)
    Path("agents").mkdir()
    for name, text in re.findall(r"```\w+\n# (agents/\S+)\n(.*?)```", PAGE, re.DOTALL):
        Path(name).write_text(text)
    made = LoadedDefinitions(Sources(("agents",)))
    made.check()
    return made


def test_they_are_read(reading: LoadedDefinitions) -> None:
    kinds = {one.driver.agent.slug: one.kind for one in reading.defined}
    assert kinds == {"greeter": "command", "helpdesk": "llm", "local": "llm", "studio": "edge", "wordcount": "command"}


async def test_the_programs_work(reading: LoadedDefinitions, tmp_path: Path) -> None:
    async with serving(tmp_path / "data", reading.drivers) as server:
        async with Client(server.agent("wordcount")) as client:
            counted = (await client.send("one two\n"))["task"]
        async with Client(server.agent("greeter")) as client:
            asked = (await client.send("hi"))["task"]
            greeted = (await client.send("Ann", task=asked["id"]))["task"]
    assert counted["artifacts"][0]["parts"][0]["text"].split() == ["1", "2", "8"]
    assert asked["status"]["message"]["parts"][0]["text"] == "What is your name?"
    assert greeted["artifacts"][0]["parts"][0]["text"] == "Hello Ann!"


def test_every_option_is_on_the_page(reading: LoadedDefinitions) -> None:
    for kind in ("llm", "command"):
        for option in KINDS[kind].options.__struct_fields__:
            assert f"  {option}: " in PAGE, f"{kind}.{option}"


def test_every_word_of_the_vocabulary_is_on_the_page() -> None:
    for word in _Line.__struct_fields__:
        assert f'{{"{word}": ' in PAGE or f"`{word}`" in PAGE, word
    for field in _Made.__struct_fields__:
        assert f"`{field}`" in PAGE, field

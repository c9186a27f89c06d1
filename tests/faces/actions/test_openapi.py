"""The document of the actions: times, formats and metadata have types, and answers keep to them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from parley import Text, Turn, agent
from parley.documents.rules import FORMATS
from parley.testing.servers import serving
from tests.faces.actions.agents import writer
from tests.faces.actions.desk import Desk, Json

TIMES = ("At", "timestamp")


@agent("strange")
async def strange(turn: Turn):
    """Describes its answers in its own way."""
    yield Text("# A text", {"model": 7, "usage": "much", "attachments": "none", "code": [1], "mood": "fine"})


def members(document: Json) -> Iterator[tuple[str, str, Json]]:
    for name, schema in document["components"]["schemas"].items():
        for member, one in schema.get("properties", {}).items():
            yield name, member, one


def meant(schema: Json) -> Json:
    """The schema of a member that may be null."""
    several = [one for one in schema.get("anyOf", [schema]) if one != {"type": "null"}]
    return several[0]


@pytest.fixture
async def desk(tmp_path: Path) -> Any:
    async with (
        serving(tmp_path, (writer, strange), store="memory") as server,
        httpx2.AsyncClient(base_url=server.url, timeout=20) as http,
    ):
        yield await Desk.open(http)


async def test_every_time_is_a_date_time(desk: Desk) -> None:
    times = {(name, member): meant(one) for name, member, one in members(desk.document) if member.endswith(TIMES)}
    assert len(times) > 20
    assert {key: one for key, one in times.items() if one.get("format") != "date-time"} == {}


async def test_all_metadata_names_its_members(desk: Desk) -> None:
    schemas = desk.document["components"]["schemas"]
    found = [(name, meant(one)) for name, member, one in members(desk.document) if member == "metadata"]
    bare = [
        name for name, one in found if not schemas.get(one.get("$ref", "").rsplit("/", 1)[-1], {}).get("properties")
    ]
    assert (len(found) > 8, bare) == (True, [])


def enum_of(schema: dict[str, Any]) -> list[str] | None:
    """The values of a member, also of one that may be null."""
    return next((one["enum"] for one in [schema, *schema.get("anyOf", ())] if "enum" in one), None)


async def test_every_format_is_one_of_a_list(desk: Desk) -> None:
    formats = {name: enum_of(one) for name, member, one in members(desk.document) if member == "format"}
    assert (
        set(formats["DocumentVersion"]) == set(formats["VersionSummary"]) == {*FORMATS["plan"], *FORMATS["deliverable"]}
    )
    assert set(formats["ConversationExported"]) == {"json", "markdown", "pdf", "html"}
    assert None not in formats.values()


async def test_an_agent_cannot_give_a_member_of_the_metadata_another_type(desk: Desk) -> None:
    conversation = await desk.begin("strange")
    await desk.ask(conversation, "plan", "create", agent="strange", message="Write")
    read = (await desk.ask(conversation, "converse", "read_conversation")).result
    assert read["messages"][1]["metadata"] == {"mood": "fine"}

"""Formats of versions over the wire: declared by callers and agents, or detected."""

from collections.abc import AsyncIterator

import httpx2
import pytest
import pytest_asyncio

from parley import Done, Text, Turn, agent
from parley.runs.rules.content import Part
from parley.testing.servers import serving
from tests.faces.actions.desk import Answer, Desk

pytestmark = pytest.mark.asyncio(loop_scope="module")

MODES = pytest.mark.parametrize("mode", ["plan", "build"])
PAGE = "<!DOCTYPE html>\n<html><body># Tides</body></html>"


@agent("copyist")
async def copyist(turn: Turn):
    """Answers with what it was asked."""
    yield Text(turn.message.parts[-1].text or "")


@agent("typed")
async def typed(turn: Turn):
    """Says of which type its answer is."""
    yield Done(Part(text="<p>Tides</p>", media_type="text/html; charset=utf-8"))


@agent("data")
async def data(turn: Turn):
    """Answers with a value instead of text."""
    yield Done({"tides": 2})


@agent("listener")
async def listener(turn: Turn):
    """Repeats its task."""
    yield Text(turn.message.parts[0].text or "")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def desk(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Desk]:
    async with (
        serving(tmp_path_factory.mktemp("formats"), [copyist, typed, data, listener]) as server,
        httpx2.AsyncClient(base_url=server.url, timeout=20) as http,
    ):
        yield await Desk.open(http)


async def copied(desk: Desk, mode: str, conversation: str, text: str, **more: object) -> Answer:
    made = await desk.ask(conversation, mode, "create", "copyist", message=text, **more)
    assert made.status == 200, made.body
    return made


def format_of(made: Answer) -> str:
    return made.result["version"]["format"]


@MODES
@pytest.mark.parametrize(
    ("text", "format_"),
    [
        ('{"tides": [1, 2]}', "json"),
        ("  [1, 2]\n", "json"),
        (PAGE, "html"),
        ("# Tides\n\nThey come and go.", "markdown"),
        ("Tides come and go.\n\nTwice a day.", "text"),
        ("```text\n# Tides\n```", "text"),
        ("```html\n<p>Tides</p>\n```", "html"),
        ("```json\n{\n```", "json"),
    ],
)
async def test_the_format_of_an_answer_is_detected(desk: Desk, mode: str, text: str, format_: str) -> None:
    made = await copied(desk, mode, await desk.begin("copyist"), text)
    assert format_of(made) == format_
    assert "```" not in made.result["version"]["content"]


@MODES
async def test_a_caller_declares_the_format_and_the_agent_is_told(desk: Desk, mode: str) -> None:
    conversation = await desk.begin("copyist")
    assert format_of(await copied(desk, mode, conversation, "Just words.", format="markdown")) == "markdown"
    assert format_of(await copied(desk, mode, conversation, "# No heading", format="text")) == "text"
    assert format_of(await copied(desk, mode, conversation, "a: 1", format="yaml")) == "yaml"
    for format_, words in (("html", "in html"), ("text", "in plain text"), (None, "in Markdown unless")):
        told = await desk.ask(conversation, mode, "create", "listener", message="x", format=format_)
        assert f"alone, {words}" in told.result["version"]["content"]
    refused = await desk.ask(conversation, mode, "create", "copyist", message="x", format="docx")
    assert refused.refusal == (400, "MISSING_REQUIRED_PARAM")
    assert refused.body["error"]["details"] == {"field": "format"}


@MODES
async def test_an_agent_declares_the_format_with_the_type_of_its_answer(desk: Desk, mode: str) -> None:
    conversation = await desk.begin("typed")
    made = await desk.ask(conversation, mode, "create", "typed", message="Tides")
    assert (format_of(made), made.result["version"]["content"]) == ("html", "<p>Tides</p>")
    made = await desk.ask(conversation, mode, "create", "data", message="Tides")
    assert (format_of(made), made.result["version"]["content"]) == ("json", '{"tides":2}')


@MODES
async def test_an_edit_keeps_the_format_and_plain_text_may_become_markdown(desk: Desk, mode: str) -> None:
    conversation = await desk.begin("copyist")
    for text, edits in (
        ("Just words.", [("Other words.", "text"), ("# Heading", "markdown"), ("Words.", "markdown")]),
        ('{"a": 1}', [("# Heading", "json")]),
        (PAGE, [("Words.", "html")]),
    ):
        await copied(desk, mode, conversation, text, forceNew=True)
        for content, format_ in edits:
            assert format_of(await desk.ask(conversation, mode, "edit", "copyist", editedContent=content)) == format_


async def test_what_is_made_again_or_merged_has_a_format_of_its_own(desk: Desk) -> None:
    conversation = await desk.begin("copyist")
    page = (await copied(desk, "build", conversation, PAGE)).task
    words = (await copied(desk, "build", conversation, "Just words.")).task
    code = (await copied(desk, "build", conversation, "```python\nx = 1\n```")).task
    declared = (await copied(desk, "build", conversation, "# No heading", format="text")).task

    async def merged(prompt: str, *versions: str) -> str:
        return format_of(
            await desk.ask(
                conversation, "build", "merge_versions", "copyist", versionIds=versions, mergePrompt=prompt
            )
        )  # fmt: skip

    async def again(version: str) -> str:
        return format_of(await desk.ask(conversation, "build", "rerun", "copyist", sourceVersionId=version))

    assert [await again(one) for one in (page, words, code, declared)] == ["html", "text", "python", "text"]
    assert await merged(PAGE, page, words) == "html"
    assert await merged("# One", page, words) == "markdown"
    twin = (await copied(desk, "build", conversation, "```python\ny = 1\n```")).task
    assert await merged("x = y", code, twin) == "python"
    value = (await copied(desk, "build", conversation, "[1]")).task
    assert await merged("[1, 2]", value, words) == "json"

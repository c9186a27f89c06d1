"""Metadata of a version about its creation, with models that speak their vendors' protocols."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from parley.definitions.loader import LoadedDefinitions, Sources
from parley.testing.servers import serving
from tests.faces.actions.desk import Answer, Desk, Json
from tests.models.vendors import KEY, WIRES, Anthropic, OpenAi, Reply, Vendor, Wire, answer, vendor

AGENT = """
slug: chat
model: {model}
{rest}
llm:
  base_url: {url}
  key_from: TEST_KEY
  retries: 0
  models: ["*"]
  {more}
"""
REPORTED = {OpenAi: "gpt-test-0613", Anthropic: "claude-test-1"}
CUT_BY = {OpenAi: "length", Anthropic: "max_tokens"}


class Author:
    """One conversation with an agent whose model is asked over a vendor's wire."""

    def __init__(self, desk: Desk, conversation: str, far: Vendor) -> None:
        self.desk, self.conversation, self.far = desk, conversation, far

    async def ask(self, mode: str, action: str, **params: Any) -> Answer:
        made = await self.desk.ask(self.conversation, mode, action, "chat", **params)
        assert made.status == 200, made.body
        return made

    async def about(self, mode: str, action: str, **params: Any) -> Json:
        return (await self.ask(mode, action, **params)).result["version"]["metadata"]


@asynccontextmanager
async def writing(folder: Path, wire: Wire, far: Vendor, more: str = "", rest: str = "") -> AsyncIterator[Author]:
    definition = folder / "chat.yaml"
    definition.write_text(AGENT.format(model=wire.name, url=far.url, more=more, rest=rest))
    reading = LoadedDefinitions(Sources((str(definition),)))
    reading.check()
    async with (
        serving(folder / "data", reading.drivers) as server,
        httpx2.AsyncClient(base_url=server.url, timeout=20) as http,
    ):
        desk = await Desk.open(http)
        yield Author(desk, await desk.begin("chat"), far)


@pytest.fixture(params=WIRES, ids=lambda wire: wire.__name__)
def wire(request: pytest.FixtureRequest) -> Wire:
    return request.param


@pytest.fixture
async def far(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Vendor]:
    for name in [name for name in os.environ if name.startswith(("OPENAI_", "ANTHROPIC_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TEST_KEY", KEY)
    async with vendor() as made:
        yield made


async def test_every_version_of_a_model_names_it_and_the_tokens_that_it_took(
    tmp_path: Path, wire: Wire, far: Vendor
) -> None:
    far.replies = [answer(wire, "# Tides")]
    async with writing(tmp_path, wire, far) as author:
        first, second = [(await author.ask("build", "create", message="Tides")).task for _ in range(2)]
        again = await author.ask("build", "rerun")
        merged = await author.ask("build", "merge_versions", versionIds=[first, second], mergePrompt="Join")
        for made in (again, merged, *[await author.desk.task(id_) for id_ in (first, second)]):
            about = made.result["version"]["metadata"]
            assert (about["llmModel"], about["tokensUsed"]) == (REPORTED[wire], 18)
            assert (made.body["metadata"]["llmModel"], made.body["metadata"]["tokensUsed"]) == (REPORTED[wire], 18)
            assert "truncated" not in about


async def test_an_agent_that_replies_with_messages_names_its_model_too(tmp_path: Path, wire: Wire, far: Vendor) -> None:
    far.replies = [answer(wire, "# Tides")]
    async with writing(tmp_path, wire, far, rest="replies: message") as author:
        about = await author.about("plan", "create", message="Tides")
    assert (about["llmModel"], about["tokensUsed"]) == (REPORTED[wire], 18)


async def test_a_vendor_that_counts_nothing_is_counted_for_and_named_as_it_reports(tmp_path: Path, far: Vendor) -> None:
    uncounted = (*OpenAi.start(), OpenAi.word("# Tides"), OpenAi.chunk(finish="stop"), b"data: [DONE]\n\n")
    far.replies = [Reply(uncounted)]
    async with writing(tmp_path, OpenAi, far) as author:
        made = await author.ask("plan", "create", message="Tides")
    about = made.result["version"]["metadata"]
    assert (about["llmModel"], about["tokensEstimated"]) == ("gpt-test-0613", True)
    assert made.body["metadata"]["tokensUsed"] == about["tokensUsed"] > len("# Tides") / 4


async def test_an_answer_that_was_cut_is_marked(tmp_path: Path, wire: Wire, far: Vendor) -> None:
    cut = Reply((*wire.start(), wire.word("# Tides\n\nThey come and"), *wire.end(CUT_BY[wire])))
    far.replies = [answer(wire, "# Tides"), cut]
    async with writing(tmp_path, wire, far) as author:
        await author.about("build", "create", message="Tides")
        refined = await author.about("build", "create", message="More")
        rerun = await author.about("build", "rerun", rerunConfig={"maxTokens": 5})
        listed = (await author.ask("build", "list")).result["versions"]
    for about in (refined, rerun):
        assert (about["truncated"], about["finishReason"]) == (True, "length")
    assert [one["metadata"].get("truncated") for one in listed] == [True, True, None]


async def test_an_answer_that_a_filter_cut_is_marked(tmp_path: Path, far: Vendor) -> None:
    far.replies = [Reply((*OpenAi.start(), OpenAi.word("# Tides"), *OpenAi.end("content_filter")))]
    async with writing(tmp_path, OpenAi, far) as author:
        about = await author.about("plan", "create", message="Tides")
    assert (about["truncated"], about["finishReason"]) == (True, "content_filter")


async def test_a_version_says_on_which_it_was_based_and_how_its_model_was_asked(tmp_path: Path, far: Vendor) -> None:
    far.replies = [answer(OpenAi, "# Tides")]
    async with writing(tmp_path, OpenAi, far, more="temperature: 0.25") as author:
        begun = await author.ask("build", "create", message="Tides")
        refined = await author.ask("build", "create", message="More")
        anew = await author.ask("build", "create", message="Again", forceNew=True)
        edited = await author.ask("build", "edit", editedContent="By hand.")
        warm: Json = {"temperature": 0.75, "model": "gpt-other"}
        rerun = await author.ask("build", "rerun", sourceVersionId=begun.task, rerunConfig=warm)
        both = [refined.task, begun.task]
        merged = await author.ask("build", "merge_versions", versionIds=both, mergePrompt="Join", llmConfig=warm)
    made = {one: one.result["version"]["metadata"] for one in (begun, refined, anew, edited, rerun, merged)}
    assert [about.get("basedOn") for about in made.values()] == [
        None, begun.task, None, anew.task, begun.task, refined.task,
    ]  # fmt: skip
    assert [about.get("temperature") for about in made.values()] == [0.25, 0.25, 0.25, None, 0.75, 0.75]
    assert [one.body.get("temperature") for one in far.asked] == [0.25, 0.25, 0.25, 0.75, 0.75]
    assert far.asked[-1].body["model"] == "gpt-other"


async def test_a_temperature_that_the_vendor_does_not_take_is_not_recorded(tmp_path: Path, far: Vendor) -> None:
    far.replies = [answer(Anthropic, "# Tides")]
    async with writing(tmp_path, Anthropic, far) as author:
        await author.about("build", "create", message="Tides")
        about = await author.about("build", "rerun", rerunConfig={"temperature": 0.5})
    assert "temperature" not in far.asked[-1].body
    assert "temperature" not in about

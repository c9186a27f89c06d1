"""Language models as agents, over A2A: streams, memory, cancel, and what is kept and what is never seen."""

import asyncio
import json
import logging
import os
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from parley.client import Client, Json, message
from parley.definitions.loader import LoadedDefinitions, Sources
from parley.ids import RunId
from parley.runs.rules.state import State
from parley.runs.streams import read_all
from parley.telemetry import attach
from parley.testing.servers import Server, serving
from tests.models.vendors import CUT, HANG, KEY, WIRES, Reply, Vendor, Wire, answer, refusal, vendor

AGENT = """
slug: chat
model: {model}
llm:
  instructions: Be brief.
  base_url: {url}
  key_from: TEST_KEY
  retries: 0
  {more}
"""


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


class Chat:
    """One agent behind A2A, and everything that anybody could see of it."""

    def __init__(self, server: Server, client: Client, told: list[str]) -> None:
        self.server, self.client, self.told = server, client, told

    async def say(self, text: str, **more: Any) -> Json:
        return (await self.client.send(text, **more))["task"]

    async def log(self, task: Json) -> str:
        events = await read_all(self.server.exchange.store, RunId(task["id"]))
        return "\n".join((event.body or b"").decode() for event in events)


@asynccontextmanager
async def chatting(path: Path, model: str, far: Vendor, more: str = "", rest: str = "") -> AsyncIterator[Chat]:
    definition = path / "chat.yaml"
    definition.write_text(AGENT.format(model=model, url=far.url, more=more) + rest)
    reading = LoadedDefinitions(Sources((str(definition),)))
    reading.check()
    told: list[str] = []
    detach = attach(lambda name, fields: told.append(f"{name} {fields}"))
    try:
        async with serving(path / "data", reading.drivers) as server, Client(server.agent("chat")) as client:
            yield Chat(server, client, told)
    finally:
        detach()


@pytest.fixture
async def chat(tmp_path: Path, wire: Wire, far: Vendor) -> AsyncIterator[Chat]:
    async with chatting(tmp_path, wire.name, far) as made:
        yield made


def said(task: Json) -> str:
    return "".join(part.get("text", "") for made in task.get("artifacts", []) for part in made["parts"])


def state(task: Json) -> str:
    return task["status"]["state"].removeprefix("TASK_STATE_").lower()


def code(task: Json) -> str:
    return task["status"]["message"]["metadata"]["code"]


async def test_an_answer_is_streamed_and_the_log_knows_the_model_and_what_it_took(
    chat: Chat, wire: Wire, far: Vendor
) -> None:
    words = [step for word in ("Once ", "upon ", "a time") for step in (wire.word(word), 0.05)]
    far.replies = [Reply((*wire.start(), *words, *wire.end()))]
    frames = [frame async for frame in chat.client.stream("tell me")]
    pieces = [frame["artifactUpdate"] for frame in frames if "artifactUpdate" in frame]
    assert len(pieces) >= 3
    assert "".join(piece["artifact"]["parts"][0]["text"] for piece in pieces) == "Once upon a time"
    assert "model" in pieces[0]["artifact"]["metadata"]
    task = await chat.client.get(frames[0]["task"]["id"])
    assert state(task) == "completed"
    (response,) = task["artifacts"]
    assert response["metadata"]["model"] in ("gpt-test-0613", "claude-test-1")
    assert response["metadata"]["usage"] == {"inputTokens": 11, "outputTokens": 7}
    assert response["metadata"]["finish"] == "stop"
    assert '"outputTokens":7' in await chat.log(task)


async def test_the_model_remembers_the_conversation_and_nobody_elses(chat: Chat, wire: Wire, far: Vendor) -> None:
    far.replies = [answer(wire, "Hi Ann")]
    first = await chat.say("I am Ann")
    await chat.say("something else")
    await chat.say("Who am I?", context=first["contextId"])
    assert wire.said(far.asked[-1]) == [
        ("system", "Be brief."), ("user", "I am Ann"), ("assistant", "Hi Ann"), ("user", "Who am I?")
    ]  # fmt: skip


async def test_what_comes_meanwhile_is_answered_in_a_turn_of_its_own(chat: Chat, wire: Wire, far: Vendor) -> None:
    far.replies = [Reply((*wire.start(), wire.word("one"), 0.3, *wire.end())), answer(wire, "two")]
    first = asyncio.create_task(chat.say("first"))
    await far.began.wait()
    (run,) = await chat.server.exchange.store.runs_in(State.WORKING)
    await chat.client.call("SendMessage", {"message": message("second", task=run.id)})
    await first
    task = await chat.client.get(run.id)
    assert [made["artifactId"] for made in task["artifacts"]] == ["response-1", "response-2"]
    assert wire.said(far.asked[-1])[1:] == [("user", "first"), ("assistant", "one"), ("user", "second")]


async def test_only_so_much_is_remembered(tmp_path: Path, wire: Wire, far: Vendor) -> None:
    far.replies = [answer(wire, "ok")]
    async with chatting(tmp_path, wire.name, far, "history: 1") as chat:
        first = await chat.say("1")
        await chat.say("2", context=first["contextId"])
        await chat.say("3", context=first["contextId"])
    assert wire.said(far.asked[-1])[1:] == [("user", "2"), ("assistant", "ok"), ("user", "3")]


async def test_a_cancel_hangs_up_and_keeps_what_was_said(chat: Chat, wire: Wire, far: Vendor) -> None:
    far.replies = [Reply((*wire.start(), wire.word("half"), HANG))]
    task = ""
    async with aclosing(chat.client.stream("go")) as frames:
        async for frame in frames:
            task = frame.get("task", {}).get("id", task)
            if "artifactUpdate" in frame:
                break
    canceled = await chat.client.cancel(task)
    await asyncio.wait_for(far.hung_up.wait(), 2)
    assert (state(canceled), said(canceled)) == ("canceled", "half")
    assert "model" in canceled["artifacts"][0]["metadata"]


async def test_a_timeout_hangs_up_too(tmp_path: Path, wire: Wire, far: Vendor) -> None:
    far.replies = [Reply((*wire.start(), HANG))]
    async with chatting(tmp_path, wire.name, far, rest="limits: {timeout_s: 0.3}\n") as chat:
        task = await chat.say("go")
        await asyncio.wait_for(far.hung_up.wait(), 2)
    assert (state(task), code(task)) == ("failed", "timeout")


async def test_a_broken_answer_fails_honestly_and_is_kept(chat: Chat, wire: Wire, far: Vendor) -> None:
    far.replies = [Reply((*wire.start(), wire.word("half"), 0.05, CUT))]
    task = await chat.say("go")
    assert (state(task), code(task), said(task)) == ("failed", "model_interrupted", "half")
    assert task["artifacts"][0]["metadata"]["finish"] == "interrupted"
    assert len(far.asked) == 1
    assert any(line.startswith("model.failed") for line in chat.told)


async def test_an_answer_that_breaks_before_its_first_word_is_begun_anew_once(
    chat: Chat, wire: Wire, far: Vendor
) -> None:
    far.replies = [Reply((*wire.start(), CUT)), answer(wire, "whole")]
    task = await chat.say("go")
    assert (state(task), said(task)) == ("completed", "whole")
    far.replies = [Reply((*wire.start(), CUT))]
    task = await chat.say("go")
    assert (state(task), code(task), said(task)) == ("failed", "model_interrupted", "")
    assert len(far.asked) == 4


async def test_no_answer_at_all_is_a_failure(chat: Chat, wire: Wire, far: Vendor) -> None:
    far.replies = [Reply((*wire.start(), *wire.end("max_tokens")))]
    task = await chat.say("go")
    assert (state(task), code(task)) == ("failed", "model_error")
    assert task["artifacts"][0]["metadata"]["usage"]["outputTokens"] == 7


@pytest.mark.parametrize(
    ("status", "expected"),
    [(401, "model_not_set_up"), (400, "model_error"), (429, "model_unavailable"), (500, "model_unavailable"),
     (529, "model_unavailable")],
)  # fmt: skip
async def test_the_key_is_never_seen(
    chat: Chat, far: Vendor, status: int, expected: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    far.replies = [refusal(status)]
    task = await chat.say("go")
    assert (state(task), code(task)) == ("failed", expected)
    assert "Incorrect" not in json.dumps(task)
    assert "Incorrect" in "\n".join(chat.told)
    for place in (json.dumps(task), await chat.log(task), "\n".join(chat.told), caplog.text):
        assert KEY not in place


async def test_the_key_is_not_kept_when_all_is_well(
    chat: Chat, wire: Wire, far: Vendor, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    far.replies = [answer(wire, "fine")]
    task = await chat.say("go")
    for place in (json.dumps(task), await chat.log(task), "\n".join(chat.told), caplog.text):
        assert KEY not in place


async def test_a_large_image_reaches_the_model_and_a_sound_is_refused(chat: Chat, wire: Wire, far: Vendor) -> None:
    far.replies = [answer(wire, "a picture")]
    image = {"raw": "QUFB" * 20_000, "mediaType": "image/png"}
    wanted = {**message("look"), "parts": [{"text": "look"}, image]}
    await chat.client.call("SendMessage", {"message": wanted})
    assert image["raw"] in json.dumps(far.asked[0].body)
    nameless = {**message("x"), "parts": [{"raw": "QUFB"}]}
    task = (await chat.client.call("SendMessage", {"message": nameless}))["task"]
    assert (state(task), code(task)) == ("rejected", "content_not_supported")
    assert len(far.asked) == 1


async def test_a_blank_message_is_refused(chat: Chat, far: Vendor) -> None:
    task = await chat.say("  ")
    assert (state(task), code(task)) == ("rejected", "content_not_supported")
    assert far.asked == []


async def test_an_agent_that_replies_with_messages_says_what_it_took_too(
    tmp_path: Path, wire: Wire, far: Vendor
) -> None:
    far.replies = [answer(wire, "Hi ", "there")]
    async with chatting(tmp_path, wire.name, far, rest="replies: message\n") as chat:
        reply = (await chat.client.send("hello"))["message"]
    assert reply["parts"] == [{"text": "Hi there"}]
    assert reply["metadata"]["usage"] == {"inputTokens": 11, "outputTokens": 7}


async def test_the_offline_model_needs_nothing(tmp_path: Path, far: Vendor) -> None:
    async with chatting(tmp_path, "offline", far) as chat:
        task = await chat.say("hello")
        again = await chat.say("more", context=task["contextId"])
    assert said(task) == "This is the offline model, which only repeats. You said: hello"
    assert said(again).endswith("You said: more Before that came 2 messages.")
    assert task["artifacts"][0]["metadata"]["model"] == "offline"
    assert far.asked == []

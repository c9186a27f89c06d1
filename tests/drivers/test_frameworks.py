"""Agents of frameworks over A2A, with a model server that speaks OpenAI's wire."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from parley.client import Client, Json
from parley.execution.driver import Driver
from parley.runs.rules.content import text_of as text_of_parts
from parley.runs.rules.events import Progress
from parley.testing.servers import Server, serving
from tests.drivers.framework_agents import FLIGHTS, FRAMEWORKS, ran
from tests.models.vendors import HANG, KEY, OpenAi, Reply, Vendor, answer, calling, refusal, vendor

PICTURE = b"\x89PNG\r\n\x1a\n"
Make = Callable[..., Driver]


@pytest.fixture(params=list(FRAMEWORKS))
def make(request: pytest.FixtureRequest) -> Make:
    ran.clear()
    return FRAMEWORKS[request.param]


@asynccontextmanager
async def talking(folder: Path, make: Make, model: Vendor) -> AsyncIterator[tuple[Client, Server]]:
    async with serving(folder, [make(model.url)]) as server, Client(server.agent("helper")) as client:
        yield client, server


def text_of(task: Json) -> str:
    made = [one for one in task.get("artifacts", []) if one["name"] == "response"]
    return "".join(part.get("text", "") for one in made for part in one["parts"])


def state(task: Json) -> str:
    return task["status"]["state"].removeprefix("TASK_STATE_").lower()


def expected(task: Json) -> Any:
    """The part of a question that describes the expected answer."""
    return task["status"]["message"]["parts"][-1]["data"]


async def test_the_text_of_the_model_is_streamed(tmp_path: Path, make: Make) -> None:
    async with vendor() as model:
        begun = asyncio.Event()
        model.replies = [Reply((*OpenAi.start(), OpenAi.word("one "), begun, OpenAi.word("two"), *OpenAi.end()))]
        async with talking(tmp_path, make, model) as (client, _):
            pieces: list[str] = []
            async for event in client.stream("hello"):
                if "artifactUpdate" in event:
                    pieces += [part["text"] for part in event["artifactUpdate"]["artifact"]["parts"]]
                    begun.set()
    assert [piece for piece in pieces if piece] == ["one ", "two"]
    assert OpenAi.said(model.asked[0]) in (
        [("system", "Be brief."), ("user", "hello")],
        [("system", "Be brief."), ("user", [{"type": "text", "text": "hello"}])],
    )


async def test_tool_calls_and_usage_are_in_the_log(tmp_path: Path, make: Make) -> None:
    async with vendor() as model:
        model.replies = [
            calling(OpenAi, ("c1", "weather", '{"city": "Oslo"}'), words=("Looking.",)),
            answer(OpenAi, "It is sunny."),
        ]
        async with talking(tmp_path, make, model) as (client, server):
            task = (await client.send("weather?"))["task"]
            events = await server.exchange.store.read(task["id"], 0, 100)
    assert text_of(task) == "Looking.\n\nIt is sunny."
    assert OpenAi.results(model.asked[-1]) == [("c1", "Sunny in Oslo")]
    progress = [event.payload for event in events if isinstance(event.payload, Progress)]
    assert 'Calling weather {"city":"Oslo"}' in [text_of_parts(one.parts) for one in progress]
    used = [one.usage for one in progress if one.usage is not None]
    assert [(one.input_tokens, one.output_tokens) for one in used] == [(11, 7)] * 2
    # The OpenAI Agents SDK names the model that was asked for, the others the one that answered.
    assert {one.model for one in used} <= {"gpt-test", "gpt-test-0613"}
    assert task["metadata"]["usage"]["outputTokens"] == 14


@pytest.mark.parametrize(("decision", "outcome"), [("Approve", ["erase a.txt"]), ("Decline", [])])
async def test_a_person_approves_or_declines_a_tool_call(
    tmp_path: Path, make: Make, decision: str, outcome: list[str]
) -> None:
    async with vendor() as model:
        model.replies = [calling(OpenAi, ("c1", "erase", '{"path": "a.txt"}')), answer(OpenAi, "Done.")]
        async with talking(tmp_path, make, model) as (client, _):
            asked = (await client.send("erase it"))["task"]
            assert state(asked) == "input_required"
            assert expected(asked) == {"choices": ["Approve", "Decline"]}
            assert '{"path":"a.txt"}' in asked["status"]["message"]["parts"][0]["text"]
            assert ran == []
            task = (await client.send(decision, task=asked["id"]))["task"]
    assert state(task) == "completed"
    assert text_of(task) == "Done."
    assert ran == outcome
    assert len(model.asked) == 2


async def test_several_calls_are_approved_in_one_form(tmp_path: Path, make: Make) -> None:
    calls = [(f"c{number}", "erase", json.dumps({"path": f"{number}.txt"})) for number in (1, 2)]
    async with vendor() as model:
        model.replies = [calling(OpenAi, *calls), answer(OpenAi, "Done.")]
        async with talking(tmp_path, make, model) as (client, _):
            asked = (await client.send("erase them"))["task"]
            fields = list(expected(asked)["schema"]["properties"])
            decisions = dict(zip(fields, (True, False), strict=True))
            task = (await client.send([{"data": decisions}], task=asked["id"]))["task"]
    assert state(task) == "completed"
    assert ran == ["erase 1.txt"]


async def test_a_tool_asks_a_question_with_choices_and_gets_the_answer(tmp_path: Path, make: Make) -> None:
    """Another tool of the same round runs once, and the model is asked no second time."""
    calls = ("c1", "book", '{"city": "Oslo"}'), ("c2", "weather", '{"city": "Oslo"}')
    async with vendor() as model:
        model.replies = [calling(OpenAi, *calls, words=("A moment.",)), answer(OpenAi, "Have a good flight.")]
        for words in ("fly", "2"):
            # A server that starts anew has nothing but the log.
            async with talking(tmp_path, make, model) as (client, _):
                if words == "fly":
                    task = (await client.send(words))["task"]
                    assert expected(task) == {"choices": FLIGHTS}
                    assert task["status"]["message"]["parts"][0]["text"] == "Which flight to Oslo?"
                else:
                    task = (await client.send(words, task=task["id"]))["task"]
    assert state(task) == "completed"
    assert sorted(ran) == ["book BA 7", "weather Oslo"]
    assert sorted(OpenAi.results(model.asked[-1])) == [("c1", "Booked BA 7"), ("c2", "Sunny in Oslo")]
    assert len(model.asked) == 2
    assert [one["parts"][0]["text"] for one in task["artifacts"]] == ["A moment.", "Have a good flight."]


async def test_files_go_in_and_out(tmp_path: Path, make: Make) -> None:
    async with vendor() as model:
        model.replies = [calling(OpenAi, ("c1", "draw", '{"title": "chart"}')), answer(OpenAi, "Here.")]
        async with talking(tmp_path, make, model) as (client, _):
            picture = {"raw": base64.b64encode(PICTURE).decode(), "mediaType": "image/png", "filename": "in.png"}
            task = (await client.send([{"text": "draw this"}, picture]))["task"]
    made = next(one for one in task["artifacts"] if one["name"] == "chart.png")
    assert made["parts"][0]["mediaType"] == "image/png"
    sent = dict(OpenAi.said(model.asked[0]))["user"]
    assert [one["type"] for one in sent] == ["text", "image_url"]
    assert base64.b64decode(sent[1]["image_url"]["url"].partition(",")[2]) == PICTURE


async def test_the_model_reads_the_conversation(tmp_path: Path, make: Make) -> None:
    async with vendor() as model:
        model.replies = [answer(OpenAi, "Hello Ada."), answer(OpenAi, "Ada.")]
        async with talking(tmp_path, make, model) as (client, _):
            for words in ("I am Ada", "who am I?"):
                await client.send(words, context="talk")
    said = [
        (role, content if isinstance(content, str) else content[0]["text"])
        for role, content in OpenAi.said(model.asked[1])
    ]
    assert said == [("system", "Be brief."), ("user", "I am Ada"), ("assistant", "Hello Ada."), ("user", "who am I?")]


async def test_a_cancel_stops_the_model_call(tmp_path: Path, make: Make) -> None:
    async with vendor() as model:
        model.replies = [Reply((*OpenAi.start(), OpenAi.word("one "), HANG))]
        async with talking(tmp_path, make, model) as (client, _):
            task = (await client.send("hello", configuration={"returnImmediately": True}))["task"]
            await asyncio.wait_for(model.began.wait(), 5)
            assert state(await client.cancel(task["id"])) == "canceled"
            await asyncio.wait_for(model.hung_up.wait(), 5)


async def test_a_failed_model_call_fails_the_task_and_reveals_no_key(tmp_path: Path, make: Make) -> None:
    async with vendor() as model:
        model.replies = [refusal(401)]
        async with talking(tmp_path, make, model) as (client, _):
            task = (await client.send("hello"))["task"]
    assert state(task) == "failed"
    assert task["status"]["message"]["parts"][0]["text"] == "The model call failed with status 401."
    assert KEY not in str(task)

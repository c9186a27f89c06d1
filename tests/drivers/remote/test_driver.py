"""One of our agents is another server's: whatever it says, says ours, by every binding and version."""

import json
from typing import Any

import pytest
import pytest_asyncio

from parley.client import Client, message
from parley.ids import RunId
from parley.testing.processes import until
from parley.testing.servers import Server, serving
from tests.drivers.conftest import BACK, SEPARATORS, fronts, send, state, texts, words

WIRES: list[dict[str, Any]] = [
    {"bindings": ("JSONRPC",), "version": "1.0"},
    {"bindings": ("HTTP+JSON",), "version": "1.0"},
    {"bindings": ("JSONRPC",), "version": "0.3"},
    {"bindings": ("HTTP+JSON",), "version": "0.3"},
    {"bindings": ("GRPC",), "version": "1.0"},
    {"bindings": ("GRPC",), "version": "0.3"},
    {"bindings": ("JSONRPC",), "version": "1.1"},
    {"bindings": ("HTTP+JSON",), "version": "1.1"},
    {"bindings": ("GRPC",), "version": "1.1"},
]
IDS = [f"{wire['bindings'][0]} {wire['version']}" for wire in WIRES]


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def back(tmp_path_factory: pytest.TempPathFactory) -> Any:
    async with serving(tmp_path_factory.mktemp("back"), BACK, grpc_port=0) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=WIRES, ids=IDS)
async def front(request: pytest.FixtureRequest, back: Server, tmp_path_factory: pytest.TempPathFactory) -> Any:
    async with serving(tmp_path_factory.mktemp("front"), fronts(back.url, **request.param)) as running:
        yield running


def to(server: Server, slug: str) -> Client:
    return Client(server.agent(slug))


async def test_a_question_is_asked_and_answered_through_the_front(front: Server) -> None:
    async with to(front, "writer") as client:
        task = await send(client, "begin")
        assert (state(task), words(task)) == ("input_required", "Which name?")
        assert texts(task) == {"words": "one two three"}
        assert "thinking" in [part["text"] for said in task["history"] for part in said["parts"]]
        task = await send(client, "Ada", task=task["id"])
        assert (state(task), words(task)) == ("completed", "Bye, Ada.")
        assert task["artifacts"][1]["parts"] == [{"data": {"name": "Ada", "count": 42}}]
        assert task["artifacts"][1]["name"] == "Result"


async def test_a_stream_shows_the_remote_events_one_by_one(front: Server) -> None:
    async with to(front, "writer") as client:
        frames = [frame async for frame in client.stream("begin")]
    chunks = [frame["artifactUpdate"] for frame in frames if "artifactUpdate" in frame]
    assert "".join(chunk["artifact"]["parts"][0]["text"] for chunk in chunks) == "one two three"
    assert [chunk["artifact"]["artifactId"] for chunk in chunks] == ["words"] * len(chunks)
    assert len(chunks) > 1
    assert [chunk.get("append", False) for chunk in chunks] == [False] + [True] * (len(chunks) - 1)
    assert chunks[-1]["lastChunk"]
    assert "task" in frames[0]
    assert state(frames[-1]["statusUpdate"]) == "input_required"


async def test_authorization_is_asked_for_through_the_front(front: Server) -> None:
    async with to(front, "vault") as client:
        task = await send(client, "open")
        assert (state(task), words(task)) == ("auth_required", "Who are you?")
        task = await send(client, "Ada", task=task["id"])
        assert state(task) == "completed"
        assert list(texts(task).values()) == ["Welcome, Ada."]


async def test_a_direct_message_stays_one(front: Server) -> None:
    async with to(front, "greeter") as client:
        reply = await client.send("Ada")
        assert reply["message"]["parts"] == [{"text": "Hello, Ada."}]


@pytest.mark.parametrize(
    ("slug", "ended", "code", "said"),
    [("picky", "rejected", "not_today", "Not today."), ("broken", "failed", "no_paper", "Out of paper. ")],
)
async def test_the_remote_says_why(front: Server, slug: str, ended: str, code: str, said: str) -> None:
    async with to(front, slug) as client:
        task = await send(client, "please")
    assert state(task) == ended
    assert words(task).startswith(said)
    assert len(words(task)) <= 2000
    assert task["status"]["message"]["metadata"]["code"] == code


async def test_every_kind_of_part_goes_there_and_back(front: Server) -> None:
    parts = [
        {"text": "hello", "mediaType": "text/plain"},
        {"raw": "AAEC", "mediaType": "image/png", "filename": "dot.png"},
        {"raw": "QUJD" * 20_000, "mediaType": "application/octet-stream"},
        {"url": "https://example.com/cat.png", "mediaType": "image/png"},
        {"data": {"count": 42, "half": 0.5, "deep": [1, {"two": 2}]}},
    ]
    async with to(front, "file") as client:
        result = await client.call("SendMessage", {"message": {**message("x"), "parts": parts}})
    made = {one["artifactId"]: one["parts"][0] for one in result["task"]["artifacts"]}
    assert state(result["task"]) == "completed"
    for number, part in enumerate(parts):
        found = made[f"part-{number}"]
        assert {name: found.get(name) for name in part if name != "mediaType" or "text" not in part} == {
            name: value for name, value in part.items() if name != "mediaType" or "text" not in part
        }
    assert made["large"]["filename"] == "large.bin"
    assert made["large"]["mediaType"] == "application/x-large"
    assert len(made["large"]["raw"]) > 100_000


async def test_text_that_looks_like_the_end_of_a_line_passes(front: Server) -> None:
    async with to(front, "lines") as client:
        task = await send(client, "x")
    assert list(texts(task).values()) == [SEPARATORS]


async def test_a_conversation_stays_one_at_the_remote(front: Server, back: Server) -> None:
    async with to(front, "talk") as client:
        first = await client.call("SendMessage", {"message": {**message("a"), "metadata": {"z": 1, "a": [1.5]}}})
        context = first["task"]["contextId"]
        again = await send(client, "b", context=context)
        other = await send(client, "c")
    there = [task["artifacts"][0]["parts"][0]["data"]["conversation"] for task in (first["task"], again, other)]
    assert there[0] == there[1] != there[2]
    told = first["task"]["artifacts"][0]["parts"][0]["data"]["metadata"]
    assert json.loads(told) == {"a": [1.5], "urn:parley:hops": 1, "z": 1}


async def test_a_cancel_at_the_front_reaches_the_back(front: Server, back: Server) -> None:
    async with to(front, "sleeper") as client, to(back, "sleeper") as behind:
        task = (await client.send("zzz", configuration={"returnImmediately": True}))["task"]
        await until(lambda: _asleep(client, task["id"]))
        assert state(await client.cancel(task["id"])) == "canceled"
        await until(lambda: _canceled(front, task["id"], behind))


async def test_a_task_that_waits_is_canceled_at_the_back_too(front: Server, back: Server) -> None:
    async with to(front, "writer") as client, to(back, "writer") as behind:
        task = await send(client, "begin")
        await client.cancel(task["id"])
        await until(lambda: _canceled(front, task["id"], behind))


async def test_a_remote_that_does_not_stream_is_asked_again_and_again(front: Server) -> None:
    async with to(front, "plain") as client:
        task = await send(client, "x")
        assert (state(task), words(task)) == ("input_required", "And then?")
        assert list(texts(task).values()) == ["first "]
        task = await send(client, "more", task=task["id"])
        assert state(task) == "completed"
        assert list(texts(task).values()) == ["first ", "more"]


async def _asleep(client: Client, task: str) -> bool:
    found = await client.get(task)
    return "message" in found["status"] and words(found) == "asleep"


async def _canceled(front: Server, task: str, behind: Client) -> bool:
    head = await front.exchange.store.head(RunId(task))
    assert head is not None
    return state(await behind.get(head.run.notes["task"])) == "canceled"

"""LangGraph's graphs as agents, over the wire."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from parley.client import Client
from parley.drivers.graph import GraphDriver, graph
from parley.errors import ConfigurationError
from parley.testing.servers import serving
from tests.drivers import graphs

Json = dict[str, Any]


@asynccontextmanager
async def talking(directory: Path, driver: GraphDriver, **settings: Any) -> AsyncIterator[Client]:
    async with serving(directory, [driver], **settings) as server, Client(server.agent("graph")) as client:
        yield client


def text_of(task: Json) -> str:
    made = [one for one in task.get("artifacts", []) if one["name"] == "response"]
    return "".join(part.get("text", "") for one in made for part in one["parts"])


async def test_what_a_model_writes_is_streamed_word_by_word(tmp_path: Path) -> None:
    driver = graph("graph", graphs.built(speak=graphs.speak).compile())
    async with talking(tmp_path, driver) as client:
        pieces = [
            "".join(part["text"] for part in event["artifactUpdate"]["artifact"]["parts"])
            async for event in client.stream("hello")
            if "artifactUpdate" in event
        ]
    assert "".join(pieces) == "one two three"
    assert len(pieces) > 1


async def test_a_conversation_is_a_thread_and_nobody_elses(tmp_path: Path) -> None:
    driver = graph("graph", graphs.built(count=graphs.count).compile(checkpointer=InMemorySaver()))
    async with talking(tmp_path, driver) as client:
        first = (await client.send("one", context="talk"))["task"]
        again = (await client.send("two", context="talk"))["task"]
        other = (await client.send("one", context="other"))["task"]
    assert [text_of(task) for task in (first, again, other)] == [
        "You have said 1.",
        "You have said 2.",
        "You have said 1.",
    ]


async def test_interrupts_are_questions_and_their_answers_resume_the_graph_after_a_restart(tmp_path: Path) -> None:
    for turn in ("ask", "text", "data"):
        async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "threads.db")) as saver:
            compiled = graphs.built(ask=graphs.ask).compile(checkpointer=saver)
            artifacts = {"report": "text/markdown", "figures": None}
            async with talking(tmp_path, graph("graph", compiled, artifacts=artifacts)) as client:
                if turn == "ask":
                    task = (await client.send("paint"))["task"]
                    assert task["status"]["message"]["parts"] == [{"text": "Which colour?"}]
                elif turn == "text":
                    task = (await client.send("green", task=task["id"]))["task"]
                    assert task["status"]["message"]["parts"][0]["data"] == {"question": "Which size?"}
                else:
                    task = (await client.send([{"data": {"w": 2}}], task=task["id"]))["task"]
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert text_of(task) == "green, {'w': 2}"
    made = {one["artifactId"]: one["parts"][0] for one in task["artifacts"]}
    assert made["report"] == {"text": "# green", "mediaType": "text/markdown"}
    assert made["figures"]["data"] == {"size": 4}


async def test_a_cancel_stops_the_graph(tmp_path: Path) -> None:
    driver = graph("graph", graphs.built(hang=graphs.hang).compile())
    async with talking(tmp_path, driver) as client:
        task = (await client.send("wait", configuration={"returnImmediately": True}))["task"]
        await asyncio.wait_for(graphs.begun.wait(), 5)
        assert (await client.cancel(task["id"]))["status"]["state"] == "TASK_STATE_CANCELED"
        await asyncio.wait_for(graphs.stopped.wait(), 5)


async def test_a_turn_that_was_broken_off_goes_on_at_its_last_checkpoint(tmp_path: Path) -> None:
    visited: list[str] = []

    async def first(state: graphs.State) -> graphs.State:
        visited.append("first")
        return await graphs.count(state)

    async def second(state: graphs.State) -> graphs.State:
        visited.append("second")
        if visited.count("second") == 1:
            await asyncio.Event().wait()
        return await graphs.count(state)

    saver = InMemorySaver()
    for attempt in range(2):
        compiled = graphs.built(first=first, second=second).compile(checkpointer=saver)
        async with talking(tmp_path, graph("graph", compiled)) as client:
            if attempt == 0:
                events = client.stream("go")
                async for event in events:
                    if "artifactUpdate" in event:
                        task = event["artifactUpdate"]["taskId"]
                        break
                await events.aclose()
            else:
                async for _ in client.tail(task):
                    pass
                ended = await client.get(task)
    assert visited == ["first", "second", "second"]
    assert text_of(ended) == "You have said 1.\n\nYou have said 1."


async def test_a_graph_without_messages_says_what_it_writes_and_what_it_leaves(tmp_path: Path) -> None:
    built = graphs.built(write=graphs.write)
    driver = graph("graph", built.compile(), answer="report", prepare=lambda turn: {"report": turn.text})
    async with talking(tmp_path, driver) as client:
        task = (await client.send("draft"))["task"]
        assert text_of(task) == "written"


async def test_a_graph_without_a_checkpointer_asks_and_goes_on_after_a_restart(tmp_path: Path) -> None:
    task: Json = {}
    for words in ("paint", "green", "large"):
        driver = graph("graph", graphs.built(ask=graphs.ask).compile(), artifacts=["report"])
        async with talking(tmp_path, driver) as client:
            task = (await client.send(words, **({"task": task["id"]} if task else {})))["task"]
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert text_of(task) == "green, large"
    assert task["artifacts"][-1]["parts"] == [{"text": "# green"}]


async def test_a_graph_without_a_checkpointer_goes_on_behind_the_last_node_that_ended(tmp_path: Path) -> None:
    """It reads the conversation from the log, and says again only what this turn has said."""
    visited: list[str] = []
    begun = asyncio.Event()

    async def first(state: graphs.State) -> graphs.State:
        visited.append("first")
        return await graphs.count(state)

    async def second(state: graphs.State) -> graphs.State:
        visited.append("second")
        if visited.count("second") == 2:
            begun.set()
            await asyncio.Event().wait()
        return await graphs.count(state)

    for attempt in range(2):
        compiled = graphs.built(first=first, second=second).compile()
        async with talking(tmp_path, graph("graph", compiled)) as client:
            if attempt == 0:
                await client.send("before", context="talk")
                task = (await client.send("go", context="talk", configuration={"returnImmediately": True}))["task"]
                await asyncio.wait_for(begun.wait(), 5)
            else:
                async for _ in client.tail(task["id"]):
                    pass
                ended = await client.get(task["id"])
    assert visited == ["first", "second", "first", "second", "second"]
    assert text_of(ended) == "You have said 2.\n\nYou have said 2."


def test_a_graph_that_was_not_compiled_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="compile"):
        graph("graph", graphs.built(ask=graphs.ask))  # pyright: ignore[reportArgumentType]

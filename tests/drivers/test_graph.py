"""LangGraph's graphs as agents, over the wire."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.globals import get_llm_cache
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import interrupt

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


async def test_a_node_that_asks_after_a_model_call_gets_the_same_answer_again(tmp_path: Path) -> None:
    """The model is paid once and heard once, and a node may be a plain function."""
    model = graphs.CountingModel()

    async def plan(state: graphs.State) -> graphs.State:
        planned = await model.ainvoke("plan")
        colour = interrupt("Which colour?")
        return {"messages": [planned, await model.ainvoke(f"paint {colour}")]}

    def check(state: graphs.State) -> graphs.State:
        checked = model.invoke("check")
        interrupt("Good?")
        return {"messages": [checked, model.invoke("check")]}

    task: Json = {}
    for words in ("go", "green", "yes"):
        # A server that starts anew has nothing but the log.
        driver = graph("graph", graphs.built(plan=plan, check=check).compile())
        async with talking(tmp_path, driver) as client:
            task = (await client.send(words, **({"task": task["id"]} if task else {})))["task"]
    assert [one["parts"][0]["text"] for one in task["artifacts"]] == [
        "plan: 1",
        "paint green: 2\n\ncheck: 3",
        "check: 4",
    ]
    assert task["metadata"]["usage"]["outputTokens"] == 4


async def test_a_node_that_was_broken_off_between_two_model_calls_repeats_only_the_second(tmp_path: Path) -> None:
    model = graphs.CountingModel()
    begun = asyncio.Event()

    async def both(state: graphs.State) -> graphs.State:
        first = await model.ainvoke("first")
        if not begun.is_set():
            begun.set()
            await asyncio.Event().wait()
        return {"messages": [first, await model.ainvoke("second")]}

    for attempt in range(2):
        async with talking(tmp_path, graph("graph", graphs.built(both=both).compile())) as client:
            if attempt == 0:
                task = (await client.send("go", configuration={"returnImmediately": True}))["task"]
                await asyncio.wait_for(begun.wait(), 5)
            else:
                async for _ in client.tail(task["id"]):
                    pass
                ended = await client.get(task["id"])
    assert text_of(ended) == "first: 1\n\nsecond: 2"
    assert ended["metadata"]["usage"]["outputTokens"] == 2


def test_a_cache_of_the_program_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    own = InMemoryCache()
    monkeypatch.setattr("langchain_core.globals._llm_cache", own)
    graph("graph", graphs.built(ask=graphs.ask).compile())
    assert get_llm_cache() is own


def test_a_graph_that_was_not_compiled_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="compile"):
        graph("graph", graphs.built(ask=graphs.ask))  # pyright: ignore[reportArgumentType]

"""Agents are tested in one line, in process or behind a real server."""

import asyncio
import inspect
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from parley import ArtifactChunk, Done, NeedInput, Note, State, Text, Turn, Usage, agent
from parley.client import Client
from parley.errors import ConfigurationError
from parley.testing import run, run_async
from parley.testing.fixtures import StartServer


@agent("echo")
async def echo(turn: Turn) -> AsyncGenerator[object, None]:
    """Repeats."""
    yield Text(turn.text)


@agent("greeter")
async def greeter(turn: Turn) -> AsyncGenerator[object, None]:
    if not turn.answers:
        yield NeedInput("What is your name?")
        return
    if "name" not in turn.notes:
        yield Note({"name": turn.text})
        yield NeedInput("And your town?")
        return
    yield ArtifactChunk({"town": turn.text}, name="town")
    yield Done("Welcome", task_metadata={"usage": {"tokens": 7}})


@agent("doubler")
async def doubler(turn: Turn) -> AsyncGenerator[object, None]:
    answer = await turn.ask("echo", turn.text)
    yield Text(answer.text * 2)


@agent("adder")
def adder(turn: Turn) -> str:
    return f"{turn.text}!"


def test_an_agent_is_run_in_one_line() -> None:
    result = run(echo, "hi")
    assert (result.state, result.text, result.questions) == (State.COMPLETED, "hi", ())
    assert [event.type for event in result.events] == ["submitted", "input", "started", "artifact", "completed"]
    assert [event.seq for event in result.events] == [1, 2, 3, 4, 5]


def test_its_questions_are_answered_in_order() -> None:
    result = run(greeter, "hi", answers=["Ada", "London", "never asked for"])
    assert (result.state, result.data, result.usage) == (State.COMPLETED, {"town": "London"}, {"tokens": 7})
    assert result.questions == ("What is your name?", "And your town?")
    waiting = run(greeter, "hi", answers=["Ada"])
    assert (waiting.state, waiting.question) == (State.INPUT_REQUIRED, "And your town?")


def test_recorded_usage_is_part_of_the_result() -> None:
    @agent("model")
    async def model(turn: Turn) -> AsyncGenerator[object, None]:
        yield Usage("small-1", input_tokens=10, output_tokens=2)
        yield Text("ok")

    usage = run(model, "hi", prices={"small-*": {"input": 1, "output": 10}}).usage
    assert usage is not None
    assert (usage["inputTokens"], usage["outputTokens"], usage["cost"]) == (10, 2, 0.00003)
    assert run(echo, "hi").usage is None


def test_it_may_ask_other_agents() -> None:
    assert run(doubler, "ha", agents=[echo]).text == "haha"
    assert run(doubler, "ha").state is State.FAILED


def test_a_definition_is_run_too(tmp_path: Path) -> None:
    (tmp_path / "words.yaml").write_text("command: wc -w\n")
    assert run(tmp_path / "words.yaml", "one two three").text.strip() == "3"
    (tmp_path / "two.py").write_text(
        "from parley import agent\n@agent('a')\ndef a(turn): ...\n@agent('b')\ndef b(turn): ...\n"
    )
    with pytest.raises(ConfigurationError, match=r"two\.py has 2 agents: pass one of them"):
        run(tmp_path / "two.py", "hi")


async def test_a_coroutine_awaits_it() -> None:
    assert (await run_async(echo, "hi")).text == "hi"
    with pytest.raises(ConfigurationError, match="run_async"):
        run(echo, "hi")


def test_an_agent_that_does_not_end_is_stopped() -> None:
    @agent("sleeper")
    async def sleeper(turn: Turn) -> str:
        await asyncio.Event().wait()
        return ""

    with pytest.raises(TimeoutError):
        run(sleeper, "hi", timeout_s=0.1, cancel_grace_s=0.1, drain_s=0)


async def test_an_agent_can_be_called_like_its_function() -> None:
    turn = await _turn()
    assert [value async for value in echo(turn)] == [Text("hi")]
    assert adder(turn) == "hi!"
    assert (echo.__name__, echo.__doc__, inspect.unwrap(echo)) == ("echo", "Repeats.", echo.function)
    assert repr(adder).startswith("<agent adder: <function adder")


async def _turn() -> Turn:
    """Return a turn as an agent gets it."""
    turns: list[Turn] = []

    @agent("keeper")
    async def keeper(turn: Turn) -> str:
        turns.append(turn)
        return ""

    await run_async(keeper, "hi")
    return turns[0]


def test_a_fixture_starts_a_real_server(parley_server: StartServer, tmp_path: Path) -> None:
    (tmp_path / "words.yaml").write_text("command: wc -w\n")
    server = parley_server(greeter, tmp_path / "words.yaml")
    question = server.ask("greeter", "hi")
    assert question.question == "What is your name?"
    assert server.ask("greeter", "Ada", task=question.run_id).question == "And your town?"
    assert server.ask("words", "one two").text.strip() == "2"


async def test_the_server_of_a_fixture_does_not_need_the_loop_of_the_test(parley_server: StartServer) -> None:
    async with Client(parley_server(echo).agent("echo")) as client:
        assert (await client.send("hi")).text == "hi"


def test_servers_of_one_test_share_their_data(parley_server: StartServer) -> None:
    first = parley_server(greeter, store="sqlite")
    question = first.ask("greeter", "hi")
    first.stop()
    second = parley_server(greeter, store="sqlite")
    assert second.ask("greeter", "Ada", task=question.run_id).question == "And your town?"


def test_a_server_that_cannot_start_says_why(parley_server: StartServer) -> None:
    with pytest.raises(ConfigurationError, match="postgres_url"):
        parley_server(echo, store="postgres")

"""Failures: Agent-Zero is missing, restarted or slow, loses its state, or sends unexpected answers."""

import asyncio
import socket
from pathlib import Path

import pytest

from parley.client import Client
from parley.runs.rules.agents import Limits
from parley.testing.processes import ServerProcess, until

from .conftest import begin, code, parley, said, send, settled, state, texts, words
from .server import Chat, Trouble, agent_zero
from .test_sessions import Held


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@pytest.mark.slow
async def test_one_that_is_not_there_is_told_so(tmp_path: Path) -> None:
    async with parley(tmp_path, f"http://127.0.0.1:{free_port()}") as (_, client):
        task = await send(client, "hi")
        assert (state(task), code(task)) == ("failed", "agentzero_unreachable")
        assert "cannot be reached" in words(task)


async def test_an_address_of_something_else_is_told_so(tmp_path: Path) -> None:
    async with agent_zero(prefix="/elsewhere") as zero, parley(tmp_path, zero) as (_, client):
        task = await send(client, "hi")
        assert (state(task), code(task)) == ("failed", "agentzero_refused")


async def test_one_that_comes_up_soon_is_waited_for(tmp_path: Path) -> None:
    async with agent_zero() as zero:
        await zero.stop()
        async with parley(tmp_path, zero) as (_, client):
            task = await begin(client, "hi")
            await zero.start()
            assert state(await settled(client, task)) == "completed"


async def test_a_restart_in_the_middle_is_a_loss(tmp_path: Path) -> None:
    held = Held()
    async with agent_zero(held) as zero, parley(tmp_path, zero) as (_, client):
        task = await begin(client, "Fix it")
        await until(lambda: held.begun)
        await zero.restart()
        ended = await settled(client, task)
        assert (state(ended), code(ended)) == ("failed", "agentzero_lost")
        assert "restarted" in words(ended)
    assert held.begun == 1


async def test_a_restart_that_forgets_is_a_loss(tmp_path: Path) -> None:
    held = Held()
    async with agent_zero(held) as zero, parley(tmp_path, zero) as (_, client):
        task = await begin(client, "Fix it")
        await until(lambda: held.begun)
        await zero.restart(forget=True)
        ended = await settled(client, task)
        assert (state(ended), code(ended)) == ("failed", "agentzero_lost")
    assert len(zero.called("message_async")) == 1


async def test_an_answer_that_was_given_before_a_restart_is_not_lost(tmp_path: Path) -> None:
    async def answers(chat: Chat, text: str) -> str:
        zero.trouble("poll", *[Trouble("error")] * 2)
        return "Here."

    async with agent_zero(answers) as zero, parley(tmp_path, zero) as (_, client):
        task = await begin(client, "hi")
        await until(lambda: any(item["type"] == "response" for chat in zero.chats.values() for item in chat.items))
        await zero.restart()
        assert texts(await settled(client, task)) == {"response-1": "Here."}


@pytest.mark.slow
async def test_one_that_stays_away_is_given_up(tmp_path: Path) -> None:
    held = Held()
    async with agent_zero(held) as zero, parley(tmp_path, zero, patience_s=0.5) as (_, client):
        task = await begin(client, "Fix it")
        await until(lambda: held.begun)
        await zero.stop()
        ended = await settled(client, task)
        assert (state(ended), code(ended)) == ("failed", "agentzero_lost")
        await zero.start()


@pytest.mark.parametrize(
    ("kind", "done"), [("drop", True), ("html", True), ("html", False), ("error", True), ("error", False)]
)
async def test_a_message_is_sent_once_whatever_the_answer(tmp_path: Path, kind: str, done: bool) -> None:
    """Only when it is certain that it did not arrive is it sent again."""
    async with agent_zero() as zero, parley(tmp_path, zero) as (_, client):
        zero.trouble("message_async", Trouble(kind, done=done))  # pyright: ignore[reportArgumentType]
        task = await send(client, "hi")
        assert (state(task), texts(task)) == ("completed", {"response-1": "Answer to: hi"})
        (chat,) = zero.chats.values()
        assert len([item for item in chat.items if item["type"] == "user"]) == 1


@pytest.mark.slow
async def test_a_message_of_which_nobody_knows_whether_it_came_is_not_sent_again(tmp_path: Path) -> None:
    async with agent_zero() as zero, parley(tmp_path, zero) as (_, client):
        zero.trouble("message_async", Trouble("drop"))
        task = await send(client, "hi")
        assert (state(task), code(task)) == ("failed", "agentzero_lost")
        assert "may still have started" in words(task)
    assert len(zero.called("message_async")) == 1


async def test_a_slow_answer_is_not_a_second_message(tmp_path: Path) -> None:
    async with agent_zero() as zero, parley(tmp_path, zero, timeout_s=0.3) as (_, client):
        zero.trouble("message_async", Trouble("slow", seconds=0.8))
        assert state(await send(client, "hi")) == "completed"
    assert len(zero.called("message_async")) == 1


async def test_polls_that_break_are_made_again(tmp_path: Path) -> None:
    held = Held()
    async with agent_zero(held) as zero, parley(tmp_path, zero) as (_, client):
        task = await begin(client, "Fix it")
        await until(lambda: held.begun)
        zero.trouble("poll", Trouble("drop"), Trouble("html"), Trouble("error"), Trouble("stale"), Trouble("drop"))
        await until(lambda: not zero.troubles["poll"])
        held.go.set()
        ended = await settled(client, task)
        assert (state(ended), said(ended)) == ("completed", ["A0: Looking at it"])


async def test_work_that_ends_without_an_answer_has_failed(tmp_path: Path) -> None:
    async def mumbles(chat: Chat, text: str) -> str:
        chat.log("agent", "A0: Thinking")
        return ""

    async with agent_zero(mumbles) as zero, parley(tmp_path, zero) as (_, client):
        task = await send(client, "hi")
        assert (state(task), code(task)) == ("failed", "agentzero_no_answer")


async def test_progress_without_an_end_is_stopped_by_the_limit(tmp_path: Path) -> None:
    async def busy(chat: Chat, text: str) -> str:
        for number in range(10_000):
            chat.log("agent", f"A0: Step {number}")
            await asyncio.sleep(0.02)
        return "never"

    limits = Limits(max_concurrent=1, timeout_s=0.5)
    async with agent_zero(busy) as zero, parley(tmp_path, zero, limits=limits) as (_, client):
        task = await send(client, "hi")
        assert (state(task), code(task)) == ("failed", "timeout")
        await until(lambda: not zero.chats)


async def test_one_that_shows_no_sign_of_work_is_given_up(tmp_path: Path) -> None:
    held = Held()
    async with agent_zero(held) as zero, parley(tmp_path, zero, silence_s=0.3) as (_, client):
        task = await send(client, "hi")
        assert (state(task), code(task)) == ("failed", "agentzero_silent")
        await until(lambda: not zero.chats)


async def test_a_restart_of_ours_goes_on_where_it_was(tmp_path: Path) -> None:
    held = Held()
    async with agent_zero(held) as zero:
        async with parley(tmp_path, zero) as (_, client):
            task = await begin(client, "Fix it")
            await until(lambda: held.begun)
            await settled(client, task, "working")
        held.go.set()
        async with parley(tmp_path, zero) as (_, client):
            ended = await settled(client, task)
            assert texts(ended) == {"response-1": "Done: Fix it"}
            assert said(ended) == ["A0: Looking at it"]
    assert len(zero.called("message_async")) == 1


DEFINITION = """
driver: agentzero
agentzero:
  url: {url}
  poll_s: 0.05
limits:
  timeout_s: 60
"""


@pytest.mark.slow
async def test_a_crash_of_ours_sends_nothing_twice_and_a_cancel_after_it_ends_the_work(tmp_path: Path) -> None:
    held = Held()
    async with agent_zero(held) as zero:
        path = tmp_path / "zero.yaml"
        path.write_text(DEFINITION.format(url=zero.url))
        server = await ServerProcess.start([path], tmp_path / "data")
        async with Client(f"{server.url}/agents/zero") as client:
            first = await begin(client, "one")
            await until(lambda: held.begun == 1)
            await until(lambda: _has_said(client, first))
        await server.kill()
        server = await ServerProcess.start([path], tmp_path / "data")
        async with Client(f"{server.url}/agents/zero") as client:
            held.go.set()
            ended = await settled(client, first)
            assert (texts(ended), said(ended)) == ({"response-1": "Done: one"}, ["A0: Looking at it"])
            held.go.clear()
            second = await begin(client, "two")
            await until(lambda: held.begun == 2)
            await until(lambda: _has_said(client, second))
        await server.kill()
        server = await ServerProcess.start([path], tmp_path / "data")
        async with Client(f"{server.url}/agents/zero") as client:
            await client.cancel(second)
            await until(lambda: len(zero.called("chat_remove")) == 1)
        await server.stop()
    assert (held.begun, len(zero.called("message_async"))) == (2, 2)


async def _has_said(client: Client, task: str) -> bool:
    return "message" in (await client.get(task))["status"]

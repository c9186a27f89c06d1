"""Every failure with Agent-Zero delivers the files so far and a structured report."""

import asyncio
from pathlib import Path

import pytest

from parley.client import Json
from parley.runs.rules.agents import Limits
from parley.testing.processes import until

from .conftest import begin, code, parley, send, settled, state, words
from .reports import report, write
from .server import KEY, Chat, Trouble, agent_zero
from .test_sessions import Held

HALF = {"/a0/usr/workdir/half.py": b"print(1)\n"}


def made(task: Json) -> dict[str, Json]:
    return {one["name"]: one for one in task.get("artifacts", [])}


def reason(task: Json) -> str:
    assert words(task).startswith("=== Task Failure Report ===")
    return made(task)["Failure report"]["parts"][0]["data"]["reason"]


@pytest.mark.parametrize("keyed", [False, True])
async def test_an_error_of_agent_zero_delivers_the_files_so_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keyed: bool
) -> None:
    monkeypatch.setenv("ZERO_KEY", KEY)
    reports = tmp_path / "reports"

    async def breaks(chat: Chat, text: str) -> str:
        chat.log("agent", "A0: Looking at it")
        write(reports, report(files=("half.py",)))
        raise RuntimeError("the secret is 42")

    options = {"key_from": "ZERO_KEY"} if keyed else {}
    async with agent_zero(breaks) as zero, parley(tmp_path / "a", zero, reports=str(reports), **options) as (_, client):
        zero.files = dict(HALF)
        task = await send(client, "Fix the bug")
    assert (state(task), code(task)) == ("failed", "agentzero_failed")
    assert reason(task).startswith("Agent-Zero's work ended with an unexpected")
    assert "Bug Fix Workflow, step 3/5, 60% complete" in words(task)
    assert made(task)["half.py"]["parts"][0]["text"] == "print(1)\n"
    assert "secret" not in str(task)


async def test_a_timeout_delivers_the_files_so_far(tmp_path: Path) -> None:
    reports, limits = tmp_path / "reports", Limits(max_concurrent=1, timeout_s=1)

    async def hangs(chat: Chat, text: str) -> str:
        chat.log("agent", "A0: Looking at it")
        write(reports, report(files=("half.py",)))
        return await held(chat, text)

    held = Held()
    async with (
        agent_zero(hangs) as zero,
        parley(tmp_path / "data", zero, reports=str(reports), limits=limits) as (_, client),
    ):
        zero.files = dict(HALF)
        task = await send(client, "Fix the bug")
        assert (state(task), code(task)) == ("failed", "timeout")
        assert reason(task) == "The agent took longer than 1 s."
        assert "A0: Looking at it" in words(task)
        assert made(task)["half.py"]["parts"][0]["text"] == "print(1)\n"
        await until(lambda: not zero.chats)


async def test_a_cancel_delivers_the_files_so_far(tmp_path: Path) -> None:
    held, reports = Held(), tmp_path / "reports"
    async with agent_zero(held) as zero, parley(tmp_path / "data", zero, reports=str(reports)) as (_, client):
        zero.files = dict(HALF)
        task = await begin(client, "Fix the bug")
        await until(lambda: held.begun)
        write(reports, report(files=("half.py",)))
        assert state(await client.cancel(task)) == "canceled"
        ended = await client.get(task)
        assert set(made(ended)) == {"half.py"}
        await until(lambda: not zero.chats)


async def test_a_loss_delivers_the_failure_report(tmp_path: Path) -> None:
    held, reports = Held(), tmp_path / "reports"
    async with agent_zero(held) as zero, parley(tmp_path / "data", zero, reports=str(reports)) as (_, client):
        zero.files = dict(HALF)
        task = await begin(client, "Fix the bug")
        await until(lambda: held.begun)
        write(reports, report(files=("half.py",)))
        await zero.restart()
        ended = await settled(client, task)
        assert (state(ended), code(ended)) == ("failed", "agentzero_lost")
        assert "restarted" in reason(ended)
        assert made(ended)["half.py"]["parts"][0]["text"] == "print(1)\n"


async def test_silence_without_reports_delivers_the_failure_report(tmp_path: Path) -> None:
    held = Held()
    async with agent_zero(held) as zero, parley(tmp_path, zero, silence_s=0.3) as (_, client):
        task = await send(client, "Fix the bug")
    assert code(task) == "agentzero_silent"
    assert "no progress" in reason(task)
    assert "Task: Fix the bug" in words(task)


async def test_one_that_hangs_from_the_start_is_given_up_after_one_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("parley.drivers.agentzero.turns.START_S", 0.1)
    calls: list[bytes] = []

    async def hangs(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        calls.append(await reader.readline())
        await reader.read()
        writer.close()

    server = await asyncio.start_server(hangs, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, parley(tmp_path, f"http://127.0.0.1:{port}", timeout_s=0.5) as (_, client):
        task = await send(client, "Fix the bug")
    assert (state(task), code(task)) == ("failed", "agentzero_unreachable")
    assert calls == [b"GET /api/health HTTP/1.1\r\n"]


async def test_one_that_hangs_in_the_middle_is_given_up_when_patience_ends(tmp_path: Path) -> None:
    """However long one call may take."""
    held = Held()
    async with agent_zero(held) as zero, parley(tmp_path, zero, timeout_s=3600, patience_s=0.5) as (_, client):
        task = await begin(client, "Fix the bug")
        await until(lambda: held.begun)
        zero.trouble("poll", *[Trouble("slow", seconds=3600)] * 5)
        ended = await settled(client, task)
    assert (state(ended), code(ended)) == ("failed", "agentzero_lost")
    assert "does not answer" in reason(ended)

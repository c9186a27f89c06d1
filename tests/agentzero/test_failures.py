"""Every failure with Agent-Zero delivers the files so far and a structured report."""

from pathlib import Path

import pytest

from parley.client import Json
from parley.core.agents import Limits
from parley.testing.waiting import until

from .conftest import begin, code, parley, send, settled, state, words
from .reports import report, write
from .server import KEY, Chat, agent_zero
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
    assert "no sign of work" in reason(task)
    assert "Task: Fix the bug" in words(task)

"""SALUTE reports beside an Agent-Zero: whose they are, and what becomes of PACE."""

import asyncio
from pathlib import Path

import pytest

from parley.client import Client
from parley.testing.processes import until
from tests.orgkernel.organisations import small

from .conftest import begin, code, parley, said, send, settled, state, texts, words
from .reports import report, write
from .server import KEY, Chat, agent_zero
from .test_sessions import Held


async def shows(client: Client, task: str, wanted: str) -> None:
    async def is_there() -> bool:
        found = await client.get(task)
        return wanted in [*said(found), words(found) if "message" in found["status"] else ""]

    await until(is_there)


async def test_a_report_is_a_status_and_the_response_is_the_end(tmp_path: Path) -> None:
    held, reports = Held(), tmp_path / "reports"
    async with agent_zero(held) as zero, parley(tmp_path / "data", zero, reports=str(reports)) as (_, client):
        task = await begin(client, "Fix the bug")
        await until(lambda: held.begun)
        write(reports, report(tool="code_execution_tool"))
        told = "Bug Fix Workflow: working (step 3/5, 60% complete), role: Bugfix Specialist, tool: code_execution_tool"
        await shows(client, task, told)
        write(reports, report("alternate", step=4))
        retrying = "Bug Fix Workflow: working (step 4/5, 80% complete), role: Bugfix Specialist"
        await shows(client, task, f"{retrying}, retrying with alternative approach")
        held.go.set()
        assert texts(await settled(client, task)) == {"response-1": "Done: Fix the bug"}


async def test_reports_from_before_the_task_and_of_idle_roles_are_not_its(tmp_path: Path) -> None:
    held, reports = Held(), tmp_path / "reports"
    write(reports, report("emergency"), ago_s=60)
    async with agent_zero(held) as zero, parley(tmp_path / "data", zero, reports=str(reports)) as (_, client):
        task = await begin(client, "Fix the bug")
        await until(lambda: held.begun)
        write(reports, report("contingent", role="rewritten", ago_s=60))
        write(reports, report("contingent", role="idler", state="idle"))
        write(reports, report(role="worker"))
        await shows(client, task, "Bug Fix Workflow: working (step 3/5, 60% complete), role: Worker")
        held.go.set()
        assert state(await settled(client, task)) == "completed"


async def test_a_report_that_is_half_written_is_read_again(tmp_path: Path) -> None:
    held, reports = Held(), tmp_path / "reports"
    async with agent_zero(held) as zero, parley(tmp_path / "data", zero, reports=str(reports)) as (_, client):
        task = await begin(client, "Fix the bug")
        await until(lambda: held.begun)
        write(reports, report(), half=True)
        polls = len(zero.called("poll"))
        await until(lambda: len(zero.called("poll")) > polls + 3)
        write(reports, report())
        await shows(client, task, "Bug Fix Workflow: working (step 3/5, 60% complete), role: Bugfix Specialist")
        held.go.set()
        assert state(await settled(client, task)) == "completed"


async def test_contingent_asks_and_only_the_client_ends_that(tmp_path: Path) -> None:
    held, reports = Held(), tmp_path / "reports"
    async with agent_zero(held) as zero, parley(tmp_path / "data", zero, reports=str(reports)) as (_, client):
        task = await begin(client, "Fix the bug in /nonexistent/critical/app.py")
        await until(lambda: held.begun)
        (chat,) = zero.chats.values()
        chat.log("warning", "", "FileNotFoundError: the secret path\n\nTraceback")
        write(reports, report("contingent", state="escalating", failures=5))
        asked = await settled(client, task, "input_required")
        for expected in ("Guidance is needed", "A0: Looking at it", "FileNotFoundError", "5 consecutive", "would help"):
            assert expected in words(asked)
        assert "secret" not in words(asked)
        assert chat.paused
        write(reports, report("primary"))
        polls = len(zero.called("poll"))
        assert state(await client.get(task)) == "input_required"
        ended = await send(client, "It is in /srv/app.py", task=task)
        assert (state(ended), texts(ended)) == ("completed", {"response-2": "Told: It is in /srv/app.py"})
        assert len(zero.called("poll")) > polls
    assert (held.begun, chat.paused) == (1, False)


async def test_a_question_is_canceled_with_the_work_behind_it(tmp_path: Path) -> None:
    held, reports = Held(), tmp_path / "reports"
    async with agent_zero(held) as zero, parley(tmp_path / "data", zero, reports=str(reports)) as (_, client):
        task = await begin(client, "Fix the bug")
        await until(lambda: held.begun)
        write(reports, report("contingent"))
        await settled(client, task, "input_required")
        await client.cancel(task)
        await until(lambda: not zero.chats)


async def test_emergency_fails_with_what_there_is_and_ends_the_work(tmp_path: Path) -> None:
    held, reports = Held(), tmp_path / "reports"
    async with agent_zero(held) as zero, parley(tmp_path / "data", zero, reports=str(reports)) as (_, client):
        zero.files = {"/a0/usr/workdir/half.py": b"print(1)\n", "/etc/passwd": b"root"}
        task = await begin(client, "Fix the bug")
        await until(lambda: held.begun)
        files = ("half.py", "/etc/passwd", "../../../etc/passwd")
        write(reports, report("emergency", state="aborted", failures=8, files=files))
        ended = await settled(client, task)
        assert (state(ended), code(ended)) == ("failed", "pace_emergency")
        assert "=== Task Failure Report ===" in words(ended)
        made = {one["name"]: one for one in ended["artifacts"]}
        assert set(made) == {"half.py", "Failure report"}
        assert made["half.py"]["parts"][0]["text"] == "print(1)\n"
        await until(lambda: not zero.chats)


@pytest.mark.parametrize("keyed", [False, True])
async def test_a_response_at_contingent_is_a_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keyed: bool
) -> None:
    reports = tmp_path / "reports"
    monkeypatch.setenv("ZERO_KEY", KEY)
    options = {"key_from": "ZERO_KEY"} if keyed else {}

    async def stuck(chat: Chat, text: str) -> str:
        write(reports, report("contingent" if text == "Fix" else "primary", state="escalating"))
        return f"About {text}: which file?"

    async with agent_zero(stuck) as zero, parley(tmp_path / "a", zero, reports=str(reports), **options) as (_, client):
        asked = await send(client, "Fix")
        assert state(asked) == "input_required"
        assert "About Fix: which file?" in words(asked)
        assert state(await send(client, "app.py", task=asked["id"])) == "completed"
    assert len(zero.chats) == 1


async def test_a_restart_of_ours_does_not_tell_a_report_twice(tmp_path: Path) -> None:
    held, reports = Held(), tmp_path / "reports"
    async with agent_zero(held) as zero:
        async with parley(tmp_path / "data", zero, reports=str(reports)) as (_, client):
            task = await begin(client, "Fix the bug")
            await until(lambda: held.begun)
            write(reports, report())
            await shows(client, task, "Bug Fix Workflow: working (step 3/5, 60% complete), role: Bugfix Specialist")
        async with parley(tmp_path / "data", zero, reports=str(reports)) as (_, client):
            polls = len(zero.called("poll"))
            await until(lambda: len(zero.called("poll")) > polls + 2)
            held.go.set()
            ended = await settled(client, task)
    assert len([one for one in said(ended) if one.startswith("Bug Fix")]) == 1


async def test_an_organisation_gives_the_card_and_the_names_of_steps(tmp_path: Path) -> None:
    held, folder = Held(), small(tmp_path / "org")
    async with agent_zero(held) as zero, parley(tmp_path / "data", zero, organisation=str(folder)) as (_, client):
        card = await client.card()
        assert "bugfix" in [skill["id"] for skill in card["skills"]]
        task = await begin(client, "Fix the bug")
        await until(lambda: held.begun)
        write(folder / "reports", report())
        await shows(
            client, task, "Bug Fix Workflow: implementing the fix (step 3/5, 60% complete), role: Bugfix Specialist"
        )
        held.go.set()
        assert state(await settled(client, task)) == "completed"


async def test_a_plan_that_nobody_knows_is_shown_in_words(tmp_path: Path) -> None:
    held, reports = Held(), tmp_path / "reports"
    async with agent_zero(held) as zero, parley(tmp_path / "data", zero, reports=str(reports)) as (_, client):
        task = await begin(client, "Fix the bug")
        await until(lambda: held.begun)
        write(reports, report(plan="bugfix_workflow"))
        await shows(client, task, "Bugfix Workflow: working (step 3/5, 60% complete), role: Bugfix Specialist")
        held.go.set()
        assert state(await settled(client, task)) == "completed"


async def test_after_an_answer_the_same_failures_are_not_asked_about_again(tmp_path: Path) -> None:
    reports, go = tmp_path / "reports", asyncio.Event()

    async def stuck(chat: Chat, text: str) -> str:
        write(reports, report("contingent", failures=5))
        told = await chat.interventions.get()
        write(reports, report("contingent", failures=5, step=4))
        await go.wait()
        write(reports, report("primary", step=5))
        return f"Done with {told}"

    async with agent_zero(stuck) as zero, parley(tmp_path / "data", zero, reports=str(reports)) as (_, client):
        task = await begin(client, "Fix the bug")
        await settled(client, task, "input_required")
        await begin(client, "Use app.py", task=task)
        await shows(client, task, "Bug Fix Workflow: working (step 4/5, 80% complete), role: Bugfix Specialist")
        go.set()
        ended = await settled(client, task)
        assert (state(ended), texts(ended)) == ("completed", {"response-2": "Done with Use app.py"})

"""Every failure of an organisation delivers the files so far and a structured report."""

from pathlib import Path
from typing import Any

import pytest

from parley.client import Json
from parley.drivers.org.tools import Tools
from parley.testing.waiting import until
from tests.drivers.conftest import send, state, words
from tests.drivers.test_org import BLOCK, house, latest, made, own, script, text
from tests.orgkernel.organisations import small

HALF = "import sys; open(sys.argv[1] + '/first.txt', 'w').write('first'); print('ok')"
STOPPED = "(here / 'second.txt').write_text('second')\n"


def blocked(place: Path) -> Path:
    """A workflow whose first step writes a file, and whose second step writes another and then does not end."""
    code = BLOCK.replace('(here / "begun").touch()', f'{STOPPED}(here / "begun").touch()')
    return own(place, script(place / "org", HALF), script(place / "org", code))


def report_of(task: Json) -> Json:
    return made(task)["Failure report"]["parts"][0]["data"]


async def test_a_timeout_delivers_the_files_so_far_and_the_failure_report(tmp_path: Path) -> None:
    folder = blocked(tmp_path)
    async with house(tmp_path, folder=str(folder), limits={"timeout_s": 2}) as (_, client):
        task = await send(client, "Fix the bug")
    assert state(task) == "failed"
    assert task["status"]["message"]["metadata"]["code"] == "timeout"
    assert words(task).startswith(
        "=== Task Failure Report ===\nTask: Fix the bug\nReason: The agent took longer than 2 s."
    )
    assert text(made(task)["first.txt"]) == "first"
    assert text(made(task)["second.txt"]) == "second"
    report = report_of(task)
    assert (report["workflow"], report["step"], report["total_steps"]) == ("Bug Fix Workflow", 2, 2)
    assert report["accomplished"] == ["Run tool_0.py"]
    assert report["suggestions"]
    assert latest(folder, "bugfix_specialist")["status"]["state"] == "aborted"


async def test_a_cancel_delivers_the_files_so_far(tmp_path: Path) -> None:
    folder = blocked(tmp_path)
    async with house(tmp_path, folder=str(folder)) as (_, client):
        task = await send(client, "Fix the bug", configuration={"returnImmediately": True})
        work = tmp_path / "org" / "tasks" / task["id"]
        await until((work / "begun").exists)
        canceled = await client.cancel(task["id"])
        assert state(canceled) == "canceled"
        found = made(await client.get(task["id"]))
        assert (text(found["first.txt"]), text(found["second.txt"])) == ("first", "second")
        assert "Failure report" not in found
        await until(lambda: not work.exists())


async def test_a_step_that_breaks_delivers_the_files_so_far_and_the_failure_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = Tools.__call__

    async def breaks(self: Tools, work: Any) -> Any:
        if work.node.id == "step_1":
            raise OSError("the secret disk is full")
        return await done(self, work)

    monkeypatch.setattr(Tools, "__call__", breaks)
    async with house(tmp_path, folder=str(blocked(tmp_path))) as (_, client):
        task = await send(client, "Fix the bug")
    assert state(task) == "failed"
    assert task["status"]["message"]["metadata"]["code"] == "agent_error"
    assert "unexpected OSError" in report_of(task)["reason"]
    assert "secret" not in str(task)
    assert text(made(task)["first.txt"]) == "first"


async def test_a_step_that_needs_a_model_is_never_verified_without_one(tmp_path: Path) -> None:
    folder = own(tmp_path, script(tmp_path / "org", HALF), {"name": "Think about it"})
    async with house(tmp_path, folder=str(folder)) as (_, client):
        task = await send(client, "Fix the bug")
    assert state(task) == "failed"
    assert "Think about it: this step needs a language model, and none is configured" in words(task)
    assert report_of(task)["accomplished"] == ["Run tool_0.py"]
    assert text(made(task)["first.txt"]) == "first"


async def test_a_domain_without_a_workflow_needs_a_model(tmp_path: Path) -> None:
    async with house(tmp_path, folder=str(small(tmp_path / "org"))) as (_, client):
        task = await send(client, "Analysis of the figures")
    assert state(task) == "failed"
    assert "needs a language model" in words(task)


async def test_the_sample_verifies_no_step_of_a_model_without_one(tmp_path: Path) -> None:
    async with house(tmp_path) as (_, client):
        task = await send(client, "Create a hello world Python script, test it, then clean up")
    assert words(task) == (
        "Module complete. Verified: Scaffold the module, Test the module, Clean up. "
        "Passed over: Plan the module, Implement the module."
    )


async def test_guidance_reaches_a_program_in_full_on_standard_input(tmp_path: Path) -> None:
    code = "import sys; said = sys.stdin.read(); print(len(said), len(sys.argv[2])); sys.exit('END' not in said)"
    node = script(tmp_path / "org", code)
    node["command"] = [*node["command"], "{text}"]
    told = "Look at this:\n" + "line of a log\n" * 1_000 + "END"
    async with house(tmp_path, folder=str(own(tmp_path, node))) as (_, client):
        task = await send(client, "Fix the bug")
        assert state(task) == "input_required"
        task = await send(client, told, task=task["id"])
    assert state(task) == "completed"
    assert text(made(task)["response"]).strip() == f"{len(told)} 500"


async def test_guidance_reaches_a_later_step_in_full_after_a_restart(tmp_path: Path) -> None:
    checks = "import sys; print('ok'); sys.exit('END' not in sys.stdin.read())"
    asks = script(tmp_path / "org", checks, verify={"type": "manual"})
    later = script(tmp_path / "org", "import sys; print(len(sys.stdin.read()))")
    folder, told = own(tmp_path, asks, later), "Look at this: " + "x" * 5_000 + " END"
    async with house(tmp_path, folder=str(folder)) as (_, client):
        task = await send(client, "Fix the bug")
    async with house(tmp_path, folder=str(folder)) as (_, client):
        task = await send(client, told, task=task["id"])
        assert state(task) == "input_required"
        task = await send(client, "yes", task=task["id"])
    assert state(task) == "completed"
    assert text(made(task)["response"]).strip() == str(len(told))

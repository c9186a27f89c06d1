"""Every failure of an organisation delivers the files so far and a structured report."""

from pathlib import Path
from typing import Any

import httpx2
import pytest

from parley.client import Json
from parley.drivers.org.tools import NodeTools
from parley.testing.processes import until
from tests.drivers.conftest import send, state, words
from tests.drivers.org.test_driver import BLOCK, house, latest, made, own, plan, script, statuses, text
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
    done = NodeTools.__call__

    async def breaks(self: NodeTools, work: Any) -> Any:
        if work.node.id == "step_1":
            raise OSError("the secret disk is full")
        return await done(self, work)

    monkeypatch.setattr(NodeTools, "__call__", breaks)
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


FLAKY = """
import pathlib, sys
count = pathlib.Path(sys.argv[1], "count.txt")
count.write_text((count.read_text() if count.exists() else "") + "x")
print("tried")
sys.exit(len(count.read_text()) < {wanted})
"""


async def test_guidance_gives_the_step_as_many_attempts_as_it_had_before(tmp_path: Path) -> None:
    folder = own(tmp_path, script(tmp_path / "org", FLAKY.format(wanted=9), max_retries=20))
    async with house(tmp_path, folder=str(folder)) as (_, client):
        task = await send(client, "Fix the bug")
        assert state(task) == "input_required"
        assert text(made(task)["count.txt"]) == "x" * 5
        task = await send(client, "Try it a few more times", task=task["id"])
    assert state(task) == "completed"
    assert text(made(task)["count.txt"]) == "x" * 9


async def test_guidance_that_brings_no_progress_ends_in_a_failure(tmp_path: Path) -> None:
    folder = own(tmp_path, script(tmp_path / "org", FLAKY.format(wanted=99)))
    async with house(tmp_path, folder=str(folder)) as (_, client):
        task = await send(client, "Fix the bug")
        for _ in range(3):
            assert state(task) == "input_required"
            task = await send(client, "Try again", task=task["id"])
    assert state(task) == "failed"
    assert "guidance was given 3 times without progress" in report_of(task)["reason"]


async def test_step_numbers_do_not_fall_when_a_step_is_done_again(tmp_path: Path) -> None:
    good = script(tmp_path / "org", "print('ok')", id="fix", name="Implement the fix", max_retries=9)
    flaky = script(tmp_path / "org", FLAKY.format(wanted=3), id="test", name="Test the fix")
    workflow = plan(good, flaky, {"id": "end", **script(tmp_path / "org", "print('ok')", name="Write it down")})
    workflow["graph"]["edges"].append({"from": "test", "to": "fix", "condition": "on_fail"})
    folder = small(tmp_path / "org", bugfix_workflow=workflow)
    async with house(tmp_path, folder=str(folder)) as (_, client):
        said, task = await statuses(client, "Fix the bug")
    assert state(task) == "completed"
    shown = [one.partition(", ")[0] for one in said if "(step" in one]
    assert shown == [
        "Bug Fix Workflow: implementing the fix (step 1/3", "Bug Fix Workflow: testing the fix (step 2/3",
        "Bug Fix Workflow: implementing the fix (step 2/3", "Bug Fix Workflow: testing the fix (step 2/3",
        "Bug Fix Workflow: implementing the fix (step 2/3", "Bug Fix Workflow: testing the fix (step 2/3",
        "Bug Fix Workflow: writing it down (step 3/3",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "content", "encoding"), [("log.txt", b"line\n", "utf-8"), ("data.bin", b"\0\xff--\n", None)]
)
async def test_a_large_file_says_how_it_is_encoded_at_its_address(
    tmp_path: Path, name: str, content: bytes, encoding: str | None
) -> None:
    code = f"import sys; open(sys.argv[1] + '/{name}', 'wb').write({content!r} * 300_000); print('ok')"
    folder = own(tmp_path, script(tmp_path / "org", code))
    async with house(tmp_path, folder=str(folder)) as (_, client), httpx2.AsyncClient() as http:
        task = await send(client, "Fix the bug")
        (part,) = made(task)[name]["parts"]
        assert made(task)[name]["metadata"].get("encoding") == encoding
        assert (await http.get(part["url"])).content == content * 300_000

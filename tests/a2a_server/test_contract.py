"""The nine tests of contract 001, over HTTP against `python -m a2a_server.run`."""

import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from a2a.client import ClientConfig, create_client
from a2a.helpers import new_text_message
from a2a.types import GetTaskRequest, Role, SendMessageRequest, TaskState

from tests.a2a_server.embedded import Embedded
from tests.a2a_server.house import House
from tests.a2a_server.wire import Json, state, texts, told, words
from tests.a2a_server.zero import Zero

pytestmark = pytest.mark.slow
SKILLS = {"bugfix", "codegen", "git_ops", "docker_ops", "refactor", "analysis", "osint"}


@pytest.fixture(params=["embedded", "agentzero", "agentzero-root", "agentzero-key"])
async def house(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[House]:
    """With the built-in kernel; and with an Agent-Zero: below /api or at the root, by a session or with its key."""
    prefix = "" if request.param == "agentzero-root" else "/api"
    opening = Zero.open(tmp_path, prefix=prefix, keyed=request.param == "agentzero-key")
    async with Embedded.open(tmp_path) if request.param == "embedded" else opening as opened:
        yield opened


async def test_1_agent_card_discovery(house: House) -> None:
    card = await house.wire.card()
    assert card["name"] == "Software Development Organization"
    assert card["description"].startswith("Full-stack software development agent.")
    for field in ("url", "version", "protocolVersion", "capabilities", "defaultInputModes", "defaultOutputModes"):
        assert card[field], field
    assert card["capabilities"]["streaming"] is True
    assert card["capabilities"]["pushNotifications"] is False
    assert "0.3" in card["supportedProtocolVersions"]
    assert card["authentication"] == {"schemes": ["none"]}
    assert {skill["id"] for skill in card["skills"]} >= SKILLS
    assert all(skill["name"] and skill["description"] and skill["tags"] for skill in card["skills"])


async def test_2_simple_task_submission(house: House) -> None:
    house.put("figures.csv", "1,2\n")
    task = await house.wire.send(f"List the files in {house.shared}")
    assert task["id"]
    assert state(task) == "completed"
    assert "figures.csv" in "\n".join([*texts(task).values(), words(task)])
    assert await house.wire.get(task["id"]) == task


async def test_3_task_status_streaming(house: House) -> None:
    events = [event async for event in house.wire.stream("Create a hello world Python script, test it, then clean up")]
    assert events[0]["kind"] == "task"
    statuses = [event for event in events if event["kind"] == "status-update"]
    said = [words(event) for event in statuses]
    steps = [one for one in said if "% complete" in one]
    assert len(steps) >= 3
    assert all(one.startswith("Code Generation: ") and "(step " in one for one in steps)
    assert len(set(steps)) == len(steps)
    assert {state(event) for event in statuses[:-1]} == {"working"}
    assert state(statuses[-1]) == "completed"
    assert [event.get("final", False) for event in statuses] == [False] * (len(statuses) - 1) + [True]
    task = await house.wire.get(events[0]["id"])
    assert state(task) == "completed"
    assert any("Hello" in text for text in texts(task).values())


async def test_4_pace_contingent_to_input_needed(house: House) -> None:
    task = await house.wire.send("Fix the bug in /nonexistent/critical/app.py")
    assert state(task) == "input-required"
    for part in ("Guidance is needed", "What was tried", "What failed", "What would help"):
        assert part in words(task)
    assert "/nonexistent/critical/app.py" in words(task)
    house.put("app.py", "def main()\n    return 1\n")
    task = await house.wire.send(f"It is in {house.shared}/app.py", task=task["id"])
    assert state(task) == "completed"
    assert "def main():" in texts(task)["app.py"]


async def test_5_task_failure(house: House) -> None:
    task = await house.wire.send("Run the evacuation drill")
    assert state(task) == "failed"
    for part in ("=== Task Failure Report ===", house.why, "What another agent or approach might try"):
        assert part in words(task)
    assert texts(task)["report.md"] == "# Half a report\n"
    report = _failure_report(task)
    assert report["reason"] == house.why
    assert report["suggestions"]
    error = (await house.wire.call("tasks/cancel", {"id": task["id"]}))["error"]
    assert error["code"] == -32002


async def test_6_multiple_task_queuing(house: House) -> None:
    first = await house.wire.begin("Keep the night watch")
    await house.begun(first["id"])
    second = await house.wire.begin(f"List the files in {house.shared}")
    assert state(second) == "submitted"
    assert words(second) == "Waiting for its turn: number 1 in the queue."
    assert state(await house.wire.get(first["id"])) == "working"
    await house.dawn(first["id"])
    assert state(await house.wire.reaches(first["id"])) == "completed"
    assert state(await house.wire.reaches(second["id"])) == "completed"


async def test_7_task_cancellation(house: House) -> None:
    task = await house.wire.begin("Keep the night watch")
    await house.begun(task["id"])
    assert state(await house.wire.cancel(task["id"])) == "canceled"
    assert state(await house.wire.get(task["id"])) == "canceled"
    await house.at_rest(task["id"])
    again = await house.wire.send(f"List the files in {house.shared}")
    assert state(again) == "completed"


async def test_8_cross_framework_client(house: House) -> None:
    said: list[str] = []
    message = new_text_message("Create a hello world Python script, test it, then clean up", role=Role.ROLE_USER)
    async with httpx.AsyncClient(timeout=20) as http:
        client = await create_client(house.wire.url, ClientConfig(httpx_client=http))
        async for event in client.send_message(SendMessageRequest(message=message)):
            said += [part.text for part in event.status_update.status.message.parts]
            task_id = event.task.id or event.status_update.task_id or event.artifact_update.task_id
        task = await client.get_task(GetTaskRequest(id=task_id))
        await client.close()
    assert any("% complete" in one for one in said)
    assert task.status.state == TaskState.TASK_STATE_COMPLETED
    assert any("Hello" in part.text for artifact in task.artifacts for part in artifact.parts)


async def test_9_agent_card_accuracy(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "git").symlink_to(shutil.which("git") or "git")
    async with Embedded.open(tmp_path, extended=False, PATH=f"{tmp_path / 'bin'}") as house:
        house.put("app.py", "x = 1\n")
        card = await house.wire.card()
        assert {skill["id"] for skill in card["skills"]} >= SKILLS
        for skill in card["skills"]:
            await _routed(house, skill)


async def _routed(house: Embedded, skill: Json) -> None:
    """One task in the skill's own words: the status messages and the report say who did it, and how."""
    before = house.reports()
    task = await house.wire.send(f"{skill['name']}: {house.shared}/app.py, called shop")
    if any(set(plan["domains"]) & set(skill["tags"]) for plan in house.plans().values()):
        assert state(task) == "completed", (skill, words(task))
    else:
        assert "this step needs a language model" in words(task), (skill, words(task))
    (report,) = [one for name, one in house.reports().items() if one != before.get(name)]
    activity, role = report["activity"], house.role(report["unit"]["role_id"])
    assert activity["bst_domain"] in skill["tags"]
    assert activity["bst_domain"] in role["capabilities"]["bst_domains"]
    assert role["role_type"] == "specialist"
    assert any(role["role_name"] in one and one.startswith(f"{activity['htn_plan']}: ") for one in told(task))
    plans = house.plans()
    if any(activity["bst_domain"] in plan["domains"] for plan in plans.values()):
        assert activity["htn_plan"] in {plan["name"] for plan in plans.values()}


def _failure_report(task: Json) -> Json:
    (found,) = [one for one in task["artifacts"] if one.get("name") == "Failure report"]
    (part,) = found["parts"]
    return part["data"] if "data" in part else json.loads(part["text"])

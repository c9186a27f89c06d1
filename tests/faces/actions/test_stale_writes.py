"""`expectedVersionId`: a write is refused unless the version that its caller knows is still the current one."""

import asyncio
from typing import Any

import msgspec
import pytest

from parley.faces.actions.messages import params_of
from parley.faces.actions.table import BY_NAME, ActionCall
from parley.runs.requests import Send
from parley.runs.rules.access import LOCAL
from parley.runs.rules.content import Message, text_part
from parley.testing.servers import Server
from tests.faces.actions.desk import Desk

pytestmark = pytest.mark.asyncio(loop_scope="module")

MODES = pytest.mark.parametrize("mode", ["plan", "build"])
STALE = (409, "STALE_VERSION")
WRITES: dict[str, dict[str, Any]] = {
    "create": {"message": "Add the moon"},
    "edit": {"editedContent": "# Tides, again"},
}
ACTIONS = pytest.mark.parametrize("action", WRITES)


async def numbers(desk: Desk, conversation: str, mode: str) -> list[int]:
    versions = (await desk.ask(conversation, mode, "list")).result["versions"]
    return [one["versionNumber"] for one in versions]


@MODES
@ACTIONS
async def test_a_write_that_expects_the_current_version_is_done(desk: Desk, mode: str, action: str) -> None:
    conversation, _, second = await desk.planned(mode)
    made = await desk.ask(conversation, mode, action, **WRITES[action], expectedVersionId=second)
    assert made.status == 200, made.body
    assert (made.result["version"]["versionNumber"], made.result["version"]["isCurrent"]) == (3, True)
    assert made.result["version"]["metadata"]["basedOn"] == second
    plain = await desk.ask(conversation, mode, action, **WRITES[action], expectedVersionId=None)
    assert plain.result["version"]["versionNumber"] == 4


@MODES
@ACTIONS
async def test_a_write_that_expects_another_version_is_refused_and_writes_nothing(
    desk: Desk, mode: str, action: str
) -> None:
    conversation, first, second = await desk.planned(mode)
    for expected in (first, "unknown", "\x00 odd"):
        refused = await desk.ask(conversation, mode, action, **WRITES[action], expectedVersionId=expected)
        assert refused.refusal == STALE
        assert refused.body["error"]["details"] == {"field": "expectedVersionId", "currentVersionId": second}
        assert second in refused.body["error"]["message"]
    assert await numbers(desk, conversation, mode) == [2, 1]
    empty = await desk.ask(conversation, mode, action, **WRITES[action], expectedVersionId="")
    assert empty.refusal == (400, "MISSING_REQUIRED_PARAM")


@MODES
async def test_where_nothing_is_written_yet_no_version_can_be_expected(desk: Desk, mode: str) -> None:
    conversation = await desk.begin()
    refused = await desk.ask(conversation, mode, "create", message="Tides", expectedVersionId="unknown")
    assert refused.refusal == STALE
    assert refused.body["error"]["details"] == {"field": "expectedVersionId"}
    assert (await desk.ask(conversation, mode, "read")).result is None


@MODES
async def test_what_an_agent_wrote_is_refused_if_the_document_changed_while_it_wrote(
    server: Server, desk: Desk, mode: str
) -> None:
    conversation, _, second = await desk.planned(mode)
    params = {"message": "A poem", "expectedVersionId": second}
    kept = await desk.ask(conversation, mode, "create", "asker", **params)
    lost = await desk.ask(conversation, mode, "create", "asker", **params)
    assert kept.body["status"] == lost.body["status"] == "running"
    for number, task in enumerate((kept.task, lost.task)):
        message = Message(f"{conversation}-{number}", (text_part("Ann"),))
        await server.exchange.send(Send("asker", LOCAL, message, task))
        ended = [event async for _, event in desk.events(task)][-1]["task"]
        assert ended["status"] == ("completed", "failed")[number]
    after = await desk.task(lost.task)
    assert after.refusal == (200, "STALE_VERSION")
    assert after.body["error"]["details"] == {"state": "failed", "reason": "stale_version"}
    current = (await desk.ask(conversation, mode, "read")).result["currentVersion"]
    assert (current["id"], current["versionNumber"]) == (kept.task, 3)
    assert await numbers(desk, conversation, mode) == [3, 2, 1]
    shown = await desk.http.get(f"/agents/asker/tasks/{lost.task}", headers={"A2A-Version": "1.0"})
    assert shown.json()["status"]["state"] == "TASK_STATE_FAILED"
    assert shown.json()["artifacts"][0]["parts"][0]["text"] == "# For Ann"


@MODES
async def test_of_rivals_that_expect_one_version_one_succeeds(desk: Desk, mode: str) -> None:
    conversation, _, second = await desk.planned(mode)
    edits = [
        desk.ask(conversation, mode, "edit", editedContent=f"edit {number}", expectedVersionId=second)
        for number in range(12)
    ]
    drafts = [
        desk.ask(conversation, mode, "create", message=f"draft {number}", expectedVersionId=second)
        for number in range(6)
    ]
    answers = await asyncio.gather(*edits, *drafts)
    done = [one for one in answers if one.status == 200]
    assert len(done) == 1
    assert {one.refusal for one in answers if one not in done} == {STALE}
    assert await numbers(desk, conversation, mode) == [3, 2, 1]
    current = (await desk.ask(conversation, mode, "read")).result["currentVersion"]
    assert current["id"] == done[0].task


@MODES
@ACTIONS
async def test_a_repetition_under_its_key_is_the_same_write(desk: Desk, mode: str, action: str) -> None:
    conversation, _, second = await desk.planned(mode)
    params = {**WRITES[action], "expectedVersionId": second, "headers": {"Idempotency-Key": f"{conversation}-{action}"}}
    first = await desk.ask(conversation, mode, action, **params)
    again = await desk.ask(conversation, mode, action, **params)
    assert (first.status, again.status, again.task) == (200, 200, first.task)


async def test_a_key_stands_for_the_same_request_as_before_there_was_an_expected_version() -> None:
    """Replicas of the previous version compare what they stored under a key."""
    action = BY_NAME["plan", "edit"]
    body = b'{"agentSlug": "writer", "editedContent": "x"}'
    call = ActionCall(LOCAL, "talk", action, params_of(action, body), "key")
    assert msgspec.json.decode(call.request.body) == {
        "agentSlug": "writer", "metadata": None, "editedContent": "x", "editNotes": None,
    }  # fmt: skip

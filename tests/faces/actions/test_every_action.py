"""Rules that hold for every action of the modes tool and orchestrate, one row each, on both stores."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec import Struct

from tests.faces.actions.desk import Answer
from tests.faces.actions.test_orchestrate import FAILING, Flows, door, flows

pytestmark = pytest.mark.asyncio(loop_scope="module")

__all__ = ["flows"]

Given = Callable[[Flows], Awaitable[tuple[str, dict[str, Any]]]]
"""A conversation in which the action can be done, and what it needs."""


async def fresh(flows: Flows) -> tuple[str, dict[str, Any]]:
    return await flows.begin(), {"message": "Go"}


async def fresh_call(flows: Flows) -> tuple[str, dict[str, Any]]:
    return await flows.begin("caller"), {"toolName": "wild/echo", "input": {"n": 1}}


async def called(flows: Flows) -> tuple[str, dict[str, Any]]:
    conversation, given = await fresh_call(flows)
    made = await flows.desk.ask(conversation, "tool", "execute", agent="caller", **given)
    return conversation, {"executionId": made.task}


async def listing(flows: Flows) -> tuple[str, dict[str, Any]]:
    return (await called(flows))[0], {"limit": 5}


async def running(flows: Flows) -> tuple[str, dict[str, Any]]:
    conversation, begun = await flows.created()
    return conversation, {"orchestrationId": begun["id"]}


async def paused(flows: Flows) -> tuple[str, dict[str, Any]]:
    conversation, given = await running(flows)
    await flows.ask(conversation, "pause")
    return conversation, given


async def failed(flows: Flows) -> tuple[str, dict[str, Any]]:
    conversation = await flows.begin()
    FAILING.add(f"{conversation} a")
    door(f"{conversation} a").set()
    begun = (await flows.ask(conversation, "create", message=conversation)).result["orchestration"]
    await flows.ended(conversation, begun["id"])
    return conversation, {"orchestrationId": begun["id"], "stepId": "a"}


async def ended(flows: Flows) -> tuple[str, dict[str, Any]]:
    conversation, given = await failed(flows)
    return conversation, {"orchestrationId": given["orchestrationId"], "confirm": True}


async def over(flows: Flows) -> tuple[str, dict[str, Any]]:
    conversation, given = await failed(flows)
    return conversation, {"orchestrationId": given["orchestrationId"]}


async def listing_runs(flows: Flows) -> tuple[str, dict[str, Any]]:
    return (await failed(flows))[0], {"limit": 5}


class Row(Struct, frozen=True):
    mode: str
    action: str
    given: Given
    needs: str = ""
    """A parameter without which it is refused."""
    missing: tuple[dict[str, Any], str] | None = None
    """Request for something missing in an empty conversation, and the expected error."""

    @property
    def otherwise(self) -> dict[str, Any]:
        """The same action, but another request."""
        match self.mode, self.action:
            case "tool", "execute":
                return {"input": {"n": 2}}
            case "tool", "read":
                return {"executionId": "another"}
            case _, "list":
                return {"limit": 6}
            case _, "create":
                return {"message": "Go elsewhere"}
            case _:
                return {"orchestrationId": "another"}

    @property
    def agent(self) -> str:
        return "caller" if self.mode == "tool" else "two"

    async def ask(self, flows: Flows, conversation: str, given: dict[str, Any], **more: Any) -> Answer:
        asked = {"agent": self.agent, **given, **more}
        return await flows.desk.ask(conversation, self.mode, self.action, **asked)


NO_RUN = ({}, "ORCHESTRATION_NOT_FOUND")
ROWS = [
    Row("tool", "execute", fresh_call, "toolName", ({"toolName": "dance", "input": {}}, "TOOL_NOT_FOUND")),
    Row("tool", "read", called, "executionId", ({"executionId": "none"}, "EXECUTION_NOT_FOUND")),
    Row("tool", "list", listing),
    Row("orchestrate", "create", fresh, "message"),
    Row("orchestrate", "read", over, missing=NO_RUN),
    Row("orchestrate", "list", listing_runs),
    Row("orchestrate", "pause", running, missing=NO_RUN),
    Row("orchestrate", "resume", paused, missing=NO_RUN),
    Row("orchestrate", "cancel", running, missing=NO_RUN),
    Row("orchestrate", "retry_step", failed, "stepId", ({"stepId": "a"}, "ORCHESTRATION_NOT_FOUND")),
    Row("orchestrate", "delete", ended, "confirm", ({"confirm": True}, "ORCHESTRATION_NOT_FOUND")),
]
every_action = pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.mode}.{row.action}")


async def test_the_rows_are_all_the_actions_of_both_modes(flows: Flows) -> None:
    listed = [(row["mode"], row["action"]) for row in flows.desk.document["x-actions"]]
    assert len(listed) == 33
    assert {(row.mode, row.action) for row in ROWS} == {one for one in listed if one[0] in ("tool", "orchestrate")}


@every_action
async def test_under_a_key_it_is_done_once(flows: Flows, row: Row) -> None:
    """Reads are repeated, a repeated creation shows the current state, all other actions answer as before."""
    conversation, given = await row.given(flows)
    key = {"Idempotency-Key": f"{row.action}-{conversation}"}
    first, second = [await row.ask(flows, conversation, given, headers=key) for _ in "12"]
    assert (first.status, second.status, first.task) == (200, 200, second.task)
    if row.action == "create":
        assert (await flows.ask(conversation, "list")).result["total"] == 1
    else:
        assert first.result == second.result
    kept = await flows.desk.task(first.task)
    assert kept.body["status"] == "completed"
    assert row.action in ("read", "list", "create") or kept.result == first.result
    said = await row.ask(flows, conversation, {**given, "metadata": {"source": "ui"}}, headers=key)
    assert said.task == first.task, "what a client says about itself does not make another request"
    other = await row.ask(flows, conversation, {**given, **row.otherwise}, headers=key)
    # What is not there cannot be read, whatever the key.
    assert other.refusal[0] == 404 if row.action == "read" else other.refusal == (409, "INVALID_STATE")
    await flows.ask(conversation, "cancel")
    FAILING.discard(f"{conversation} a")


@every_action
async def test_what_is_wrong_is_told_in_the_same_words(flows: Flows, row: Row) -> None:
    conversation = await flows.begin(row.agent)
    given = {"toolName": "wild/echo", "input": {}, "executionId": "x", "message": "Go", "stepId": "a", "confirm": True}
    unknown = await row.ask(flows, conversation, given, agent="nobody")
    assert unknown.refusal == (404, "AGENT_NOT_FOUND")
    unable = await row.ask(flows, conversation, given, agent="mute")
    assert unable.refusal == (403, "CAPABILITY_NOT_FOUND")
    assert unable.body["error"]["details"]["agentSlug"] == "mute"
    if row.action not in ("execute", "create"):  # which begin a conversation
        nowhere = await row.ask(flows, f"nowhere-{row.action}", given)
        assert nowhere.refusal == (404, "CONVERSATION_NOT_FOUND")
    if row.needs:
        without = await row.ask(flows, conversation, {name: one for name, one in given.items() if name != row.needs})
        assert without.refusal == (400, "MISSING_REQUIRED_PARAM")
        assert without.body["error"]["details"]["field"] == row.needs
    if row.missing:
        asked, code = row.missing
        assert (await row.ask(flows, conversation, asked)).refusal == (404, code)

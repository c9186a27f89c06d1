"""Each action over HTTP: what it answers, every way in which it is refused, and that it is done once under a key."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from msgspec import NODEFAULT

from parley.errors import StoreUnavailable
from parley.faces.actions.table import ACTIONS, BY_NAME, Action
from parley.runs.rules.access import LOCAL
from parley.testing.processes import until
from parley.testing.servers import Server
from tests.faces.actions.desk import Answer, Desk, Json

pytestmark = pytest.mark.asyncio(loop_scope="module")

DOCUMENTS = [action for action in ACTIONS if action.mode in ("plan", "build")]
OFFERED = [action for action in ACTIONS if action.mode in ("plan", "build", "converse")]
MODEL = [action for action in OFFERED if action.model]
NOUNS = {"plan": "plan", "build": "deliverable"}
GONE = {"plan": (404, "PLAN_NOT_FOUND"), "build": (404, "DELIVERABLE_NOT_FOUND")}


def named(action: Action) -> str:
    return f"{action.mode}.{action.name}"


def params_for(action: Action, first: str, second: str) -> Json:
    """A good request, about a document of these two versions of which the second is current."""
    match action.name:
        case "create":
            return {"message": "Add the moon"}
        case "edit":
            return {"editedContent": "# Tides, again", "editNotes": "shorter"}
        case "set_current" | "delete_version" | "copy_version":
            return {"versionId": first}
        case "merge_versions":
            return {"versionIds": [first, second], "mergePrompt": "Keep all of it"}
        case "delete":
            return {"confirm": True}
        case "delete_conversation":
            return {"confirm": True, "deleteArtifacts": True}
        case "export_conversation":
            return {"format": "json", "includeArtifacts": True}
        case _:
            return {}


def other_params(action: Action, second: str) -> Json | None:
    """Parameters that make it a different request; None if there are none."""
    match action.name:
        case "delete":
            return None
        case "edit":
            return {"editedContent": "Other"}
        case "merge_versions":
            return {"mergePrompt": "Other"}
        case "list" | "read_conversation":
            return {"limit": 1}
        case "delete_conversation":
            return {"deleteArtifacts": False}
        case "export_conversation":
            return {"format": "markdown"}
        case "create" | "rerun":
            return {"message": "Other"}
        case _:
            return {"versionId": second}


class Scene:
    """A conversation with a plan or a deliverable, in which an action is asked for."""

    def __init__(self, desk: Desk, action: Action, conversation: str, first: str, second: str) -> None:
        self.desk = desk
        self.action = action
        self.conversation = conversation
        self.first = first
        self.second = second
        self.params = params_for(action, first, second)

    async def ask(self, agent: Any = "writer", conversation: str | None = None, **more: Any) -> Answer:
        place = conversation or self.conversation
        return await self.desk.ask(place, self.action.mode, self.action.name, agent, **{**self.params, **more})

    async def read(self) -> Any:
        mode = "plan" if self.action.mode == "converse" else self.action.mode
        return (await self.desk.ask(self.conversation, mode, "read")).result


Staged = Callable[[Action], Awaitable[Scene]]


@pytest.fixture
def staged(desk: Desk) -> Staged:
    async def stage(action: Action) -> Scene:
        return Scene(desk, action, *await desk.planned("plan" if action.mode == "converse" else action.mode))

    return stage


@pytest.mark.parametrize("mode", ["plan", "build"])
async def test_create_begins_a_document_with_its_first_version(desk: Desk, mode: str) -> None:
    conversation = await desk.begin()
    answer = await desk.ask(conversation, mode, "create", message="Write about tides")
    document, version = answer.result[NOUNS[mode]], answer.result["version"]
    assert (document["conversationId"], document["title"]) == (conversation, "Write about tides")
    assert document["currentVersionId"] == version["id"] == answer.task
    assert (version["versionNumber"], version["createdByType"], version["isCurrent"]) == (1, "conversation_task", True)
    assert "tides" in version["content"]
    assert version["metadata"]["llmModel"] == answer.body["metadata"]["llmModel"] == "offline"
    assert version["metadata"]["tokensUsed"] == answer.body["metadata"]["tokensUsed"] > 0


@pytest.mark.parametrize("mode", ["plan", "build"])
async def test_create_begins_a_conversation_that_nobody_has_begun(desk: Desk, mode: str) -> None:
    place = f"first-used-{mode}"
    refused = await desk.ask(place, mode, "create", "nobody", message="Write about tides")
    assert refused.refusal == (404, "AGENT_NOT_FOUND")
    assert (await desk.ask(place, mode, "read")).refusal == (404, "CONVERSATION_NOT_FOUND")
    answers = await asyncio.gather(*(desk.ask(place, mode, "create", message="Write about tides") for _ in range(4)))
    assert sorted(one.result["version"]["versionNumber"] for one in answers) == [1, 2, 3, 4]
    read = (await desk.ask(place, "converse", "read_conversation")).result
    assert (read["conversation"]["id"], read["conversation"]["agentName"], read["total"]) == (place, "writer", 8)


@pytest.mark.parametrize("mode", ["plan", "build"])
async def test_create_again_refines_what_is_there_unless_told_to_begin_anew(desk: Desk, mode: str) -> None:
    conversation, _, _ = await desk.planned(mode)
    refined = (await desk.ask(conversation, mode, "create", message="Add the moon")).result["version"]
    assert refined["versionNumber"] == 3
    assert "They come and go." in refined["content"]
    assert "Add the moon" in refined["content"]
    anew = (await desk.ask(conversation, mode, "create", message="Add the moon", forceNew=True)).result["version"]
    assert anew["versionNumber"] == 4
    assert "They come and go." not in anew["content"]


async def test_a_deliverable_is_built_from_the_plan(desk: Desk) -> None:
    conversation, first, _ = await desk.planned("plan")
    await desk.ask(conversation, "plan", "set_current", versionId=first)
    built = (await desk.ask(conversation, "build", "create")).result["version"]
    assert built["metadata"]["planVersionId"] == first
    assert "## Write a first version" in built["content"]
    other = (await desk.ask(conversation, "plan", "edit", editedContent="## Steps\n\n1. Look at the sea")).task
    named = await desk.ask(conversation, "build", "create", planVersionId=other, forceNew=True)
    assert "## Look at the sea" in named.result["version"]["content"]


async def test_a_deliverable_without_plan_and_message_is_refused(desk: Desk) -> None:
    answer = await desk.ask(await desk.begin(), "build", "create")
    assert (*answer.refusal, answer.body["error"]["details"]) == (400, "MISSING_REQUIRED_PARAM", {"field": "message"})


@pytest.mark.parametrize("mode", ["plan", "build"])
async def test_read_shows_the_current_version_or_the_one_that_is_named(desk: Desk, mode: str) -> None:
    conversation, first, second = await desk.planned(mode)
    current = (await desk.ask(conversation, mode, "read")).result
    assert (current[NOUNS[mode]]["currentVersionId"], current["currentVersion"]["id"]) == (second, second)
    assert current["currentVersion"]["content"] == "# Tides\n\nThey come and go."
    named = (await desk.ask(conversation, mode, "read", versionId=first)).result
    assert (named["currentVersion"]["id"], named["currentVersion"]["isCurrent"]) == (first, False)
    empty = await desk.ask(await desk.begin(), mode, "read")
    assert (empty.status, empty.body["status"], empty.result) == (200, "completed", None)


@pytest.mark.parametrize("mode", ["plan", "build"])
async def test_list_shows_versions_newest_first_and_by_pages(desk: Desk, mode: str) -> None:
    conversation, first, second = await desk.planned(mode)
    third = (await desk.ask(conversation, mode, "edit", editedContent="x" * 500)).task
    page = (await desk.ask(conversation, mode, "list", limit=2)).result
    assert [one["id"] for one in page["versions"]] == [third, second]
    assert (page["total"], page["hasMore"], len(page["versions"][0]["contentPreview"])) == (3, True, 200)
    rest = (await desk.ask(conversation, mode, "list", limit=2, offset=2)).result
    assert ([one["id"] for one in rest["versions"]], rest["hasMore"]) == ([first], False)
    assert page[f"{NOUNS[mode]}Id"] == (await desk.ask(conversation, mode, "read")).result[NOUNS[mode]]["id"]


@pytest.mark.parametrize("mode", ["plan", "build"])
async def test_edit_makes_a_new_current_version(desk: Desk, mode: str) -> None:
    conversation, _, second = await desk.planned(mode)
    answer = await desk.ask(conversation, mode, "edit", editedContent="Ebb and flow", editNotes="shorter")
    version = answer.result["version"]
    assert (version["versionNumber"], version["content"], version["isCurrent"]) == (3, "Ebb and flow", True)
    assert (version["createdByType"], version["format"]) == ("manual_edit", "markdown")
    assert (version["metadata"]["editedFromVersionId"], version["metadata"]["editNotes"]) == (second, "shorter")


@pytest.mark.parametrize("mode", ["plan", "build"])
async def test_set_current_lets_another_version_hold(desk: Desk, mode: str) -> None:
    conversation, first, second = await desk.planned(mode)
    moved = (await desk.ask(conversation, mode, "set_current", versionId=first)).result
    assert (moved["previousVersionId"], moved["newVersionId"]) == (second, first)
    assert moved[NOUNS[mode]]["currentVersionId"] == first
    again = (await desk.ask(conversation, mode, "set_current", versionId=first)).result
    assert (again["previousVersionId"], again["newVersionId"]) == (first, first)
    assert (await desk.ask(conversation, mode, "read")).result["currentVersion"]["id"] == first


@pytest.mark.parametrize("mode", ["plan", "build"])
async def test_delete_version_spares_the_current_one_and_never_reuses_a_number(desk: Desk, mode: str) -> None:
    conversation, first, second = await desk.planned(mode)
    spared = await desk.ask(conversation, mode, "delete_version", versionId=second)
    assert spared.refusal == (409, "INVALID_STATE")
    gone = (await desk.ask(conversation, mode, "delete_version", versionId=first)).result
    assert gone == {"success": True, "deletedVersionId": first, "remainingVersionCount": 1}
    edited = await desk.ask(conversation, mode, "edit", editedContent="x")
    assert edited.result["version"]["versionNumber"] == 3


@pytest.mark.parametrize("mode", ["plan", "build"])
async def test_delete_version_without_consent_deletes_nothing(desk: Desk, mode: str) -> None:
    conversation, first, _ = await desk.planned(mode)
    refused = await desk.ask(conversation, mode, "delete_version", versionId=first, confirm=False)
    assert refused.refusal == (400, "MISSING_REQUIRED_PARAM")
    assert refused.body["error"]["details"] == {"field": "confirm"}
    assert (await desk.ask(conversation, mode, "list")).result["total"] == 2
    gone = await desk.ask(conversation, mode, "delete_version", versionId=first, confirm=True)
    assert gone.result["remainingVersionCount"] == 1


@pytest.mark.parametrize("mode", ["plan", "build"])
async def test_merge_versions_asks_the_agent_for_one(desk: Desk, mode: str) -> None:
    conversation, first, second = await desk.planned(mode)
    merged = await desk.ask(
        conversation, mode, "merge_versions", versionIds=[first, second], mergePrompt="Keep all of it",
        llmConfig={"model": "offline-2", "temperature": 0.5},
    )  # fmt: skip
    version = merged.result["version"]
    assert (version["createdByType"], version["versionNumber"], version["isCurrent"]) == ("merge_operation", 3, True)
    assert version["metadata"]["mergedFrom"] == [first, second]
    assert version["metadata"]["mergePrompt"] == "Keep all of it"
    assert version["metadata"]["llmModel"] == "offline-2"
    assert "They come and go." in version["content"]


@pytest.mark.parametrize("mode", ["plan", "build"])
async def test_versions_of_another_document_are_not_merged(desk: Desk, mode: str) -> None:
    conversation, first, _ = await desk.planned(mode)
    _, foreign, _ = await desk.planned(mode)
    refused = await desk.ask(
        conversation, mode, "merge_versions", versionIds=[first, foreign], mergePrompt="Keep all of it"
    )
    assert refused.refusal == (404, "VERSION_NOT_FOUND")
    assert refused.body["error"]["details"] == {"versionId": foreign}
    assert (await desk.ask(conversation, mode, "list")).result["total"] == 2


@pytest.mark.parametrize("mode", ["plan", "build"])
async def test_copy_version_leaves_the_current_one_unless_told(desk: Desk, mode: str) -> None:
    conversation, first, _ = await desk.planned(mode)
    copied = (await desk.ask(conversation, mode, "copy_version", versionId=first)).result["version"]
    assert (copied["createdByType"], copied["versionNumber"], copied["isCurrent"]) == ("copy_operation", 3, False)
    assert copied["metadata"] == {"copiedFrom": first, "originalVersionNumber": 1}
    source = (await desk.ask(conversation, mode, "read", versionId=first)).result["currentVersion"]
    assert (copied["content"], copied["format"]) == (source["content"], source["format"])
    taken = (await desk.ask(conversation, mode, "copy_version", versionId=first, setCurrent=True)).result["version"]
    assert (taken["versionNumber"], taken["isCurrent"]) == (4, True)


@pytest.mark.parametrize("mode", ["plan", "build"])
async def test_delete_forgets_the_document_and_its_versions(desk: Desk, mode: str) -> None:
    conversation, _, _ = await desk.planned(mode)
    document = (await desk.ask(conversation, mode, "read")).result[NOUNS[mode]]["id"]
    gone = (await desk.ask(conversation, mode, "delete", confirm=True)).result
    assert gone == {"success": True, f"deleted{NOUNS[mode].capitalize()}Id": document, "versionsDeleted": 2}
    assert (await desk.ask(conversation, mode, "read")).result is None


@pytest.mark.parametrize(
    ("config", "details"),
    [
        ({"model": "dearest"}, {"field": "model", "reason": "model_not_allowed"}),
        ({"model": "other:offline-2"}, {"field": "model", "reason": "model_not_allowed"}),
        ({"maxTokens": 1001}, {"field": "maxTokens", "limit": 1000, "reason": "token_limit_exceeded"}),
    ],
)
async def test_a_caller_cannot_choose_what_the_agents_definition_does_not_allow(
    desk: Desk, config: dict[str, object], details: dict[str, object]
) -> None:
    conversation, _, _ = await desk.planned("build")
    refused = await desk.ask(conversation, "build", "rerun", rerunConfig=config)
    assert refused.refusal == (403, "FORBIDDEN")
    assert refused.body["error"]["details"] == details
    assert (await desk.ask(conversation, "build", "list")).result["total"] == 2
    own = await desk.ask(conversation, "build", "rerun", rerunConfig={"model": "offline", "maxTokens": 1000})
    assert own.result["version"]["versionNumber"] == 3


@pytest.mark.parametrize("mode", ["plan", "build"])
async def test_a_merge_uses_only_models_that_the_agents_definition_allows(desk: Desk, mode: str) -> None:
    conversation, first, second = await desk.planned(mode)
    refused = await desk.ask(
        conversation, mode, "merge_versions", versionIds=[first, second], mergePrompt="Keep all of it",
        llmConfig={"model": "dearest"},
    )  # fmt: skip
    assert refused.refusal == (403, "FORBIDDEN")


async def test_rerun_asks_once_more_for_what_a_version_was_made_of(desk: Desk) -> None:
    conversation, first, second = await desk.planned("build")
    config = {"model": "offline-3", "temperature": 0.1, "maxTokens": 500}
    again = await desk.ask(
        conversation, "build", "rerun", sourceVersionId=first, rerunConfig=config, message="Shorter, please"
    )
    version = again.result["version"]
    assert (version["createdByType"], version["versionNumber"]) == ("llm_rerun", 3)
    assert version["metadata"]["rerunFrom"] == first
    assert version["metadata"]["rerunConfig"] == config
    assert version["metadata"]["llmModel"] == "offline-3"
    assert version["metadata"]["tokensUsed"] > 0
    assert "Write about tides" in version["content"]
    assert "Shorter, please" in version["content"]
    await desk.ask(conversation, "build", "set_current", versionId=second)
    edited = (await desk.ask(conversation, "build", "rerun")).result["version"]
    assert edited["metadata"]["rerunFrom"] == second
    assert "They come and go." in edited["content"]


async def test_a_character_that_no_column_takes_is_refused_or_replaced(desk: Desk) -> None:
    conversation = await desk.begin()
    made = (await desk.ask(conversation, "plan", "create", agent="odd", message="Ti\0des")).result
    assert (made["plan"]["title"], made["version"]["content"]) == ("Odd\ufffd", "# Odd\ufffd\n\none\ufffdtwo")
    refused = await desk.ask(conversation, "plan", "edit", editedContent="one\0two")
    assert refused.body["error"]["details"] == {"field": "editedContent"}
    notes = await desk.ask(conversation, "plan", "edit", editedContent="x", editNotes="one\0two")
    assert notes.result["version"]["metadata"]["editNotes"] == "one\0two"
    assert (await desk.ask(conversation, "build", "create", agent="silent", message="x\0y")).result is None


@pytest.mark.parametrize("action", OFFERED, ids=named)
async def test_each_parameter_is_looked_at(staged: Staged, action: Action) -> None:
    """One that is required is missed, and one of the wrong type refused; the answer says which."""
    scene = await staged(action)
    for field in msgspec.structs.fields(action.params):
        if field.encode_name == "metadata":
            continue
        wrong = [{"no": "such"}]
        given = [wrong, ...] if field.default is NODEFAULT else [wrong]
        for value in given:
            name = "agent" if field.name == "agent_slug" else field.encode_name
            answer = await scene.ask(**{name: value})
            assert answer.refusal == (400, "MISSING_REQUIRED_PARAM"), field.encode_name
            assert answer.body["error"]["details"]["field"].startswith(field.encode_name)


@pytest.mark.parametrize("action", OFFERED, ids=named)
async def test_each_action_needs_its_conversation_its_agent_and_its_capability(
    staged: Staged, action: Action
) -> None:  # fmt: skip
    scene = await staged(action)
    place = "no good id" if action.begins else "nowhere"
    assert (await scene.ask(conversation=place)).refusal == (404, "CONVERSATION_NOT_FOUND")
    assert (await scene.ask(agent="nobody")).refusal == (404, "AGENT_NOT_FOUND")
    unable = await scene.ask(agent="talker")
    assert unable.refusal == (403, "CAPABILITY_NOT_FOUND")
    details = unable.body["error"]["details"]
    assert (details["agentSlug"], details["requestedCapability"]) == ("talker", action.capability)
    assert unable.body["error"]["message"] == f"Agent talker does not have capability: {action.capability}"


@pytest.mark.parametrize("action", [one for one in DOCUMENTS if one.errors], ids=named)
async def test_each_action_says_what_is_not_there(desk: Desk, staged: Staged, action: Action) -> None:
    scene = await staged(action)
    empty = await desk.begin()
    if GONE[action.mode][1] in action.errors:
        assert (await scene.ask(conversation=empty)).refusal == GONE[action.mode]
    for name, value in scene.params.items():
        if name in ("versionId", "versionIds"):
            unknown = [scene.first, "unknown"] if name == "versionIds" else "unknown"
            assert (await scene.ask(**{name: unknown})).refusal == (404, "VERSION_NOT_FOUND"), value
    if action.name in ("read", "rerun"):
        named = "versionId" if action.name == "read" else "sourceVersionId"
        for odd in ("unknown", "\x00 odd"):
            assert (await scene.ask(**{named: odd})).refusal == (404, "VERSION_NOT_FOUND")
    if action.mode == "build" and action.name == "create":
        assert (await scene.ask(planVersionId="unknown")).refusal == (404, "PLAN_NOT_FOUND")
        await desk.planned("plan", scene.conversation)
        assert (await scene.ask(planVersionId="unknown")).refusal == (404, "VERSION_NOT_FOUND")


@pytest.mark.parametrize("action", MODEL, ids=named)
async def test_an_agent_that_fails_makes_nothing(staged: Staged, action: Action) -> None:
    scene = await staged(action)
    failed = await scene.ask(agent="broken")
    assert failed.refusal == (500, "LLM_EXECUTION_FAILED")
    assert "secret" not in str(failed.body)
    assert (await scene.read())["currentVersion"]["id"] == scene.second


@pytest.mark.parametrize("action", MODEL, ids=named)
async def test_a_task_that_is_canceled_or_rejected_has_failed_with_a_code(
    server: Server, staged: Staged, action: Action
) -> None:  # fmt: skip
    scene = await staged(action)
    key, later = {"Idempotency-Key": scene.conversation}, {"Prefer": "respond-async"}
    begun = await scene.ask(agent="sleeper", headers={**key, **later})
    waited = asyncio.ensure_future(scene.ask(agent="sleeper", headers=key))
    await server.exchange.cancel(begun.task, LOCAL)
    assert (await waited).refusal == (409, "TASK_CANCELED")
    first = await scene.ask(agent="full", headers=later)
    await until(lambda: first.task in server.exchange.execution.under_way)
    assert (await scene.ask(agent="full")).refusal == (409, "TASK_REJECTED")
    await server.exchange.cancel(first.task, LOCAL)
    assert [event["type"] async for _, event in scene.desk.events(first.task)][-1] == "task"
    await until(lambda: first.task not in server.exchange.execution.under_way)


@pytest.mark.parametrize("action", OFFERED, ids=named)
async def test_a_key_makes_one_task_of_two_requests(staged: Staged, action: Action) -> None:
    scene = await staged(action)
    key = {"headers": {"Idempotency-Key": f"once-{scene.conversation}-{named(action)}"}}
    first = await scene.ask(**key)
    assert first.status == 200, first.body
    again = await scene.ask(**key, metadata={"source": "ui"})
    assert (again.status, again.task) == (200, first.task)
    assert again.result == first.result
    assert (await scene.desk.task(first.task)).body["status"] == "completed"
    if other := other_params(action, scene.second):
        assert (await scene.ask(**key, **other)).refusal == (409, "INVALID_STATE")


@pytest.mark.parametrize("action", OFFERED, ids=named)
async def test_a_store_that_does_not_answer_is_a_database_error(
    server: Server, staged: Staged, action: Action, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = await staged(action)

    async def gone(*_: object, **__: object) -> None:
        raise StoreUnavailable("The database does not answer.")

    for name in ("find", "conversation"):
        monkeypatch.setattr(server.exchange.store.library, name, gone)
    assert (await scene.ask()).refusal == (500, "DATABASE_ERROR")
    monkeypatch.undo()
    assert (await scene.read())["currentVersion"]["id"] == scene.second


async def test_the_table_has_all_33_actions() -> None:
    assert len(BY_NAME) == len(ACTIONS) == 33
    assert {action.mode for action in ACTIONS} == {"plan", "build", "converse", "tool", "orchestrate"}
    assert len({action.capability for action in ACTIONS}) == 33


async def test_every_action_of_the_contract_is_offered(desk: Desk) -> None:
    offered = [(row["mode"], row["action"]) for row in desk.document["x-actions"]]
    assert offered == [(action.mode, action.name) for action in ACTIONS]
    assert len(offered) == 33

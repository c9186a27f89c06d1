"""Conversations over HTTP: read by pages, exported to a link, deleted with or without what was made in them."""

import msgspec
import pytest

from parley.testing.servers import Server
from tests.faces.actions.desk import Desk, Headers

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_conversation_is_read_as_it_went(desk: Desk) -> None:
    conversation, first, _ = await desk.planned()
    await desk.ask(conversation, "build", "create", agent="broken", message="Break")
    read = (await desk.ask(conversation, "converse", "read_conversation")).result
    about = read["conversation"]
    assert (about["id"], about["agentName"], about["userId"]) == (conversation, "writer", "local")
    assert about["lastMessageAt"] >= about["startedAt"]
    said = [(one["role"], one["content"]) for one in read["messages"]]
    plan = (await desk.ask(conversation, "plan", "read", versionId=first)).result["currentVersion"]["content"]
    assert said[:3] == [("user", "Write about tides"), ("assistant", plan), ("user", "Break")]
    assert "system" not in {role for role, _ in said}
    full = (await desk.ask(conversation, "converse", "read_conversation", includeSystem=True)).result
    assert [one["role"] for one in full["messages"]].count("system") == 1
    assert full["total"] == read["total"] + 1


async def test_a_conversation_is_read_by_pages(desk: Desk) -> None:
    conversation = await desk.begin()
    for number in range(3):
        await desk.ask(conversation, "plan", "create", message=f"Message {number}")
    whole = (await desk.ask(conversation, "converse", "read_conversation")).result
    pages = [
        (await desk.ask(conversation, "converse", "read_conversation", limit=4, offset=offset)).result
        for offset in (0, 4)
    ]
    assert [page["hasMore"] for page in pages] == [True, False]
    assert [one for page in pages for one in page["messages"]] == whole["messages"]
    assert {page["total"] for page in pages} == {6}


@pytest.mark.parametrize("format_", ["json", "markdown", "html", "pdf"])
async def test_an_export_is_fetched_by_its_link_without_credentials(server: Server, desk: Desk, format_: str) -> None:
    conversation, _, _ = await desk.planned()
    answer = await desk.ask(conversation, "converse", "export_conversation", format=format_, includeArtifacts=True)
    exported = answer.result
    assert (exported["format"], exported["metadata"]) == (format_, {"messageCount": 2, "artifactsIncluded": 1})
    assert exported["expiresAt"] > answer.body["startedAt"]
    assert exported["exportUrl"].startswith(f"{server.url}/api/exports/")
    file = await desk.http.get(exported["exportUrl"])
    assert (file.status_code, len(file.content)) == (200, exported["fileSize"])
    assert b"%PDF" in file.content[:8] if format_ == "pdf" else b"They come and go." in file.content
    again = (await desk.task(answer.task)).result
    assert again == exported
    spoiled = await desk.http.get(exported["exportUrl"][:-1] + ("A" if exported["exportUrl"][-1] != "A" else "B"))
    assert spoiled.status_code == 403


async def test_a_pdf_that_cannot_show_a_character_says_so(desk: Desk) -> None:
    conversation, _, _ = await desk.planned()
    await desk.ask(conversation, "plan", "edit", editedContent="A rune that no font has: \U0010fff0")
    answer = await desk.ask(conversation, "converse", "export_conversation", format="pdf", includeArtifacts=True)
    assert ["U+10FFF0" in one for one in answer.result["metadata"]["warnings"]] == [True]
    assert (await desk.task(answer.task)).result == answer.result


async def test_a_conversation_without_its_documents_is_exported_so(desk: Desk) -> None:
    conversation, _, _ = await desk.planned()
    exported = (await desk.ask(conversation, "converse", "export_conversation", format="json")).result
    assert exported["metadata"]["artifactsIncluded"] == 0
    assert b"They come and go." not in (await desk.http.get(exported["exportUrl"])).content


async def test_an_export_says_which_agent_spoke(desk: Desk) -> None:
    conversation, _, _ = await desk.planned()
    await desk.ask(conversation, "plan", "create", agent="odd", message="Otherwise")
    for format_, shown in (("markdown", "## Odd · "), ("html", "<b>Odd</b>"), ("json", '"speaker":"Odd"')):
        exported = (await desk.ask(conversation, "converse", "export_conversation", format=format_)).result
        file = (await desk.http.get(exported["exportUrl"])).text
        assert file.count(shown) == 1, format_


@pytest.mark.parametrize("artifacts", [True, False])
async def test_a_deleted_conversation_is_not_there_any_more(desk: Desk, artifacts: bool) -> None:
    conversation, first, _ = await desk.planned()
    await desk.planned("build", conversation)
    answer = await desk.ask(
        conversation, "converse", "delete_conversation", confirm=True, deleteArtifacts=artifacts
    )  # fmt: skip
    gone = answer.result
    assert (gone["success"], gone["deletedConversationId"], gone["messagesDeleted"]) == (True, conversation, 4)
    assert gone.get("artifactsDeleted") == ({"plans": 1, "deliverables": 1} if artifacts else None)
    for mode, action in (("plan", "read"), ("converse", "read_conversation")):
        assert (await desk.ask(conversation, mode, action)).refusal == (404, "CONVERSATION_NOT_FOUND")
    assert (await desk.task(first)).refusal == (404, "TASK_NOT_FOUND")
    assert (await desk.task(answer.task)).result == gone
    assert await desk.begin(id_=conversation) == conversation
    assert (await desk.ask(conversation, "plan", "read")).result is None
    assert (await desk.ask(conversation, "converse", "read_conversation")).result["total"] == 0


@pytest.mark.parametrize("mode", ["plan", "build"])
async def test_what_was_kept_of_a_deleted_conversation_is_read_by_its_owner_alone(
    desk: Desk, keys: dict[str, Headers], mode: str
) -> None:
    ann, bob = desk.of(keys["ann"]), desk.of(keys["bob"])
    conversation, first, second = await ann.planned(mode)
    await ann.ask(conversation, "converse", "delete_conversation", confirm=True, deleteArtifacts=False)
    for version, current in ((first, False), (second, True)):
        kept = (await ann.ask(other := await ann.begin(), mode, "read", versionId=version)).result
        assert (kept["currentVersion"]["id"], kept["currentVersion"]["isCurrent"]) == (version, current)
        assert kept["plan" if mode == "plan" else "deliverable"]["conversationId"] == ""
        assert (await ann.ask(other, mode, "read")).result is None
    assert (await bob.ask(await bob.begin(), mode, "read", versionId=first)).refusal == (404, "VERSION_NOT_FOUND")
    swapped = "build" if mode == "plan" else "plan"
    assert (await ann.ask(other, swapped, "read", versionId=first)).refusal == (404, "VERSION_NOT_FOUND")
    refused = await ann.ask(other, mode, "set_current", versionId=first)
    assert refused.refusal[0] == 404


async def test_deleting_a_conversation_stops_what_is_under_way(desk: Desk) -> None:
    conversation = await desk.begin()
    begun = await desk.ask(
        conversation, "plan", "create", agent="sleeper", message="Sleep", headers={"Prefer": "respond-async"}
    )
    deleted = await desk.ask(conversation, "converse", "delete_conversation", confirm=True, deleteArtifacts=True)
    assert deleted.status == 200, deleted.body
    assert (await desk.task(begun.task)).refusal == (404, "TASK_NOT_FOUND")


async def test_another_principals_conversation_is_neither_read_nor_exported_nor_deleted(
    desk: Desk, keys: dict[str, Headers]
) -> None:
    ann, bob = desk.of(keys["ann"]), desk.of(keys["bob"])
    conversation, _, _ = await ann.planned()
    for action, params in (
        ("read_conversation", {}),
        ("export_conversation", {"format": "json"}),
        ("delete_conversation", {"confirm": True, "deleteArtifacts": True}),
    ):
        refused = await bob.ask(conversation, "converse", action, **params)
        assert refused.refusal == (404, "CONVERSATION_NOT_FOUND"), action
    assert (await ann.ask(conversation, "converse", "read_conversation")).result["total"] == 2
    # What is confirmed is confirmed by name: nothing else will do.
    refused = await ann.ask(conversation, "converse", "delete_conversation", confirm=False, deleteArtifacts=True)
    assert (refused.refusal[1], refused.body["error"]["details"]) == ("MISSING_REQUIRED_PARAM", {"field": "confirm"})
    exported = (await ann.ask(conversation, "converse", "export_conversation", format="json")).result
    told = msgspec.json.decode((await desk.http.get(exported["exportUrl"])).content)
    assert conversation in msgspec.json.encode(told).decode()

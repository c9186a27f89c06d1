"""Tasks can be waited for, left alone, read again and followed."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest

from parley.ids import RunId
from parley.runs.requests import Send
from parley.runs.rules.access import LOCAL
from parley.runs.rules.content import Message, text_part
from parley.testing.processes import until
from parley.testing.servers import Server
from tests.faces.actions.desk import PREFIX, Answer, Desk, Headers, Json

pytestmark = pytest.mark.asyncio(loop_scope="module")

LATER = {"Prefer": "respond-async"}


async def test_a_task_that_nobody_waits_for_is_pending_at_once(desk: Desk) -> None:
    begun = await desk.ask(
        await desk.begin(), "plan", "create", message="Tides", headers={"Prefer": "respond-async; x"}
    )
    assert (begun.status, begun.body["status"], "result" in begun.body) == (202, "pending", False)
    assert begun.reply.headers["preference-applied"] == "respond-async"
    last = [event async for _, event in desk.events(begun.task)][-1]
    assert last["task"]["result"]["plan"]["currentVersionId"] == begun.task
    assert (await desk.send("GET", begun.reply.headers["location"].removeprefix(PREFIX))).body == last["task"]


async def test_what_is_done_at_once_is_not_put_off(desk: Desk) -> None:
    conversation, _, _ = await desk.planned()
    edited = await desk.ask(conversation, "plan", "edit", editedContent="x", headers=LATER)
    assert (edited.status, edited.body["status"], "preference-applied" in edited.reply.headers) == (
        200, "completed", False,
    )  # fmt: skip


async def test_a_task_is_read_again_as_it_was_answered(desk: Desk) -> None:
    conversation, first, _ = await desk.planned()
    for action, params in (
        ("create", {"message": "More"}),
        ("edit", {"editedContent": "y"}),
        ("set_current", {"versionId": first}),
        ("copy_version", {"versionId": first}),
    ):
        answer = await desk.ask(conversation, "plan", action, **params)
        kept = await desk.task(answer.task)
        assert {**kept.body, "metadata": {}} == {**answer.body, "metadata": {}}, action


async def test_a_read_leaves_a_task_without_a_result(desk: Desk) -> None:
    answer = await desk.ask(await desk.begin(), "plan", "read")
    kept = (await desk.task(answer.task)).body
    assert (kept["status"], kept["conversationId"]) == ("completed", answer.body["conversationId"])
    assert (kept["startedAt"], kept["completedAt"]) == (answer.body["startedAt"], answer.body["completedAt"])
    assert "result" not in kept
    events = [event async for event in desk.events(answer.task)]
    assert events == [(1, {"type": "task", "task": kept})]
    assert [event async for event in desk.events(answer.task, 1)] == []


async def test_refusals_are_kept_in_the_store(server: Server, desk: Desk) -> None:
    answer = await desk.ask("nowhere", "plan", "read")
    library = server.exchange.store.library

    async def written() -> bool:
        return await library.operation(answer.task) is not None

    await until(written)
    kept = await library.operation(answer.task)
    assert kept is not None
    assert (kept.principal, kept.conversation, kept.agent) == ("local", "nowhere", "writer")
    assert (kept.mode, kept.action, kept.code) == ("plan", "read", "CONVERSATION_NOT_FOUND")
    assert (await desk.task(answer.task)).body["error"]["code"] == "CONVERSATION_NOT_FOUND"


async def test_a_stream_tells_the_status_the_growing_text_and_the_end(desk: Desk) -> None:
    conversation = await desk.begin()
    made = await desk.ask(conversation, "plan", "create", message="Write about tides")
    events = [event async for event in desk.events(made.task)]
    kinds = [event["type"] for _, event in events]
    assert kinds[:2] == ["status", "status"]
    assert [event["status"] for _, event in events[:2]] == ["pending", "running"]
    assert set(kinds[2:-1]) == {"text"}
    assert kinds[-1] == "task"
    text = "".join(event["text"] for _, event in events if event["type"] == "text")
    assert text == made.result["version"]["content"]
    assert events[-1][1]["task"] == (await desk.task(made.task)).body
    numbers = [number for number, _ in events]
    assert numbers == sorted(set(numbers))


async def test_a_stream_goes_on_after_any_of_its_events(desk: Desk) -> None:
    made = await desk.ask(await desk.begin(), "plan", "create", message="Write about tides")
    events = [event async for event in desk.events(made.task)]
    for number, _ in events:
        rest = [event async for event in desk.events(made.task, number)]
        assert rest == [event for event in events if event[0] > number]


async def test_a_task_whose_log_is_forgotten_still_shows_how_it_ended(server: Server, desk: Desk) -> None:
    made = await desk.ask(await desk.begin(), "plan", "create", message="Write about tides")
    view = await server.exchange.view(RunId(made.task))
    await server.exchange.store.trim(view.run.id, view.run.version, view.snapshot())
    kept = await desk.task(made.task)
    assert kept.body == made.body
    assert [event async for event in desk.events(made.task)] == [
        (view.run.version, {"type": "task", "task": kept.body})
    ]
    stale = await desk.send("GET", f"/tasks/{made.task}/stream", headers={"Last-Event-ID": "1"})
    assert stale.refusal == (410, "STALE_CURSOR")
    assert stale.body["error"]["details"]["floor"] == view.run.version
    beyond = await desk.send("GET", f"/tasks/{made.task}/stream", headers={"Last-Event-ID": "5000"})
    assert beyond.refusal == (400, "INVALID_REQUEST")


async def test_a_stream_is_live(server: Server, desk: Desk) -> None:
    begun = await desk.ask(await desk.begin(), "plan", "create", agent="sleeper", message="Sleep", headers=LATER)
    seen: list[dict[str, Any]] = []
    async for _, event in desk.events(begun.task):
        seen.append(event)
        if event["type"] == "text":
            assert (await desk.task(begun.task)).body["status"] == "running"
            await server.exchange.cancel(begun.task, LOCAL)
    assert {"type": "status", "taskId": begun.task, "status": "running", "message": "asleep"} in seen
    assert {"type": "text", "taskId": begun.task, "text": "# So far", "reset": True} in seen
    assert seen[-1]["task"]["error"]["code"] == "TASK_CANCELED"


async def test_a_task_that_waits_for_input_is_running_and_shows_its_question(server: Server, desk: Desk) -> None:
    conversation = await desk.begin("asker")
    asked = await desk.ask(conversation, "plan", "create", agent="asker", message="A poem")
    assert (asked.status, asked.body["status"]) == (200, "running")
    assert asked.result == {"question": "For whom?", "needs": "input"}
    async for _, event in desk.events(asked.task):
        if event["type"] == "question":
            assert event == {"type": "question", "taskId": asked.task, "question": "For whom?", "needs": "input"}
            message = Message("answer", (text_part("Ann"),))
            await server.exchange.send(Send("asker", LOCAL, message, asked.task))
        last = event
    assert last["task"]["result"]["version"]["content"] == "# For Ann"
    assert (await desk.ask(conversation, "plan", "read")).result["plan"]["title"] == "For Ann"


async def test_a_client_that_leaves_does_not_cancel_its_task(server: Server, desk: Desk) -> None:
    conversation = await desk.begin()
    body = {"mode": "plan", "action": "create", "agentSlug": "sleeper", "message": "Sleep"}
    key = {"Idempotency-Key": f"leave-{conversation}"}
    begun = await desk.ask(conversation, "plan", "create", agent="sleeper", message="Sleep", headers={**key, **LATER})
    async with httpx2.AsyncClient(base_url=server.url, timeout=0.2) as impatient:
        with pytest.raises(httpx2.TimeoutException):
            await impatient.post(f"{PREFIX}/conversations/{conversation}/tasks", json=body, headers=key)
    await until(lambda: begun.task in server.exchange.execution.under_way)
    assert (await desk.task(begun.task)).body["status"] == "running"
    await server.exchange.cancel(begun.task, LOCAL)


async def test_a_conversation_known_from_a2a_is_begun_when_it_is_first_used(server: Server, desk: Desk) -> None:
    outcome = await server.exchange.send(Send("writer", LOCAL, Message("m", (text_part("hello"),))))
    view = await server.exchange.settled(outcome)
    assert (await desk.ask(view.run.conversation, "plan", "read")).result is None
    made = await desk.ask(view.run.conversation, "plan", "create", message="Tides")
    assert made.status == 200
    task = (await desk.task(outcome.run.id)).body
    assert task["result"]["content"].endswith("You said: hello")


async def test_a_conversation_is_begun_once(desk: Desk) -> None:
    first = await desk.send("POST", "/conversations", {"agentSlug": "writer", "id": "mine/1"})
    again = await desk.send("POST", "/conversations", {"agentSlug": "asker", "id": "mine/1"})
    assert (first.status, again.status) == (201, 200)
    assert first.result == again.result
    assert (await desk.ask("mine%2F1", "plan", "read")).body["conversationId"] == "mine/1"


@pytest.mark.parametrize(
    ("body", "refusal"),
    [
        ({}, (400, "MISSING_REQUIRED_PARAM")),
        ({"agentSlug": "writer", "id": "no good id"}, (400, "MISSING_REQUIRED_PARAM")),
        ({"agentSlug": "nobody"}, (404, "AGENT_NOT_FOUND")),
        (b"{", (400, "INVALID_REQUEST")),
    ],
)
async def test_a_conversation_that_cannot_be_begun(desk: Desk, body: object, refusal: tuple[int, str]) -> None:
    assert (await desk.send("POST", "/conversations", body)).refusal == refusal


async def test_what_another_principal_has_does_not_exist(desk: Desk, keys: dict[str, Headers]) -> None:
    ann, bob = desk.of(keys["ann"]), desk.of(keys["bob"])
    conversation, first, second = await ann.planned()
    assert (await bob.ask(conversation, "plan", "read")).refusal == (404, "CONVERSATION_NOT_FOUND")
    assert (await bob.ask(conversation, "plan", "edit", editedContent="mine")).refusal[1] == "CONVERSATION_NOT_FOUND"
    own, _, _ = await bob.planned()
    for action, params in (
        ("read", {"versionId": first}),
        ("set_current", {"versionId": first}),
        ("copy_version", {"versionId": second}),
        ("delete_version", {"versionId": first}),
        ("merge_versions", {"versionIds": [first, second], "mergePrompt": "steal"}),
    ):
        assert (await bob.ask(own, "plan", action, **params)).refusal == (404, "VERSION_NOT_FOUND"), action
    for path in (f"/tasks/{first}", f"/tasks/{first}/stream"):
        assert (await bob.send("GET", path)).refusal == (404, "TASK_NOT_FOUND")
    noted = await ann.ask(conversation, "plan", "read")
    assert (await bob.task(noted.task)).refusal == (404, "TASK_NOT_FOUND")
    assert (await ann.task(noted.task)).status == 200
    # The same id is another conversation for each.
    assert await bob.begin(id_=conversation) == conversation
    assert (await bob.ask(conversation, "plan", "read")).result is None
    assert (await ann.ask(conversation, "plan", "list")).result["total"] == 2


async def test_a_private_agent_is_there_only_for_whom_it_allows(desk: Desk, keys: dict[str, Headers]) -> None:
    ann, bob = desk.of(keys["ann"]), desk.of(keys["bob"])
    shown = await ann.ask(await ann.begin("hidden"), "plan", "create", agent="hidden", message="x")
    assert shown.status == 200
    unknown = await bob.ask(await bob.begin(), "plan", "create", agent="hidden", message="x")
    assert unknown.refusal == (404, "AGENT_NOT_FOUND")


async def test_who_may_only_read_changes_nothing(desk: Desk, keys: dict[str, Headers]) -> None:
    reader = desk.of(keys["reader"])
    assert (await reader.ask("nowhere", "plan", "read")).refusal == (404, "CONVERSATION_NOT_FOUND")
    assert (await reader.ask("nowhere", "plan", "delete")).refusal == (403, "FORBIDDEN")
    assert (await reader.send("POST", "/conversations", {"agentSlug": "writer"})).refusal == (403, "FORBIDDEN")


async def test_a_credential_that_does_not_hold_is_answered_with_an_envelope(desk: Desk) -> None:
    unknown = desk.of({"Authorization": "Bearer parley_nobody"})
    for method, path in (("POST", "/conversations/x/tasks"), ("GET", "/tasks/x"), ("GET", "/openapi.json")):
        answer = await unknown.send(method, path, b"{}" if method == "POST" else None)
        assert answer.refusal == (401, "UNAUTHORIZED")
        assert answer.reply.headers["www-authenticate"].startswith("Bearer")
        assert answer.body["conversationId"] == ("x" if method == "POST" else "")


async def test_a_refusal_before_the_request_is_read_names_the_conversation(desk: Desk) -> None:
    path = "/conversations/mine%2F1/tasks"
    for method, headers, refusal in (
        ("POST", [("Authorization", "Bearer a"), ("Authorization", "Bearer b")], (401, "UNAUTHORIZED")),
        ("POST", [("Origin", "https://elsewhere.example")], (403, "FORBIDDEN")),
        ("GET", [], (405, "METHOD_NOT_ALLOWED")),
        ("POST", [("Content-Type", "text/plain")], (415, "UNSUPPORTED_MEDIA_TYPE")),
    ):
        answer = Answer(await desk.http.request(method, PREFIX + path, headers=headers))
        desk.check("Envelope", answer.body)
        assert (answer.refusal, answer.body["conversationId"]) == (refusal, "mine/1")


@pytest.mark.parametrize("cursor", ["-1", "x", "1.5", "99999999999999999999"])
async def test_a_cursor_that_is_none(desk: Desk, cursor: str) -> None:
    _, first, _ = await desk.planned()
    answer = await desk.send("GET", f"/tasks/{first}/stream", headers={"Last-Event-ID": cursor})
    assert answer.refusal == (400, "INVALID_REQUEST")


def times(envelope: Json) -> tuple[datetime, datetime]:
    return datetime.fromisoformat(envelope["startedAt"]), datetime.fromisoformat(envelope["completedAt"])


async def test_a_task_that_is_recorded_at_its_end_tells_when_it_was_asked_for(server: Server, desk: Desk) -> None:
    conversation = await desk.begin()
    begun = await desk.ask(conversation, "plan", "create", agent="stubborn", message="Go", headers=LATER)
    await until(lambda: begun.task in server.exchange.execution.under_way)
    asked = {"confirm": True, "deleteArtifacts": True, "headers": {"Idempotency-Key": f"times-{conversation}"}}
    before = datetime.now(UTC) - timedelta(milliseconds=1)
    deleted = await desk.ask(conversation, "converse", "delete_conversation", **asked)
    after = datetime.now(UTC)
    started, completed = times(deleted.body)
    assert deleted.status == 200
    assert before <= started <= completed <= after
    assert completed - started > timedelta(milliseconds=250)
    again = await desk.ask(conversation, "converse", "delete_conversation", **asked)
    read = await desk.task(deleted.task)
    assert times(again.body) == times(read.body) == (started, completed)
    assert read.body["metadata"]["executionTimeMs"] == round((completed - started) / timedelta(milliseconds=1))


async def test_times_of_what_is_answered_at_once_fails_or_takes_long(server: Server, desk: Desk) -> None:
    conversation, _, _ = await desk.planned()
    key = {"Idempotency-Key": f"read-{conversation}"}
    for agent, action, more in (
        ("writer", "create", {"message": "Tides"}), ("broken", "create", {"message": "Tides"}),
        ("writer", "read", {}), ("writer", "read", {"headers": key}), ("writer", "edit", {"editedContent": "# Ebb"}),
        ("writer", "read", {"versionId": "none"}),
    ):  # fmt: skip
        before = datetime.now(UTC) - timedelta(milliseconds=1)
        answer = await desk.ask(conversation, "plan", action, agent=agent, **more)
        started, completed = times(answer.body)
        assert before <= started <= completed <= datetime.now(UTC), action
        if action != "read":
            assert times((await desk.task(answer.task)).body) == (started, completed)
    first = await desk.ask(conversation, "plan", "read", headers=key)
    await asyncio.sleep(0.01)
    assert times((await desk.ask(conversation, "plan", "read", headers=key)).body) == times(first.body)
    later = await desk.ask(conversation, "plan", "create", agent="sleeper", message="Go", headers=LATER)
    assert "completedAt" not in later.body
    await server.exchange.cancel(later.task, LOCAL)
    ended = [event async for _, event in desk.events(later.task)][-1]["task"]
    assert (ended["startedAt"], ended["status"]) == (later.body["startedAt"], "failed")
    assert times(ended)[0] < times(ended)[1]


async def test_a_conversation_found_again_tells_the_times_of_the_request(desk: Desk) -> None:
    body = {"agentSlug": "writer", "id": "long-ago"}
    await desk.send("POST", "/conversations", body)
    await asyncio.sleep(0.01)
    before = datetime.now(UTC) - timedelta(milliseconds=1)
    started, completed = times((await desk.send("POST", "/conversations", body)).body)
    assert before <= started <= completed


@pytest.mark.parametrize("mode", ["plan", "build"])
async def test_a_waiting_task_is_answered_by_the_action_that_began_it(desk: Desk, mode: str) -> None:
    conversation = await desk.begin()
    asked = await desk.ask(conversation, mode, "create", agent="asker", message="Write")
    assert (asked.body["status"], asked.result) == ("running", {"question": "For whom?", "needs": "input"})
    to = {"agent": "asker", "taskId": asked.task, "message": "Ann", "headers": {"Idempotency-Key": f"a-{conversation}"}}
    first, again = [await desk.ask(conversation, mode, "create", **to) for _ in "12"]
    assert (first.status, first.task, first.body["startedAt"]) == (200, asked.task, asked.body["startedAt"])
    assert first.result["version"]["content"] == "# For Ann"
    assert again.body == first.body
    late = await desk.ask(conversation, mode, "create", **{**to, "headers": {}})
    assert late.refusal == (409, "INVALID_STATE")
    listed = await desk.ask(conversation, mode, "list")
    assert listed.result["total"] == 1


async def test_an_answer_may_be_left_alone(desk: Desk) -> None:
    conversation = await desk.begin()
    asked = await desk.ask(conversation, "plan", "create", agent="asker", message="Write")
    to = {"agent": "asker", "taskId": asked.task, "message": "Bob"}
    later = await desk.ask(conversation, "plan", "create", headers=LATER, **to)
    assert (later.status, later.task) == (202, asked.task)
    last = [event async for _, event in desk.events(asked.task)][-1]
    assert last["task"]["result"]["version"]["content"] == "# For Bob"


async def test_only_a_waiting_task_of_the_conversation_and_the_agent_is_answered(
    desk: Desk, keys: dict[str, Headers]
) -> None:
    conversation, first, _ = await desk.planned()
    asked = await desk.ask(conversation, "plan", "create", agent="asker", message="Write")
    unknown = (404, "TASK_NOT_FOUND")
    for agent, where, task, refusal in (
        ("asker", conversation, "nobody", unknown), ("asker", conversation, "no id\0", unknown),
        ("writer", conversation, asked.task, unknown), ("asker", await desk.begin(), asked.task, unknown),
        ("writer", conversation, first, (409, "INVALID_STATE")),
    ):  # fmt: skip
        answer = await desk.ask(where, "plan", "create", agent=agent, taskId=task, message="Ann")
        assert answer.refusal == refusal, (agent, task)
    ann = desk.of(keys["ann"])
    theirs = await ann.ask(conversation, "plan", "create", agent="asker", taskId=asked.task, message="x")
    assert theirs.refusal == unknown
    empty = await desk.ask(conversation, "build", "create", agent="asker", taskId=asked.task)
    assert empty.refusal == (400, "MISSING_REQUIRED_PARAM")

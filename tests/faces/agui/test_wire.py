import uuid
from typing import Any

import pytest

from parley.client import Client
from parley.ids import RunId
from parley.testing.servers import Server
from tests.faces.agui.wire import Front, Json, Sent, run_input, text, types

POEM = [
    "RUN_STARTED", "ACTIVITY_SNAPSHOT",
    "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END",
    "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END", "CUSTOM", "RUN_FINISHED",
]  # fmt: skip
COLOUR = [
    "RUN_STARTED", "CUSTOM", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END",
    "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END", "RUN_FINISHED",
]  # fmt: skip


def answer(given: Json, asked: list[Sent], payload: Any, **more: Any) -> Json:
    entry = {"interruptId": asked[-1].data["outcome"]["interrupts"][0]["id"], "status": "resolved", "payload": payload}
    return run_input(threadId=given["threadId"], resume=[entry | more])


async def test_an_answer_is_streamed_as_one_message(front: Front, server: Server) -> None:
    given = run_input("hello you")
    events = await front.post("echo", given)
    assert types(events) == [
        "RUN_STARTED", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END", "RUN_FINISHED"
    ]  # fmt: skip
    assert text(events) == "hello you "
    started, finished = events[0].data, events[-1].data
    assert {(one["threadId"], one["runId"]) for one in (started, finished)} == {(given["threadId"], given["runId"])}
    assert started["protocolVersion"] == "1.0"
    assert started["input"]["messages"] == given["messages"]
    assert finished["outcome"] == {"type": "success"}
    run = await server.exchange.commands.state(RunId(given["runId"]))
    assert (run.conversation, run.agent) == (given["threadId"], "echo")


async def test_a_question_is_an_interrupt_whose_answer_is_another_run_of_the_same_task(front: Front) -> None:
    given = run_input("a poem")
    asked = await front.post("poet", given)
    assert types(asked) == POEM
    schema = {"type": "string", "enum": ["red", "blue"]}
    id_ = f"{given['runId']}#6"
    assert asked[-2].data["value"] == {
        "id": id_, "task": given["runId"], "reason": "input_required", "text": "Which colour?",
        "choices": ["red", "blue"], "schema": schema,
    }  # fmt: skip
    interrupt = {"id": id_, "reason": "input_required", "message": "Which colour?", "responseSchema": schema}
    assert asked[-1].data["outcome"] == {"type": "interrupt", "interrupts": [interrupt]}
    answered = answer(given, asked, "blue")
    done = await front.post("poet", answered)
    assert types(done) == COLOUR
    assert done[0].data["runId"] == answered["runId"]
    assert done[0].data["metadata"]["parley"]["task"] == given["runId"]
    assert done[1].data["name"] == "parley.artifact"
    assert done[1].data["value"]["parts"] == [{"data": {"colour": "blue"}}]
    assert text(done) == "blue.Bye."
    assert done[-1].data["usage"] == [{"model": "gpt", "inputTokens": 5, "outputTokens": 7, "totalTokens": 12}]


async def test_a_stream_resumes_after_each_of_its_events_without_gap_or_repetition(front: Front) -> None:
    given = run_input("a poem")
    asked = await front.post("poet", given)
    answered = answer(given, asked, "blue")
    done = await front.post("poet", answered)
    both = [*asked, *done]
    assert len({event.id for event in both}) == len(both)
    for place, event in enumerate(both, 1):
        assert await front.get("poet", given["runId"], event.id) == both[place:]
        assert await front.post("poet", given, event.id) == both[place:]
        assert await front.post("poet", answered, event.id) == both[place:]


async def test_a_repeated_run_id_is_the_same_run(front: Front, server: Server) -> None:
    given = run_input("a poem")
    asked = await front.post("poet", given)
    assert await front.post("poet", given) == asked
    answered = answer(given, asked, "blue")
    done = await front.post("poet", answered)
    assert await front.post("poet", answered) == done
    assert await front.post("poet", given) == [*asked, *done]
    view = await server.exchange.view(RunId(given["runId"]))
    assert view.run.inputs == 2
    assert await front.refused("poet", answer(given, asked, "red")) == (409, "This question was answered already.")


async def test_a_run_id_that_is_taken_is_refused(front: Front) -> None:
    given = run_input("hello")
    await front.post("echo", given)
    other = {**given, "threadId": str(uuid.uuid4())}
    assert await front.refused("echo", other) == (409, "There is another run with this id: choose a new runId.")
    assert (await front.refused("poet", given))[0] == 409


async def test_a_new_tab_gets_the_messages_of_the_thread_so_far(front: Front) -> None:
    first = run_input("a poem")
    asked = await front.post("poet", first)
    answered = answer(first, asked, "red")
    await front.post("poet", answered)
    second = run_input("another", threadId=first["threadId"])
    await front.post("poet", second)
    events = await front.get("poet", second["runId"])
    assert types(events) == [POEM[0], "MESSAGES_SNAPSHOT", *POEM[1:]]
    said = [(one["role"], one["content"]) for one in events[1].data["messages"]]
    assert said == [
        ("user", "a poem"), ("assistant", "Roses are"), ("assistant", "Which colour?"), ("user", "red"),
        ("assistant", "red."), ("assistant", "Bye."), ("user", "another"),
    ]  # fmt: skip
    ids = [one["id"] for one in events[1].data["messages"]]
    assert ids[:2] == [first["messages"][0]["id"], asked[2].data["messageId"]]
    for place, event in enumerate(events[:-1], 1):
        assert await front.get("poet", second["runId"], event.id) == events[place:]


async def test_a_message_in_a_thread_that_waits_is_the_answer(front: Front, server: Server) -> None:
    given = run_input("a poem")
    await front.post("poet", given)
    typed = run_input("red", threadId=given["threadId"])
    done = await front.post("poet", typed)
    assert types(done) == COLOUR
    assert done[0].data["input"]["messages"] == typed["messages"]
    assert await front.post("poet", typed) == done
    assert (await server.exchange.view(RunId(given["runId"]))).run.ended


async def test_a_wrong_answer_is_refused_and_the_question_stays(front: Front) -> None:
    given = run_input("a poem")
    asked = await front.post("poet", given)
    status, said = await front.refused("poet", answer(given, asked, "green"))
    assert status == 400
    assert "it must be one of: 1. red; 2. blue" in said
    assert text(await front.post("poet", answer(given, asked, {"choice": "red"}))) == "red.Bye."


async def test_a_form_is_answered_with_an_object(front: Front) -> None:
    given = run_input("go")
    asked = await front.post("form", given)
    assert asked[-1].data["outcome"]["interrupts"][0]["responseSchema"]["required"] == ["city"]
    assert text(await front.post("form", answer(given, asked, {"city": "Lisbon"}))) == "To Lisbon."


async def test_an_interrupt_that_is_cancelled_cancels_the_task(front: Front) -> None:
    given = run_input("a poem")
    asked = await front.post("poet", given)
    declined = answer(given, asked, None, status="cancelled")
    ended = await front.post("poet", declined)
    assert types(ended) == ["RUN_STARTED", "CUSTOM", "RUN_FINISHED"]
    assert ended[-1].data["outcome"] == {"type": "cancelled"}
    assert await front.post("poet", declined) == ended


async def test_a_tool_of_the_front_end_is_called_and_its_result_comes_back_as_input(front: Front) -> None:
    tool = {"name": "show_map", "description": "Shows a map.", "parameters": {"type": "object"}}
    given = run_input("the map", tools=[tool], state={"zoom": 3}, context=[{"description": "city", "value": "Lisbon"}])
    called = await front.post("map", given)
    assert types(called) == ["RUN_STARTED", "TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "RUN_FINISHED"]
    id_ = called[1].data["toolCallId"]
    assert (called[1].data["toolCallName"], called[2].data["delta"]) == ("show_map", '{"zoom":4}')
    assert called[-1].data["outcome"] == {"type": "success", "pendingToolCallIds": [id_]}
    result = {"id": "r1", "role": "tool", "toolCallId": id_, "content": "shown"}
    back = run_input(
        threadId=given["threadId"], messages=[*given["messages"], {"id": "a1", "role": "assistant"}, result]
    )
    said = await front.post("map", back)
    assert text(said) == "The map says shown."
    assert said[0].data["input"]["messages"] == [result]
    assert await front.post("map", back) == said


async def test_the_state_is_shared_whole_and_by_changes(front: Front) -> None:
    events = await front.post("board", run_input("count"))
    assert types(events) == ["RUN_STARTED", "STATE_SNAPSHOT", "STATE_DELTA", "RUN_FINISHED"]
    assert events[1].data["snapshot"] == {"count": 1}
    assert events[2].data["delta"] == [{"op": "replace", "path": "/count", "value": 2}]


async def test_a_failure_ends_the_run_with_its_code(front: Front) -> None:
    events = await front.post("clumsy", run_input("work"))
    assert types(events)[-2:] == ["TEXT_MESSAGE_END", "RUN_ERROR"]
    assert (events[-1].data["code"], events[-1].data["message"]) == ("tired", "Too tired.")


async def test_a_task_of_a2a_is_followed_and_an_answer_over_a2a_is_shown(front: Front, server: Server) -> None:
    async with Client(server.agent("poet")) as client:
        asked = await client.send("a poem")
        before = await front.get("poet", asked.run_id)
        assert (before[0].data["runId"], before[-1].type) == (asked.run_id, "RUN_FINISHED")
        await client.send("blue", task=asked.run_id)
    after = await front.get("poet", asked.run_id, before[-1].id)
    assert types(after) == COLOUR
    assert after[0].data["input"]["messages"][0]["content"] == "blue"


@pytest.mark.parametrize("last", ["", "x", "-1", "1.", ".1", "0.1", "1.1.1", "1e3", "9" * 30, "٣"])
async def test_a_cursor_that_is_none_is_refused(front: Front, last: str) -> None:
    given = run_input("hello")
    await front.post("echo", given)
    reply = await front.http.get(f"/agents/echo/agui/{given['runId']}", headers={"Last-Event-ID": last.encode()})
    assert reply.status_code == 400


async def test_a_cursor_beyond_the_end_or_of_no_run_is_refused(front: Front) -> None:
    given = run_input("hello")
    await front.post("echo", given, "3", 404)
    await front.post("echo", given)
    await front.post("echo", given, "999", 400)
    await front.get("echo", str(uuid.uuid4()), None, 404)
    await front.get("poet", given["runId"], None, 404)
    assert await front.get("echo", given["runId"], "5.99") == []


def picture(kind: str, value: str) -> Json:
    source = {"type": kind, "value": value, "mimeType": "image/png"}
    return {"messages": [{"id": "m", "role": "user", "content": [{"type": "image", "source": source}]}]}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"id": "a", "role": "assistant", "content": "hi"}]}, "messages"),
        ({"runId": "a b"}, "runId"),
        ({"threadId": "\x00"}, "threadId"),
        ({"resume": [{"interruptId": "x", "status": "resolved", "payload": 1}]}, "resume[0].interruptId"),
        ({"resume": [{"interruptId": "x#1", "status": "resolved"}] * 2}, "resume"),
        ({"messages": [{"id": "m", "role": "user", "content": {"a": 1}}]}, "messages.content"),
        (picture("data", "é"), "messages.content.source.value"),
        (picture("file", "f"), "messages.content.source"),
    ],
)
async def test_what_is_wrong_with_an_input_is_said(front: Front, change: Json, field: str) -> None:
    reply = await front.http.post("/agents/echo/agui", json={**run_input("hello"), **change})
    assert reply.status_code == 400
    assert reply.json()["error"]["details"][1]["fieldViolations"][0]["field"] == field

"""The A2A client against a real server."""

from pathlib import Path

import pytest

from parley import ArtifactChunk, Done, NeedInput, Rejected, State, Turn, agent
from parley.client import Client, RemoteError, UnreadableAnswer
from parley.client.a2a import answer_in
from parley.testing.servers import serving

SEPARATORS = "one\u2028two\u2029three\u0085four\x0bfive\x1csix"


@agent("echo")
def echo(turn: Turn) -> str:
    return turn.text


@agent("asker")
async def asker(turn: Turn):
    if not turn.answers:
        yield NeedInput("Which colour?")
        return
    yield ArtifactChunk({"colour": turn.text}, name="colour")
    yield Done(task_metadata={"usage": {"tokens": 3}})


@agent("refuser")
async def refuser(turn: Turn):
    yield Rejected("too_late", "Not today.")


async def test_a_stream_may_carry_every_line_separator(tmp_path: Path) -> None:
    async with serving(tmp_path, [echo], store="memory") as server, Client(server.agent("echo")) as client:
        results = [result async for result in client.stream(SEPARATORS)]
    parts = [part for one in results for part in one.get("artifactUpdate", {}).get("artifact", {}).get("parts", ())]
    assert [part["text"] for part in parts] == [SEPARATORS]


async def test_an_answer_is_typed_and_still_has_the_servers_json(tmp_path: Path) -> None:
    async with serving(tmp_path, [echo, asker, refuser], store="memory") as server:
        async with Client(server.agent("echo")) as client:
            answer = await client.send("hi")
            assert (answer.state, answer.text, answer.question) == (State.COMPLETED, "hi", None)
            assert answer["task"]["id"] == answer.run_id == answer.result["task"]["id"]
            assert ("task" in answer, answer.get("message")) == (True, None)
            accepted = await client.send("hi", configuration={"returnImmediately": True})
            assert accepted.state in (State.SUBMITTED, State.WORKING, State.COMPLETED)
        async with Client(server.agent("asker")) as client:
            question = await client.send("hi")
            assert (question.state, question.question) == (State.INPUT_REQUIRED, "Which colour?")
            told = await client.send("red", task=question.run_id)
            assert (told.data, told.usage, told.conversation) == (
                {"colour": "red"},
                {"tokens": 3},
                question.conversation,
            )
        async with Client(server.agent("refuser")) as client:
            refused = await client.send("hi")
            assert (refused.state, refused.code, refused.reason) == (State.REJECTED, "too_late", "Not today.")


@pytest.mark.parametrize(
    "result", [{}, [], None, {"task": {"status": {"state": "TASK_STATE_UNHEARD_OF"}}}, {"task": 1}]
)
def test_a_result_that_is_not_a2a_is_refused(result: object) -> None:
    with pytest.raises(UnreadableAnswer):
        answer_in(result)


async def test_the_same_message_under_one_key_is_one_task_for_every_client(tmp_path: Path) -> None:
    async with serving(tmp_path, [echo], store="memory") as server:
        runs = []
        for _ in range(2):
            async with Client(server.agent("echo")) as client:
                runs.append((await client.send("hi", key="greeting-1")).run_id)
                with pytest.raises(RemoteError, match="another payload"):
                    await client.send("hello", key="greeting-1")
        assert runs[0] == runs[1]

"""The messages that a model is sent when it writes a version of a document."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import httpx2
import pytest
import pytest_asyncio

from parley.drivers.llm.driver import LlmDriver
from parley.ids import new_id
from parley.models.llm import Answered, Delta, Finish, Sampling, Speech, TokenUsage
from parley.runs.rules.agents import Agent
from parley.runs.rules.content import text_of
from parley.testing.servers import serving
from tests.faces.actions.desk import Desk

pytestmark = pytest.mark.asyncio(loop_scope="module")

MODES = pytest.mark.parametrize("mode", ["plan", "build"])
NOUNS = {"plan": "plan", "build": "deliverable"}


class RecordingModel:
    """Answers with text that no other answer has, and keeps what it was sent."""

    reads = ("text/plain",)

    def __init__(self) -> None:
        self.sent: list[list[str]] = []
        self.heading = True
        self._numbers = count(1)

    async def stream(self, messages: Sequence[Speech], sampling: Sampling) -> AsyncGenerator[Answered, None]:
        self.sent.append([text_of(one.parts) for one in messages])
        number = next(self._numbers)
        yield TokenUsage("recording", 1, 0)
        yield Delta(f"# Title {number}\n\nBody-{number}." if self.heading else f"Body-{number}.")
        yield TokenUsage("recording", 1, 2)
        yield Finish("stop")


MODEL = RecordingModel()


class Room:
    """One conversation with an agent whose model records what it is sent."""

    def __init__(self, desk: Desk, conversation: str) -> None:
        self.desk = desk
        self.conversation = conversation

    async def ask(self, mode: str, action: str, **params: Any) -> Any:
        answer = await self.desk.ask(self.conversation, mode, action, "recorder", **params)
        assert answer.status == 200, answer.body
        return answer.result

    async def made(self, mode: str, action: str, **params: Any) -> tuple[str, str, list[str]]:
        """The id of the version, its own words, and what the model was sent for it."""
        version = (await self.ask(mode, action, **params))["version"]
        return version["id"], version["content"].rpartition("\n")[2], MODEL.sent[-1]

    async def say(self, text: str) -> str:
        message = {
            "messageId": new_id(),
            "role": "ROLE_USER",
            "contextId": self.conversation,
            "parts": [{"text": text}],
        }
        reply = await self.desk.http.post(
            "/agents/recorder/message:send", json={"message": message}, headers={"A2A-Version": "1.0"}
        )
        assert reply.status_code == 200, reply.text
        return str(reply.json()["task"]["artifacts"][0]["parts"][0]["text"]).rpartition("\n")[2]

    async def title(self, mode: str) -> str:
        return (await self.ask(mode, "read"))[NOUNS[mode]]["title"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def desk(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Desk]:
    folder: Path = tmp_path_factory.mktemp("prompts")
    recorder = LlmDriver(Agent("recorder", "Recorder", "Records.", model="recording"), MODEL, Sampling())
    async with (
        serving(folder, [recorder]) as running,
        httpx2.AsyncClient(base_url=running.url, timeout=20) as http,
    ):
        yield await Desk.open(http)


@pytest_asyncio.fixture(loop_scope="module")
async def room(desk: Desk) -> Room:
    MODEL.heading = True
    return Room(desk, await desk.begin("recorder"))


def times(words: str, sent: list[str]) -> int:
    return sum(text.count(words) for text in sent)


@MODES
async def test_refining_sends_the_current_version_once_and_no_older_one(room: Room, mode: str) -> None:
    bodies: list[str] = []
    for number in range(1, 8):
        _, body, sent = await room.made(mode, "create", message=f"Request-{number}.")
        assert [times(one, sent) for one in bodies] == [0] * (len(bodies) - 1) + [1] * bool(bodies)
        assert [times(f"Request-{one}.", sent) for one in range(1, number + 1)] == [1] * number
        bodies.append(body)


@MODES
async def test_a_new_start_leaves_earlier_versions_and_their_requests_out(room: Room, mode: str) -> None:
    said = await room.say("We like the sea.")
    _, old, _ = await room.made(mode, "create", message="Old-request.")
    _, _, sent = await room.made(mode, "create", message="New-request.", forceNew=True)
    assert (times(old, sent), times("Old-request.", sent), times("New-request.", sent)) == (0, 0, 1)
    assert (times("We like the sea.", sent), times(said, sent)) == (1, 1)


@MODES
async def test_the_title_follows_the_heading_of_the_current_version(room: Room, mode: str) -> None:
    first, _, _ = await room.made(mode, "create", message="Request")
    assert await room.title(mode) == f"Title {await number_of(room, mode)}"
    begun = await room.title(mode)
    await room.made(mode, "create", message="Request")
    assert await room.title(mode) == f"Title {await number_of(room, mode)}" != begun
    await room.ask(mode, "edit", editedContent="## By hand ##\n\nWords.")
    assert await room.title(mode) == "By hand"
    await room.ask(mode, "copy_version", versionId=first)
    await room.ask(mode, "edit", editedContent="No heading.")
    assert await room.title(mode) == "By hand"
    await room.ask(mode, "set_current", versionId=first)
    assert await room.title(mode) == begun
    MODEL.heading = False
    await room.made(mode, "create", message="Only words")
    assert await room.title(mode) == begun
    await room.made(mode, "create", message="Other words", forceNew=True)
    assert await room.title(mode) == "Other words"


@MODES
async def test_the_title_follows_every_way_in_which_another_version_becomes_current(room: Room, mode: str) -> None:
    first, _, _ = await room.made(mode, "create", message="Request")
    begun = await room.title(mode)
    edited = (await room.ask(mode, "edit", editedContent="# By hand"))["version"]["id"]
    assert await room.title(mode) == "By hand"
    copy = (await room.ask(mode, "copy_version", versionId=first, setCurrent=True))["version"]["id"]
    assert await room.title(mode) == begun
    await room.ask(mode, "set_current", versionId=edited)
    await room.ask(mode, "delete_version", versionId=copy)
    assert await room.title(mode) == "By hand"
    await room.made(mode, "merge_versions", versionIds=[first, edited], mergePrompt="Join them.")
    assert await room.title(mode) == f"Title {await number_of(room, mode)}" != begun
    if mode == "build":
        await room.made(mode, "rerun", sourceVersionId=first)
        assert await room.title(mode) == f"Title {await number_of(room, mode)}"
    spared = await room.desk.ask(
        room.conversation, mode, "delete_version", "recorder",
        versionId=(await room.ask(mode, "read"))["currentVersion"]["id"],
    )  # fmt: skip
    assert spared.refusal == (409, "INVALID_STATE")
    await room.ask(mode, "delete", confirm=True)
    await room.ask(mode, "create", message="Request")
    assert await room.title(mode) == f"Title {await number_of(room, mode)}"


async def number_of(room: Room, mode: str) -> str:
    content: str = (await room.ask(mode, "read"))["currentVersion"]["content"]
    return content.rpartition("Body-")[2].rstrip(".")


@MODES
async def test_merging_sends_the_versions_and_the_prompt_alone(room: Room, mode: str) -> None:
    await room.say("We like the sea.")
    made = [await room.made(mode, "create", message=f"Request-{one}.") for one in range(3)]
    chosen = [made[0][0], made[2][0]]
    _, _, sent = await room.made(mode, "merge_versions", versionIds=chosen, mergePrompt="Join them.")
    assert len(sent) == 1
    assert [times(body, sent) for _, body, _ in made] == [1, 0, 1]
    assert (times("Join them.", sent), times("Request-", sent), times("We like the sea.", sent)) == (1, 0, 0)


async def test_running_again_sends_what_the_version_was_made_from(room: Room) -> None:
    await room.say("We like the sea.")
    await room.made("build", "create", message="Request-1.")
    source, _, before = await room.made("build", "create", message="Request-2.")
    await room.say("Later words.")
    await room.made("build", "create", message="Request-3.")
    again, _, sent = await room.made("build", "rerun", sourceVersionId=source)
    assert sent == before
    _, _, sent = await room.made("build", "rerun", sourceVersionId=again, message="Shorter.")
    assert sent == [*before[:-1], f"{before[-1]}\n\nShorter."]


async def test_running_an_edit_or_a_merge_again_sends_no_history(room: Room) -> None:
    first, _, _ = await room.made("build", "create", message="Request-1.")
    second, _, _ = await room.made("build", "create", message="Request-2.")
    merged, _, before = await room.made("build", "merge_versions", versionIds=[first, second], mergePrompt="Join.")
    await room.ask("build", "edit", editedContent="By hand.")
    _, _, sent = await room.made("build", "rerun")
    assert (len(sent), times("By hand.", sent), times("Request-", sent)) == (1, 1, 0)
    _, _, sent = await room.made("build", "rerun", sourceVersionId=merged)
    assert sent == before


async def test_a_message_after_documents_sends_each_version_once_and_no_instructions(room: Room) -> None:
    bodies = [(await room.made("plan", "create", message=f"Request-{one}."))[1] for one in range(3)]
    await room.say("What does it say?")
    sent = MODEL.sent[-1]
    assert [times(body, sent) for body in bodies] == [1, 1, 1]
    assert times("Answer with the plan alone", sent) == 0

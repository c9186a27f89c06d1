"""One SDK program under the SDK's server and under ours: the SDK's own client sees the same."""

import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import httpx
import pytest
from a2a.client import Client, ClientCallContext, ClientConfig, create_client
from a2a.types import (
    CancelTaskRequest,
    GetTaskRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    StreamResponse,
    Task,
    TaskState,
)
from a2a.utils.errors import A2AError
from google.protobuf import json_format

from parley.testing.processes import ServerProcess, until

PROGRAM = "tests.compat.program"


@asynccontextmanager
async def program(server: str, directory: Path, port: int = 0) -> AsyncIterator[ServerProcess]:
    env = {"PARLEY_DATA_DIR": str(directory / "data"), "GATE": str(directory / "gate")}
    process = await ServerProcess.launch([PROGRAM, server, str(port)], env=env)
    try:
        yield process
    finally:
        await process.stop()


@asynccontextmanager
async def client_of(url: str, *, streaming: bool = True) -> AsyncIterator[Client]:
    await _up(url)
    async with httpx.AsyncClient(timeout=20) as http:
        client = await create_client(url, ClientConfig(streaming=streaming, httpx_client=http))
        yield client


async def _up(url: str) -> None:
    """It has said where it will listen; whether it does is seen by asking."""
    async with httpx.AsyncClient() as http:

        async def answers() -> bool:
            try:
                return (await http.get(f"{url}/.well-known/agent-card.json")).status_code == 200
            except httpx.TransportError:
                return False

        await until(answers)


def message(text: str, task: Task | None = None) -> SendMessageRequest:
    given = Message(message_id=str(uuid.uuid4()), role=Role.ROLE_USER, parts=[Part(text=text)])
    if task is not None:
        given.task_id, given.context_id = task.id, task.context_id
    return SendMessageRequest(message=given)


class Seen:
    """A client's view, without what may differ between servers: ids, times, the number of working updates, and how
    chunks were cut."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.states: list[str] = []
        self.texts: dict[str, str] = {}
        self.task_id = ""

    def take(self, event: StreamResponse) -> None:
        match event.WhichOneof("payload"):
            case "message":
                self.said.append(f"message: {event.message.parts[0].text}")
            case "task":
                self.task_id = event.task.id
                self._status(event.task.status)
            case "status_update":
                self._status(event.status_update.status)
            case "artifact_update":
                artifact = event.artifact_update.artifact
                known = self.texts.get(artifact.artifact_id, "") if event.artifact_update.append else ""
                self.texts[artifact.artifact_id] = known + "".join(part.text for part in artifact.parts)

    def _status(self, status: Any) -> None:
        state = TaskState.Name(status.state)
        if state not in ("TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"):
            self.states.append(state)
        self.said += [part.text for part in status.message.parts]

    @property
    def all(self) -> tuple[Any, ...]:
        return self.said, self.states, list(self.texts.values())


def shown(task: Task) -> dict[str, Any]:
    """A task as it is told when asked for, in the same way."""
    return {
        "state": TaskState.Name(task.status.state),
        "artifacts": [(one.name, _joined(one.parts), dict(one.metadata)) for one in task.artifacts],
        "asked": [one.parts[0].text for one in task.history if one.role == Role.ROLE_USER],
    }


def _joined(parts: Sequence[Part]) -> list[Any]:
    """Chunks of text may be kept as one."""
    text = "".join(part.text for part in parts)
    return [text, *(json_format.MessageToDict(part) for part in parts if not part.text)]


async def streamed(client: Client, request: SendMessageRequest) -> Seen:
    seen = Seen()
    async for event in client.send_message(request):
        seen.take(event)
    return seen


async def everything(url: str) -> dict[str, Any]:
    """All that the program can do, as its client tells of it."""
    found: dict[str, Any] = {}
    async with client_of(url) as client:
        for word in ("count", "files", "fail", "reject", "reply"):
            seen = await streamed(client, message(word))
            found[word] = seen.all
            if seen.task_id:
                found[f"{word} kept"] = shown(await client.get_task(GetTaskRequest(id=seen.task_id)))
        for word in ("ask", "auth"):
            asked = await streamed(client, message(word))
            task = await client.get_task(GetTaskRequest(id=asked.task_id))
            answered = await streamed(client, message("answer red", task))
            kept = await client.get_task(GetTaskRequest(id=asked.task_id))
            found[word] = asked.all, answered.all, shown(kept)
    async with client_of(url, streaming=False) as client:
        found["blocking"] = shown(await _task(client, message("count")))
        found["blocking reply"] = (await streamed(client, message("reply"))).all
    return found


async def _task(client: Client, request: SendMessageRequest) -> Task:
    events = [event async for event in client.send_message(request)]
    return events[-1].task


@pytest.mark.slow
async def test_an_executor_answers_under_parley_as_under_the_sdks_own_server(tmp_path: Path) -> None:
    async with program("sdk", tmp_path) as theirs:
        expected = await everything(theirs.url)
    async with program("parley", tmp_path) as ours:
        found = await everything(ours.url)
    assert found["count"] == (
        [*(f"tick {number}" for number in range(6)), "counted"],
        ["TASK_STATE_COMPLETED"],
        ["0 1 2 3 4 5 "],
    )
    for what, value in expected.items():
        assert found[what] == value, what


@pytest.mark.slow
@pytest.mark.parametrize("server", ["sdk", "parley"])
async def test_what_an_executor_raises_fails_its_task(tmp_path: Path, server: str) -> None:
    async with program(server, tmp_path) as process, client_of(process.url) as client:
        seen = Seen()
        # The SDK's server breaks its stream off, ours ends it.
        with pytest.raises(A2AError) if server == "sdk" else nullcontext():
            async for event in client.send_message(message("raise")):
                seen.take(event)
        assert (await client.get_task(GetTaskRequest(id=seen.task_id))).status.state == TaskState.TASK_STATE_FAILED


@pytest.mark.slow
@pytest.mark.parametrize("server", ["sdk", "parley"])
@pytest.mark.parametrize("word", ["sleep", "ask"])
async def test_a_cancel_reaches_the_executor(tmp_path: Path, server: str, word: str) -> None:
    async with program(server, tmp_path) as process, client_of(process.url) as client:
        request = message(word)
        request.configuration.return_immediately = True
        async for event in client.send_message(request):
            task_id = event.task.id or event.status_update.task_id
            if event.HasField("status_update"):
                break
        task = await client.cancel_task(CancelTaskRequest(id=task_id))
        assert task.status.state == TaskState.TASK_STATE_CANCELED
        await process.said(f"canceled {task_id}")


@pytest.mark.slow
async def test_an_executor_that_is_killed_goes_on_and_leaves_nothing_twice(tmp_path: Path) -> None:
    key = ClientCallContext(service_parameters={"Idempotency-Key": "once"})
    request = message("slow")
    request.configuration.return_immediately = True
    async with program("parley", tmp_path) as process:
        port = int(process.url.rpartition(":")[2])
        async with client_of(process.url, streaming=False) as client:
            before = [event async for event in client.send_message(request, context=key)][-1].task
            await process.said("waits")
            await process.kill()
    async with program("parley", tmp_path, port) as process, client_of(process.url, streaming=False) as client:
        again = [event async for event in client.send_message(request, context=key)][-1].task
        assert again.id == before.id
        await process.said("waits")
        (tmp_path / "gate").touch()

        async def task() -> Task:
            return await client.get_task(GetTaskRequest(id=before.id))

        async def over() -> bool:
            return (await task()).status.state == TaskState.TASK_STATE_COMPLETED

        await until(over)
        assert [(one.name, "".join(part.text for part in one.parts)) for one in (await task()).artifacts] == [
            ("first", "whole"), ("second", "half, and half"),
        ]  # fmt: skip


@pytest.mark.slow
async def test_a_question_waits_for_its_answer_across_a_restart(tmp_path: Path) -> None:
    async with program("parley", tmp_path) as process:
        port = int(process.url.rpartition(":")[2])
        async with client_of(process.url) as client:
            asked = await streamed(client, message("ask"))
        await process.kill()
    async with program("parley", tmp_path, port) as process, client_of(process.url) as client:
        task = await client.get_task(GetTaskRequest(id=asked.task_id))
        assert task.status.state == TaskState.TASK_STATE_INPUT_REQUIRED
        answered = await streamed(client, message("answer red", task))
        assert answered.all == (
            [], ["TASK_STATE_COMPLETED"], ["answer red to TASK_STATE_INPUT_REQUIRED Which? after ask"],
        )  # fmt: skip

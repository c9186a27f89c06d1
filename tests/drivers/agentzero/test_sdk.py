"""a2a-sdk 1.3.0 with its default settings, in front of an Agent-Zero."""

from pathlib import Path

import pytest
from a2a.client import create_client
from a2a.types import Message, Part, Role, SendMessageRequest, TaskState

from parley.ids import new_id

from .conftest import parley
from .reports import report, write
from .server import Chat, agent_zero

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def ask(text: str, task: str = "") -> SendMessageRequest:
    parts = [Part(text=text)]
    return SendMessageRequest(message=Message(message_id=new_id(), role=Role.ROLE_USER, parts=parts, task_id=task))


async def test_a_stream_from_the_first_step_through_a_question_to_the_answer(tmp_path: Path) -> None:
    reports = tmp_path / "reports"

    async def works(chat: Chat, text: str) -> str:
        chat.log("agent", "icon://x A0: Writing hello.py")
        if text == "Create a hello world script":
            write(reports, report("contingent", state="escalating"))
            await chat.interventions.get()
        write(reports, report("primary", step=5))
        return "print('hello')"

    async with agent_zero(works) as zero, parley(tmp_path / "data", zero, reports=str(reports)) as (server, _):
        client = await create_client(server.agent("zero"))
        try:
            first = [step async for step in client.send_message(ask("Create a hello world script"))]
            task = first[0].task.id
            said = [p.text for one in first for p in one.status_update.status.message.parts]
            assert "A0: Writing hello.py" in said
            assert first[-1].status_update.status.state == TaskState.TASK_STATE_INPUT_REQUIRED
            assert "Guidance is needed" in said[-1]
            then = [step async for step in client.send_message(ask("In /srv", task))]
            made = [p.text for one in then for p in one.artifact_update.artifact.parts]
            assert made == ["print('hello')"]
            assert then[-1].status_update.status.state == TaskState.TASK_STATE_COMPLETED
        finally:
            await client.close()
    assert len(zero.chats) == 1

"""The official client, with its default settings, against our server."""

from typing import Any

import pytest
from a2a.client import ClientConfig, create_client
from a2a.types import (
    CancelTaskRequest,
    GetTaskRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskState,
)

from parley.ids import new_id
from parley.testing.servers import Server

from .faces.conftest import server

__all__ = ["server"]

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def ask(text: str, task: str = "") -> SendMessageRequest:
    message = Message(message_id=new_id(), role=Role.ROLE_USER, parts=[Part(text=text)], task_id=task)
    return SendMessageRequest(message=message)


async def everything(steps: Any) -> list[Any]:
    return [step async for step in steps]


@pytest.mark.parametrize("streaming", [True, False])
async def test_the_official_client_sends_answers_and_reads(server: Server, streaming: bool) -> None:
    client = await create_client(server.agent("writer"), ClientConfig(streaming=streaming))
    steps = await everything(client.send_message(ask("begin")))
    task = steps[0].task.id
    last = steps[-1].status_update.status if streaming else steps[-1].task.status
    assert last.state == TaskState.TASK_STATE_INPUT_REQUIRED
    assert last.message.parts[0].text == "Which name?"
    steps = await everything(client.send_message(ask("Ada", task)))
    found = await client.get_task(GetTaskRequest(id=task))
    assert found.status.state == TaskState.TASK_STATE_COMPLETED
    assert found.artifacts[0].parts[0].text == "one two three"
    assert dict(found.artifacts[1].parts[0].data.struct_value)["name"] == "Ada"
    await client.close()


async def test_the_official_client_cancels_and_subscribes(server: Server) -> None:
    client = await create_client(server.agent("sleeper"))
    steps = client.send_message(ask("zzz"))
    task = (await anext(steps)).task.id
    await steps.aclose()
    subscription = client.subscribe(SubscribeToTaskRequest(id=task))
    assert (await anext(subscription)).task.id == task
    canceled = await client.cancel_task(CancelTaskRequest(id=task))
    assert canceled.status.state == TaskState.TASK_STATE_CANCELED
    rest = await everything(subscription)
    assert rest[-1].status_update.status.state == TaskState.TASK_STATE_CANCELED
    await client.close()

"""a2a-sdk 1.3.0, unmodified, with an organisation: the contract's own proof that any client will do."""

from pathlib import Path

import httpx
import pytest
from a2a.client import A2ACardResolver, create_client
from a2a.types import GetTaskRequest, Message, Part, Role, SendMessageRequest, TaskState

from parley.ids import new_id
from parley.testing.servers import serving
from tests.drivers.org.test_driver import SKILLS, driver

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


async def test_a_client_discovers_it_follows_it_and_collects_its_results(tmp_path: Path) -> None:
    async with serving(tmp_path / "data", [driver(tmp_path)]) as server, httpx.AsyncClient() as http:
        card = await A2ACardResolver(http, server.agent("org")).get_agent_card()
        assert {skill.id: skill.name for skill in card.skills} == SKILLS
        client = await create_client(server.agent("org"))
        message = Message(message_id=new_id(), role=Role.ROLE_USER, parts=[Part(text="Create a hello world script")])
        said: list[str] = []
        task = ""
        async for event in client.send_message(SendMessageRequest(message=message)):
            task = task or event.task.id
            said += [part.text for part in event.status_update.status.message.parts]
        assert any("(step 4/5, 60% complete)" in one for one in said)
        found = await client.get_task(GetTaskRequest(id=task))
        await client.close()
    assert found.status.state == TaskState.TASK_STATE_COMPLETED
    assert "hello_world.py" in [artifact.name for artifact in found.artifacts]

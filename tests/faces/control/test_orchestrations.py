"""An orchestration over two servers is one log: A2A and `/internal/v1` show the same steps by the same numbers."""

from pathlib import Path

import pytest

from parley.client.control import Owner, RuntimeClient
from parley.testing.processes import ServerProcess
from tests.faces.control.test_both_faces import A2A, subscribed, tailed
from tests.faces.control.wire import SECRET

INNER = """
workflow:
  steps:
    - {id: far, agent: far, input: "{{message}}"}
"""
OUTER = """
workflow:
  steps:
    - {id: within, agent: inner, input: "{{message}}"}
    - {id: after, agent: far, input: "again {{steps.within.output}}", depends_on: [within]}
"""


@pytest.mark.slow
async def test_a_step_can_be_an_orchestration_and_another_the_agent_of_another_server(tmp_path: Path) -> None:
    shout = tmp_path / "shout.py"
    shout.write_text(
        "from parley import Text, agent\n\n@agent('shout')\nasync def shout(turn):\n    yield Text(turn.text.upper())\n"
    )
    back = await ServerProcess.start([shout], tmp_path / "back", env={"PARLEY_GRPC_PORT": "-1"})
    front: ServerProcess | None = None
    agents = tmp_path / "agents"
    agents.mkdir()
    (agents / "far.yaml").write_text(f"driver: remote\nremote:\n  url: {back.url}/agents/shout\n")
    (agents / "inner.yaml").write_text(INNER)
    (agents / "outer.yaml").write_text(OUTER)
    try:
        env = {"PARLEY_GRPC_PORT": "-1", "PARLEY_RUNTIME_KEYS": f'{{"runtime-v1": "{SECRET}"}}'}
        front = await ServerProcess.start([agents], tmp_path / "front", env=env)
        a2a = A2A(front.url)
        try:
            task = (await a2a.agent("outer").send("hello"))["task"]
            shown = await subscribed(a2a.agent("outer"), task["id"])
        finally:
            await a2a.close()
        async with RuntimeClient(front.url, SECRET, owner=Owner(user_id=42)) as client:
            told = await tailed(client, task["id"], task["contextId"])
    finally:
        for server in (front, back):
            if server is not None:
                await server.stop()
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert "AGAIN HELLO" in str(task["artifacts"])
    numbers = [seq for seq, _ in told]
    assert numbers == sorted(set(numbers))
    assert set(shown) <= {*numbers, 0}
    assert "within" in str(told)
    assert "after" in str(told)

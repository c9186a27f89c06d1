"""The examples, as their page says to start them."""

from pathlib import Path
from typing import Any

import httpx2
import pytest

from parley.testing.processes import ServerProcess, until
from tests.faces.pairing.runtime import web
from tests.node.team import said

EXAMPLES = Path(__file__).parents[2] / "examples" / "node"


@pytest.mark.slow
async def test_the_desk_takes_a_question_to_the_writer_and_its_question_back(tmp_path: Path) -> None:
    platform = await ServerProcess.start(["parley.demo"], tmp_path / "platform")
    env = {"PARLEY_NODE_PLATFORM": platform.url, "PYTHONPATH": str(EXAMPLES)}
    nodes = [
        await ServerProcess.launch([name], env={**env, "PARLEY_NODE_DATA_DIR": str(tmp_path / name)})
        for name in ("desk", "writer")
    ]
    try:
        async with web() as http:
            desk = await there(http, platform.url)
            asked = await ask(http, f"{platform.url}/workspaces/{desk}/a2a", said("Writer, write about rivers"))
            assert asked["status"]["message"]["parts"][0]["text"] == "In which tone?"
            answer = said("calm", taskId=asked["id"])
            done = await ask(http, f"{platform.url}/workspaces/{desk}/a2a", answer)
    finally:
        for process in (*nodes, platform):
            await process.stop()
    made = {one["name"]: one["parts"][0] for one in done["artifacts"]}
    assert made["response"]["text"] == "Here it is."
    assert "rivers" in str(made["draft"])
    assert "calm" in str(made["draft"])


async def there(http: httpx2.AsyncClient, platform: str) -> str:
    """The desk's id, once both are there and know of each other."""
    found: dict[str, str] = {}

    async def both() -> bool:
        found.update({one["name"]: one["id"] for one in (await http.get(f"{platform}/workspaces")).json()})
        return set(found) == {"Desk", "Writer"}

    await until(both, 20)
    return found["Desk"]


async def ask(http: httpx2.AsyncClient, url: str, message: dict[str, Any]) -> dict[str, Any]:
    body = {"method": "message/send", "params": {"message": {"role": "user", **message}}}
    reply = await http.post(url, json=body)
    return reply.json()["result"]

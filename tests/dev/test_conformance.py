"""The conformance agent behaves as the kits ask for, whether by the id of a message or by its text."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from dev.conformance.report import Row, line, page, reason
from parley.testing import conformance_agent
from parley.testing.servers import Server, serving

STATES = {
    "tck-complete-task": "COMPLETED",
    "tck-artifact-text": "COMPLETED",
    "tck-artifact-file": "COMPLETED",
    "tck-artifact-file-url": "COMPLETED",
    "tck-artifact-data": "COMPLETED",
    "tck-input-required": "INPUT_REQUIRED",
    "tck-auth-required": "AUTH_REQUIRED",
    "tck-reject-task": "REJECTED",
    "tck-task-failure": "FAILED",
    "tck-multi-turn": "INPUT_REQUIRED",
    "tck-stream-artifact-chunked": "COMPLETED",
}
MADE: dict[str, Any] = {
    "tck-artifact-text": {"text": "Generated text content"},
    "tck-artifact-file": {"raw": "dGNr", "mediaType": "text/plain", "filename": "output.txt"},
    "tck-artifact-file-url": {
        "url": "https://example.com/output.txt", "mediaType": "text/plain", "filename": "output.txt"},
    "tck-artifact-data": {"data": {"key": "value", "count": 42}},
    "tck-stream-artifact-chunked": {"text": "chunk-1 chunk-2"},
}  # fmt: skip


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with serving(tmp_path / "data", [conformance_agent.conformance()]) as running:
        yield running


async def send(server: Server, id_: str, text: str) -> dict[str, Any]:
    message = {"messageId": id_, "role": "ROLE_USER", "parts": [{"text": text}]}
    async with httpx2.AsyncClient() as http:
        reply = await http.post(
            f"{server.url}/message:send", json={"message": message}, headers={"A2A-Version": "1.0"}
        )  # fmt: skip
    return reply.json()


@pytest.mark.parametrize("prefix", STATES)
async def test_a_behaviour_is_asked_for_by_id_or_by_text(server: Server, prefix: str) -> None:
    for id_, text in ((f"{prefix}-1a2b3c4d", "hi"), ("0193-x", f"{prefix} hi")):
        task = (await send(server, id_, text))["task"]
        assert task["status"]["state"] == f"TASK_STATE_{STATES[prefix]}"
        made = [part for artifact in task.get("artifacts", []) for part in artifact["parts"]]
        assert made == ([MADE[prefix]] if prefix in MADE else [])


async def test_it_may_answer_with_a_message_and_echoes_everything_else(server: Server) -> None:
    direct = await send(server, "tck-message-response-1", "hi")
    assert direct["message"]["parts"] == [{"text": "Direct message response"}]
    echoed = (await send(server, "0d3f", "anything"))["task"]
    assert echoed["artifacts"][0]["parts"] == [{"text": "anything"}]


def test_each_miss_is_explained_on_the_page() -> None:
    missed = "TestAgentCardStructure::test_agent_card_validates_against_schema"
    row = Row("1.0-dev", "everything on", "card", 9, 1, 0, 0, [missed])
    assert "9 passed, 1 failed" in line(row)
    why = reason(row, missed)
    assert why is not None
    assert why in page([row])
    assert reason(row, "TestSomething::test_new") is None
    assert "Not explained yet." in page([Row("1.0-dev", "x", "card", 0, 1, 0, 0, ["TestSomething::test_new"])])

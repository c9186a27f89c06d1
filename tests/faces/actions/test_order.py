"""When several things are wrong with a request, the first in the documented order is told."""

from itertools import combinations
from typing import Any

import pytest

from tests.faces.actions.desk import Desk

pytestmark = pytest.mark.asyncio(loop_scope="module")

FAULTS: dict[str, tuple[dict[str, Any], tuple[int, str]]] = {
    "mode": ({"mode": "dream"}, (400, "INVALID_MODE")),
    "action": ({"action": "dance"}, (400, "INVALID_ACTION")),
    "params": ({"versionId": ...}, (400, "MISSING_REQUIRED_PARAM")),
    "conversation": ({"conversation": "nowhere"}, (404, "CONVERSATION_NOT_FOUND")),
    "agent": ({"agent": "nobody"}, (404, "AGENT_NOT_FOUND")),
    "capability": ({"agent": "blog_post_writer"}, (403, "CAPABILITY_NOT_FOUND")),
    "artifact": ({}, (404, "PLAN_NOT_FOUND")),
}
"""In order. The conversation in which they are tried has no plan, so the last one is always there."""
PAIRS = [pair for pair in combinations(FAULTS, 2) if pair != ("agent", "capability")]


@pytest.mark.parametrize(("first", "second"), PAIRS)
async def test_of_two_faults_the_first_is_told(desk: Desk, first: str, second: str) -> None:
    good = {"conversation": await desk.begin(), "mode": "plan", "action": "set_current", "versionId": "any"}
    answer = await desk.ask(**{**good, **FAULTS[second][0], **FAULTS[first][0]})
    assert answer.refusal == FAULTS[first][1]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"plan"', b"\xff\xfe", b'{"mode": "plan"', b"null", b"[" * 10_000])
async def test_what_is_no_json_object_is_told_before_anything_else(desk: Desk, body: bytes) -> None:
    answer = await desk.send("POST", "/conversations/nowhere/tasks", body)
    assert answer.refusal == (400, "INVALID_REQUEST")


@pytest.mark.parametrize("mode", [..., None, 5, "", "PLAN", ["plan"]])
async def test_a_mode_that_is_none(desk: Desk, mode: object) -> None:
    answer = await desk.ask("nowhere", mode, "read")
    assert answer.refusal == (400, "INVALID_MODE")
    assert "plan" in answer.body["error"]["details"]["supportedModes"]


@pytest.mark.parametrize("action", [..., None, {}, "", "rerun"])
async def test_an_action_that_the_mode_does_not_have(desk: Desk, action: object) -> None:
    answer = await desk.ask("nowhere", "plan", action)
    assert answer.refusal == (400, "INVALID_ACTION")
    assert "merge_versions" in answer.body["error"]["details"]["supportedActions"]


async def test_a_request_of_another_media_type(desk: Desk) -> None:
    answer = await desk.send("POST", "/conversations/nowhere/tasks", b"{}", {"Content-Type": "text/plain"})
    assert answer.refusal == (415, "UNSUPPORTED_MEDIA_TYPE")


async def test_a_request_that_is_too_large(desk: Desk) -> None:
    answer = await desk.ask(await desk.begin(), "plan", "edit", editedContent="x" * (10 * 1024 * 1024))
    assert answer.refusal == (413, "PAYLOAD_TOO_LARGE")


@pytest.mark.parametrize(
    ("method", "path", "refusal"),
    [
        ("GET", "/nothing", (404, "NOT_FOUND")),
        ("GET", "/", (404, "NOT_FOUND")),
        ("POST", "/conversations/x", (404, "NOT_FOUND")),
        ("GET", "/conversations", (405, "METHOD_NOT_ALLOWED")),
        ("DELETE", "/conversations/x/tasks", (405, "METHOD_NOT_ALLOWED")),
        ("POST", "/tasks/x", (405, "METHOD_NOT_ALLOWED")),
        ("GET", "/tasks/unknown", (404, "TASK_NOT_FOUND")),
        ("GET", "/tasks/%00", (404, "TASK_NOT_FOUND")),
        ("GET", "/tasks/unknown/stream", (404, "TASK_NOT_FOUND")),
    ],
)
async def test_every_path_below_ours_answers_with_an_envelope(
    desk: Desk, method: str, path: str, refusal: tuple[int, str]
) -> None:
    answer = await desk.send(method, path)
    assert answer.refusal == refusal
    assert ("allow" in answer.reply.headers) == (answer.status == 405)


async def test_bad_json_leaves_a_task_too(desk: Desk) -> None:
    answer = await desk.send("POST", "/conversations/somewhere/tasks", b"{")
    kept = await desk.task(answer.task)
    assert (kept.status, kept.body["status"], kept.body["error"]["code"]) == (200, "failed", "INVALID_REQUEST")
    assert kept.body["conversationId"] == "somewhere"

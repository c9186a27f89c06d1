"""`tools/execute` over the wire, with GitHub on the other side."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from parley.client.control import Owner, RuntimeClient
from parley.testing.servers import Server, serving
from tests.faces.control.conftest import AGENTS
from tests.faces.control.wire import SECRET, THREAD, Json, Wire, error_of, kinds, until, until_done
from tests.tools.github import GitHubServer, github
from tests.tools.github import Reply as Held

PATH = "/tools/execute"
REPOSITORY = "OpenAgentsInc/openagents"


def example(**changes: Any) -> Json:
    """The contract's own example."""
    return {
        "tool_pack": "coding.v1", "mode": "execute", "run_id": "run_123", "thread_id": THREAD,
        "manifest": {
            "manifest_version": "coding.integration.v1", "integration_id": "github.primary", "provider": "github",
            "status": "active", "tool_pack": "coding.v1",
            "capabilities": ["get_issue", "get_pull_request", "add_issue_comment"],
            "policy": {"write_operations_mode": "enforce", "default_repository": REPOSITORY},
        },
        "request": {
            "integration_id": "github.primary", "operation": "get_issue", "repository": REPOSITORY,
            "issue_number": 1747, "run_id": "run_123", "tool_call_id": "tool_call_001",
        },
        "policy": {
            "authorization_id": "auth_abc", "authorization_mode": "delegated_budget",
            "budget": {"max_total_sats": 5000},
        },
        **changes,
    }  # fmt: skip


def asking(**changes: Any) -> Json:
    return {**example()["request"], **changes}


@pytest.fixture
async def provider() -> AsyncIterator[GitHubServer]:
    async with github() as running:
        yield running


@pytest.fixture
async def server(tmp_path: Path, provider: GitHubServer) -> AsyncIterator[Server]:
    settings = {"github_api": provider.url, "github_token": "ghp_secret"}
    async with serving(tmp_path / "data", AGENTS, **settings) as running:
        yield running


async def test_the_contracts_example_passes(wire: Wire, provider: GitHubServer) -> None:
    reply = await wire.post(PATH, example())
    assert reply.status_code == 200
    data = reply.json()["data"]
    assert (data["state"], data["decision"], data["reason_code"]) == ("succeeded", "allowed", "policy_allowed.default")
    receipt = data["receipt"]
    assert re.fullmatch(r"coding_[0-9a-f]{24}", receipt["receipt_id"])
    for name in ("replay_hash", "evaluation_hash", "result_hash"):
        assert re.fullmatch(r"[0-9a-f]{64}", receipt[name])
    assert "ghp_secret" not in reply.text


async def test_a_tool_call_is_made_once(wire: Wire, provider: GitHubServer) -> None:
    first, again = await wire.post(PATH, example()), await wire.post(PATH, example())
    assert first.json() == again.json()
    assert len(provider.asked) == 1


async def test_a_replay_asks_nobody(wire: Wire, provider: GitHubServer) -> None:
    reply = await wire.post(PATH, example(mode="replay"))
    assert reply.status_code == 200
    data = reply.json()["data"]
    assert (data["decision"], data["reason_code"]) == ("allowed", "policy_allowed.default")
    for name in ("replay_hash", "evaluation_hash"):
        assert re.fullmatch(r"[0-9a-f]{64}", data[name])
    assert provider.asked == []


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"tool_pack": None}, "tool_pack is required"),
        ({"mode": "rehearse"}, "mode must be execute or replay"),
        ({"manifest": []}, "manifest must be an object"),
        ({"request": "x"}, "request must be an object"),
        ({"policy": "x"}, "policy must be an object when provided"),
    ],
)
async def test_a_request_of_the_wrong_shape_says_all_that_is_wrong(wire: Wire, changes: Json, problem: str) -> None:
    reply = await wire.post(PATH, example(**changes))
    assert error_of(reply)[:2] == (400, "invalid_request")
    assert problem in reply.json()["error"]["details"]


@pytest.mark.parametrize("body", [b"", b"{}", b"[]"])
async def test_an_empty_request_says_all_that_is_missing(wire: Wire, body: bytes) -> None:
    reply = await wire.post(PATH, body)
    assert error_of(reply)[:2] == (400, "invalid_request")
    assert reply.json()["error"]["details"] == [
        "tool_pack is required", "manifest must be an object", "request must be an object",
    ]  # fmt: skip


@pytest.mark.parametrize("user", [None, "ann", 0, -1])
async def test_a_tool_is_used_on_behalf_of_a_user(wire: Wire, user: object) -> None:
    reply = await wire.post(PATH, example(), user=user)
    assert error_of(reply)[:2] == (400, "invalid_request")
    assert reply.json()["error"]["details"] == ["x-oa-user-id header is required"]


async def test_whoever_speaks_for_somebody_else_is_refused(wire: Wire) -> None:
    for body in (example(user_id=7), example(request=asking(user_id=7))):
        reply = await wire.post(PATH, body)
        assert error_of(reply) == (403, "forbidden", "request context does not match authenticated principal")


async def test_a_run_of_somebody_else_is_refused(wire: Wire, provider: GitHubServer) -> None:
    await wire.new_run("run_123", user=7)
    assert error_of(await wire.post(PATH, example()))[:2] == (403, "forbidden")
    assert provider.asked == []


async def test_an_unknown_tool_pack_is_refused(wire: Wire) -> None:
    reply = await wire.post(PATH, example(tool_pack="comms.v1"))
    assert error_of(reply) == (400, "invalid_request", "tool_pack is not supported: comms.v1")


async def test_a_bad_manifest_is_refused_with_its_paths(wire: Wire) -> None:
    reply = await wire.post(PATH, example(manifest={**example()["manifest"], "provider": "gitlab"}))
    assert error_of(reply) == (422, "invalid_request", "tool invocation validation failed")
    [problem] = reply.json()["error"]["details"]
    assert problem["reason_code"] == "manifest_validation.invalid_schema"
    assert "provider" in problem["path"]


async def test_a_bad_request_of_a_tool_is_refused(wire: Wire) -> None:
    reply = await wire.post(PATH, example(request=asking(operation="delete_repository")))
    assert error_of(reply) == (422, "invalid_request", "tool invocation validation failed")
    assert "operation is not enabled by manifest capabilities" in reply.json()["error"]["details"]


async def test_a_write_without_approval_is_blocked(wire: Wire, provider: GitHubServer) -> None:
    comment = asking(operation="add_issue_comment", body="Thanks.")
    blocked = (await wire.post(PATH, example(request=comment))).json()["data"]
    assert (blocked["state"], blocked["decision"], blocked["reason_code"]) == (
        "blocked", "denied", "policy_denied.explicit_deny",
    )  # fmt: skip
    assert provider.asked == []
    approved = (await wire.post(PATH, example(request={**comment, "write_approved": True}))).json()["data"]
    assert approved["state"] == "succeeded"


async def test_a_tool_shows_in_the_stream_of_its_run(wire: Wire, client: RuntimeClient) -> None:
    run = await wire.new_run("run_123")
    await wire.post(PATH, example())
    await client.finish(run, THREAD)
    seen = await until_done(client, run)
    assert [kind for kind in kinds(seen) if kind.startswith("tool")] == ["tool-call", "tool-result"]
    [called] = [data["toolCall"] for _, data in seen if data["type"] == "tool-call"]
    [result] = [data["toolResult"] for _, data in seen if data["type"] == "tool-result"]
    assert (called["tool_call_id"], called["tool_name"]) == ("tool_call_001", "get_issue")
    assert (result["tool_call_id"], result["status"]) == ("tool_call_001", "succeeded")


async def test_a_cancel_stops_a_tool_that_is_under_way(
    server: Server, wire: Wire, client: RuntimeClient, provider: GitHubServer
) -> None:
    run = await wire.new_run("run_123")
    provider.always = Held(hold=True)
    using = asyncio.ensure_future(wire.post(PATH, example()))
    await until(client, run, "tool-call")
    await provider.began.wait()
    await client.cancel(run, THREAD)
    data = (await using).json()["data"]
    assert data["state"] == "failed"
    seen = await until_done(client, run)
    assert kinds(seen)[-1] == "finish"
    assert seen[-1][1]["meta"]["status"] == "canceled"


async def test_a_canceled_run_starts_no_tool(wire: Wire, client: RuntimeClient, provider: GitHubServer) -> None:
    run = await wire.new_run("run_123")
    await client.cancel(run, THREAD)
    data = (await wire.post(PATH, example())).json()["data"]
    assert (data["state"], data["decision"]) == ("blocked", "denied")
    assert provider.asked == []


async def test_the_client_uses_tools(server: Server, provider: GitHubServer) -> None:
    async with RuntimeClient(server.url, SECRET, owner=Owner(user_id=42)) as client:
        assert (await client.execute(example()))["data"]["state"] == "succeeded"


async def test_the_trace_of_a_request_goes_with_its_tool(wire: Wire, provider: GitHubServer) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    await wire.post(PATH, example(), headers={"traceparent": trace, "x-request-id": "req-7"})
    [asked] = provider.asked
    assert (asked.headers["traceparent"], asked.headers["x-request-id"]) == (trace, "req-7")

"""Somebody else's things do not exist, on any face: each answer is the one for what nobody has, to the letter. Where a
contract wants the two told apart, that is said here. A2A's own wires: tests/faces/test_isolation.py."""

import asyncio
import json
import re
import uuid
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
import pytest_asyncio
from msgspec import Struct

from parley import NeedInput, Turn
from parley.core.actions import ACTIONS, Action
from parley.drivers.function import FunctionDriver
from parley.faces.mcp.calls import Mark
from tests.faces.mcp.wire import OLD, call, request
from tests.faces.modes.agents import writer
from tests.faces.modes.test_orchestrate import TWO, worker
from tests.review.house import House, Json, open_house, signed
from tests.tools.mcp.conftest import agent_with, server

pytestmark = pytest.mark.asyncio(loop_scope="module")

ANN, BOB = "user", "bob"
MODES = "/api/agent2agent"


async def idle(turn: Turn) -> Any:
    yield NeedInput("More?")


class Belongings(Struct):
    """What Ann has, by what it is; and for each an id that nobody has."""

    house: House
    ids: dict[str, str] = {}

    async def answers(self, who: str, what: str, ask: Any) -> tuple[Any, Any]:
        """To somebody about Ann's, and about what nobody has."""
        own, none = self.ids[what], unknown_like(self.ids[what])
        return await self._answer(who, ask(own), own), await self._answer(who, ask(none), none)

    async def _answer(self, who: str, asked: tuple[Any, ...], id_: str) -> Any:
        method, path, body, headers = (*asked, None, {})[:4] if len(asked) < 4 else asked
        reply = await self.house.ask(who, method, path, body, headers or {})
        return reply.status_code, plain(reply, id_)


def unknown_like(id_: str) -> str:
    """Of the same form, and nobody's."""
    return str(uuid.uuid4()) if len(id_) == 36 else id_[:-6] + "zzzzzz"


def plain(reply: httpx2.Response, id_: str) -> str:
    """Without what differs from one request to the next."""
    if "text/event-stream" in reply.headers.get("content-type", ""):
        return "a stream"
    text = reply.text.replace(id_, "ID")
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "NEW", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", text)
    text = re.sub(r'"(processingTimeMs|executionTimeMs|durationMs)":\d+', r'"\1":0', text)
    return re.sub(r'(csrf[^>]*(?:value|content)=")[^"]*', r"\1", text)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def own(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Belongings]:
    tools = FunctionDriver(agent_with(server("wild"), slug="caller"), idle)
    async with open_house(tmp_path_factory.mktemp("probes"), writer, worker, TWO, tools) as house:
        own = Belongings(house)
        await _furnish(own)
        yield own


async def _furnish(own: Belongings) -> None:
    house, ids = own.house, own.ids
    ids["task"] = await house.task(ANN)
    ids["conversation"] = await begin(house, ANN)
    for mode in ("plan", "build"):
        made = await act(house, ANN, ids["conversation"], mode, "create", message="Write about tides")
        assert made["status"] == "completed", made
        ids[f"{mode} version"] = made["taskId"]
    called = await act(
        house, ANN, ids["conversation"], "tool", "execute", "caller", toolName="wild/echo", input={"text": "hi"}
    )
    assert called["status"] == "completed", called
    ids["execution"] = called["taskId"]
    begun = await act(house, ANN, ids["conversation"], "orchestrate", "create", "two", message="Go")
    ids["orchestration"] = begun["taskId"]
    ids["far task"] = await house.task(ANN, slug="far")
    work = await house.ask("runtime", "POST", "/agent-accounts/far/task-runs/pull", {"wait_ms": 5000})
    assert [one["id"] for one in work.json()["task_runs"]] == [ids["far task"]]
    ids["lease"] = work.json()["task_runs"][0]["lease_id"]
    ids["node"] = house.nodes["node"].id
    ids["run"], ids["thread"] = f"run-{uuid.uuid4()}", "thread-of-ann"
    headers = signed(user_id=42, run_id=ids["run"], thread_id=ids["thread"])
    body = {"run_id": ids["run"], "thread_id": ids["thread"], "agent": "echo"}
    reply = await house.ask("nobody", "POST", "/internal/v1/runs", body, headers)
    assert reply.status_code == 202, reply.text


async def begin(house: House, who: str) -> str:
    reply = await house.ask(who, "POST", f"{MODES}/conversations", {"agentSlug": "writer"})
    return reply.json()["conversationId"]


async def act(
    house: House, who: str, conversation: str, mode: str, action: str, agent: str = "writer", **params: Any
) -> Json:
    body = {"mode": mode, "action": action, "agentSlug": agent, **params}
    # What goes on for long is not waited for.
    headers = {"Prefer": "respond-async"} if (mode, action) == ("orchestrate", "create") else {}
    return (await house.ask(who, "POST", f"{MODES}/conversations/{conversation}/tasks", body, headers)).json()


def params_for(action: Action, id_: str) -> Json:
    """A good request in which every id is this one."""
    given: Json = {
        "message": "Hi", "editedContent": "# Hi", "confirm": True, "deleteArtifacts": True,
        "toolName": "wild/echo", "input": {"text": "hi"},
        "format": "markdown", "mergePrompt": "Both", "config": {}, "versionId": id_, "sourceVersionId": id_,
        "versionIds": [id_, str(uuid.uuid4())], "executionId": id_, "orchestrationId": id_, "stepId": id_,
        "planVersionId": id_,
    }  # fmt: skip
    known = set(action.params.__struct_encode_fields__)
    return {name: value for name, value in given.items() if name in known}


@pytest.mark.parametrize("action", ACTIONS, ids=lambda one: f"{one.mode}.{one.name}")
async def test_in_somebody_elses_conversation_nothing_can_be_done(own: Belongings, action: Action) -> None:
    agent = {"tool": "caller", "orchestrate": "two"}.get(action.mode, "writer")
    body = {"mode": action.mode, "action": action.name, "agentSlug": agent, **params_for(action, str(uuid.uuid4()))}
    # What begins a conversation begins one of Bob's own, by whatever name: not that of the others here.
    own.ids["spare"] = await begin(own.house, ANN)
    what = "spare" if action.begins else "conversation"
    theirs, unknown = await own.answers(BOB, what, lambda id_: ("POST", f"{MODES}/conversations/{id_}/tasks", body))
    assert "tides" not in theirs[1]
    if action.begins:
        # How far it got in the meantime may differ.
        assert theirs[0] == unknown[0]
        return
    assert theirs == unknown
    assert theirs[0] == 404
    assert "CONVERSATION_NOT_FOUND" in theirs[1]


@pytest.mark.parametrize("action", ACTIONS, ids=lambda one: f"{one.mode}.{one.name}")
async def test_somebody_elses_ids_are_unknown_in_ones_own_conversation(own: Belongings, action: Action) -> None:
    what = {"plan": "plan version", "build": "build version", "tool": "execution", "orchestrate": "orchestration"}
    if action.mode not in what or not params_for(action, "x").keys() & {
        "versionId", "sourceVersionId", "versionIds", "executionId", "orchestrationId", "stepId", "planVersionId",
    }:  # fmt: skip
        return
    conversation = await begin(own.house, BOB)
    agent = {"tool": "caller", "orchestrate": "two"}.get(action.mode, "writer")
    if action.mode in ("plan", "build"):
        await act(own.house, BOB, conversation, action.mode, "create", message="Mine")

    def asked(id_: str) -> tuple[str, str, Json]:
        body = {"mode": action.mode, "action": action.name, "agentSlug": agent, **params_for(action, id_)}
        return "POST", f"{MODES}/conversations/{conversation}/tasks", body

    theirs, unknown = await own.answers(BOB, what[action.mode], asked)
    assert theirs == unknown
    assert "NOT_FOUND" in theirs[1]


READS: dict[str, tuple[str, Any]] = {
    "002 task": ("task", lambda id_: ("GET", f"{MODES}/tasks/{id_}")),
    "002 stream": ("task", lambda id_: ("GET", f"{MODES}/tasks/{id_}/stream")),
    "002 document's task": ("plan version", lambda id_: ("GET", f"{MODES}/tasks/{id_}")),
    "002 execution's task": ("execution", lambda id_: ("GET", f"{MODES}/tasks/{id_}/stream")),
    "002 orchestration's task": ("orchestration", lambda id_: ("GET", f"{MODES}/tasks/{id_}/stream")),
    "download": ("task", lambda id_: ("GET", f"/agents/echo/tasks/{id_}/artifacts/made")),
    "fork": ("task", lambda id_: ("POST", f"/agents/echo/tasks/{id_}:fork", {}, {"A2A-Version": "1.0"})),
    "MCP task": ("task", lambda id_: mcp("resources/read", uri=f"parley://tasks/{id_}")),
    "MCP artifact": ("task", lambda id_: mcp("resources/read", uri=f"parley://tasks/{id_}/artifacts/made")),
    "MCP plan": ("conversation", lambda id_: mcp("resources/read", uri=f"parley://conversations/{id_}/plan")),
    "MCP call": ("task", lambda id_: ("POST", "/mcp", call("echo", "hi", task=id_), {"Accept": "application/json"})),
    "MCP stream": ("task", lambda id_: ("GET", "/mcp", None, {**OLD, "Last-Event-ID": str(Mark(id_, 0, 0, 1, None))})),
    "console page": ("task", lambda id_: ("GET", f"/console/runs/{id_}")),
    "console stream": ("task", lambda id_: ("GET", f"/console/runs/{id_}/events")),
    "console raw": ("task", lambda id_: ("GET", f"/console/runs/{id_}/raw")),
    "console file": ("task", lambda id_: ("GET", f"/console/runs/{id_}/parts/3/0")),
    "console text": ("task", lambda id_: ("GET", f"/console/runs/{id_}/text/made")),
    "console cancel": ("task", lambda id_: ("POST", f"/console/runs/{id_}/cancel")),
    "console answer": ("task", lambda id_: ("POST", f"/console/runs/{id_}/answer")),
    "console fork": ("task", lambda id_: ("POST", f"/console/runs/{id_}/fork")),
    "export": ("plan version", lambda id_: ("GET", f"/api/exports/{id_}?name=a.md&exp=99999999999&sig=x")),
}  # fmt: skip


def mcp(method: str, **params: Any) -> tuple[str, str, Json, dict[str, str]]:
    return "POST", "/mcp", request(method, **params), {"Accept": "application/json"}


@pytest.mark.parametrize("name", READS)
async def test_somebody_elses_task_is_unknown_everywhere(own: Belongings, name: str) -> None:
    what, ask = READS[name]
    theirs, unknown = await own.answers(BOB, what, ask)
    assert theirs == unknown
    assert "a stream" not in theirs[1]
    if name not in ("export", "MCP call", "MCP task", "MCP artifact", "MCP plan"):
        mine = (await own.answers(ANN, what, ask))[0]
        assert mine != theirs, "Ann could not do it either"


async def test_an_mcp_version_of_somebody_else_is_unknown(own: Belongings) -> None:
    at = f"parley://conversations/{own.ids['conversation']}/plan/versions/"
    theirs, unknown = await own.answers(BOB, "plan version", lambda id_: mcp("resources/read", uri=f"{at}{id_}"))
    assert theirs == unknown


async def test_lists_hold_nothing_of_anybody_else(own: Belongings) -> None:
    shown = [
        await own.house.ask(BOB, "GET", "/console/runs"),
        await own.house.ask(BOB, "GET", "/console/inbox"),
        await own.house.ask(BOB, *mcp("resources/list")),
        await own.house.ask(
            BOB, "GET", f"/agents/echo/tasks?contextId={own.ids['task']}", None, {"A2A-Version": "1.0"}
        ),
    ]
    for reply in shown:
        assert reply.status_code == 200
        assert not [what for what, id_ in own.ids.items() if id_ in reply.text and what != "node"]


RUNTIME: dict[str, Json] = {
    "progress": {"text": "hi"}, "artifacts": {"filename": "a.md", "content_text": "a"}, "complete": {"output": {}},
    "fail": {"output": {}}, "release": {},
}  # fmt: skip


@pytest.mark.parametrize("verb", RUNTIME)
async def test_another_runtimes_work_is_unknown(own: Belongings, verb: str) -> None:
    body = {"lease_id": own.ids["lease"], **RUNTIME[verb]}
    theirs, unknown = await own.answers("runtime2", "far task", lambda id_: ("POST", f"/task-runs/{id_}/{verb}", body))
    assert theirs == unknown
    assert theirs[0] == 404


async def test_another_runtimes_work_cannot_be_kept_alive_or_asked_about(own: Belongings) -> None:
    held = {"task_run_id": own.ids["far task"], "lease_id": own.ids["lease"]}
    for path, body in (("heartbeat", {"task_runs": [held]}), ("control", {"task_run_ids": [own.ids["far task"]]})):
        reply = await own.house.ask("runtime2", "POST", f"/agent-runtimes/runtime/{path}", body)
        assert reply.json()["lost_task_run_ids"] == [own.ids["far task"]]
        assert not reply.json().get("task_runs")


NODES: dict[str, tuple[int, Any]] = {
    "show": (404, lambda id_: ("GET", f"/workspaces/{id_}")),
    "hierarchy": (403, lambda id_: ("GET", f"/workspaces/{id_}/hierarchy")),
    "tokens": (403, lambda id_: ("GET", f"/workspaces/{id_}/tokens")),
    "revoke": (403, lambda id_: ("DELETE", f"/workspaces/{id_}/tokens")),
    "activity": (403, lambda id_: ("GET", f"/workspaces/{id_}/activity")),
    "report": (403, lambda id_: ("POST", f"/workspaces/{id_}/activity", {"activity_type": "task_update"})),
    "stream": (404, lambda id_: ("GET", f"/workspaces/{id_}/events/stream")),
    "peers": (403, lambda id_: ("GET", f"/registry/{id_}/peers")),
    "card": (403, lambda id_: ("POST", "/registry/update-card", {"workspace_id": id_, "agent_card": {"name": "x"}})),
    "access": (200, lambda id_: ("POST", "/registry/check-access", {"caller_id": id_, "target_id": id_})),
    "heartbeat": (401, lambda id_: ("POST", "/registry/heartbeat", {"workspace_id": id_})),
}


@pytest.mark.parametrize("name", NODES)
async def test_a_node_out_of_reach_is_unknown(own: Belongings, name: str) -> None:
    status, ask = NODES[name]
    theirs, unknown = await own.answers("stranger", "node", ask)
    assert theirs == unknown
    assert theirs[0] == status


async def test_nodes_out_of_reach_are_told_apart_only_where_their_contract_wants_it(own: Belongings) -> None:
    """404 for what is not there, 403 for what one may not talk to: 004, in discovery and in the proxy."""
    body = {"method": "message/send", "params": {"message": {"role": "user", "parts": []}}}
    for ask in (
        lambda id_: ("GET", f"/registry/discover/{id_}"),
        lambda id_: ("POST", f"/workspaces/{id_}/a2a", body),
    ):
        theirs, unknown = await own.answers("stranger", "node", ask)
        assert (theirs[0], unknown[0]) == (403, 404)


RUNS: dict[str, tuple[str, Json | None]] = {
    "snapshot": ("GET", None), "stream": ("GET", None),
    "frames": ("POST", {"frame_id": "f", "type": "user.message", "payload": {"text": "hi"}}), "cancel": ("POST", {}),
}  # fmt: skip


@pytest.mark.parametrize("name", RUNS)
async def test_another_principals_run_is_refused_as_contract_003_says(own: Belongings, name: str) -> None:
    """Who names run and thread learns that they are not theirs (403); who names a wrong thread learns nothing."""
    method, body = RUNS[name]

    async def asked(run: str, thread: str) -> tuple[int, Any]:
        path, content = f"/internal/v1/runs/{run}/{name}", body
        if body is None:
            path += f"?thread_id={thread}"
        else:
            content = {**body, "thread_id": thread}
        headers = signed(user_id=43, run_id=run, thread_id=thread)
        reply = await own.house.ask("nobody", method, path, content, headers)
        return reply.status_code, reply.json()

    run, thread = own.ids["run"], own.ids["thread"]
    assert (await asked(run, thread))[0] == 403
    assert await asked(run, "another") == await asked(f"run-{uuid.uuid4()}", "another")
    assert (await asked(run, "another"))[0] == 404


async def test_a_tool_call_for_another_principals_run_is_not_on_its_record(own: Belongings) -> None:
    body = {"tool_pack": "coding.v1", "manifest": {}, "request": {}, "run_id": own.ids["run"]}
    body["thread_id"] = own.ids["thread"]
    headers = signed(user_id=43, run_id=own.ids["run"], thread_id=own.ids["thread"])
    reply = await own.house.ask("nobody", "POST", "/internal/v1/tools/execute", body, headers)
    assert reply.status_code in (403, 422), reply.text


async def test_ann_has_everything_still(own: Belongings) -> None:
    house = own.house
    kept = await house.ask(ANN, "GET", f"/agents/echo/tasks/{own.ids['task']}", None, {"A2A-Version": "1.0"})
    assert kept.json()["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    assert [one["role"] for one in kept.json()["history"]].count("ROLE_USER") == 1
    for mode in ("plan", "build"):
        read = await act(house, ANN, own.ids["conversation"], mode, "read")
        assert own.ids[f"{mode} version"] in json.dumps(read)
    await asyncio.wait_for(house.ask(ANN, "GET", f"{MODES}/tasks/{own.ids['execution']}"), 5)

"""Ann's things, one of each kind with an id; and answers about them: to her, to others, and for unknown ids."""

import re
import uuid
from pathlib import Path
from typing import Any

import httpx2
from msgspec import Struct

from parley import NeedInput, Turn, agent
from parley.drivers.function import FunctionDriver
from parley.execution.driver import Driver
from parley.testing.processes import until
from tests.drivers.org.test_driver import driver as organisation
from tests.faces.actions.agents import writer
from tests.faces.actions.test_orchestrate import TWO, worker
from tests.permissions.house import EVERY, House, Json, signed
from tests.permissions.requests import Asked
from tests.tools.mcp.conftest import agent_with, server

ANN, BOB = "user", "bob"
MODES = "/api/agent2agent"
HIDDEN = "hidden-from-others"
WHO = re.compile(r"^/internal/v1/runs/([^/]+)/")


async def idle(turn: Turn) -> Any:
    yield NeedInput("More?")


@agent(HIDDEN, visibility="private", allow=(f"service:{ANN}",), capabilities=EVERY)
async def hidden(turn: Turn):
    """Exists for Ann alone."""
    yield NeedInput("And now?")


def drivers(folder: Path) -> list[Driver]:
    caller = FunctionDriver(agent_with(server("wild"), slug="caller"), idle)
    return [writer, worker, TWO, caller, hidden, organisation(folder)]


class Belongings(Struct):
    """`ids` by what it is; `own` the same of others, who have a little themselves."""

    house: House
    ids: dict[str, str] = {}
    own: dict[str, dict[str, str]] = {}
    csrf: str = ""

    async def answers(self, who: str, what: str, ask: Any) -> tuple[Any, Any]:
        """To somebody about Ann's, and about what nobody has."""
        own, none = self.ids[what], unknown_like(self.ids[what])
        return await self.answer(who, ask(own), own), await self.answer(who, ask(none), none)

    async def answer(self, who: str, asked: tuple[Any, ...], id_: str) -> tuple[int, str]:
        method, path, body, headers = (*asked, None, {})[:4] if len(asked) < 4 else asked
        headers = {**(headers or {}), **self._signature(who, path)}
        if path.startswith("/console") and method == "POST":
            reply = await self.house.ask(who, method, path, None, headers, {**(body or {}), "csrf": self.csrf})
        else:
            reply = await self.house.ask(who, method, path, body, headers)
        return reply.status_code, plain(reply, id_)

    async def spare(self) -> None:
        """One more conversation of Ann's, for whoever begins another one by its name."""
        self.ids["spare"] = str(uuid.uuid4())
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "tides"}], "contextId": self.ids["spare"]}
        sent = await self.house.ask(
            ANN, "POST", "/agents/echo/message:send", {"message": message}, {"A2A-Version": "1.0"}
        )
        assert sent.status_code == 200, sent.text

    def _signature(self, who: str, path: str) -> dict[str, str]:
        """A signature says for which run it is, where there is one."""
        about = {"signed": {"user_id": 42}, "signed2": {"user_id": 43}, "guest": {"guest_scope": "visitor"}}.get(who)
        found = WHO.match(path)
        return signed(run_id=found[1], **about) if about and found else {}


def unknown_like(id_: str) -> str:
    """An id of the same form that does not exist."""
    if len(id_) == 36:
        return str(uuid.uuid4())
    if id_.startswith("run-"):
        return f"run-{uuid.uuid4()}"
    return id_[:-6] + "zzzzzz"


def plain(reply: httpx2.Response, id_: str) -> str:
    """Without what differs from one request to the next."""
    if "text/event-stream" in reply.headers.get("content-type", ""):
        text = reply.extensions.get("first", "a stream")
    else:
        text = reply.text
    for written in {id_, id_.replace(":", "%3A"), id_.capitalize()}:
        text = text.replace(written, "ID")
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "NEW", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", text)
    text = re.sub(r'"(processingTimeMs|executionTimeMs|durationMs|timestamp|id)": ?\d+', r'"\1":0', text)
    text = re.sub(r"^id: \d+$", "id: N", text, flags=re.MULTILINE)
    return re.sub(r'(csrf[^>]*(?:value|content)=")[^"]*', r"\1", text)


async def furnish(house: House) -> Belongings:
    own = Belongings(house, {}, {}, await _csrf(house))
    house.who["signed2"] = lambda: signed(user_id=43)
    await _work(own)
    await _talk(own)
    await _runtime(own)
    await _nodes(own)
    await _control_plane(own)
    await _others(own)
    await own.spare()
    return own


async def _csrf(house: House) -> str:
    page = await house.ask("nobody", "GET", "/console/login")
    found = re.search(r'name="csrf" content="([0-9a-f]+)"', page.text)
    assert found is not None
    return found[1]


async def _work(own: Belongings) -> None:
    own.ids["agent"] = HIDDEN
    own.ids["task"] = await own.house.task(ANN)
    own.ids["referred"] = await own.house.task(ANN)
    own.ids["hidden task"] = await own.house.task(ANN, slug=HIDDEN)
    own.ids["org task"] = await own.house.task(ANN, "Fix the bug in nothing.py", slug="org")
    shown = await own.house.ask(ANN, "GET", f"/agents/echo/tasks/{own.ids['task']}", None, {"A2A-Version": "1.0"})
    own.ids["context"] = shown.json()["contextId"]
    own.ids["hook"] = "cfg"
    hook = {"url": "http://127.0.0.1:9/hook", "id": "cfg"}
    at = f"/agents/echo/tasks/{own.ids['task']}/pushNotificationConfigs"
    assert (await own.house.ask(ANN, "POST", at, hook, {"A2A-Version": "1.0"})).status_code in (200, 201)
    keys = (await own.house.ask("admin", "GET", "/admin/keys")).json()["keys"]
    own.ids["key"] = next(key["id"] for key in keys if key["name"] == ANN)


async def _talk(own: Belongings) -> None:
    house, ids = own.house, own.ids
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
    await act(house, ANN, ids["conversation"], "orchestrate", "create", "two", message="Go")
    listed = await act(house, ANN, ids["conversation"], "orchestrate", "list", "two")
    ids["orchestration"] = listed["result"]["orchestrations"][0]["id"]
    made = await act(house, ANN, ids["conversation"], "converse", "export_conversation", format="markdown")
    ids["export"] = made["taskId"]


async def _runtime(own: Belongings) -> None:
    own.ids["far agent"] = "far"
    own.ids["far task"] = await own.house.task(ANN, slug="far")
    taken: list[Json] = []

    async def pulled() -> bool:
        # What was furnished before may be offered again in between.
        reply = await own.house.ask("runtime", "POST", "/agent-accounts/far/task-runs/pull", {"wait_ms": 5000})
        taken.extend(reply.json()["task_runs"])
        return any(one["id"] == own.ids["far task"] for one in taken)

    await until(pulled)
    own.ids["lease"] = next(one["lease_id"] for one in taken if one["id"] == own.ids["far task"])


async def _nodes(own: Belongings) -> None:
    house, top, low = own.house, own.house.nodes["node"], own.house.nodes["child"]
    own.ids["node"] = top.id
    made = await house.ask("node", "POST", f"/workspaces/{top.id}/delegate", {"target_id": low.id, "task": "Sum"})
    assert made.status_code == 202, made.text
    own.ids["delegation"] = made.json()["delegation_id"]
    for what in ("recorded", "twin"):
        own.ids[what] = f"sum-{uuid.uuid4()}"
        named = {"target_id": low.id, "task": "Sum", "delegation_id": own.ids[what]}
        assert (await house.ask("node", "POST", f"/workspaces/{top.id}/delegations/record", named)).status_code == 201
    tokens = (await house.ask("node", "GET", f"/workspaces/{top.id}/tokens")).json()
    own.ids["prefix"] = tokens[0]["prefix"]
    own.ids["pair token"] = house.headers("pair")["Authorization"].removeprefix("Bearer ")


async def _control_plane(own: Belongings) -> None:
    ids = own.ids
    ids["run"], ids["thread"] = f"run-{uuid.uuid4()}", "thread-of-ann"
    headers = signed(user_id=42, run_id=ids["run"], thread_id=ids["thread"])
    body = {"run_id": ids["run"], "thread_id": ids["thread"], "agent": "echo"}
    reply = await own.house.ask("nobody", "POST", "/internal/v1/runs", body, headers)
    assert reply.status_code == 202, reply.text


async def _others(own: Belongings) -> None:
    """A conversation of Bob's with documents, and the places of nodes: what they ask about is inside of their own."""
    conversation = await begin(own.house, BOB)
    for mode in ("plan", "build"):
        await act(own.house, BOB, conversation, mode, "create", message="Mine")
    own.own[BOB] = {"conversation": conversation, "task": await own.house.task(BOB)}
    for name in ("node", "child", "stranger"):
        own.own[name] = {"node": own.house.nodes[name].id}


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


__all__ = ["ANN", "BOB", "Asked", "Belongings", "act", "begin", "drivers", "furnish", "unknown_like"]

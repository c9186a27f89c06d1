"""Budgets over the wire: a tree of tasks stops at its budget, callers are refused, and everybody sees what is left."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from parley import ArtifactChunk, NeedInput, Text, Turn, agent
from parley.errors import BudgetExceeded
from parley.runs.rules.usage import Usage
from parley.testing.servers import Server, serving
from parley.testing.waiting import until
from tests.permissions.house import bearer

Headers = dict[str, str]


@agent("spender")
async def spender(turn: Turn):
    """Calls a model in steps, as often as it is told."""

    async def call() -> int:
        turn.record(Usage("m", 60, 40, cost=0.5))
        return 1

    for number in range(int(turn.text or 1)):
        await turn.step("model", call, key=f"{turn.number}.{number}")
        yield Text(f"{number} ")


@agent("plain")
async def plain(turn: Turn):
    """Calls a model that the server does not know of, and goes on whatever happens."""
    for number in range(int(turn.text or 1)):
        yield Usage("m", 60, 40)
        yield Text(f"{number} ")


@agent("stubborn")
async def stubborn(turn: Turn):
    """Ignores the error."""
    for _ in range(10):
        with suppress(BudgetExceeded):
            await turn.check_budget()
            turn.record(Usage("m", 100))
        yield Text("on ")


@agent("parent")
async def parent(turn: Turn):
    """Asks itself until the number is zero, and spends on every level."""
    yield Usage("m", 60, 40)
    if int(turn.text):
        yield Text((await turn.ask("parent", str(int(turn.text) - 1))).text)
    yield Text(turn.text)


@agent("wide")
async def wide(turn: Turn):
    for _ in range(int(turn.text)):
        yield Text((await turn.ask("asker", "x")).text)


@agent("asker")
async def asker(turn: Turn):
    yield NeedInput("And now?")


AGENTS = [spender, plain, stubborn, parent, wide, asker]
KEYS: dict[str, dict[str, Any]] = {
    "boss": {"role": "admin"}, "ops": {"role": "operator"}, "ann": {"groups": ["blue"]}, "bob": {"groups": ["blue"]},
    "eve": {},
}  # fmt: skip


class Bank:
    def __init__(self, servers: list[Server], http: httpx2.AsyncClient, keys: dict[str, Headers]) -> None:
        self.servers = servers
        self.http = http
        self.keys = keys

    async def send(self, who: str, slug: str, text: str = "1", at: int = 0) -> httpx2.Response:
        body = {"message": {"messageId": f"m{id(object())}", "role": "ROLE_USER", "parts": [{"text": text}]}}
        url = f"{self.servers[at].url}/agents/{slug}/message:send"
        return await self.http.post(url, json=body, headers={**self.keys[who], "A2A-Version": "1.0"})

    async def admin(self, who: str, method: str, path: str, at: int = 0, **given: Any) -> httpx2.Response:
        url = f"{self.servers[at].url}/admin/{path}"
        return await self.http.request(method, url, headers=self.keys[who], **given)

    async def limit(self, subject: str, **values: float) -> None:
        reply = await self.admin("boss", "PUT", f"limits/{subject}", json=values)
        assert reply.status_code == 200, reply.text

    async def left(self, who: str, subject: str) -> dict[str, Any]:
        found = (await self.admin(who, "GET", "limits")).json()["limits"]
        one = next(one for one in found if f"{one['kind']}/{one['name']}" == subject)
        return {budget["limit"]: budget["left"] for budget in one["budgets"]}


@pytest.fixture
async def bank(tmp_path: Path, database: str) -> AsyncIterator[Bank]:
    given = {"store": "postgres", "postgres_url": database}
    keys: dict[str, Headers] = {}
    async with serving(tmp_path, [asker], **given) as server, httpx2.AsyncClient(base_url=server.url) as http:
        for name, rights in KEYS.items():
            keys[name] = bearer((await http.post("/admin/keys", json={"name": name, **rights})).json()["token"])
    async with AsyncExitStack() as stack:
        servers = [
            await stack.enter_async_context(serving(tmp_path / str(number), AGENTS, auth="required", **given))
            for number in range(2)
        ]
        http = await stack.enter_async_context(httpx2.AsyncClient(timeout=30))
        yield Bank(servers, http, keys)


def ended(reply: httpx2.Response) -> tuple[str, str, str]:
    """Return the state of a task, its text, and the reason for its end."""
    assert reply.status_code == 200, reply.text
    task = reply.json()["task"]
    said = "".join(part.get("text", "") for one in task.get("artifacts", ()) for part in one["parts"])
    message = task["status"].get("message", {"parts": []})
    return task["status"]["state"], said, "".join(part.get("text", "") for part in message["parts"])


def refusal(reply: httpx2.Response) -> tuple[int, str, dict[str, str]]:
    error = reply.json()["error"]
    return reply.status_code, error["details"][0]["reason"], error["details"][0]["metadata"]


async def test_a_run_ends_before_the_step_that_its_budget_does_not_pay(bank: Bank) -> None:
    await bank.limit("principal/service:ann", treeTokens=250)
    state, said, why = ended(await bank.send("ann", "spender", "9"))
    assert (state, said) == ("TASK_STATE_FAILED", "0 1 2 ")
    assert why == (
        "The budget tree_tokens of this task and the tasks that it started is used up: 300 tokens of 250 tokens are "
        "spent."
    )
    assert ended(await bank.send("ann", "spender", "2"))[0] == "TASK_STATE_COMPLETED"
    assert ended(await bank.send("eve", "spender", "9"))[0] == "TASK_STATE_COMPLETED"


async def test_an_agent_that_calls_models_by_itself_ends_at_the_next_usage(bank: Bank) -> None:
    await bank.limit("agent/plain", treeTokens=150)
    state, said, _ = ended(await bank.send("ann", "plain", "9"))
    assert (state, said) == ("TASK_STATE_FAILED", "0 1 ")


async def test_an_agent_cannot_ignore_its_budget(bank: Bank) -> None:
    await bank.limit("agent/stubborn", treeTokens=200)
    state, _, why = ended(await bank.send("ann", "stubborn"))
    assert (state, "is used up: 200 tokens of 200" in why) == ("TASK_STATE_FAILED", True)


async def test_a_tree_of_tasks_shares_one_budget(bank: Bank) -> None:
    await bank.limit("key/ann", treeTokens=250)
    reply = await bank.send("ann", "parent", "8")
    task = reply.json()["task"]["id"]
    found = (await bank.admin("ann", "GET", "limits", params={"task": task})).json()
    assert found["spent"]["tokens"] == 300
    assert [(one["limit"], one["left"]) for one in found["budgets"]] == [("tree_tokens", 0)]
    assert (await bank.admin("bob", "GET", "limits", params={"task": task})).status_code == 404
    runs = (await bank.admin("ops", "GET", "runs")).json()["runs"]
    assert sorted(run["state"] for run in runs) == ["completed", "completed", "failed"]


async def test_a_spent_day_is_refused_at_every_replica_until_it_resets(bank: Bank) -> None:
    await bank.limit("principal/service:ann", costDay=1)
    assert ended(await bank.send("ann", "spender", "2"))[0] == "TASK_STATE_COMPLETED"
    reply = await bank.send("ann", "spender")
    status, reason, details = refusal(reply)
    assert (status, reason) == (429, "BUDGET_EXCEEDED")
    assert {name: details[name] for name in ("limit", "subject", "spent", "allowed")} == {
        "limit": "cost_day", "subject": "principal:service:ann", "spent": "1.0", "allowed": "1.0",
    }  # fmt: skip
    assert 0 < int(reply.headers["retry-after"]) <= 24 * 3600
    assert details["resets_at"].endswith("T00:00:00Z")

    async def refused_there() -> bool:
        return (await bank.send("ann", "asker", at=1)).status_code == 429

    await until(refused_there)
    assert ended(await bank.send("bob", "spender"))[0] == "TASK_STATE_COMPLETED"
    assert await bank.left("ann", "principal/service:ann") == {"cost_day": 0}
    await bank.limit("principal/service:ann", costDay=2)
    assert ended(await bank.send("ann", "spender"))[0] == "TASK_STATE_COMPLETED"


async def test_the_members_of_a_group_share_its_budget(bank: Bank) -> None:
    await bank.limit("group/blue", tokensMonth=300)
    assert ended(await bank.send("ann", "spender", "2"))[0] == "TASK_STATE_COMPLETED"
    assert await bank.left("bob", "group/blue") == {"tokens_month": 100}
    assert ended(await bank.send("bob", "parent", "3"))[0] == "TASK_STATE_FAILED"
    assert refusal(await bank.send("ann", "asker"))[:2] == (429, "BUDGET_EXCEEDED")
    assert (await bank.send("eve", "asker")).status_code == 200
    assert (await bank.admin("eve", "GET", "limits")).json() == {"limits": []}


async def test_the_depth_and_the_size_of_a_tree_are_limited(bank: Bank) -> None:
    await bank.limit("agent/parent", treeDepth=2)
    await bank.limit("agent/asker", treeRuns=2)
    reply = await bank.send("ann", "parent", "5")
    runs = (await bank.admin("ops", "GET", "runs")).json()["runs"]
    assert (len(runs), reply.status_code) == (3, 200)
    assert any("tree_depth of agent:parent allows 2 levels" in run["said"] for run in runs)
    state, _, why = ended(await bank.send("ann", "wide", "5"))
    assert (state, why) == (
        "TASK_STATE_FAILED", "The limit tree_runs of agent:asker allows 2 further tasks of one task.",
    )  # fmt: skip


async def test_unfinished_tasks_and_rates_are_limited_by_subject(bank: Bank) -> None:
    await bank.limit("principal/*", unfinished=2)
    await bank.limit("principal/service:bob", unfinished=1)
    for who, most in (("ann", 2), ("bob", 1)):
        for _ in range(most):
            assert (await bank.send(who, "asker")).status_code == 200
        assert refusal(await bank.send(who, "asker"))[:2] == (429, "TOO_MANY_UNFINISHED")
    await bank.limit("agent/asker", unfinished=4)
    assert (await bank.send("eve", "asker")).status_code == 200
    assert "Agent asker has 4 unfinished" in (await bank.send("eve", "asker")).json()["error"]["message"]
    await bank.limit("principal/*", unfinished=9)
    await bank.limit("group/blue", perSecond=0.01, burst=1)
    assert (await bank.send("ann", "spender")).status_code == 200
    assert refusal(await bank.send("ann", "spender"))[:2] == (429, "RATE_LIMITED")


async def test_only_administrators_change_limits(bank: Bank) -> None:
    for who in ("ann", "ops"):
        assert (await bank.admin(who, "PUT", "limits/agent/plain", json={"costDay": 1})).status_code == 403
        assert (await bank.admin(who, "DELETE", "limits/agent/plain")).status_code == 403
    for subject, body in (("agent/plain", {}), ("all/x", {"costDay": 1}), ("agent/plain", {"costDay": -1}),
                          ("agent/plain", {"costDay": "much"}), ("agent/plain", {"costs": 1})):  # fmt: skip
        reply = await bank.admin("boss", "PUT", f"limits/{subject}", json=body)
        assert reply.status_code == 400, (subject, body)
    await bank.limit("agent/plain", costDay=1)
    assert await bank.left("ops", "agent/plain") == {"cost_day": 1}
    metrics = (await bank.http.get(f"{bank.servers[0].url}/metrics", headers=bank.keys["ops"])).text
    assert 'parley_budget_left_ratio{budget="agent:plain cost_day"} 1.0' in metrics
    assert (await bank.admin("boss", "DELETE", "limits/agent/plain")).status_code == 200
    assert (await bank.admin("boss", "DELETE", "limits/agent/plain")).status_code == 404
    assert (await bank.admin("ops", "GET", "limits")).json() == {"limits": []}
    entries = (await bank.admin("boss", "GET", "audit", params={"target": "plain"})).json()["entries"]
    assert [one["action"] for one in entries] == ["limit.removed", "limit.set"]


async def test_limits_of_the_settings_hold(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, [spender], limits={"agent:spender": {"tree_cost": 0.5}}) as server,
        httpx2.AsyncClient(base_url=server.url) as http,
    ):
        body = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "3"}]}}
        reply = await http.post("/agents/spender/message:send", json=body, headers={"A2A-Version": "1.0"})
        assert ended(reply)[1] == "0 "
        (one,) = (await http.get("/admin/limits")).json()["limits"]
        assert (one["limits"], one["set"]) == ({"treeCost": 0.5}, None)


async def test_a_direct_answer_needs_no_budget(tmp_path: Path) -> None:
    """Without limits nothing is looked up, and the spending is counted all the same."""

    @agent("free")
    async def free(turn: Turn):
        yield Usage("m", 10)
        yield ArtifactChunk(b"x")

    async with serving(tmp_path, [free], store="memory") as server, httpx2.AsyncClient(base_url=server.url) as http:
        body = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "3"}]}}
        reply = await http.post("/agents/free/message:send", json=body, headers={"A2A-Version": "1.0"})
        task = reply.json()["task"]["id"]
        found = (await http.get("/admin/limits", params={"task": task})).json()
        assert (found["spent"], found["budgets"]) == ({"tokens": 10, "cost": 0.0}, [])

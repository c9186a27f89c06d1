"""Agents that lead to another one in every way there is, for callers who may not use that one."""

from typing import Any

from msgspec import Raw

from parley import NeedInput, Text, Turn, agent
from parley.drivers.function import FunctionDriver
from parley.drivers.workflow import WorkflowDriver
from parley.errors import AgentNotFound
from parley.execution.driver import Driver
from parley.orchestrations.rules.plan import Rules, Step
from parley.runs.rules.agents import Agent
from tests.permissions.house import EVERY, House, bearer
from tests.tools.mcp.conftest import agent_with, server

LIMITED = "limited"
INNER, MISSING = "inner", "missing"
REACHED: list[str] = []
"""Requests that reached `inner`."""


@agent(INNER, capabilities=EVERY)
async def inner(turn: Turn):
    """The agent that the limited key may not use."""
    REACHED.append(turn.text)
    yield Text(f"inner did {turn.text}")


@agent("asker", capabilities=EVERY)
async def asker(turn: Turn):
    """Asks the agent that it is told to."""
    try:
        yield Text((await turn.ask(turn.text, "help")).text)
    except AgentNotFound as error:
        yield Text(error.message)


@agent("later", capabilities=EVERY)
async def later(turn: Turn):
    """Asks a question first, and then the agent that it is told to."""
    if turn.number == 1:
        yield NeedInput("Whom?")
        return
    async for output in asker.run(turn):
        yield output


def _flow(slug: str, *steps: Step) -> WorkflowDriver:
    return WorkflowDriver(Agent(slug, slug, "A workflow."), steps, Rules(retry_delay_ms=1))


def _tool(slug: str) -> Step:
    given = Raw(b'{"toolName": "wild/echo", "input": {"text": "tool"}}')
    return Step("a", slug, mode="tool", action="execute", input=given)


async def _idle(turn: Turn) -> Any:
    REACHED.append(turn.text)
    yield Text("done")


FLOWS: dict[str, Driver] = {
    f"{kind}-{slug}": _flow(f"{kind}-{slug}", make(slug))
    for slug in (INNER, MISSING)
    for kind, make in {
        "send": lambda slug: Step("a", slug),
        "plan": lambda slug: Step("a", slug, mode="plan", action="create"),
        "build": lambda slug: Step("a", slug, mode="build", action="create"),
    }.items()
}
"""Workflows of one step, which is `inner`'s or nobody's."""
NESTED = _flow("nested", Step("a", "asker"))
OUTER = _flow("outer", Step("a", f"send-{INNER}"))
TOOLED, UNTOOLED = _flow("tooled", _tool("caller")), _flow("untooled", _tool(MISSING))
CALLER = FunctionDriver(agent_with(server("wild"), slug="caller"), _idle)

ALLOWED = ("asker", "later", "nested", "outer", "tooled", "untooled", *FLOWS)
"""All that the limited key may use: neither `inner` nor `caller`."""


def drivers() -> list[Driver]:
    return [inner, asker, later, NESTED, OUTER, TOOLED, UNTOOLED, CALLER, *FLOWS.values()]


async def add_limited(house: House) -> None:
    reply = await house.ask("admin", "POST", "/admin/keys", {"name": LIMITED, "agents": list(ALLOWED)})
    assert reply.status_code in (200, 201), reply.text
    token = reply.json()["token"]
    house.who[LIMITED] = lambda: bearer(token)


async def asked(house: House, who: str, slug: str, text: str, task: str | None = None) -> dict[str, Any]:
    """Send a message; return the task as A2A shows it."""
    message = {"messageId": f"m-{slug}-{text}-{task}", "role": "ROLE_USER", "parts": [{"text": text}]}
    message |= {"taskId": task} if task else {}
    reply = await house.ask(who, "POST", f"/agents/{slug}/message:send", {"message": message}, {"A2A-Version": "1.0"})
    assert reply.status_code == 200, reply.text
    return reply.json()["task"]


def told(task: dict[str, Any]) -> str:
    """All that a task says, with `inner` and `missing` as one."""
    made = [part.get("text", "") for one in task.get("artifacts", ()) for part in one["parts"]]
    said = [part.get("text", "") for part in task["status"].get("message", {}).get("parts", ())]
    words = " ".join([task["status"]["state"], *made, *said])
    for slug in (INNER, "caller", MISSING):
        words = words.replace(slug, "SLUG")
    return words

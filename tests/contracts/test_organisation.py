"""The organisation contract: its card, its configuration and its startup command, and its messages over JSON-RPC, with
`python -m a2a_server.run` as a process beside an Agent-Zero that speaks the real wire."""

import asyncio
import json
import re
import shlex
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import httpx2
import pytest
import pytest_asyncio
import yaml

import a2a_server
from parley.testing.processes import ServerProcess
from tests.a2a_server.houses import sample
from tests.a2a_server.wire import Wire, state, texts, words
from tests.a2a_server.zero import WORK, Zero
from tests.contracts.literals import Json, assert_contains, assert_like, from_json, substituted
from tests.drivers.agentzero.reports import report, write
from tests.drivers.agentzero.server import Chat, FakeAgentZero, Work, agent_zero

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

DEPLOY = Path(__file__).parents[2] / "deploy" / "organisation"
CARD_ENDPOINT = "GET /.well-known/agent.json"
AGENT_CARD = """
{
  "name": "Software Development Organization",
  "description": "Full-stack software development agent. Accepts bug reports, feature requests, refactoring tasks, git operations, Docker deployments, API integrations, and infrastructure work. Tasks are routed to specialized roles and executed through verified workflow graphs with automatic escalation on failure.",
  "url": "http://localhost:8200",
  "version": "1.0",
  "supportedProtocolVersions": ["0.3"],
  "capabilities": {
    "streaming": true,
    "pushNotifications": false
  },
  "authentication": {
    "schemes": ["none"]
  },
  "defaultInputModes": ["text"],
  "defaultOutputModes": ["text"],
  "skills": [
    {
      "id": "bugfix",
      "name": "Bug Fix",
      "description": "Diagnose and fix software bugs with automated reproduction, isolation, fix, and regression testing."
    },
    {
      "id": "codegen",
      "name": "Code Generation",
      "description": "Create new code modules from specifications with scaffolding, implementation, testing, and documentation."
    },
    {
      "id": "git_ops",
      "name": "Git Operations",
      "description": "Branch management, feature branches, merges, pull request workflows."
    },
    {
      "id": "docker_ops",
      "name": "Docker Operations",
      "description": "Build, test, and deploy Docker images and containers."
    },
    {
      "id": "refactor",
      "name": "Safe Refactoring",
      "description": "Code refactoring with baseline testing, safe rollback on regression."
    },
    {
      "id": "analysis",
      "name": "Analysis & Research",
      "description": "Data analysis, research, and information synthesis."
    },
    {
      "id": "osint",
      "name": "OSINT & API Integration",
      "description": "Open source intelligence gathering and API integration work."
    }
  ]
}
"""  # noqa: E501
SALUTE = """
SALUTE emitted with:
  status.state = "active"
  activity.htn_plan = "bugfix_workflow"  
  activity.htn_step = 3
  activity.current_tool = "code_execution_tool"
  status.progress = 0.6
"""  # noqa: W291
SSE_EVENT = """
  {
    "task": {
      "id": "...",
      "status": {
        "state": "working",
        "message": {
          "role": "agent",
          "parts": [{"text": "Bugfix Workflow: implementing fix (step 3/5, 60% complete)"}]
        }
      }
    }
  }
"""
REGISTRY_STATES = "working | completed | failed | input-needed | canceled"
CONFIGURATION = """
{
  "a2a_server": {
    "enabled": true,
    "host": "0.0.0.0",
    "port": 8200,
    "authentication": {
      "scheme": "none",
      "api_key": null
    },
    "agent_connection": {
      "method": "direct",
      "agent_zero_url": "http://localhost:5000"
    },
    "task_queue": {
      "max_concurrent": 1,
      "max_queued": 10,
      "task_timeout_seconds": 600
    },
    "salute_poll_interval_seconds": 2,
    "org_dir": "/a0/usr/organizations"
  }
}
"""
FILE_STRUCTURE = """
/a0/python/a2a_server/
├── __init__.py
├── server.py              # HTTP server, JSON-RPC routing, SSE streaming
├── agent_card.py          # Agent Card generation from org definitions
├── task_registry.py       # Task lifecycle management
├── translation.py         # SALUTE ↔ A2A state mapping, PACE ↔ A2A state
├── agent_bridge.py        # Communication with Agent-Zero instance
├── config.py              # Server configuration
└── run.py                 # Entry point: python -m a2a_server.run
"""
STARTUP = "python -m a2a_server.run --config /a0/usr/organizations/a2a_config.json"
EXPOSE = "EXPOSE 8200"
PORTS = """
ports:
  - "8200:8200"
"""
LIST_FILES = "List the files in /tmp"
HELLO_WORLD = "Create a hello world Python script, test it, then clean up"
NONEXISTENT = "Fix the bug in /nonexistent/critical/app.py"
SOON_S = 15.0
JSON = {"Content-Type": "application/json"}
AUTHENTICATION_BUG = "Fix the authentication bug in our login module."


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Zero]:
    async with Zero.open(tmp_path_factory.mktemp("organisation"), prefix="/api", keyed=False) as opened:
        yield opened


class Configured:
    """The server of the contract's own file and command, with an Agent-Zero beside it."""

    def __init__(self, folder: Path, zero: FakeAgentZero, wire: Wire) -> None:
        self.folder = folder
        self.zero = zero
        self.wire = wire


def organisation(root: Path) -> Path:
    """The sample where the contract has it, with the workflow that its report is about."""
    folder = root / "a0/usr/organizations"
    folder.parent.mkdir(parents=True)
    shutil.move(sample(root / "sample", extended=False), folder)
    library = json.loads((folder / "workflows.json").read_text())
    workflow = library["plans"]["bugfix_workflow"]
    workflow["name"] = "Bugfix Workflow"
    workflow["graph"]["nodes"]["isolate"]["name"] = "Implement fix"
    (folder / "workflows.json").write_text(json.dumps(library))
    return folder


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def configured(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Configured]:
    """The file at its place below another root, and the command as it stands; the port is a free one, and the address
    is that of the Agent-Zero here."""
    folder = organisation(tmp_path_factory.mktemp("configured"))

    async def work(chat: Chat, text: str) -> str:
        return "figures.csv"

    async with agent_zero(work) as zero:
        own = {"8200": "0", "http://localhost:5000": zero.url, "/a0/usr/organizations": str(folder)}
        (folder / "a2a_config.json").write_text(substituted(CONFIGURATION, own))
        python, option, *module = shlex.split(substituted(STARTUP, {"/a0/usr/organizations": str(folder)}))
        assert (python, option) == ("python", "-m")
        server = await ServerProcess.launch(module)
        try:
            async with Wire(server.url) as wire:
                yield Configured(folder, zero, wire)
        finally:
            await server.stop()


@contextmanager
def working(zero: FakeAgentZero, work: Work) -> Iterator[None]:
    """Agent-Zero's work meanwhile."""
    before, zero.work = zero.work, work
    try:
        yield
    finally:
        zero.work = before


async def card_of(url: str) -> Json:
    """With any HTTP client, and without authentication."""
    method, path = CARD_ENDPOINT.split()
    async with httpx2.AsyncClient() as http:
        reply = await http.request(method, url + path)
    assert reply.status_code == 200
    return reply.json()


async def test_agent_card_generation_endpoint(house: Zero) -> None:
    assert (await card_of(house.wire.url))["name"] == "Software Development Organization"


async def test_example_generated_agent_card(house: Zero) -> None:
    """The example's values, word for word; the address is the server's own, and lists may hold more."""
    shown, card = from_json(AGENT_CARD), await card_of(house.wire.url)
    assert_like(shown, card)
    assert_contains({name: shown[name] for name in ("name", "description", "version", "capabilities")}, card)
    assert card["authentication"] == shown["authentication"]
    for name in ("supportedProtocolVersions", "defaultInputModes", "defaultOutputModes"):
        assert set(card[name]) >= set(shown[name])
    skills = {skill["id"]: skill for skill in card["skills"]}
    for skill in shown["skills"]:
        assert_contains(skill, skills[skill["id"]])
    assert card["url"].startswith(house.wire.url)


async def test_message_send(house: Zero) -> None:
    house.put("figures.csv", "1,2\n")
    task = await house.wire.send(LIST_FILES)
    assert (state(task), bool(task["id"])) == ("completed", True)
    assert "figures.csv" in "\n".join([*texts(task).values(), words(task)])


async def test_message_stream(house: Zero) -> None:
    events = [event async for event in house.wire.stream(HELLO_WORLD)]
    said = [words(event) for event in events if event["kind"] == "status-update"]
    assert len([one for one in said if re.search(r"\(step \d/5, \d+% complete\)", one)]) >= 3
    assert state(events[-1]) == "completed"


async def test_message_stream_salute_to_sse_event_mapping(configured: Configured) -> None:
    """The report's values give the event's words; role and tool follow them."""
    told = dict(re.findall(r"(\w+\.\w+) = (\S+)", SALUTE))
    made = report(
        "primary", state=json.loads(told["status.state"]), plan=json.loads(told["activity.htn_plan"]),
        step=int(told["activity.htn_step"]), tool=json.loads(told["activity.current_tool"]),
    )  # fmt: skip
    assert made.status.progress == float(told["status.progress"])
    seen = asyncio.Event()

    async def work(chat: Chat, text: str) -> str:
        write(configured.folder / "reports", made)
        await asyncio.wait_for(seen.wait(), SOON_S)
        return "Fixed."

    shown = from_json(SSE_EVENT)["task"]["status"]
    with working(configured.zero, work):
        events = [event async for event in followed(configured.wire.stream(AUTHENTICATION_BUG), seen)]
    (event,) = [one for one in events if of_report(one)]
    assert_like(shown, event["status"])
    assert (state(event), event["status"]["message"]["role"]) == (shown["state"], shown["message"]["role"])
    assert words(event).startswith(shown["message"]["parts"][0]["text"])
    assert state(events[-1]) == "completed"


async def followed(events: AsyncIterator[Json], seen: asyncio.Event) -> AsyncIterator[Json]:
    async for event in events:
        if of_report(event):
            seen.set()
        yield event


def of_report(event: Json) -> bool:
    return event["kind"] == "status-update" and "% complete" in words(event)


async def test_tasks_get(house: Zero) -> None:
    task = await house.wire.send(LIST_FILES)
    assert await house.wire.get(task["id"]) == task
    assert (await house.wire.call("tasks/get", {"id": "none"}))["error"]["code"] == -32001


async def test_tasks_cancel(house: Zero) -> None:
    begun = asyncio.Event()

    async def work(chat: Chat, text: str) -> str:
        begun.set()
        return await asyncio.Event().wait() or ""

    with working(house.zero, work):
        task = await house.wire.begin(AUTHENTICATION_BUG)
        await asyncio.wait_for(begun.wait(), SOON_S)
        canceled = await house.wire.cancel(task["id"])
        await house.at_rest(task["id"])
    assert state(canceled) == state(await house.wire.get(task["id"])) == "canceled"


async def test_task_registry(house: Zero) -> None:
    """Each state of the registry, in the spelling of A2A; a second task waits as `submitted`."""
    dawn, begun = asyncio.Event(), asyncio.Event()

    async def work(chat: Chat, text: str) -> str:
        begun.set()
        await asyncio.wait_for(dawn.wait(), SOON_S)
        return "Done."

    with working(house.zero, work):
        first = await house.wire.begin(HELLO_WORLD)
        await asyncio.wait_for(begun.wait(), SOON_S)
        second = await house.wire.begin(LIST_FILES)
        seen = {state(await house.wire.get(first["id"]))}
        assert state(second) == "submitted"
        dawn.set()
        seen |= {state(await house.wire.reaches(one["id"])) for one in (first, second)}
    assert seen == {"working", "completed"}
    assert seen < set(REGISTRY_STATES.split(" | "))


async def test_pace_to_a2a_state_mapping_contingent_input_needed(house: Zero) -> None:
    task = await house.wire.send(NONEXISTENT)
    assert state(task) == "input-required"
    for part in (NONEXISTENT, "What was tried", "What failed", "What would help"):
        assert part in words(task)
    house.put("app.py", "def main()\n    return 1\n")
    assert state(await house.wire.send(f"It is in {WORK}/app.py", task=task["id"])) == "completed"


async def test_pace_to_a2a_state_mapping_emergency_failed(house: Zero) -> None:
    task = await house.wire.send("Run the evacuation drill")
    assert state(task) == "failed"
    assert {"report.md", "Failure report"} <= {one.get("name") for one in task["artifacts"]}


async def test_artifact_collection(house: Zero) -> None:
    """Text as text with its media type; the list of files comes from the report."""

    async def work(chat: Chat, text: str) -> str:
        house.put("hello_world.py", 'print("Hello, world!")\n')
        write(house.reports, report("primary", step=5, files=(f"{WORK}/hello_world.py",)))
        return "It says hello."

    with working(house.zero, work):
        task = await house.wire.send(HELLO_WORLD)
    (made,) = [one for one in task["artifacts"] if one.get("name") == "hello_world.py"]
    assert made["metadata"]["mimeType"] == "text/x-python"
    assert "".join(part["text"] for part in made["parts"]) == 'print("Hello, world!")\n'


async def test_server_configuration(configured: Configured) -> None:
    card = await card_of(configured.wire.url)
    assert card["authentication"]["schemes"] == [from_json(CONFIGURATION)["a2a_server"]["authentication"]["scheme"]]
    assert state(await configured.wire.send(LIST_FILES)) == "completed"


async def test_error_handling(configured: Configured) -> None:
    """Malformed JSON-RPC is answered in JSON-RPC; an Agent-Zero that breaks off is a failed task with the reason."""
    for content, code in ((b"{", -32700), (b"[]", -32600), (b'{"jsonrpc": "2.0", "id": 1}', -32600)):
        reply = (await configured.wire.http.post(configured.wire.url, content=content, headers=JSON)).json()
        assert (reply["jsonrpc"], reply["error"]["code"]) == ("2.0", code)

    async def work(chat: Chat, text: str) -> str:
        raise RuntimeError("the agent is gone")

    with working(configured.zero, work):
        task = await configured.wire.send(AUTHENTICATION_BUG)
    assert (state(task), "Traceback" in words(task)) == ("failed", False)
    assert "Failure report" in {one.get("name") for one in task["artifacts"]}


async def test_file_structure() -> None:
    named = re.findall(r"(\w+\.py)", FILE_STRUCTURE)
    assert len(named) == 8
    assert set(named) <= {file.name for file in modules_of(a2a_server)}


def modules_of(package: ModuleType) -> list[Path]:
    return [*Path(str(package.__file__)).parent.iterdir()]


async def test_startup_command(configured: Configured) -> None:
    card = await card_of(configured.wire.url)
    assert_contains(from_json(AGENT_CARD)["capabilities"], card["capabilities"])


async def test_docker_integration() -> None:
    dockerfile, compose = (read(DEPLOY / name) for name in ("../Containerfile", "compose.yaml"))
    assert EXPOSE in dockerfile.splitlines()
    service = yaml.safe_load(compose)["services"]["a2a-server"]
    assert service["ports"] == yaml.safe_load(PORTS)["ports"]


def read(file: Path) -> str:
    return file.read_text()

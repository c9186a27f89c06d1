"""Tools in the loop of a language model: called, approved, declined, and never called twice."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
from msgspec import Raw
from msgspec.structs import replace

from parley.client import Client, Json, message
from parley.definitions.loader import LoadedDefinitions, Sources
from parley.drivers.workflow import WorkflowDriver
from parley.errors import ApprovalRequired
from parley.execution.driver import Driver
from parley.json_values import Fields
from parley.orchestrations.rules.plan import Step
from parley.runs.log import Outcome
from parley.runs.rules.access import LOCAL
from parley.runs.rules.agents import Agent
from parley.runs.rules.state import State
from parley.testing.processes import ServerProcess, until
from parley.testing.servers import serving
from parley.tools.mcp_calls import ToolCall
from parley.tools.rules.policy import Approval, approval_digest
from tests.drivers.llm.test_driver import Chat, code, far, said, state, wire  # noqa: F401 - fixtures too
from tests.models.vendors import HANG, OpenAi, Reply, Vendor, Wire, answer, calling

SERVER = Path(__file__).parents[2] / "tools" / "mcp" / "hostile.py"
AGENT = """
slug: chat
model: {model}
llm:
  instructions: Be brief.
  {vendor}
  {options}
mcp:
  - name: s
    run: [{python}, {server}]
    env: {{CALLS: {calls}}}
"""


class House:
    """An agent with a server of tools, on one data directory: it can be left and entered again."""

    def __init__(self, path: Path, model: str, url: str = "", options: str = "") -> None:
        self.path, self.calls = path, path / "calls"
        vendor = f"base_url: {url}\n  key_from: TEST_KEY\n  retries: 0" if url else ""
        (path / "chat.yaml").write_text(
            AGENT.format(
                model=model, vendor=vendor, options=options, python=sys.executable, server=SERVER, calls=self.calls
            )
        )

    @asynccontextmanager
    async def open(self, *more: Driver) -> AsyncIterator[Chat]:
        reading = LoadedDefinitions(Sources((str(self.path / "chat.yaml"),)))
        reading.check()
        async with (
            serving(self.path / "data", [*reading.drivers, *more]) as server,
            Client(server.agent("chat")) as client,
        ):
            yield Chat(server, client, [])

    @property
    def called(self) -> list[str]:
        return self.calls.read_text().splitlines() if self.calls.exists() else []


async def reply(chat: Chat, task: Json, text: str) -> Json:
    return (await chat.client.call("SendMessage", {"message": message(text, task=task["id"])}))["task"]


def events(log: str, kind: str) -> list[Json]:
    return [one for one in map(json.loads, log.splitlines()) if one["type"] == kind]


@pytest.mark.slow
async def test_a_vendors_model_calls_tools_and_answers_with_what_they_said(
    tmp_path: Path, wire: Wire, far: Vendor  # noqa: F811
) -> None:  # fmt: skip
    calls = ("id-1", "echo", '{"n": 1}'), ("id-2", "refuse", '{"why": "no"}')
    far.replies = [calling(wire, *calls, words=("Let me look.",)), answer(wire, "It is 1.")]
    house = House(tmp_path, wire.name, far.url)
    async with house.open() as chat:
        task = await chat.say("How much?")
        log = await chat.log(task)
    assert state(task) == "completed"
    assert said(task) == "Let me look.\n\nIt is 1."
    assert sorted(house.called) == ['echo {"n": 1}', 'refuse {"why": "no"}']
    assert {one["tool"] for one in events(log, "tool_call")} == {"s/echo", "s/refuse"}
    assert sorted(one["status"] for one in events(log, "tool_result")) == ["failed", "succeeded"]
    assert wire.results(far.asked[1]) == [("id-1", '{"n":1}'), ("id-2", "tool_error: I will not: no")]
    assert task["artifacts"][0]["metadata"]["usage"] == {"inputTokens": 22, "outputTokens": 14}
    offered, sent = far.asked[0].body["tools"], [*far.asked[1].body["messages"]]
    if wire.name.startswith("openai"):
        del sent[0]
        assert offered[0]["function"]["name"] == "echo"
        assert offered[0]["function"]["parameters"] == {"type": "object"}
        function = {"name": "echo", "arguments": '{"n":1}'}
        assert sent[1]["tool_calls"][0] == {"id": "id-1", "type": "function", "function": function}
        assert (sent[1]["content"], [one["role"] for one in sent[2:]]) == ("Let me look.", ["tool", "tool"])
    else:
        assert (offered[0]["name"], offered[0]["input_schema"]) == ("echo", {"type": "object"})
        assert sent[1]["content"][1] == {"type": "tool_use", "id": "id-1", "name": "echo", "input": {"n": 1}}
        assert [block.get("is_error") for block in sent[2]["content"]] == [False, True]


async def test_what_a_model_gets_wrong_is_told_to_it(tmp_path: Path, wire: Wire, far: Vendor) -> None:  # noqa: F811
    calls = ("id-1", "nothing", "{}"), ("id-2", "echo", '{"n": '), ("id-3", "echo", "")
    far.replies = [calling(wire, *calls), answer(wire, "Well.")]
    house = House(tmp_path, wire.name, far.url)
    async with house.open() as chat:
        assert said(await chat.say("go")) == "Well."
    told = [text for _, text in wire.results(far.asked[1])]
    assert told == ["There is no tool nothing.", "The input is not a JSON object.", "{}"]
    assert house.called == ["echo {}"]


async def test_a_model_that_comes_to_no_answer_is_stopped(tmp_path: Path, wire: Wire, far: Vendor) -> None:  # noqa: F811
    far.replies = [calling(wire, ("id-1", "echo", "{}"))]
    house = House(tmp_path, wire.name, far.url, "max_rounds: 2")
    async with house.open() as chat:
        task = await chat.say("go")
    assert (state(task), code(task)) == ("failed", "too_many_rounds")
    assert len(house.called) == 2


async def test_no_tool_that_returned_is_called_again_after_a_restart(
    tmp_path: Path, wire: Wire, far: Vendor  # noqa: F811
) -> None:  # fmt: skip
    first = calling(wire, ("id-1", "echo", '{"n": 1}'), words=("Looking.",))
    far.replies = [first, Reply((*wire.start(), HANG)), answer(wire, "It is 1.")]
    house = House(tmp_path, wire.name, far.url)
    async with house.open() as chat:
        task = (await chat.client.call("SendMessage", {
            "message": message("go"), "configuration": {"returnImmediately": True}
        }))["task"]  # fmt: skip
        await until(lambda: len(far.asked) == 2)
    async with house.open() as chat:
        await until(lambda: len(far.asked) == 3)
        run = await chat.server.exchange.visible(task["id"], LOCAL)
        await chat.server.exchange.settled(Outcome(run, [], replayed=True))
        done = await chat.client.get(task["id"])
    assert house.called == ['echo {"n": 1}']
    assert wire.results(far.asked[2]) == [("id-1", '{"n":1}')]
    assert said(done) == "Looking.\n\nIt is 1."


async def test_the_offline_model_follows_its_script(tmp_path: Path) -> None:
    house = House(tmp_path, "offline")
    async with house.open() as chat:
        task = await chat.say('Please\nuse echo {"n": 1}\nalso s/echo {"n": 2}\nuse refuse {"why": "late"}')
        plain = await chat.say("hello")
    assert sorted(house.called[:2]) == ['echo {"n": 1}', 'echo {"n": 2}']
    assert house.called[2:] == ['refuse {"why": "late"}']
    assert said(task).endswith('The tools said: {"n":1} {"n":2} tool_error: I will not: late')
    assert said(plain).endswith("You said: hello")


@pytest.mark.slow
async def test_an_approval_is_asked_for_and_given_also_after_a_restart(tmp_path: Path) -> None:
    house = House(tmp_path, "offline", options="approve: ['*']")
    async with house.open() as chat:
        asked = await chat.say('use echo {"n": 1, "token": "hush"}\nuse echo {"n": 2}')
        assert state(asked) == "input_required"
        question, data = asked["status"]["message"]["parts"]
        assert "s/echo" in question["text"]
        assert "masked here, but not in the call: token" in question["text"]
        (shown,) = data["data"]["approval"]
        assert len(shown.pop("digest")) == 64
        assert shown == {"tool": "s/echo", "input": {"n": 1, "token": "[REDACTED]"}, "masked": ["token"]}
        assert house.called == []
        again = await reply(chat, asked, "Yes!")
        assert house.called == ['echo {"n": 1, "token": "hush"}']
        assert state(again) == "input_required"
        assert "hush" not in "".join(json.dumps(one) for one in events(await chat.log(asked), "progress"))
    async with house.open() as chat:
        done = await reply(chat, asked, "ok")
    assert state(done) == "completed"
    assert house.called == ['echo {"n": 1, "token": "hush"}', 'echo {"n": 2}']
    assert said(done).endswith('The tools said: {"n":1,"token":"[REDACTED]"} {"n":2}')


@pytest.mark.slow
async def test_what_a_person_declines_is_not_called_then_or_later(tmp_path: Path) -> None:
    house = House(tmp_path, "offline", options="approve: [s/echo]")
    async with house.open() as chat:
        asked = await chat.say('use echo {"n": 1}\nuse refuse {}\nuse echo {"n": 2}')
        again = await reply(chat, asked, "no, that is too dear")
        assert (state(again), house.called) == ("input_required", ["refuse {}"])
        done = await reply(chat, asked, "go ahead")
    assert house.called == ["refuse {}", 'echo {"n": 2}']
    assert "A person declined this call, and said: no, that is too dear" in said(done)


async def test_a_question_for_approval_names_the_exact_call_and_says_where_its_words_are_cut(tmp_path: Path) -> None:
    house = House(tmp_path, "offline", options="approve: ['*']")
    async with house.open() as chat:
        asked = await chat.say(f'use echo {{"text": "{"a" * 3000}"}}')
        question, data = asked["status"]["message"]["parts"]
        assert "cut here: 3,011 characters" in question["text"]
        assert "masked" not in question["text"]
        given = {"text": "a" * 3000}
        assert data["data"]["approval"] == [
            {"tool": "s/echo", "input": given, "digest": approval_digest("s/echo", given)}
        ]


async def test_a_tool_that_needs_approval_is_not_called_by_another_way(tmp_path: Path) -> None:
    house = House(tmp_path, "offline", options="approve: [s/echo]")
    given = {"toolName": "s/echo", "input": {"n": 1}}
    flow = WorkflowDriver(
        Agent("flow", "Flow", "A workflow."),
        (Step("a", "chat", mode="tool", action="execute", input=Raw(json.dumps(given).encode())),),
    )
    async with house.open(flow) as chat, httpx2.AsyncClient(base_url=chat.server.url, timeout=30) as http:
        begun = await http.post("/api/agent2agent/conversations", json={"agentSlug": "chat"})
        at = f"/api/agent2agent/conversations/{begun.json()['conversationId']}/tasks"
        body = {"mode": "tool", "action": "execute", "agentSlug": "chat", **given}
        refused = await http.post(at, json=body)
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "FORBIDDEN")
        assert "A person must approve each call of s/echo" in refused.json()["error"]["message"]
        async with Client(chat.server.agent("flow")) as client:
            task = (await client.call("SendMessage", {"message": message("go")}))["task"]
        assert state(task) == "failed"
        assert house.called == []
        free = await http.post(at, json={**body, "toolName": "s/refuse", "input": {}})
        assert house.called == ["refuse {}"], free.text


async def test_an_approval_is_good_for_the_exact_call_and_no_other(tmp_path: Path) -> None:
    house = House(tmp_path, "offline", options="approve: ['*']")
    async with house.open() as chat:
        tools = chat.server.exchange.execution.toolcalls
        assert tools is not None
        given: Fields = {"n": 1, "token": "hush"}
        approved = Approval(approval_digest("s/echo", given, "salt"), "salt")
        call = ToolCall(LOCAL, "talk", "chat", "s/echo", given, approved=approved)
        for changed in (
            replace(call, input={**given, "token": "other"}),
            replace(call, input={"n": 1}),
            replace(call, tool="s/refuse"),
            replace(call, approved=Approval(approved.digest)),
            replace(call, approved=Approval("", "salt")),
            replace(call, approved=None),
        ):
            with pytest.raises(ApprovalRequired):
                await tools.execute(changed)
        assert house.called == []
        await tools.execute(call)
        assert house.called == ['echo {"n": 1, "token": "hush"}']


async def test_words_that_came_before_the_question_do_not_answer_it(
    tmp_path: Path, wire: Wire, far: Vendor  # noqa: F811
) -> None:  # fmt: skip
    slow = calling(wire, ("id-1", "echo", "{}"))
    gate = asyncio.Event()
    far.replies = [Reply((slow.steps[0], gate, *slow.steps[1:])), answer(wire, "Hm.")]
    house = House(tmp_path, wire.name, far.url, "approve: ['*']")
    async with house.open() as chat:
        first = asyncio.create_task(chat.say("go"))
        await far.began.wait()
        (run,) = await chat.server.exchange.store.runs_in(State.WORKING)
        early = {"message": message("yes", task=run.id), "configuration": {"returnImmediately": True}}
        await chat.client.call("SendMessage", early)
        gate.set()
        assert state(await first) == "completed"
    assert house.called == []


async def test_a_cancel_breaks_a_tool_off(tmp_path: Path) -> None:
    house = House(tmp_path, "offline")
    async with house.open() as chat:
        asked = asyncio.create_task(chat.say("use hang {}"))
        await until(lambda: house.called == ["hang {}"])
        (run,) = await chat.server.exchange.store.runs_in(State.WORKING)
        await chat.client.cancel(run.id)
        assert state(await asked) == "canceled"
        log = await chat.log({"id": run.id})
    assert len(events(log, "tool_call")) == 1


@pytest.mark.slow
async def test_kill_9_calls_no_tool_again_that_has_returned_and_leaves_no_server(
    tmp_path: Path, far: Vendor  # noqa: F811
) -> None:  # fmt: skip
    wire = OpenAi  # noqa: F811
    far.replies = [calling(wire, ("id-1", "echo", '{"n": 1}')), Reply((*wire.start(), HANG)), answer(wire, "It is 1.")]
    house = House(tmp_path, wire.name, far.url)
    definition, starts = tmp_path / "chat.yaml", tmp_path / "starts"
    definition.write_text(definition.read_text().replace("env: {", f"env: {{STARTS: {starts}, "))
    first = await ServerProcess.start([definition], tmp_path / "data")
    async with Client(f"{first.url}/agents/chat") as client:
        sent = {"message": message("go"), "configuration": {"returnImmediately": True}}
        task = (await client.call("SendMessage", sent))["task"]
        await until(lambda: len(far.asked) == 2)
    await first.kill()
    (pid,) = map(int, starts.read_text().split())
    await until(lambda: not Path(f"/proc/{pid}").exists())
    second = await ServerProcess.start([definition], tmp_path / "data")
    async with Client(f"{second.url}/agents/chat") as client:
        async for _ in client.tail(task["id"]):
            pass
        done = await client.get(task["id"])
    assert await second.stop() == 0
    assert (state(done), said(done)) == ("completed", "It is 1.")
    assert house.called == ['echo {"n": 1}']

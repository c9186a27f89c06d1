"""Nothing is paid twice: a server is killed at every step of a function agent and of a model's tool rounds."""

import asyncio
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from parley.client import Client, Json
from parley.testing.processes import ServerProcess
from tests.models.vendors import HANG, Asked, OpenAi, Reply, Vendor, answer, calling, serving_vendor
from tests.paid_agents import STEPS

AGENTS = ("stepper", "chat")
TOOLS = Path(__file__).parent / "tools" / "mcp" / "hostile.py"
CHAT = """
slug: chat
model: openai:gpt-test
llm:
  base_url: {url}
  key_from: TEST_KEY
  retries: 0
  max_rounds: 20
mcp:
  - name: s
    run: [{python}, {tools}]
"""


class CountingModel(Vendor):
    """Counts the calls of each agent, by step.

    While `killing`, the first call of an odd step is not answered, and the first calls of an even step are answered
    together, so that the server can be killed in the middle of a call and right after one.
    """

    def __init__(self) -> None:
        super().__init__()
        self.killing = False
        self.calls: dict[str, Counter[int]] = {agent: Counter() for agent in AGENTS}
        self._arrived: defaultdict[int, asyncio.Event] = defaultdict(asyncio.Event)
        self._waiting: defaultdict[int, set[str]] = defaultdict(set)

    def reply_to(self, asked: Asked) -> Reply:
        agent = "stepper" if asked.path == "/steps" else "chat"
        step = asked.body["step"] if agent == "stepper" else len(OpenAi.results(asked)) + 1
        self.calls[agent][step] += 1
        reply = self._answer(agent, step)
        if not self.killing or self.calls[agent][step] > 1:
            return reply
        self._waiting[step].add(agent)
        if len(self._waiting[step]) == len(AGENTS):
            self._arrived[step].set()
        return Reply((HANG,)) if step % 2 else Reply((self._arrived[step], *reply.steps))

    async def both_at(self, step: int) -> None:
        """Wait until both agents have called for a step."""
        await self._arrived[step].wait()

    @staticmethod
    def _answer(agent: str, step: int) -> Reply:
        if agent == "stepper":
            return Reply((f"answer-{step}".encode(),))
        if step == STEPS:
            return answer(OpenAi, "Done.")
        return calling(OpenAi, (f"call-{step}", "echo", f'{{"n": {step}}}'))


class Site:
    """One server after the other on one store."""

    def __init__(self, folder: Path, model: CountingModel, env: dict[str, str]) -> None:
        self._folder = folder
        self._env = {**env, "MODEL_URL": model.url, "TEST_KEY": "k"}
        self._chat = folder / "chat.yaml"
        self._chat.write_text(CHAT.format(url=model.url, python=sys.executable, tools=TOOLS))
        self.server: ServerProcess | None = None

    async def start(self) -> ServerProcess:
        agents = [Path(__file__).parent / "paid_agents.py", self._chat]
        self.server = await ServerProcess.start(agents, self._folder / "data", env=self._env)
        return self.server

    async def begin(self) -> list[str]:
        return [await self._sent(agent) for agent in AGENTS]

    async def ended(self, task: str) -> Json:
        assert self.server is not None
        async with Client(self.server.url) as client:
            async for _ in client.tail(task):
                pass
            return await client.get(task)

    async def _sent(self, agent: str) -> str:
        assert self.server is not None
        async with Client(f"{self.server.url}/agents/{agent}") as client:
            return (await client.send("go", configuration={"returnImmediately": True}))["task"]["id"]


@pytest.fixture(params=["sqlite", "postgres"])
def env(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    if request.param == "sqlite":
        return {}
    database = request.getfixturevalue("database")
    return {"PARLEY_STORE": "postgres", "PARLEY_POSTGRES_URL": database, "PARLEY_BLOBS": str(tmp_path / "blobs"),
            "PARLEY_LEASE_S": "1"}  # fmt: skip


@pytest.mark.slow
async def test_a_model_is_paid_again_only_for_a_call_in_flight(tmp_path: Path, env: dict[str, str]) -> None:
    async with serving_vendor(CountingModel()) as model:
        site = Site(tmp_path, model, env)
        server = await site.start()
        for task in await site.begin():
            assert (await site.ended(task))["status"]["state"] == "TASK_STATE_COMPLETED"
        once = dict.fromkeys(range(1, STEPS + 1), 1)
        assert model.calls == dict.fromkeys(AGENTS, once)

        model.killing = True
        model.calls = {agent: Counter() for agent in AGENTS}
        tasks = await site.begin()
        for step in range(1, STEPS + 1):
            await asyncio.wait_for(model.both_at(step), 30)
            await server.kill()
            server = await site.start()
        ends = [await site.ended(task) for task in tasks]
        assert await server.stop() == 0
    assert [end["status"]["state"] for end in ends] == ["TASK_STATE_COMPLETED"] * 2
    assert ends[0]["artifacts"][0]["parts"][0]["text"] == " ".join(f"answer-{step}" for step in once)
    for calls in model.calls.values():
        assert [calls[step] for step in range(1, STEPS + 1, 2)] == [2] * (STEPS // 2)
        assert all(calls[step] in (1, 2) for step in range(2, STEPS + 1, 2))
        assert sorted(calls) == sorted(once)

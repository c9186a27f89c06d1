"""A model that counts its calls, and a server that is killed and started again on one store."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

from parley.client import Client, Json
from parley.testing.processes import ServerProcess
from tests.models.vendors import HANG, Asked, OpenAi, Reply, Vendor, answer, calling, serving_vendor
from tests.paid_agents import STEPS

TOOL = "/tool"


class CountingModel(Vendor):
    """Counts the calls of each agent, by step. The path or the name of the model tells which agent calls.

    While `killing`, the first call of an odd step is not answered, and the first calls of an even step are answered
    together, so that the server can be killed in the middle of a call and right after one.
    """

    def __init__(self, agents: Sequence[str]) -> None:
        super().__init__()
        self.agents = agents
        self.killing = False
        self.calls: dict[str, Counter[int]] = {}
        self.tools: Counter[str] = Counter()
        self.clear()
        self._arrived: defaultdict[int, asyncio.Event] = defaultdict(asyncio.Event)
        self._waiting: defaultdict[int, set[str]] = defaultdict(set)

    def clear(self) -> None:
        self.calls = {agent: Counter() for agent in self.agents}
        self.tools = Counter()

    def reply_to(self, asked: Asked) -> Reply:
        if asked.path == TOOL:
            self.tools[asked.body["call"]] += 1
            return Reply((b"counted",))
        agent = "stepper" if asked.path == "/steps" else asked.body["model"]
        step = asked.body["step"] if agent == "stepper" else len(OpenAi.results(asked)) + 1
        self.calls[agent][step] += 1
        reply = self._answer(agent, step)
        if not self.killing or self.calls[agent][step] > 1:
            return reply
        self._waiting[step].add(agent)
        if len(self._waiting[step]) == len(self.agents):
            self._arrived[step].set()
        return Reply((HANG,)) if step % 2 else Reply((self._arrived[step], *reply.steps))

    async def all_at(self, step: int) -> None:
        """Wait until all agents have called for a step."""
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

    def __init__(self, folder: Path, model: CountingModel, definitions: Sequence[Path], env: dict[str, str]) -> None:
        self._folder = folder
        self._definitions = list(definitions)
        self._agents = model.agents
        self._env = {**env, "MODEL_URL": model.url, "TEST_KEY": "k"}
        self.server: ServerProcess | None = None

    async def start(self) -> ServerProcess:
        self.server = await ServerProcess.start(self._definitions, self._folder / "data", env=self._env)
        return self.server

    async def begin(self) -> list[str]:
        return [await self._sent(agent) for agent in self._agents]

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


async def pay(
    folder: Path, agents: Sequence[str], definitions: Callable[[str], Sequence[Path]], env: dict[str, str]
) -> tuple[CountingModel, list[Json]]:
    """Run ten-step agents, first undisturbed, then with a kill at each of their steps. Return the model with the calls
    of the second time, and the tasks. `definitions` returns the agents' files for the URL of the model."""
    async with serving_vendor(CountingModel(agents)) as model:
        site = Site(folder, model, definitions(model.url), env)
        server = await site.start()
        for task in await site.begin():
            ended = await site.ended(task)
            assert ended["status"]["state"] == "TASK_STATE_COMPLETED", ended["status"]
        once = dict.fromkeys(range(1, STEPS + 1), 1)
        assert model.calls == dict.fromkeys(agents, once)

        model.killing = True
        model.clear()
        tasks = await site.begin()
        for step in range(1, STEPS + 1):
            await asyncio.wait_for(model.all_at(step), 30)
            await server.kill()
            server = await site.start()
        ends = [await site.ended(task) for task in tasks]
        assert await server.stop() == 0
    assert [end["status"]["state"] for end in ends] == ["TASK_STATE_COMPLETED"] * len(agents)
    for calls in model.calls.values():
        assert [calls[step] for step in range(1, STEPS + 1, 2)] == [2] * (STEPS // 2)
        assert all(calls[step] in (1, 2) for step in range(2, STEPS + 1, 2))
        assert sorted(calls) == sorted(once)
    return model, ends

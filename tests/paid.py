"""A model that counts its calls, and a server that is killed and started again on one store."""

import asyncio
import signal
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

from parley.client import Client, Json
from tests.forked_server import ForkedServer, forking
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


async def ended(server: ForkedServer, task: str) -> Json:
    async with Client(server.url) as client:
        async for _ in client.tail(task):
            pass
        return await client.get(task)


async def sent(server: ForkedServer, agent: str) -> str:
    async with Client(f"{server.url}/agents/{agent}") as client:
        return (await client.send("go", configuration={"returnImmediately": True}))["task"]["id"]


async def pay(
    folder: Path,
    agents: Sequence[str],
    definitions: Callable[[str], Sequence[Path]],
    env: dict[str, str],
    modules: Sequence[str] = (),
) -> tuple[CountingModel, list[Json]]:
    """Run ten-step agents, first undisturbed, then with a kill at each of their steps. Return the model with the calls
    of the second time, and the tasks. `definitions` returns the agents' files for the URL of the model. `modules` are
    imported once for all servers."""
    async with (
        serving_vendor(CountingModel(agents)) as model,
        forking(
            definitions(model.url), folder / "data", {**env, "MODEL_URL": model.url, "TEST_KEY": "k"}, modules
        ) as server,
    ):
        await server.start()
        for task in [await sent(server, agent) for agent in agents]:
            done = await ended(server, task)
            assert done["status"]["state"] == "TASK_STATE_COMPLETED", done["status"]
        once = dict.fromkeys(range(1, STEPS + 1), 1)
        assert model.calls == dict.fromkeys(agents, once)

        model.killing = True
        model.clear()
        tasks = [await sent(server, agent) for agent in agents]
        for step in range(1, STEPS + 1):
            await asyncio.wait_for(model.all_at(step), 30)
            assert await server.kill() == -signal.SIGKILL
            await server.start()
        ends = [await ended(server, task) for task in tasks]
        assert await server.stop() == 0
    assert [end["status"]["state"] for end in ends] == ["TASK_STATE_COMPLETED"] * len(agents)
    for calls in model.calls.values():
        assert [calls[step] for step in range(1, STEPS + 1, 2)] == [2] * (STEPS // 2)
        assert all(calls[step] in (1, 2) for step in range(2, STEPS + 1, 2))
        assert sorted(calls) == sorted(once)
    return model, ends

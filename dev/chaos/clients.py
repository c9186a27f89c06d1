"""Clients of the chaos test. Each does one thing after another until stopped, and finishes what it has started. Every
input has its own key and text."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable

from dev.chaos.following import ENDED, WAITING, Reader
from dev.chaos.history import Cancel, Edit, History, Hook, Input, Json
from dev.chaos.wire import Answer, Line
from dev.chaos.world import Place
from parley.ids import new_id

PLANS = 4
MODES = "/api/agent2agent/conversations"
Operation = Callable[[], Awaitable[None]]


class Crowd:
    """All clients and their shared state: tasks to watch, and plans that all edit."""

    def __init__(self, world: Place, many: int, dice: random.Random) -> None:
        self.tasks: list[tuple[str, str]] = []
        """Address and id of each task."""
        self.plans = [f"plan-{number}" for number in range(PLANS)]
        self.clients = [Client(self, world, number, random.Random(dice.getrandbits(64))) for number in range(many)]

    async def begin(self) -> None:
        for conversation in self.plans:
            await self.clients[0].begin_plan(conversation)

    async def work(self, stop: asyncio.Event) -> None:
        await asyncio.gather(*(client.work(stop) for client in self.clients))

    def give_up_at(self, at: float) -> None:
        for client in self.clients:
            client.line.until = at

    async def close(self) -> None:
        for client in self.clients:
            await client.line.close()


class Client:
    def __init__(self, crowd: Crowd, world: Place, number: int, dice: random.Random) -> None:
        self._crowd = crowd
        self._world = world
        self._number = number
        self._dice = dice
        self._count = 0
        self._history: History = world.history
        self.line = Line(world.url, world.history, dice)
        self._reader = Reader(self.line, world.history)
        self._operations: list[tuple[str, int, Operation]] = [
            ("send", 10, self.send),
            ("stream", 8, self.stream),
            ("answer", 4, self.answer),
            ("cancel", 2, self.cancel),
            ("watch", 4, self.watch),
            ("edit", 3, self.edit),
            ("orchestrate", 2, self.orchestrate),
        ]

    async def work(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            weights = [weight for _, weight, _ in self._operations]
            name, _, operation = self._dice.choices(self._operations, weights)[0]
            await operation()
            self._history.operations[name] += 1
            await asyncio.sleep(self._dice.uniform(0.1, 1.5))

    async def send(self) -> None:
        """Send a message to a random agent; a client that waits for the answer may get a question."""
        name, path = self._somebody()
        input_ = self._input(name)
        told = name != "house" and self._dice.random() < 0.4
        answer = await self._sent(path, input_, blocking=self._dice.random() < 0.4, told=told)
        if answer is not None and answer.good and name == "house":
            await self._settle(path, input_.task)

    async def stream(self) -> None:
        name, path = self._somebody()
        input_ = self._input(name)
        params = {"message": message(input_.text)}
        stream = await self._reader.follow("SendStreamingMessage", path, params, input_.key)
        if stream.task:
            self._acknowledged(path, input_, stream.task)
            if name == "house":
                await self._settle(path, input_.task)

    async def answer(self) -> None:
        """Start a task that asks a question, and answer it."""
        first = self._input("asker")
        path = "/agents/asker"
        answer = await self._sent(path, first, blocking=True, told=self._dice.random() < 0.3)
        if answer is None or not answer.good or not await self._asked(path, first.task):
            return
        second = self._input("asker", first.task)
        if self._dice.random() < 0.5:
            await self._sent(path, second, blocking=True, told=False)
            return
        params = {"message": message(second.text, first.task)}
        stream = await self._reader.follow("SendStreamingMessage", path, params, second.key)
        if stream.task:
            second.task = stream.task

    async def cancel(self) -> None:
        input_ = self._input("sleeper")
        answer = await self._sent("/agents/sleeper", input_, blocking=False, told=self._dice.random() < 0.5)
        if answer is None or not answer.good:
            return
        await asyncio.sleep(self._dice.choice([0, 0.1, 1]))
        await self._canceled("/agents/sleeper", input_.task)

    async def watch(self) -> None:
        """Follow another client's task, from its beginning or from now on."""
        if not self._crowd.tasks:
            return
        path, task = self._dice.choice(self._crowd.tasks[-60:])
        answer = await self.line.rpc("GetTask", path, {"id": task})
        if answer is None or not answer.good or answer.body["result"]["status"]["state"] in WAITING:
            return
        over = answer.body["result"]["status"]["state"] in ENDED
        after = self._dice.choice([0, None]) if not over else 0
        await self._reader.follow("SubscribeToTask", path, {"id": task}, after=after)

    async def begin_plan(self, conversation: str) -> None:
        await self.line.ask("begin", MODES, {"agentSlug": "writer", "id": conversation})
        edit = Edit(conversation, "")
        await self._mode(conversation, edit, {"mode": "plan", "action": "create", "message": "Tides"})

    async def edit(self) -> None:
        edit = Edit(self._dice.choice(self._crowd.plans), self._words())
        self._history.edits.append(edit)
        await self._mode(edit.conversation, edit, {"mode": "plan", "action": "edit", "editedContent": edit.text})

    async def _mode(self, conversation: str, edit: Edit, body: Json) -> Answer | None:
        body = {"agentSlug": "writer", **body}
        answer = await self.line.ask("edit", f"{MODES}/{conversation}/tasks", body, new_id())
        if answer is not None and answer.good:
            edit.version = answer.body["taskId"]
        return answer

    async def orchestrate(self) -> None:
        """Start an orchestration, pause and resume it; some are canceled."""
        conversation = new_id()
        await self.line.ask("begin", MODES, {"agentSlug": "flow", "id": conversation})
        created = await self._steered(conversation, "create", message=self._words())
        if created is None or not created.good:
            return
        id_ = created.body["result"]["orchestration"]["id"]
        self._crowd.tasks.append(("/agents/flow", id_))
        for action in self._dice.choice([(), ("pause", "resume"), ("pause", "resume", "cancel"), ("cancel",)]):
            await asyncio.sleep(self._dice.uniform(0, 1))
            await self._steered(conversation, action, orchestrationId=id_)

    async def _steered(self, conversation: str, action: str, **more: str) -> Answer | None:
        body = {"mode": "orchestrate", "action": action, "agentSlug": "flow", **more}
        return await self.line.ask(action, f"{MODES}/{conversation}/tasks", body, new_id())

    async def _sent(self, path: str, input_: Input, *, blocking: bool, told: bool) -> Answer | None:
        """Send until the outcome is known."""
        params: Json = {"message": message(input_.text, input_.into)}
        params["configuration"] = {"returnImmediately": not blocking}
        hook = Hook(self._world.hook(self._dice)) if told else None
        if hook is not None:
            params["configuration"]["taskPushNotificationConfig"] = {"url": hook.path}
        answer = await self.line.rpc("SendMessage", path, params, input_.key)
        if answer is not None and answer.good:
            self._acknowledged(path, input_, answer.queued or answer.body["result"]["task"]["id"])
            if hook is not None:
                self._history.hooks.append(Hook(hook.path, input_.task))
        return answer

    async def _settle(self, path: str, task: str) -> None:
        """Cancel the organisation's task when it asks for guidance: no client can answer."""
        if await self._asked(path, task):
            await self._canceled(path, task)

    async def _asked(self, path: str, task: str) -> bool:
        """Wait until it asks; False when it has ended, or time is up."""
        while time.monotonic() < self.line.until:
            answer = await self.line.rpc("GetTask", path, {"id": task})
            if answer is None or not answer.good:
                return False
            state = answer.body["result"]["status"]["state"]
            if state in WAITING or state in ENDED:
                return state in WAITING
            await asyncio.sleep(0.3)
        return False

    async def _canceled(self, path: str, task: str) -> None:
        answer = await self.line.rpc("CancelTask", path, {"id": task})
        if answer is not None and answer.good:
            self._history.cancels.append(Cancel(task, answer.body["result"]["status"]["state"]))

    def _somebody(self) -> tuple[str, str]:
        agents = self._world.agents
        weights = [4 if name in ("steps", "room") else 1 for name in agents]
        return self._dice.choices(list(agents.items()), weights)[0]

    def _input(self, agent: str, into: str = "") -> Input:
        words = self._words()
        text = f"list the files of {words}" if agent == "house" else words
        input_ = Input(new_id(), agent, text, into)
        self._history.inputs.append(input_)
        return input_

    def _acknowledged(self, path: str, input_: Input, task: str) -> None:
        input_.task = task
        self._crowd.tasks.append((path, task))

    def _words(self) -> str:
        self._count += 1
        return f"client {self._number} number {self._count}"


def message(text: str, task: str = "") -> Json:
    wire: Json = {"messageId": new_id(), "role": "ROLE_USER", "parts": [{"text": text}]}
    return {**wire, "taskId": task} if task else wire

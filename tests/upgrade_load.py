"""Load of callers while servers are replaced, with the answers they got: sends with keys, streams that resume, answers
to questions, cancels, updates by webhook."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

import httpx2

from parley.client import Client, Json, message
from parley.ids import new_id
from parley.testing.processes import until
from parley.testing.receivers import Receiver

NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
DONE, ASKS, CANCELED = "TASK_STATE_COMPLETED", "TASK_STATE_INPUT_REQUIRED", "TASK_STATE_CANCELED"
ENDED = (DONE, CANCELED, "TASK_STATE_FAILED", "TASK_STATE_REJECTED")
PATIENCE_S = 60.0
GONE = 503

Steps = list[tuple[int, Json]]


class Load:
    """Behaves as a good client does: what is not acknowledged is sent again under its key."""

    def __init__(self, url: str, receiver: Receiver) -> None:
        self.url = url
        self.receiver = receiver
        self.hooked: dict[str, str] = {}
        """By task: where its updates are posted."""
        # A new connection each time: an old one would never see the other servers.
        limits = httpx2.Limits(max_keepalive_connections=0)
        self._http = httpx2.AsyncClient(verify=NO_TLS, timeout=30, limits=limits)
        self.sent: dict[str, tuple[str, str]] = {}
        """By key: the agent, and the task that was acknowledged."""
        self.canceled: set[str] = set()
        self.answers: dict[str, str] = {}
        """By task: what its question was answered with."""
        self._streams: dict[str, asyncio.Task[Steps]] = {}
        self._stopped = asyncio.Event()

    async def close(self) -> None:
        await self._http.aclose()

    async def run(self) -> None:
        """Until `stop`; every kind of thing in turn."""
        number = 0
        while not self._stopped.is_set():
            match number % 4:
                case 0:
                    self.follow(await self.send("walker", f"walk {number}"))
                case 1:
                    await self.answer(await self.asked())
                case 2:
                    await self.cancel(await self.send("sleeper", "sleep"))
                case _:
                    await self.hook(f"pair {number}")
            number += 1

    def stop(self) -> None:
        self._stopped.set()

    async def send(self, agent: str, text: str, *, at: str = "", key: str = "", hook: str = "") -> str:
        key = key or new_id()
        configuration: Json = {"returnImmediately": True}
        if hook:
            configuration["taskPushNotificationConfig"] = {"url": self.receiver.url(hook)}
        sent = {"message": {**message(text), "messageId": key}, "configuration": configuration}
        result = await self._call("SendMessage", sent, agent, at, {"Idempotency-Key": key})
        task = str(result["task"]["id"])
        assert self.sent.setdefault(key, (agent, task)) == (agent, task)
        return task

    async def hook(self, text: str, at: str = "") -> str:
        """A task of which both a stream and a webhook tell."""
        path = f"/{new_id()}"
        task = await self.send("pair", text, at=at, hook=path)
        self.hooked[task] = path
        self.follow(task, at)
        return task

    async def asked(self, at: str = "") -> str:
        """A task that waits for an answer."""
        task = await self.send("asker", "question", at=at)
        await self.reached(task, ASKS)
        return task

    async def answer(self, task: str, at: str = "") -> None:
        key = new_id()
        wire = {"message": {**message("answer", task=task), "messageId": key}}
        sent = {**wire, "configuration": {"returnImmediately": True}}
        await self._call("SendMessage", sent, "asker", at, {"Idempotency-Key": key})
        self.answers[task] = key

    async def cancel(self, task: str, at: str = "") -> None:
        """One that was canceled before the answer got lost cannot be canceled again; one whose server has just died is
        canceled when another takes it up."""
        await self._call("CancelTask", {"id": task}, "", at, {}, refusal=-32002)
        await self.reached(task, *ENDED)
        self.canceled.add(task)

    def follow(self, task: str, at: str = "") -> None:
        """From its first event on, through every break, until it ends."""
        self._streams[task] = asyncio.ensure_future(self._followed(task, at or self.url))

    async def streams(self) -> dict[str, Steps]:
        async with asyncio.timeout(PATIENCE_S):
            return {task: await stream for task, stream in self._streams.items()}

    async def posted(self) -> dict[str, list[int]]:
        """By task: the numbers of the updates, in the order in which each was first posted, to the last one."""

        def over(path: str) -> bool:
            return any(DONE in post.body.decode() for post in self.receiver.on(path))

        await until(lambda: all(map(over, self.hooked.values())), PATIENCE_S)
        return {
            task: list(dict.fromkeys(post.seq for post in self.receiver.on(path))) for task, path in self.hooked.items()
        }

    async def task(self, task: str, at: str = "") -> Json:
        return await self._call("GetTask", {"id": task}, "", at, {})

    async def reached(self, task: str, *states: str, at: str = "") -> Json:
        found: Json = {}

        async def there() -> bool:
            found.update(await self.task(task, at))
            return found["status"]["state"] in states

        try:
            await until(there, PATIENCE_S)
        except TimeoutError:
            raise AssertionError(f"It is not {states}: {found}") from None
        return found

    async def _followed(self, task: str, url: str) -> Steps:
        async with Client(f"{url}/", http=httpx2.AsyncClient(verify=NO_TLS, timeout=30)) as one:
            return [step async for step in one.tail(task, 0)]

    async def _call(
        self, method: str, params: Json, agent: str, at: str, headers: dict[str, str], refusal: int = 0
    ) -> Any:
        """At an agent's address; any task is found at the root."""
        wire = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        url = f"{at or self.url}/agents/{agent}" if agent else f"{at or self.url}/"

        async def ask() -> httpx2.Response:
            return await self._http.post(url, json=wire, headers={"A2A-Version": "1.0", **headers})

        reply = (await _acknowledged(ask)).json()
        if refusal and reply.get("error", {}).get("code") == refusal:
            return None
        assert "result" in reply, reply
        return reply["result"]


async def _acknowledged(ask: Callable[[], Awaitable[httpx2.Response]]) -> httpx2.Response:
    """Asked again after a broken connection, and when a server says that it is about to stop."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                reply = await ask()
            except httpx2.TransportError:
                await asyncio.sleep(0.05)
                continue
            if reply.status_code != GONE:
                return reply
            await asyncio.sleep(0.05)

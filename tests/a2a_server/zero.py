"""The server with an Agent-Zero that speaks the real wire, and a kernel inside it that writes reports."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from msgspec.structs import replace

from parley.client import Client
from parley.orgkernel.salute import SaluteReport
from parley.testing.processes import ServerProcess, until
from tests.a2a_server.houses import running, sample, write_file
from tests.a2a_server.wire import Wire
from tests.drivers.agentzero.reports import report, write
from tests.drivers.agentzero.server import KEY, Chat, FakeAgentZero, agent_zero

WORK = PurePosixPath("/a0/usr/workdir")


class Zero:
    why = "The work cannot go on."

    def __init__(self, folder: Path, *, keyed: bool) -> None:
        self.keyed = keyed
        self.shared = WORK
        self.reports = folder / "reports"
        self.zero: FakeAgentZero
        self.server: ServerProcess
        self.wire: Wire
        self._light = asyncio.Event()
        self._watches: list[str] = []

    @staticmethod
    @asynccontextmanager
    async def open(place: Path, *, prefix: str, keyed: bool, **more: Any) -> AsyncGenerator["Zero", None]:
        folder = sample(place, extended=False)
        house = Zero(folder, keyed=keyed)
        async with agent_zero(house.work, prefix=prefix) as house.zero:
            connection = {"method": "direct", "agent_zero_url": house.zero.url, "api_key": KEY if keyed else None}
            config = write_file(
                place, org_dir=str(folder), agent_connection=connection, salute_poll_interval_seconds=0.05, **more
            )
            async with running(config) as (house.server, house.wire):
                yield house

    def put(self, name: str, content: str) -> None:
        self.zero.files[str(WORK / name)] = content.encode()

    async def begun(self, task: str) -> None:
        await until(lambda: bool(self._watches))

    async def dawn(self, task: str) -> None:
        self._light.set()

    async def at_rest(self, task: str) -> None:
        """With a key Agent-Zero names a chat only when it answers: a first message cannot be stopped over there."""
        if not self.keyed:
            await until(lambda: not any(chat.running for chat in self.zero.chats.values()))

    async def work(self, chat: Chat, text: str) -> str:
        """The fake agent's reaction to the contract's messages."""
        chat.log("agent", "icon://network_intelligence A0: Thinking... |||")
        if "List the files" in text:
            return "\n".join(PurePosixPath(path).name for path in self.zero.files) or "Nothing."
        if "hello world" in text:
            return await self._hello(text)
        if "/nonexistent/" in text:
            chat.log("warning", "", "FileNotFoundError: there is no such file\n\nTraceback")
            self._report("contingent", text, state="escalating", failures=5)
            return "I cannot find it."
        if "app.py" in text:
            self.put("app.py", "def main():\n    return 1\n")
            self._report("primary", text, step=5, files=(str(WORK / "app.py"),))
            return "It was a missing colon."
        if "evacuation" in text:
            self.put("report.md", "# Half a report\n")
            self._report("emergency", text, state="aborted", files=(str(WORK / "report.md"),))
            return "Out."
        return await self._watch(chat)

    async def _hello(self, text: str) -> str:
        self.put("hello_world.py", 'print("Hello, world!")\n')
        for step in range(1, 6):
            files = (str(WORK / "hello_world.py"),) if step == 5 else ()
            self._report("primary", text, step=step, plan="Code Generation", role="codegen_specialist", files=files)
            await self._seen(f"step {step}/5")
        return "It says hello."

    async def _watch(self, chat: Chat) -> str:
        self._watches.append(chat.id)
        await self._light.wait()
        return "All quiet."

    def _report(self, level: Any, text: str, **more: Any) -> None:
        made: SaluteReport = report(level, **more)
        write(self.reports, replace(made, activity=replace(made.activity, current_task=text)))

    async def _seen(self, words: str) -> None:
        """Wait until the client of a task could read this."""
        async with Client(f"{self.wire.url}/agents/org") as client:

            async def there() -> bool:
                found = await client.list(historyLength=20)
                return words in str(found)

            await until(there)

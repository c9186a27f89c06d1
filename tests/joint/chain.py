"""The whole chain, every piece a process: `parley serve`, `parley pair`, `a2a-runtime`, and a local agent."""

import asyncio
import base64
import json
import re
import shlex
import shutil
import sys
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from edge.tests.programs import Ended, Runtime, run, runtime
from parley.client import Client, Json
from parley.testing.processes import ServerProcess, until

HERE = Path(__file__).parent
NOW: Json = {"returnImmediately": True}
_PAIR = re.compile(r"^ +a2a-runtime (pair .+)$", re.MULTILINE)


class Asked(Struct, frozen=True):
    """A request to the local agent, with its time."""

    run: str
    raw: bytes
    at: float

    @property
    def body(self) -> Json:
        return json.loads(self.raw.partition(b"\r\n\r\n")[2])


class LocalAgent:
    def __init__(self, endpoint: str, record: Path) -> None:
        self.endpoint = endpoint
        self._record = record

    @property
    def asked(self) -> list[Asked]:
        return [Asked(one["run"], base64.b64decode(one["raw"]), one["at"]) for one in self._noted("asked")]

    @property
    def hung_up(self) -> dict[str, float]:
        return {one["run"]: one["at"] for one in self._noted("hung up")}

    async def asked_for(self, task: str, times: int = 1) -> Asked:
        """The request for this task, as soon as it was sent so often."""
        await until(lambda: len(self._of(task)) >= times)
        return self._of(task)[-1]

    def _of(self, task: str) -> list[Asked]:
        return [one for one in self.asked if one.run == task]

    def _noted(self, what: str) -> list[dict[str, Any]]:
        lines = self._record.read_text().splitlines(keepends=True)
        return [one for line in lines if line.endswith("\n") and (one := json.loads(line))["what"] == what]


@asynccontextmanager
async def local_agent(record: Path) -> AsyncGenerator[LocalAgent, None]:
    async with script("local_agent.py", str(record)) as endpoint:
        yield LocalAgent(endpoint, record)


@asynccontextmanager
async def script(name: str, *arguments: str, env: dict[str, str] | None = None) -> AsyncGenerator[str, None]:
    """One of the programs beside this file; the line that it begins with."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(HERE / name), *arguments, stdout=asyncio.subprocess.PIPE, env=env
    )
    assert process.stdout is not None
    try:
        yield (await process.stdout.readline()).decode().strip()
    finally:
        process.terminate()
        await process.communicate()


async def parley(*arguments: str) -> Ended:
    """`parley ARGUMENTS`, until it ends."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "parley", *arguments, stdout=pipe, stderr=pipe
    )  # fmt: skip
    out, err = await asyncio.wait_for(process.communicate(), 30)
    return Ended(process.returncode or 0, out.decode(), err.decode())


async def instruction(server: ServerProcess, slug: str) -> str:
    """The pairing instruction for an operator."""
    told = await parley("pair", slug, "--url", server.url)
    assert told.code == 0, told.err
    return told.out


def pairing(text: str) -> list[str]:
    """The arguments of `a2a-runtime pair` in an instruction."""
    found = _PAIR.search(text)
    assert found, text
    return shlex.split(found[1])


async def paired(server: ServerProcess, slug: str, home: Path, endpoint: str) -> Ended:
    done = await run(home, *pairing(await instruction(server, slug)), "--endpoint", endpoint, "--json")
    assert done.code == 0, done.err
    return done


def cloned(home: Path, other: Path) -> Path:
    """The same profile once more, as on a disk that two machines were made of."""
    other.mkdir(mode=0o700)
    shutil.copy(home / "runtime.json", other / "runtime.json")
    return other


@asynccontextmanager
async def working(home: Path, *options: str) -> AsyncGenerator[Runtime, None]:
    """`a2a-runtime start`, from when the platform knows it."""
    async with runtime(home, *options) as program:
        await program.says("platform.connected")
        yield program


def agent_of(server: ServerProcess, slug: str) -> Client:
    return Client(f"{server.url}/agents/{slug}")


async def begun(client: Client, text: str) -> str:
    """A task that nobody waits for."""
    return (await client.send(text, configuration=NOW))["task"]["id"]


async def ended(client: Client, task: str) -> Json:
    async with asyncio.timeout(30):
        async for _ in client.tail(task, 0):
            pass
        return await client.get(task)


def state(task: Json) -> str:
    return task["status"]["state"].removeprefix("TASK_STATE_").lower()


def words(task: Json) -> list[str]:
    return [part.get("text", "") for made in task.get("artifacts", []) for part in made["parts"]]


def reason(task: Json) -> tuple[str, str]:
    """The code and the words of a failure."""
    told = task["status"]["message"]
    return told["metadata"]["code"], told["parts"][0]["text"]


class Call(Struct, frozen=True):
    """A request from a runtime to its platform."""

    path: str
    body: Json


class Balancer:
    """One address for several servers: each connection goes to the next that answers. It reads along."""

    def __init__(self, urls: list[str]) -> None:
        self._ports = [int(url.rpartition(":")[2]) for url in urls]
        self._sent: list[bytearray] = []
        self.used: Counter[int] = Counter()
        self.url = ""

    def calls(self, task: str) -> list[Call]:
        """About this task, in the order of each connection."""
        sent = [one for all_ in self._sent for one in re.split(rb"(?=POST /|GET /)", all_)]
        parts = [one.partition(b"\r\n\r\n") for one in sent if f"/task-runs/{task}/".encode() in one]
        return [Call(head.split()[1].decode().rpartition("/")[2], json.loads(body)) for head, _, body in parts]

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in self._ports:
            self._ports.append(port := self._ports.pop(0))
            with suppress(OSError):
                there, onward = await asyncio.open_connection("127.0.0.1", port)
                self.used[port] += 1
                self._sent.append(sent := bytearray())
                async with asyncio.TaskGroup() as both:
                    both.create_task(passed(reader, onward, sent))
                    both.create_task(passed(there, writer))
                return
        writer.close()


async def passed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, copy: bytearray | None = None) -> None:
    with suppress(OSError):
        while some := await reader.read(65536):
            if copy is not None:
                copy += some
            writer.write(some)
            await writer.drain()
    writer.close()


@asynccontextmanager
async def balanced(urls: list[str]) -> AsyncGenerator[Balancer, None]:
    balancer = Balancer(urls)
    listening = await asyncio.start_server(balancer.accept, "127.0.0.1", 0)
    balancer.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    try:
        yield balancer
    finally:
        listening.close()

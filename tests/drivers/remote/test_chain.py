"""Three servers in a row, each a process of its own, any of which may be killed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from parley.client import Client, Json
from parley.testing.processes import ServerProcess, until
from parley.testing.servers import serving
from tests.drivers.conftest import remote, send, state, texts, words

from .chain_agents import STEPS

AGENTS = Path(__file__).parent / "chain_agents.py"
COUNTED = "".join(f"{number} " for number in range(STEPS))


class Link:
    """One server of the chain; it comes back under the same address with the same data."""

    def __init__(self, name: str, directory: Path, agents: list[Path]) -> None:
        self._name = name
        self._directory = directory
        self._agents = agents
        self._process: ServerProcess | None = None
        self._port = 0

    @property
    def url(self) -> str:
        assert self._process is not None
        return self._process.url

    async def start(self) -> None:
        env = {"PARLEY_GRPC_PORT": "-1"}
        self._process = await ServerProcess.start(
            self._agents, self._directory / self._name, port=self._port, env=env
        )  # fmt: skip
        self._port = urlsplit(self.url).port or 0

    async def kill(self) -> None:
        assert self._process is not None
        await self._process.kill()

    async def stop(self) -> None:
        if self._process is not None:
            await self._process.stop()


@asynccontextmanager
async def chain(directory: Path, length: int) -> AsyncIterator[list[Link]]:
    """The last one does the work; each of the others passes on to the next. The first one is the front."""
    links = [Link("0", directory, [AGENTS])]
    try:
        await links[0].start()
        for number in range(1, length):
            behind = links[0].url
            folder = directory / f"agents-{number}"
            folder.mkdir()
            for slug in ("ticker", "asker"):
                (folder / f"{slug}.yaml").write_text(f"driver: remote\nremote:\n  url: {behind}/agents/{slug}\n")
            links.insert(0, Link(str(number), directory, [folder]))
            await links[0].start()
        yield links
    finally:
        for link in links:
            await link.stop()


class Watcher:
    """A client at the front that notes everything it is shown."""

    def __init__(self, url: str) -> None:
        self._client = Client(f"{url}/agents/ticker")
        self.frames: list[Json] = []
        self._task = asyncio.get_running_loop().create_task(self._watch())

    async def _watch(self) -> None:
        async with self._client:
            async for frame in self._client.stream("go"):
                self.frames.append(frame)

    async def reached(self, number: int) -> None:
        await until(lambda: f"tick {number}" in self.ticks or self._task.done(), 30)

    async def ended(self) -> None:
        await asyncio.wait_for(self._task, 60)

    @property
    def ticks(self) -> list[str]:
        said = [frame["statusUpdate"]["status"].get("message") for frame in self.frames if "statusUpdate" in frame]
        return [part["text"] for one in said if one for part in one["parts"]]

    @property
    def chunks(self) -> list[Json]:
        return [frame["artifactUpdate"] for frame in self.frames if "artifactUpdate" in frame]

    def check(self) -> None:
        pieces = [part["text"] for chunk in self.chunks for part in chunk["artifact"]["parts"]]
        assert "".join(pieces) == COUNTED
        assert [chunk.get("append", False) for chunk in self.chunks] == [False] + [True] * (len(pieces) - 1)
        numbers = [int(tick.split()[1]) for tick in self.ticks[:-1]]
        assert numbers == sorted(set(numbers))
        assert self.ticks[-1] == "counted"
        moves = [frame for frame in self.frames if "statusUpdate" in frame]
        ends = [frame for frame in moves if state(frame["statusUpdate"]) == "completed"]
        assert len(ends) == 1
        assert ends == self.frames[-1:]


@pytest.mark.slow
async def test_the_front_shows_the_events_of_the_back_in_order(tmp_path: Path) -> None:
    async with chain(tmp_path, 3) as (front, _, _):
        watcher = Watcher(front.url)
        await watcher.ended()
        watcher.check()
        assert watcher.ticks == [*(f"tick {number}" for number in range(STEPS)), "counted"]
        async with Client(f"{front.url}/agents/asker") as client:
            task = await send(client, "go")
            for number in (1, 2):
                assert (state(task), words(task)) == ("input_required", f"question {number}")
                task = await send(client, f"answer {number}", task=task["id"])
            assert (state(task), words(task)) == ("completed", "heard answer 2")


@pytest.mark.slow
@pytest.mark.parametrize("place", [1, 2], ids=["middle", "back"])
async def test_a_server_behind_the_front_may_be_killed(tmp_path: Path, place: int) -> None:
    async with chain(tmp_path, 3) as links:
        watcher = Watcher(links[0].url)
        for number in (5, 15):
            await watcher.reached(number)
            await links[place].kill()
            await asyncio.sleep(0.2)
            await links[place].start()
        await watcher.ended()
        watcher.check()
        if place == 1:
            # The back was never away: not even what it said is missing.
            assert watcher.ticks == [*(f"tick {number}" for number in range(STEPS)), "counted"]
        async with Client(f"{links[2].url}/agents/ticker") as client:
            assert len((await client.call("ListTasks", {}))["tasks"]) == 1


@pytest.mark.slow
async def test_the_front_may_be_killed_too(tmp_path: Path) -> None:
    """Its client takes the stream up where it was; everything between is there, once."""
    async with chain(tmp_path, 2) as (front, back):
        watcher = Watcher(front.url)
        await watcher.reached(5)
        await front.kill()
        await front.start()
        await watcher.ended()
        watcher.check()
        async with Client(f"{back.url}/agents/ticker") as client:
            assert len((await client.call("ListTasks", {}))["tasks"]) == 1


@pytest.mark.slow
async def test_a_question_survives_the_middle(tmp_path: Path) -> None:
    async with chain(tmp_path, 3) as links, Client(f"{links[0].url}/agents/asker") as client:
        task = await send(client, "go")
        await links[1].kill()
        answering = asyncio.get_running_loop().create_task(send(client, "answer 1", task=task["id"]))
        await asyncio.sleep(0.5)
        await links[1].start()
        task = await answering
        assert (state(task), words(task)) == ("input_required", "question 2")
        assert texts({"artifacts": [], **task}) == {}


@pytest.mark.slow
async def test_a_remote_that_stays_away_is_told(tmp_path: Path) -> None:
    link = Link("0", tmp_path, [AGENTS])
    await link.start()
    driver = remote("ticker", f"{link.url}/agents/ticker", patience_s=0.5)
    async with serving(tmp_path / "front", [driver]) as front, Client(front.agent("ticker")) as client:
        task = (await client.send("go", configuration={"returnImmediately": True}))["task"]
        await until(lambda: _has_begun(client, task["id"]))
        await link.kill()
        await until(lambda: _failed(client, task["id"]))
        task = await client.get(task["id"])
        assert task["status"]["message"]["metadata"]["code"] == "remote_lost"
        task = await send(client, "again")
        assert task["status"]["message"]["metadata"]["code"] == "remote_unreachable"


async def _has_begun(client: Client, task: str) -> bool:
    return "artifacts" in await client.get(task)


async def _failed(client: Client, task: str) -> bool:
    return state(await client.get(task)) == "failed"

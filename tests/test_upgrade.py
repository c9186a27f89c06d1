"""The version before and this one, side by side on one database."""

import asyncio
import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from parley.ids import RunId
from parley.runs.log import all_runs, verify_run
from parley.runs.rules.events import ENDINGS, Event
from parley.runs.rules.state import FOLD, is_update
from parley.runs.rules.transcript import transcript_of
from parley.runs.store import Listing
from parley.runs.streams import read_all
from parley.security.secrets import new_key
from parley.stores.postgres import PostgresStore, open_pool
from parley.stores.postgres_pool import connect
from parley.stores.schema import migrations
from parley.testing.balancers import Balancer, balancing
from parley.testing.databases import bare_database
from parley.testing.processes import ServerProcess
from parley.testing.receivers import Receiver, receiving
from tests.upgrade_load import DONE, Load


class Earlier(NamedTuple):
    """A commit whose servers must work beside those of this one."""

    commit: str
    same_schema: bool
    """It has all migrations of today."""


EARLIER = {
    # Five migrations are younger, and one of them takes something away (0006): no later commit has both.
    "before-documents": Earlier("65c58ca34e726eab8a00469c114853454fd06aed", same_schema=False),
    # The last commit with packages by layer: every module has another name today, nothing stored has.
    "before-the-packages": Earlier("85a1057efedbb42012c931be8e32819c3e771483", same_schema=False),
    # The last commit without generations: it folds a run into a row that has none.
    "before-generations": Earlier("00a8ab37bff5575956a38f86ab1730f34247a1e9", same_schema=False),
}

ROOT = Path(__file__).parent.parent
AGENTS = [Path(__file__).parent / "upgrade_agents.py"]

START_S = 120.0
"""Time for a server to start, also on a busy machine: the code of an earlier commit is compiled first."""

pytestmark = pytest.mark.slow


def git(*arguments: str) -> bytes:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], check=True, capture_output=True).stdout


@pytest.fixture(params=EARLIER.values(), ids=EARLIER.keys())
def earlier(request: pytest.FixtureRequest) -> Earlier:
    return request.param


@pytest.fixture
def old_path(earlier: Earlier, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A PYTHONPATH with the code of the earlier commit."""
    try:
        shallow = git("rev-parse", "--is-shallow-repository").strip() == b"true"
    except (OSError, subprocess.CalledProcessError):
        shallow = True
    if shallow:
        pytest.skip("This copy of the project has no history to take an earlier version from.")
    git("merge-base", "--is-ancestor", earlier.commit, "HEAD")
    directory = tmp_path_factory.mktemp("old")
    with tarfile.open(fileobj=io.BytesIO(git("archive", earlier.commit, "src", "edge/src"))) as archive:
        archive.extractall(directory, filter="data")
    path = os.pathsep.join(str(directory / part) for part in ("src", "edge/src"))
    found = [sys.executable, "-c", "import parley; print(parley.__path__[0])"]
    package = subprocess.run(found, env={**os.environ, "PYTHONPATH": path}, check=True, capture_output=True, text=True)
    assert Path(package.stdout.strip()).is_relative_to(directory), "The old servers must not be of this version."
    return path


class Site:
    """Servers of both versions on one database, and what is in front of them."""

    def __init__(self, database: str, directory: Path, old_path: str, balancer: Balancer) -> None:
        self.database = database
        self.balancer = balancer
        self._directory = directory
        self._old = old_path
        self._shared = {
            "PARLEY_STORE": "postgres", "PARLEY_POSTGRES_URL": database, "PARLEY_BLOBS": str(directory / "blobs"),
            "PARLEY_LEASE_S": "3", "PARLEY_DRAIN_S": "0.3", "PARLEY_ALLOW_HOSTS": '["127.0.0.1"]',
            "PARLEY_SECRET_KEY_FILE": str(directory / "secret.key"),
        }  # fmt: skip
        self._running: list[ServerProcess] = []

    async def start(self, *, old: bool) -> ServerProcess:
        env = self._shared | ({"PYTHONPATH": self._old} if old else {})
        name = f"server-{len(list(self._directory.glob('server-*')))}"
        server = await ServerProcess.start(AGENTS, self._directory / name, env=env, start_s=START_S)
        self._running.append(server)
        self.balancer.servers.append(server.url)
        return server

    async def stop(self, server: ServerProcess) -> None:
        """An old one does not say beforehand that it goes, so the balancer is told."""
        self.balancer.servers.remove(server.url)
        self._running.remove(server)
        assert await server.stop() == 0

    async def kill(self, server: ServerProcess) -> None:
        self.balancer.servers.remove(server.url)
        self._running.remove(server)
        await server.kill()

    async def close(self) -> None:
        for server in self._running:
            await server.stop()

    async def migrate(self, *phase: str) -> dict[str, list[str]]:
        program = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "parley", "migrate", *phase, "--json", cwd=self._directory,
            env={**os.environ, **self._shared}, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, _ = await program.communicate()
        assert program.returncode == 0
        return json.loads(out)

    async def applied(self) -> set[str]:
        connection = await connect(self.database)
        try:
            return {str(row[0]) for row in await connection.fetch("SELECT id FROM migrations")}
        finally:
            await connection.close()


@pytest.fixture
async def site(postgres: str, tmp_path: Path, old_path: str) -> AsyncIterator[Site]:
    async with balancing() as balancer:
        (tmp_path / "secret.key").write_text(new_key() + "\n")
        (tmp_path / "secret.key").chmod(0o600)
        made = Site(await bare_database(postgres), tmp_path, old_path, balancer)
        try:
            yield made
        finally:
            await made.close()


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as made:
        yield made


@asynccontextmanager
async def under_load(site: Site, receiver: Receiver) -> AsyncIterator[Load]:
    load = Load(site.balancer.url, receiver)
    callers = [asyncio.ensure_future(load.run()) for _ in range(2)]
    try:
        yield load
    finally:
        load.stop()
        await asyncio.gather(*callers)
        await load.close()


def known(phase: str) -> set[str]:
    return {one.id for one in migrations("postgres") if one.phase == phase}


async def test_an_earlier_version_serves_beside_this_one_until_the_last_of_it_has_gone(
    site: Site, receiver: Receiver, earlier: Earlier
) -> None:
    old = [await site.start(old=True) for _ in range(2)]
    before = await site.applied()
    missing, removals = known("pre") - before, sorted(known("post") - before)
    assert earlier.same_schema == (not missing and not removals)

    async with under_load(site, receiver) as load:
        left = [await load.asked() for _ in range(4)]
        assert set((await site.migrate("--phase", "pre"))["applied"]) == missing
        new = await site.start(old=False)
        assert await site.applied() == before | missing, "What the old servers use is taken away under them."
        await one_finishes_what_the_other_began(load, old[0].url, new.url, left)
        await old_ones_take_up(site, load, new)
        for _ in range(2):
            await site.start(old=False)
        await new_ones_take_up(site, load, old)

        assert (await site.migrate())["waiting"] == removals, "Others still serve the database."
        assert (await site.migrate("--phase", "post"))["applied"] == removals
        await load.reached(await load.send("walker", "at last"), DONE)
    await everything_told_is_true(site, load)
    assert await site.applied() == known("pre") | known("post")


async def one_finishes_what_the_other_began(load: Load, old: str, new: str, left: list[str]) -> None:
    for here, there in ((old, new), (new, old)):
        asked = await load.asked(at=here)
        await load.answer(asked, at=there)
        await load.answer(left.pop(), at=there)
        sleeper = await load.send("sleeper", "sleep", at=here)
        await load.cancel(sleeper, at=there)
        await load.hook("told of", at=here)
        walk = await load.send("walker", "followed", at=here, key=f"walk at {here}")
        load.follow(walk, at=there)
        assert await load.send("walker", "followed", at=there, key=f"walk at {here}") == walk
        await load.reached(walk, DONE, at=there)


async def old_ones_take_up(site: Site, load: Load, new: ServerProcess) -> None:
    """Old servers continue the tasks that a new server hands over when it stops, and those of a killed one."""
    walks = [await load.send("walker", f"handed over {number}", at=new.url) for number in range(3)]
    await site.stop(new)
    fallen = await site.start(old=False)
    walks += [await load.send("walker", f"left behind {number}", at=fallen.url) for number in range(3)]
    await site.kill(fallen)
    for walk in walks:
        await load.reached(walk, DONE)


async def new_ones_take_up(site: Site, load: Load, old: list[ServerProcess]) -> None:
    walks = [await load.send("walker", f"handed back {number}", at=old[0].url) for number in range(3)]
    await site.stop(old[0])
    walks += [await load.send("walker", f"left to the new {number}", at=old[1].url) for number in range(3)]
    await site.kill(old[1])
    for walk in walks:
        await load.reached(walk, DONE)


async def everything_told_is_true(site: Site, load: Load) -> None:
    seen, posted = await load.streams(), await load.posted()
    assert min(len(seen), len(posted)) > 10
    store = PostgresStore(await open_pool(site.database, phases=()))
    try:
        listed, _ = await store.list_runs(Listing(limit=1000))
        assert {run.fold == FOLD for run in listed} == {True, False}, "Rows of both versions are left."
        assert {str(run) async for run in all_runs(store)} == {task for _, task in load.sent.values()}
        for agent, task in load.sent.values():
            await verify_run(store, RunId(task))
            events = await read_all(store, RunId(task))
            types = [event.type for event in events]
            if agent == "asker" and task not in load.answers:
                assert types[-1] == "input_required"
                continue
            assert sum(type_ in ENDINGS for type_ in types) == 1, (task, types)
            assert types[-1] == ("canceled" if task in load.canceled else "completed"), (task, types)
            assert types.count("input") == 1 + (task in load.answers), (task, types)
            await the_row_tells_what_the_log_does(store, events)
            if task in seen:
                shown = [event.seq for event in events if event.type not in ("submitted", "input")]
                assert [seq for seq, _ in seen[task]] == shown, (task, types)
                assert posted.get(task, shown) == shown, (task, types)
        assert set(posted) == {task for agent, task in load.sent.values() if agent == "pair"}
    finally:
        await store.close()


async def the_row_tells_what_the_log_does(store: PostgresStore, events: list[Event]) -> None:
    """Also one that an old server wrote last: it did not count what was said."""
    head = await store.head(events[0].run)
    roles = [said.role for said in transcript_of(events)]
    assert head is not None
    assert (head.run.said, head.run.notices) == (len(roles) - roles.count("system"), roles.count("system"))
    updates = sum(is_update(event.payload, event.seq, open=False) for event in events if event.payload)
    assert head.run.generation == 1 + updates

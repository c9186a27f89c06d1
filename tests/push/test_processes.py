"""Push notifications when processes die: every update arrives at least once, and in order."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from parley.client import Client
from parley.push.hooks import Hooks, StoredHook
from parley.security.secrets import FILE as SECRETS_FILE
from parley.security.secrets import Secrets, new_key
from parley.stores.records import SqliteRecords
from parley.stores.sqlite import FILE
from parley.testing.processes import ServerProcess, replicas, until
from parley.testing.receivers import Receiver, receiving
from tests.cli.test_cli import parley

AGENTS = [Path(__file__).parents[1] / "replica_agents.py"]

pytestmark = pytest.mark.slow


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as receiver:
        yield receiver


def firsts(receiver: Receiver) -> list[int]:
    """The updates in the order in which each arrived for the first time."""
    return list(dict.fromkeys(post.seq for post in receiver.posts))


def finished(receiver: Receiver) -> bool:
    return any("TASK_STATE_COMPLETED" in post.body.decode() for post in receiver.posts)


async def begun(server: ServerProcess, receiver: Receiver) -> str:
    async with Client(f"{server.url}/agents/walker") as client:
        configuration = {"returnImmediately": True, "taskPushNotificationConfig": {"url": receiver.url()}}
        return (await client.send("go", configuration=configuration))["task"]["id"]


async def shown(server: ServerProcess, task: str) -> list[int]:
    """Updates of a stream of the task, after it was submitted."""
    async with Client(server.url + "/") as client:
        return [seq async for seq, _ in client.tail(task, 2)]


async def test_after_a_crash_the_rest_is_told(tmp_path: Path, receiver: Receiver) -> None:
    receiver.delay_s["/hook"] = 0.05
    server = await ServerProcess.start(AGENTS, tmp_path / "data")
    try:
        task = await begun(server, receiver)
        for enough in (3, 8):
            await until(lambda enough=enough: len(firsts(receiver)) >= enough)
            await server.kill()
            server = await ServerProcess.start(AGENTS, tmp_path / "data")
        await until(lambda: finished(receiver), 30)
        assert firsts(receiver) == await shown(server, task)
    finally:
        await server.stop()


async def test_a_receiver_that_was_away_during_a_restart_misses_nothing(tmp_path: Path, receiver: Receiver) -> None:
    receiver.always["/hook"] = 503
    server = await ServerProcess.start(AGENTS, tmp_path / "data")
    try:
        task = await begun(server, receiver)
        await until(lambda: len(receiver.posts) >= 2)
        assert await server.stop() == 0
        receiver.always.clear()
        server = await ServerProcess.start(AGENTS, tmp_path / "data")
        await until(lambda: finished(receiver), 30)
        assert firsts(receiver) == await shown(server, task)
    finally:
        await server.stop()


async def test_when_the_leader_dies_the_other_replica_goes_on(
    tmp_path: Path, database: str, receiver: Receiver
) -> None:
    secret = tmp_path / "secret.key"
    secret.write_text(new_key() + "\n")
    secret.chmod(0o600)
    receiver.delay_s["/hook"] = 0.05
    env = {"PARLEY_LEASE_S": "1", "PARLEY_SECRET_KEY_FILE": str(secret)}
    async with replicas(2, AGENTS, tmp_path, database, **env) as (leader, other):
        tasks = [await begun(other, receiver), await begun(leader, receiver)]
        await until(lambda: len(receiver.posts) >= 12)
        await leader.kill()

        def told(task: str) -> list[int]:
            posts = [post for post in receiver.posts if task in post.body.decode()]
            return list(dict.fromkeys(post.seq for post in posts))

        for task in tasks:
            expected = await shown(other, task)
            await until(lambda task=task, expected=expected: len(told(task)) >= len(expected), 30)
            assert told(task) == expected


async def test_what_was_given_up_is_listed_and_redriven_from_a_terminal(tmp_path: Path, receiver: Receiver) -> None:
    receiver.always["/hook"] = 500
    data = ("--data-dir", str(tmp_path / "data"))
    server = await ServerProcess.start(AGENTS, tmp_path / "data")
    try:
        async with Client(f"{server.url}/agents/walker") as client:
            config = {"url": receiver.url() + "?key=s3cret", "token": "s3cret"}
            sent = await client.send("go", configuration={"taskPushNotificationConfig": config})
        task = sent["task"]["id"]
        await give_up(tmp_path / "data", task)
        listed = await parley("push", "list", "--dead", "--json", *data)
        (view,) = json.loads(listed.out)["push"]
        assert (view["task"], view["state"], view["receiver"]) == (task, "dead", receiver.url())
        table = await parley("push", "list", *data)
        assert "dead" in table.out
        assert "s3cret" not in listed.out + table.out

        assert (await parley("push", "redrive", *data)).code == 2
        nobody = await parley("push", "redrive", "nobody", *data)
        assert (nobody.code, nobody.out) == (1, "nothing to redrive\n")
        receiver.always.clear()
        redriven = await parley("push", "redrive", "--all", *data, "--json")
        assert [one["task"] for one in json.loads(redriven.out)["redriven"]] == [task]
        await until(lambda: finished(receiver))
        assert firsts(receiver) == await shown(server, task)
        assert json.loads((await parley("push", "list", "--dead", "--json", *data)).out) == {"push": []}
    finally:
        await server.stop()


async def give_up(data: Path, task: str) -> None:
    """As after the last attempt, without waiting for it."""
    records = SqliteRecords(data / FILE)
    hooks = Hooks(records, Secrets(data / SECRETS_FILE))
    try:

        async def dead() -> bool:
            entry = await hooks.entry(task, task)
            assert entry is not None
            kept = StoredHook(entry.hook, entry.kept.cursor, 12, "HTTP 500", ended="dead")
            return entry.kept.attempts > 0 and await hooks.save(entry, kept, None) is not None

        await until(dead)
    finally:
        await records.close()

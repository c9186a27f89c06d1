"""One run, two contracts: what A2A begins is driven at `/internal/v1` and the other way round, by the same numbers."""

import asyncio
from collections.abc import AsyncIterator, Generator
from contextlib import aclosing

import httpx2
import pytest

from parley.client import Client, RemoteError
from parley.client.control import Owner, RuntimeClient, RuntimeRefused
from parley.testing.processes import until as until_true
from parley.testing.servers import Server
from tests.faces.control.wire import SECRET, THREAD, Json, Shown, Wire, kind, kinds, until, until_done

EARLY = {"returnImmediately": True}


class Signed(httpx2.Auth):
    """Every request has a signature of its own, for a user and no run."""

    requires_request_body = True

    def __init__(self, url: str, user: int) -> None:
        self._signer = RuntimeClient(url, SECRET, owner=Owner(user_id=user))

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        request.headers.update(self._signer.headers(body=request.content))
        yield request


class A2A:
    """A2A clients of a server's agents that sign on behalf of a user."""

    def __init__(self, url: str, user: int = 42) -> None:
        self._url = url
        self._http = httpx2.AsyncClient(auth=Signed(url, user), timeout=20)

    def agent(self, slug: str) -> Client:
        return Client(f"{self._url}/agents/{slug}", http=self._http)

    async def close(self) -> None:
        await self._http.aclose()


@pytest.fixture
async def a2a(server: Server) -> AsyncIterator[A2A]:
    clients = A2A(server.url)
    yield clients
    await clients.close()


async def begun(client: Client, text: str) -> tuple[str, str]:
    """A task at work, and its context."""
    task = (await client.send(text, configuration=EARLY))["task"]
    return task["id"], task["contextId"]


async def tailed(client: RuntimeClient, run: str, thread: str) -> Shown:
    async with aclosing(client.follow(run, thread)) as events:
        return [event async for event in events]


async def subscribed(client: Client, task: str, after: int = 0) -> dict[int, Json]:
    """Updates that A2A shows of a task after an event, by number."""
    async with aclosing(client.tail(task, after)) as steps:
        return {seq: result async for seq, result in steps}


def words(shown: dict[int, Json]) -> dict[int, str]:
    """The pieces of the answer as A2A has them."""
    return {
        seq: "".join(part.get("text", "") for part in result["artifactUpdate"]["artifact"]["parts"])
        for seq, result in shown.items()
        if "artifactUpdate" in result
    }


def deltas(shown: Shown) -> dict[int, str]:
    return {seq: data["delta"] for seq, data in shown if data["type"] == "text-delta"}


async def test_what_a2a_has_done_is_read_here(a2a: A2A, client: RuntimeClient) -> None:
    task = (await a2a.agent("echo").send("hi"))["task"]
    run, thread = task["id"], task["contextId"]
    shown = await tailed(client, run, thread)
    assert kinds(shown) == ["run.created", "run.frame_consumed", "start", "text-delta", "finish"]
    assert (await client.snapshot(run, thread))["status"] == "succeeded"
    assert words(await subscribed(a2a.agent("echo"), run)) == deltas(shown) == {4: "hi"}


async def test_a_stream_of_a2a_and_one_from_here_have_the_same_numbers(a2a: A2A, client: RuntimeClient) -> None:
    seen: dict[int, Json] = {}
    params = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}}
    async with aclosing(a2a.agent("echo").events("SendStreamingMessage", params)) as events:
        async for id_, reply in events:
            assert id_ is not None
            seen[id_] = reply["result"]
    task = next(iter(seen.values()))["task"]
    shown = await tailed(client, task["id"], task["contextId"])
    assert words(seen) == deltas(shown)
    last = max(seen)
    assert seen[last]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert (last, "finish") == (shown[-1][0], kind(shown[-1][1]))


async def test_a_run_of_a2a_is_canceled_here(a2a: A2A, client: RuntimeClient) -> None:
    run, thread = await begun(a2a.agent("sleeper"), "sleep")
    assert (await client.snapshot(run, thread))["status"] in ("created", "running")
    assert (await client.cancel(run, thread, "enough"))["cancelRequested"]
    shown = await tailed(client, run, thread)
    assert kinds(shown)[-2:] == ["run.cancel_requested", "finish"]
    task = await a2a.agent("sleeper").get(run)
    assert task["status"]["state"] == "TASK_STATE_CANCELED"


async def test_a_question_of_a_run_of_a2a_is_answered_by_a_frame(a2a: A2A, client: RuntimeClient) -> None:
    task = (await a2a.agent("asker").send("make it"))["task"]
    run, thread = task["id"], task["contextId"]
    assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    await client.say(run, thread, "bob")
    shown = await tailed(client, run, thread)
    assert "run.artifact" in kinds(shown)
    ended = await a2a.agent("asker").get(run)
    assert ended["status"]["state"] == "TASK_STATE_COMPLETED"
    assert ended["artifacts"][0]["parts"] == [{"data": {"name": "bob"}}]


async def test_frames_fail_and_finish_runs_of_a2a(a2a: A2A, client: RuntimeClient) -> None:
    run, thread = await begun(a2a.agent("sleeper"), "sleep")
    await client.frame(run, thread, "fail", {"reason_class": "quota", "reason": "No money left."})
    task = await a2a.agent("sleeper").get(run)
    assert task["status"]["state"] == "TASK_STATE_FAILED"
    asked = (await a2a.agent("asker").send("make it"))["task"]
    await client.finish(asked["id"], asked["contextId"])
    assert (await a2a.agent("asker").get(asked["id"]))["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_a_message_of_a2a_is_an_input_of_a_run_begun_here(a2a: A2A, client: RuntimeClient, wire: Wire) -> None:
    run = await wire.new_run()
    task = (await a2a.agent("echo").send("from there", task=run))["task"]
    assert (task["id"], task["contextId"]) == (run, THREAD)
    assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    await client.say(run, THREAD, "from here")
    await client.finish(run, THREAD)
    shown = await until_done(client, run)
    assert list(deltas(shown).values()) == ["from there", "from here"]
    assert words(await subscribed(a2a.agent("echo"), run)) == deltas(shown)


async def test_a_run_begun_here_is_a_task_there(a2a: A2A, client: RuntimeClient, wire: Wire) -> None:
    run = await wire.new_run()
    assert (await a2a.agent("echo").get(run))["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    await client.say(run, THREAD, "hi")
    seen = await until(client, run, "run.input_required")
    task = await a2a.agent("echo").get(run)
    assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    assert task["artifacts"][0]["parts"] == [{"text": "hi"}]
    assert [listed["id"] for listed in (await a2a.agent("echo").list())["tasks"]] == [run]
    assert words(await first_of(a2a.agent("echo"), run, seen[-1][0])) == deltas(seen)


async def first_of(client: Client, task: str, upto: int) -> dict[int, Json]:
    """A subscription up to an event; the task itself goes on."""
    found: dict[int, Json] = {}
    async with aclosing(client.tail(task, 0)) as steps:
        async for seq, result in steps:
            found[seq] = result
            if seq >= upto:
                break
    return found


async def test_a_subscription_there_sees_the_frames_given_here(
    server: Server, a2a: A2A, client: RuntimeClient, wire: Wire
) -> None:
    run = await wire.new_run()
    following = asyncio.ensure_future(subscribed(a2a.agent("echo"), run))
    await until_true(lambda: bool(server.exchange.streams.followed))
    for text in ("one", "two"):
        await client.say(run, THREAD, text)
    await client.finish(run, THREAD)
    seen = await following
    shown = await until_done(client, run)
    assert words(seen) == deltas(shown)
    assert max(seen) == shown[-1][0]
    assert seen.keys() <= {seq for seq, _ in shown}


async def test_a_run_begun_here_is_canceled_there(a2a: A2A, client: RuntimeClient, wire: Wire) -> None:
    run = await wire.new_run(agent="sleeper")
    await client.say(run, THREAD, "sleep")
    await until(client, run, "run.progress")
    assert (await a2a.agent("sleeper").cancel(run, "enough"))["status"]["state"] == "TASK_STATE_CANCELED"
    assert (await client.snapshot(run, THREAD))["status"] == "canceled"
    again = await client.cancel(run, THREAD)
    assert again == {"runId": run, "status": "canceled", "cancelRequested": True, "idempotentReplay": True}
    assert kinds(await until_done(client, run))[-2:] == ["run.cancel_requested", "finish"]


async def test_the_reply_of_an_agent_that_answers_with_a_message_comes_as_words(
    client: RuntimeClient, wire: Wire
) -> None:
    run = await wire.new_run(agent="greeter")
    end: tuple[int, Json] = (1, {})
    for name in ("Ann", "Bob"):
        await client.say(run, THREAD, name)
        *_, said, end = await until(client, run, "run.input_required", end[0])
        assert said == (end[0], {"type": "text-delta", "runId": run, "delta": f"Hello, {name}."})
    await client.finish(run, THREAD)
    assert kinds(await until_done(client, run))[-1] == "finish"


async def test_a_message_of_a2a_that_is_answered_by_a_message_is_words_before_the_end(
    server: Server, a2a: A2A, client: RuntimeClient
) -> None:
    reply = (await a2a.agent("greeter").send("Ann"))["message"]
    assert reply["parts"] == [{"text": "Hello, Ann."}]
    (run,) = await server.exchange.store.run_ids("", 2)
    shown = await tailed(client, run, reply["contextId"])
    assert kinds(shown)[-2:] == ["text-delta", "finish"]
    assert shown[-2] == (shown[-1][0], {"type": "text-delta", "runId": run, "delta": "Hello, Ann."})


async def test_a_run_is_its_owners_at_both(server: Server, a2a: A2A, client: RuntimeClient, wire: Wire) -> None:
    strangers = A2A(server.url, user=7)
    run, thread = await begun(a2a.agent("sleeper"), "sleep")
    with pytest.raises(RemoteError):
        await strangers.agent("sleeper").get(run)
    async with RuntimeClient(server.url, SECRET, owner=Owner(user_id=7)) as stranger:
        with pytest.raises(RuntimeRefused) as refused:
            await stranger.snapshot(run, thread)
    assert refused.value.status == 403
    await strangers.close()
    await client.cancel(run, thread)
    await tailed(client, run, thread)

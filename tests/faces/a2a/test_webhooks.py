"""Push notifications over the wire, to receivers that behave well and to others."""

import asyncio
import json
import socket
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from joserfc.jwk import KeySet
from joserfc.jws import JWSRegistry, deserialize_compact

from parley.client import Client, RemoteError, message
from parley.faces.a2a import webhooks
from parley.telemetry import attach
from parley.testing.processes import until
from parley.testing.receivers import Receiver, receiving
from parley.testing.servers import Server, serving
from tests.faces.conftest import AGENTS, Clients

Json = dict[str, Any]


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as receiver:
        yield receiver


def hook(receiver: Receiver, path: str = "/hook", **more: object) -> Json:
    return {"taskPushNotificationConfig": {"url": receiver.url(path), **more}}


async def begun(client: Client, receiver: Receiver, text: str = "go", path: str = "/hook", **more: object) -> str:
    configuration = {"returnImmediately": True, **hook(receiver, path, **more)}
    return (await client.send(text, configuration=configuration))["task"]["id"]


def state(update: Json) -> str:
    return update.get("statusUpdate", {}).get("status", {}).get("state", "")


def ended(receiver: Receiver, path: str = "/hook") -> bool:
    return any(state(post.json) == "TASK_STATE_COMPLETED" for post in receiver.on(path))


async def updates_of(client: Client, task: str) -> dict[int, Json]:
    """Everything after the submitted task, as a stream shows it."""
    return {seq: update async for seq, update in client.tail(task, 2)}


async def test_every_update_after_the_submitted_task_is_posted_in_order(clients: Clients, receiver: Receiver) -> None:
    task = await begun(clients.writer, receiver)
    await until(lambda: any(state(post.json) == "TASK_STATE_INPUT_REQUIRED" for post in receiver.posts))
    await clients.writer.send("Ann", task=task)
    await until(lambda: ended(receiver))
    updates = await updates_of(clients.writer, task)
    assert [post.seq for post in receiver.posts] == list(updates)
    assert [post.json for post in receiver.posts] == list(updates.values())
    assert state(receiver.posts[0].json) == "TASK_STATE_WORKING"


async def test_what_a_post_carries(server: Server, clients: Clients, receiver: Receiver) -> None:
    task = await begun(
        clients.echo, receiver, token="tok", authentication={"scheme": "Bearer", "credentials": "s3cret"}
    )
    await until(lambda: ended(receiver))
    async with httpx2.AsyncClient() as http:
        keys = KeySet.import_key_set((await http.get(f"{server.url}/.well-known/jwks.json")).json())
    for post in receiver.posts:
        assert post.headers["content-type"] == "application/a2a+json"
        assert post.headers["authorization"] == "Bearer s3cret"
        assert post.headers["x-a2a-notification-token"] == "tok"
        protected, middle, signature = post.headers["x-a2a-signature"].split(".")
        assert middle == ""
        payload = urlsafe_b64encode(post.body).rstrip(b"=").decode()
        registry = JWSRegistry(algorithms=["ES256"], strict_check_header=False)
        checked = deserialize_compact(f"{protected}.{payload}.{signature}", keys, registry=registry)
        assert checked.payload == post.body
        header = json.loads(urlsafe_b64decode(protected + "=="))
        assert header["jku"] == f"{server.url}/.well-known/jwks.json"
        assert (header["task"], header["event"], header["alg"]) == (task, post.seq, "ES256")
        assert header["kid"]
        assert abs(header["iat"] - time.time()) < 60


async def test_clients_of_0_3_get_the_task_as_it_is(server: Server, receiver: Receiver) -> None:
    config = {"url": receiver.url(), "token": "t", "authentication": {"schemes": ["Basic"], "credentials": "eA=="}}
    params = {
        "message": {"kind": "message", "role": "user", "messageId": "1", "parts": [{"kind": "text", "text": "hi"}]},
        "configuration": {"blocking": False, "pushNotificationConfig": config},
    }
    async with httpx2.AsyncClient() as http:
        asked = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": params}
        task = (await http.post(server.agent("echo"), json=asked)).json()["result"]
    await until(lambda: any(post.json["status"]["state"] == "completed" for post in receiver.posts))
    for post in receiver.posts:
        assert (post.json["kind"], post.json["id"]) == ("task", task["id"])
        assert post.headers["content-type"] == "application/json"
        assert post.headers["authorization"] == "Basic eA=="
        assert post.headers["x-a2a-notification-token"] == "t"
    assert receiver.posts[0].json["status"]["state"] == "working"


async def test_a_configuration_made_later_is_told_what_comes_from_then_on(clients: Clients, receiver: Receiver) -> None:
    task = (await clients.writer.send("go"))["task"]["id"]
    before = await clients.writer.get(task)
    assert before["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    await clients.writer.call("CreateTaskPushNotificationConfig", {"taskId": task, "url": receiver.url()})
    await clients.writer.send("Ann", task=task)
    await until(lambda: ended(receiver))
    assert state(receiver.posts[0].json) in ("TASK_STATE_SUBMITTED", "TASK_STATE_WORKING")
    assert "TASK_STATE_INPUT_REQUIRED" not in [state(post.json) for post in receiver.posts]


async def test_an_ended_configuration_stays_readable(clients: Clients, receiver: Receiver) -> None:
    task = await begun(clients.echo, receiver, id="mine")
    await until(lambda: ended(receiver))
    got = await clients.echo.call("GetTaskPushNotificationConfig", {"taskId": task, "id": "mine"})
    assert got["url"] == receiver.url()


async def test_the_same_send_again_adds_no_second_configuration(clients: Clients, receiver: Receiver) -> None:
    wire = {"message": message("go"), "configuration": {"returnImmediately": True, **hook(receiver)}}
    sent = [await clients.writer.call("SendMessage", wire, {"Idempotency-Key": "k"}) for _ in range(2)]
    task = sent[0]["task"]["id"]
    await until(lambda: any(state(post.json) == "TASK_STATE_INPUT_REQUIRED" for post in receiver.posts))
    await clients.writer.send("Ann", task=task, configuration=hook(receiver))
    listed = await clients.writer.call("ListTaskPushNotificationConfigs", {"taskId": task})
    assert len(listed["configs"]) == 1
    await until(lambda: ended(receiver))
    assert [post.seq for post in receiver.posts] == sorted({post.seq for post in receiver.posts})


@pytest.mark.slow
@pytest.mark.parametrize("trouble", [[500, 503], ["reset"], [408], [425], [429]])
async def test_an_update_is_tried_again_until_it_is_taken(
    clients: Clients, receiver: Receiver, trouble: list[Any]
) -> None:
    receiver.moods["/hook"].extend(trouble)
    task = await begun(clients.echo, receiver)
    await until(lambda: ended(receiver))
    first = receiver.posts[0].seq
    seqs = [post.seq for post in receiver.posts]
    assert seqs == [first] * len(trouble) + list(await updates_of(clients.echo, task))


@pytest.mark.parametrize("status", [302, 400, 401, 404, 422])
async def test_an_update_that_is_refused_blocks_no_other(
    server: Server, clients: Clients, receiver: Receiver, status: int
) -> None:
    """The receiver will not take it later either; the completion reaches it all the same."""
    receiver.moods["/hook"].append(status)
    task = await begun(clients.echo, receiver)
    await until(lambda: ended(receiver))
    assert [post.seq for post in receiver.posts] == list(await updates_of(clients.echo, task))
    async with httpx2.AsyncClient(base_url=server.url) as http:

        async def finished() -> bool:
            (shown,) = (await http.get("/admin/push")).json()["push"]
            return (shown["state"], shown["rejected"], shown["reason"]) == ("finished", 1, f"HTTP {status}")

        await until(finished)


@pytest.mark.slow
async def test_who_says_nothing_is_asked_again(
    clients: Clients, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "TIMEOUT_S", 0.3)
    receiver.moods["/hook"].append("hang")
    task = await begun(clients.echo, receiver)
    await until(lambda: ended(receiver))
    updates = list(await updates_of(clients.echo, task))
    assert [post.seq for post in receiver.posts] == [updates[0], *updates]


async def test_who_says_410_is_told_no_more(clients: Clients, receiver: Receiver) -> None:
    receiver.moods["/hook"].append(410)
    told: list[str] = []
    detach = attach(lambda name, fields: told.append(name))
    task = await begun(clients.writer, receiver)
    await until(lambda: "push.gone" in told)
    await clients.writer.send("Ann", task=task)
    detach()
    assert len(receiver.posts) == 1


@pytest.mark.slow
async def test_a_receiver_that_asks_for_a_pause_gets_it(clients: Clients, receiver: Receiver) -> None:
    receiver.moods["/hook"].append(429)
    receiver.extra["/hook"] = "retry-after: 2"
    await begun(clients.echo, receiver)
    await until(lambda: len(receiver.posts) > 1)
    assert receiver.posts[1].at - receiver.posts[0].at >= 2


@pytest.mark.slow
async def test_a_slow_receiver_delays_neither_the_stream_nor_the_answer(clients: Clients, receiver: Receiver) -> None:
    receiver.delay_s["/hook"] = 2.0
    params = {"message": message("hello"), "configuration": hook(receiver)}
    began = time.monotonic()
    frames = [reply async for _, reply in clients.echo.events("SendStreamingMessage", params)]
    streamed_s = time.monotonic() - began
    assert state(frames[-1]["result"]) == "TASK_STATE_COMPLETED"
    assert streamed_s < 1.0
    began = time.monotonic()
    await clients.echo.send("hello", configuration=hook(receiver))
    assert time.monotonic() - began < 1.0


@pytest.mark.slow
async def test_hanging_receivers_delay_no_others(clients: Clients, receiver: Receiver) -> None:
    async with receiving() as dead:
        dead.always["/hook"] = "hang"
        await asyncio.gather(*(begun(clients.echo, dead) for _ in range(100)))
        began = time.monotonic()
        await begun(clients.echo, receiver)
        await until(lambda: ended(receiver))
        assert time.monotonic() - began < 2.0
        assert len(dead.posts) <= 4


async def test_nothing_is_posted_after_a_configuration_was_deleted(clients: Clients, receiver: Receiver) -> None:
    receiver.delay_s["/hook"] = 0.3
    task = await begun(clients.writer, receiver, id="mine")
    await until(lambda: len(receiver.posts) == 1)
    await clients.writer.call("DeleteTaskPushNotificationConfig", {"taskId": task, "id": "mine"})
    posted = len(receiver.posts)
    await clients.writer.send("Ann", task=task)
    await asyncio.sleep(1.2)
    assert len(receiver.posts) == posted
    with pytest.raises(RemoteError):
        await clients.writer.call("GetTaskPushNotificationConfig", {"taskId": task, "id": "mine"})


async def test_addresses_that_may_not_be_called_are_refused_at_once(tmp_path: Path, receiver: Receiver) -> None:
    async with serving(tmp_path / "data", AGENTS, auth="none") as server, Client(server.agent("echo")) as client:
        for url in (receiver.url(), "http://169.254.169.254/latest", "http://user:pw@example.org/", "http://[::1]/",
                    f"http://localhost:{receiver.port}/", f"http://127.1:{receiver.port}/"):  # fmt: skip
            with pytest.raises(RemoteError) as refused:
                await client.send("hi", configuration={"taskPushNotificationConfig": {"url": url}})
            assert (refused.value.rpc, refused.value.reason) == (-32602, "OUTBOUND_REFUSED")


async def test_a_name_that_leads_inside_is_not_called(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", receiver.port))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: answer)
    told: list[Json] = []
    detach = attach(lambda name, fields: told.append({"name": name, **fields}))
    async with serving(tmp_path / "data", AGENTS, auth="none") as server, Client(server.agent("echo")) as client:
        url = f"http://inside.example:{receiver.port}/hook?key=s3cret"
        await client.send("hi", configuration={"taskPushNotificationConfig": {"url": url}})
        await until(lambda: any(one["name"] == "push.refused" for one in told))
    detach()
    refused = next(one for one in told if one["name"] == "push.refused")
    assert refused["reason"] == "outbound_refused"
    assert refused["receiver"] == f"http://inside.example:{receiver.port}/hook"
    assert receiver.posts == []


async def test_what_the_operator_allows_is_called(tmp_path: Path, receiver: Receiver) -> None:
    allow = {"auth": "none", "allow_hosts": [f"localhost:{receiver.port}"]}
    async with serving(tmp_path / "data", AGENTS, **allow) as server, Client(server.agent("echo")) as client:
        config = {"url": f"http://localhost:{receiver.port}/hook"}
        await client.send("hi", configuration={"taskPushNotificationConfig": config})
        await until(lambda: ended(receiver))


async def test_an_operator_sees_how_they_fare_and_no_secrets(
    server: Server, clients: Clients, receiver: Receiver
) -> None:
    receiver.always["/bad"] = 500
    good = await begun(clients.echo, receiver)
    bad = await begun(
        clients.echo, receiver, path="/bad?key=s3cret", id="a/b", token="s3cret",
        authentication={"scheme": "Bearer", "credentials": "s3cret"},
    )  # fmt: skip
    await until(lambda: ended(receiver) and len(receiver.on("/bad")) > 0)
    async with httpx2.AsyncClient(base_url=server.url) as http:

        async def seen() -> dict[str, Json]:
            return {one["task"]: one for one in (await http.get("/admin/push")).json()["push"]}

        async def settled() -> bool:
            shown = await seen()
            return shown[good]["state"] == "finished" and shown[bad]["state"] == "retrying"

        await until(settled)
        shown = (await seen())[bad]
        assert (shown["reason"], shown["receiver"]) == ("HTTP 500", receiver.url("/bad"))
        assert shown["nextAt"]
        assert "s3cret" not in json.dumps(await seen())
        assert (await http.get("/admin/push?dead=true")).json() == {"push": [], "next": None}
        receiver.always.clear()
        redriven = await http.post(f"/admin/push/{bad}/a/b/redrive")
        assert (redriven.status_code, redriven.json()["state"]) == (200, "live")
        await until(lambda: ended(receiver, "/bad"))
        assert (await http.post(f"/admin/push/{good}/{good}/redrive")).status_code == 409
        assert (await http.post(f"/admin/push/{good}/other/redrive")).status_code == 404


async def test_only_administrators_see_them(tmp_path: Path) -> None:
    async with (
        serving(tmp_path / "data", AGENTS, auth="required") as server,
        httpx2.AsyncClient(base_url=server.url) as http,
    ):
        assert (await http.get("/admin/push")).status_code == 401
        assert (await http.post("/admin/push/a/b/redrive")).status_code == 401


async def test_quiet_configurations_hold_no_tasks(server: Server, clients: Clients, receiver: Receiver) -> None:
    before = len(asyncio.all_tasks())
    tasks = [await begun(clients.writer, receiver) for _ in range(20)]
    await until(lambda: sum(state(post.json) == "TASK_STATE_INPUT_REQUIRED" for post in receiver.posts) == 20)
    await until(lambda: len(asyncio.all_tasks()) <= before + 12)
    await clients.writer.send("Ann", task=tasks[0])
    await until(lambda: ended(receiver))


async def test_a_configuration_is_forgotten_with_the_events_of_its_task(tmp_path: Path, receiver: Receiver) -> None:
    async with serving(tmp_path / "data", AGENTS, keep_days=1e-7) as server, Client(server.agent("echo")) as client:
        task = await begun(client, receiver, id="mine")
        await until(lambda: ended(receiver))
        await asyncio.sleep(0.05)
        assert await client.call("GetTaskPushNotificationConfig", {"taskId": task, "id": "mine"})
        await server.exchange.retention.tick()
        with pytest.raises(RemoteError):
            await client.call("GetTaskPushNotificationConfig", {"taskId": task, "id": "mine"})
        assert (await client.get(task))["status"]["state"] == "TASK_STATE_COMPLETED"

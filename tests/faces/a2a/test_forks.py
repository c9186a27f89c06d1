"""Forking over the wire: an extension of the HTTP binding, declared in the card."""

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from parley.testing.servers import Server
from tests.faces.conftest import Clients

HEADERS = {"A2A-Version": "1.0"}
FORK = "urn:parley:extension:fork:1"


@pytest.fixture
async def http(server: Server) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=server.url, headers=HEADERS) as http:
        yield http


def message(text: str) -> dict[str, Any]:
    return {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]}


TABLE = {**message(""), "parts": [{"text": "a,b", "mediaType": "text/csv"}]}


async def test_a_fork_is_a_task_that_says_where_it_comes_from(clients: Clients, http: httpx2.AsyncClient) -> None:
    asked = (await clients.writer.send("go"))["task"]
    await clients.writer.send("Ann", task=asked["id"])
    questions = [
        seq
        async for seq, result in clients.writer.tail(asked["id"], 0)
        if result.get("statusUpdate", {}).get("status", {}).get("state") == "TASK_STATE_INPUT_REQUIRED"
    ]
    question = questions[0]
    path = f"/agents/writer/tasks/{asked['id']}:fork"
    reply = await http.post(path, json={"at": question, "message": message("Bob")})
    assert reply.status_code == 200, reply.text
    fork = reply.json()
    assert fork["id"] != asked["id"]
    assert fork["contextId"] == asked["contextId"]
    assert fork["metadata"] == {FORK: {"task": asked["id"], "at": question}}
    seen = [result async for _, result in clients.writer.tail(fork["id"], question)]
    assert seen[0]["statusUpdate"]["status"]["state"] == "TASK_STATE_SUBMITTED"
    assert seen[-1]["statusUpdate"]["status"]["message"]["parts"] == [{"text": "Bye, Bob."}]
    whole = [result async for _, result in clients.writer.tail(fork["id"], 0)]
    assert len(whole) > len(seen)


async def test_both_members_may_be_left_out_and_the_root_knows_the_task(
    clients: Clients, http: httpx2.AsyncClient
) -> None:
    task = (await clients.writer.send("go"))["task"]
    for path in (f"/agents/writer/tasks/{task['id']}:fork", f"/tasks/{task['id']}:fork"):
        reply = await http.post(path, headers={"Idempotency-Key": path})
        assert reply.status_code == 200, reply.text
        again = await http.post(path, headers={"Idempotency-Key": path})
        assert again.json()["id"] == reply.json()["id"]


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("/agents/writer/tasks/{id}:fork", {"at": 999}, 400, "there is no event 999"),
        ("/agents/writer/tasks/{id}:fork", {"at": 0}, 400, "1 or more"),
        ("/agents/writer/tasks/{id}:fork", {"at": "x"}, 400, "Expected"),
        ("/agents/writer/tasks/{id}:fork", {"message": {**message("x"), "contextId": "other"}}, 400, "conversation"),
        (
            "/agents/writer/tasks/{id}:fork",
            {"message": {**message("x"), "taskId": "other"}},
            400,
            "must be the task to fork",
        ),
        ("/agents/writer/tasks/{id}:fork", {"message": {**message("x"), "parts": []}}, 400, "at least one part"),
        ("/agents/writer/tasks/{id}:fork", {"message": TABLE}, 400, "does not read text/csv"),
        ("/agents/echo/tasks/{id}:fork", {}, 404, "not found"),
        ("/agents/writer/tasks/nothing:fork", {}, 404, "not found"),
        ("/agents/writer/v1/tasks/{id}:fork", {}, 404, "0.3"),
    ],
)
async def test_what_cannot_be_forked_is_refused(
    clients: Clients, http: httpx2.AsyncClient, path: str, body: dict[str, Any], status: int, words: str
) -> None:
    task = (await clients.writer.send("go"))["task"]
    reply = await http.post(path.format(id=task["id"]), json=body)
    assert reply.status_code == status, reply.text
    assert words in reply.json()["error"]["message"]


async def test_the_card_declares_it(clients: Clients) -> None:
    declared = (await clients.writer.card())["capabilities"]["extensions"]
    assert FORK in [one["uri"] for one in declared]


async def test_at_the_root_a_follow_up_goes_to_the_agent_of_its_task(server: Server, clients: Clients) -> None:
    from parley.client import Client

    task = (await clients.writer.send("go"))["task"]
    async with Client(server.url + "/") as root:
        answered = (await root.send("Ann", task=task["id"]))["task"]
        assert answered["status"]["message"]["parts"] == [{"text": "Bye, Ann."}]
        with pytest.raises(Exception, match="Task not found"):
            await root.send("Ann", task="nothing")
        second = (await clients.writer.send("go"))["task"]
        seen = [one async for one in root.stream("Bob", task=second["id"])]
        assert seen[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"

"""An agent behind a runtime, asked over A2A: it is a full agent, whoever does its work."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

import httpx2
import pytest

from parley import AgentError, ArtifactChunk, NeedInput, Status, Text, Turn, agent
from parley.client import Client, Json, message
from parley.testing.servers import Server
from tests.faces.pairing.conftest import Site, edge
from tests.faces.pairing.runtime import Raw, Work, error_of, paired

SOON = 5.0


async def test_a_task_waits_for_its_runtime_and_is_done_by_it(site: Site, http: httpx2.AsyncClient) -> None:
    server = await site.open()
    async with Client(server.agent("far")) as client:
        asked = asyncio.create_task(client.send("hello"))
        runtime = await paired(http, server.url, "far")
        work = await runtime.one()
        platform = {"name": "Parley", "origin": "127.0.0.1"}
        expected = {
            "id": work.id, "task_type": "chat", "input_snapshot": {"text": "hello"}, "initiator_agent_id": "",
            "target_agent_id": "far", "platform": platform, "attempt": 1,
        }  # fmt: skip
        assert expected.items() <= work.wire.items()
        assert work.wire["workspace_id"] == work.wire["conversation_id"]
        assert await runtime.complete(work, text="good day") == {
            "task_run_id": work.id, "status": "completed", "idempotent": False,
        }  # fmt: skip
        task = (await asked)["task"]
    assert task["id"] == work.id
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert [(one["name"], one["parts"]) for one in task["artifacts"]] == [("response", [{"text": "good day"}])]


async def test_an_agent_has_its_card_whether_its_runtime_is_there_or_not(
    site: Site, http: httpx2.AsyncClient
) -> None:  # fmt: skip
    server = await site.open()
    cards: list[Json] = []
    address = f"{server.agent('far')}/.well-known/agent-card.json"
    cards.append((await http.get(address)).json())
    runtime = await paired(http, server.url, "far")
    cards.append((await http.get(address)).json())
    await runtime.post("/agent-runtimes/runtime/detach")
    cards.append((await http.get(address)).json())
    for card in cards:
        card.pop("signatures", None)
    assert cards[0]["name"] == "Far"
    assert cards[0] == cards[1] == cards[2]


async def test_what_waits_for_nobody_is_limited(site: Site, http: httpx2.AsyncClient) -> None:
    server = await site.open(edge(max_queued=2))
    async with Client(server.agent("far")) as client:
        states = [await begin(client) for _ in range(3)]
        assert states[2]["status"]["state"] == "TASK_STATE_REJECTED"
        assert states[2]["status"]["message"]["metadata"] == {"code": "queue_full"}
        runtime = await paired(http, server.url, "far")
        works = await runtime.pull(limit=10)
        assert [work.id for work in works] == [state["id"] for state in states[:2]]
        assert (await begin(client))["status"]["state"] == "TASK_STATE_SUBMITTED"


async def begin(client: Client, text: str = "go", **more: Any) -> Json:
    wire = {"message": {**message(text), **more}, "configuration": {"returnImmediately": True}}
    return (await client.call("SendMessage", wire))["task"]


async def test_no_more_are_handed_out_than_may_run_at_once(site: Site, http: httpx2.AsyncClient) -> None:
    server = await site.open(edge(max_concurrent=2))
    runtime = await paired(http, server.url, "far")
    async with Client(server.agent("far")) as client:
        for _ in range(4):
            await begin(client)
        first = await runtime.pull(limit=10)
        assert len(first) == 2
        assert await runtime.pull() == []
        waiting = asyncio.create_task(runtime.pull(10_000, limit=10))
        await runtime.complete(first[0], text="done")
        assert len(await asyncio.wait_for(waiting, SOON)) == 1


async def test_a_question_is_answered_in_a_new_turn_of_the_same_task(site: Site, http: httpx2.AsyncClient) -> None:
    server = await site.open()
    runtime = await paired(http, server.url, "far")
    async with Client(server.agent("far")) as client:
        asked = asyncio.create_task(client.send("paint"))
        first = await runtime.one()
        told = await runtime.complete(first, state="input-required", text="Which colour?")
        assert told["status"] == "input_required"
        task = (await asked)["task"]
        assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        assert task["status"]["message"]["parts"] == [{"text": "Which colour?"}]
        again = asyncio.create_task(client.send("red", task=task["id"]))
        second = await runtime.one()
        assert (second.id, second.text, second.wire["attempt"]) == (first.id, "red", 1)
        assert second.wire["lease_id"] != first.wire["lease_id"]
        assert (await runtime.complete(first, state="input-required", text="Which colour?"))["idempotent"]
        assert error_of(await runtime.about(first, "complete", output={"text": "x"})) == (409, "task_run_ended")
        await runtime.complete(second, text="a red square")
        assert (await again)["task"]["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_input_that_comes_during_a_turn_is_pulled_after_it(site: Site, http: httpx2.AsyncClient) -> None:
    server = await site.open()
    runtime = await paired(http, server.url, "far")
    async with Client(server.agent("far")) as client:
        task = await begin(client, "one")
        work = await runtime.one()
        await begin(client, "two", taskId=task["id"])
        assert await runtime.pull() == []
        assert (await runtime.complete(work, text="first"))["status"] == "completed"
        more = await runtime.one()
        assert (more.id, more.text) == (work.id, "two")
        await runtime.complete(more, text="second")
        done = await client.get(task["id"])
    assert [part["text"] for one in done["artifacts"] for part in one["parts"]] == ["first", "second"]


async def test_a_cancel_reaches_the_runtime_at_once_and_its_word_ends_the_task(
    site: Site, http: httpx2.AsyncClient
) -> None:  # fmt: skip
    server = await site.open()
    runtime = await paired(http, server.url, "far")
    async with Client(server.agent("far")) as client:
        task = await begin(client)
        work = await runtime.one()
        told = asyncio.create_task(runtime.control(work, wait_ms=25_000))
        canceling = asyncio.create_task(client.cancel(task["id"]))
        assert (await asyncio.wait_for(told, SOON))["cancel_task_run_ids"] == [work.id]
        assert (await runtime.heartbeat(work))["cancel_task_run_ids"] == [work.id]
        assert (await runtime.about(work, "progress", text="stopping")).json()["cancel_requested"] is True
        failed = await runtime.about(work, "fail", output={"error": "Stopped."})
        assert failed.json() == {"task_run_id": work.id, "status": "canceled", "idempotent": False}
        assert (await canceling)["status"]["state"] == "TASK_STATE_CANCELED"
        assert error_of(await runtime.about(work, "complete", output={"text": "x"})) == (409, "task_run_ended")


async def test_a_cancel_that_nobody_confirms_ends_after_the_grace(site: Site, http: httpx2.AsyncClient) -> None:
    server = await site.open(edge(), cancel_grace_s=0.1)
    runtime = await paired(http, server.url, "far")
    async with Client(server.agent("far")) as client:
        task = await begin(client)
        work = await runtime.one()
        assert (await client.cancel(task["id"]))["status"]["state"] == "TASK_STATE_CANCELED"
    assert await runtime.control(work) == {"cancel_task_run_ids": [work.id], "lost_task_run_ids": []}
    assert error_of(await runtime.about(work, "complete", output={"text": "late"})) == (409, "task_run_ended")


async def test_a_task_that_waits_is_canceled_without_anybody(site: Site, http: httpx2.AsyncClient) -> None:
    server = await site.open()
    async with Client(server.agent("far")) as client:
        task = await begin(client)
        assert (await client.cancel(task["id"]))["status"]["state"] == "TASK_STATE_CANCELED"
    assert await (await paired(http, server.url, "far")).pull() == []


async def test_an_end_is_taken_once(site: Site, http: httpx2.AsyncClient) -> None:
    server = await site.open()
    runtime = await paired(http, server.url, "far")
    async with Client(server.agent("far")) as client:
        task = await begin(client)
        work = await runtime.one()
        replies = await asyncio.gather(*(runtime.complete(work, text="done") for _ in range(8)))
        assert sorted(reply["idempotent"] for reply in replies) == [False] + [True] * 7
        assert {reply["status"] for reply in replies} == {"completed"}
        for how, output in (("complete", {"text": "other"}), ("fail", {"error": "done"}), ("fail", {"text": "done"})):
            assert error_of(await runtime.about(work, how, output=output)) == (409, "task_run_ended")
        assert len((await client.get(task["id"]))["artifacts"]) == 1


async def test_a_failure_is_told_in_the_agents_words(site: Site, http: httpx2.AsyncClient) -> None:
    server = await site.open()
    runtime = await paired(http, server.url, "far")
    async with Client(server.agent("far")) as client:
        asked = asyncio.create_task(client.send("go"))
        work = await runtime.one()
        failed = {"error": "No file could be written.", "code": "ARTIFACT_WRITE_FAILED"}
        for idempotent in (False, True):
            reply = await runtime.about(work, "fail", output=failed)
            assert reply.json() == {"task_run_id": work.id, "status": "failed", "idempotent": idempotent}
        status = (await asked)["task"]["status"]
    assert status["state"] == "TASK_STATE_FAILED"
    assert status["message"]["parts"] == [{"text": "No file could be written."}]
    assert status["message"]["metadata"] == {"code": "ARTIFACT_WRITE_FAILED"}


async def test_input_is_more_than_text(site: Site, http: httpx2.AsyncClient) -> None:
    server = await site.open(edge(input_modes=("*/*",)))
    runtime = await paired(http, server.url, "far")
    large = "QUJD" * 20_000
    parts = [
        {"text": "one"}, {"text": "two"}, {"data": {"a": 1.0}},
        {"raw": large, "mediaType": "image/png", "filename": "a.png"},
    ]  # fmt: skip
    async with Client(server.agent("far")) as client:
        await begin(client, parts=parts, metadata={"task_type": "paint"})
    work = await runtime.one()
    assert work.wire["task_type"] == "paint"
    assert work.wire["input_snapshot"] == {"text": "one\ntwo", "parts": parts}


async def test_a_child_names_the_agent_that_asked(site: Site, http: httpx2.AsyncClient) -> None:
    @agent("boss")
    async def boss(turn: Turn):
        answer = await turn.ask("far", turn.text)
        yield Text(f"{answer.state}: {answer.text}")

    server = await site.open(edge(), boss)
    runtime = await paired(http, server.url, "far")
    async with Client(server.agent("boss")) as client:
        asked = asyncio.create_task(client.send("dig"))
        work = await runtime.one()
        assert (work.text, work.wire["initiator_agent_id"]) == ("dig", "boss")
        await runtime.complete(work, text="dug")
        assert (await asked)["task"]["artifacts"][0]["parts"] == [{"text": "completed: dug"}]


async def test_parts_of_an_answer_and_members_of_its_own_are_kept(site: Site, http: httpx2.AsyncClient) -> None:
    server = await site.open()
    runtime = await paired(http, server.url, "far")
    output = {
        "text": "sum", "score": 3.50, "artifact_refs": [{"artifact_id": "x"}],
        "parts": [
            {"type": "text", "text": "sum"}, {"kind": "text", "text": "more"}, {"type": "data", "data": {"n": 1.0}},
            {"type": "artifact_ref", "artifact_id": "x"}, {"kind": "file", "file": {"uri": "https://a.example/b"}},
            {"raw": "QUI=", "mediaType": "image/png"}, {"type": "odd", "value": 1},
        ],
    }  # fmt: skip
    async with Client(server.agent("far")) as client:
        task = await begin(client)
        await runtime.complete(await runtime.one(), **output)
        made = (await client.get(task["id"]))["artifacts"]
    assert [one["parts"] for one in made] == [
        [{"text": "sum\nmore"}], [{"data": {"n": 1.0}}], [{"url": "https://a.example/b"}],
        [{"raw": "QUI=", "mediaType": "image/png"}], [{"data": {"type": "odd", "value": 1}}],
        [{"data": {"score": 3.5}}],
    ]  # fmt: skip


async def test_an_answer_may_be_long(site: Site, http: httpx2.AsyncClient) -> None:
    server = await site.open()
    runtime = await paired(http, server.url, "far")
    words = "ä\x01🙂" * 500_000
    async with Client(server.agent("far")) as client:
        task = await begin(client)
        await runtime.complete(await runtime.one(), text=words)
        assert (await client.get(task["id"]))["artifacts"][0]["parts"] == [{"text": words}]


# The same agent twice: in process, and behind a runtime.


@agent("near")
async def near(turn: Turn):
    """Says what it does, makes a file, asks, answers, fails."""
    match turn.text:
        case "fail":
            raise AgentError("It cannot be done.")
        case "ask":
            yield Status("thinking")
            yield NeedInput("Which one?")
        case "file":
            yield ArtifactChunk(
                "# Report", id="f", name="Result", description="short", filename="out/r.md", media_type="text/markdown"
            )
            yield Text("see the file")
        case text:
            yield Status("thinking")
            yield Status("still thinking")
            yield Text(f"It is {text}.")


async def far(runtime: Raw) -> None:
    """Same work as `near`, with the calls of a runtime."""
    while True:
        for work in await runtime.pull(20_000):
            await _done(runtime, work)


async def _done(runtime: Raw, work: Work) -> None:
    match work.text:
        case "fail":
            await runtime.about(work, "fail", output={"error": "It cannot be done."})
        case "ask":
            await runtime.about(work, "progress", text="thinking")
            await runtime.complete(work, state="input-required", text="Which one?")
        case "file":
            file = {
                "artifact_type": "report", "filename": "out/r.md", "title": "Result", "summary": "short",
                "keywords": [], "mime_type": "text/markdown", "content_text": "# Report",
            }  # fmt: skip
            written = (await runtime.about(work, "artifacts", **file)).json()
            reference = {"type": "artifact_ref", "artifact_id": written["artifact_id"]}
            await runtime.complete(work, text="see the file", parts=[reference])
        case text:
            await runtime.about(work, "progress", text="thinking")
            await runtime.about(work, "progress", text="still thinking")
            await runtime.complete(work, text=f"It is {text}.")


Talk = Callable[[Client], Awaitable[list[Json]]]


def _talk(*texts: str) -> Talk:
    async def talk(client: Client) -> list[Json]:
        """Everything a client sees: streamed, then as a task, and sent once more without a stream."""
        seen: list[Json] = []
        task: str | None = None
        for text in texts:
            wire = {"message": {**message(text), **({"taskId": task} if task else {})}}
            async for _, reply in client.events("SendStreamingMessage", wire):
                seen.append(reply["result"])
                task = task or reply["result"]["task"]["id"]
        assert task is not None
        return [*seen, await client.get(task), (await client.send(texts[0])).result]

    return talk


_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def plain(value: Any) -> Any:
    """Without ids and times; and without what is known only of files that came from elsewhere."""
    match value:
        case dict():
            artifact = "artifactId" in value and {"artifactId": "id", "metadata": None}
            return {name: plain(one) for name, one in {**value, **(artifact or {})}.items() if name != "messageId"}
        case list():
            return [plain(one) for one in value]
        case str():
            return _TIME.sub("time", _UUID.sub("id", value))
        case _:
            return value


@pytest.mark.parametrize("texts", [("blue",), ("ask", "green"), ("file",), ("fail",)], ids=" then ".join)
async def test_a_client_cannot_tell_who_does_the_work(
    site: Site, http: httpx2.AsyncClient, texts: tuple[str, ...]
) -> None:  # fmt: skip
    server = await site.open(near, edge())
    working = asyncio.create_task(far(await paired(http, server.url, "far")))
    transcripts = [await _transcript(server, slug, _talk(*texts)) for slug in ("near", "far")]
    working.cancel()
    assert _begun(transcripts[0]) == _begun(transcripts[1])


def _begun(seen: list[Json]) -> list[Json]:
    """Without the time that an answer waits for a runtime: a task in this process is at work at once."""
    bare = {"state": "TASK_STATE_WORKING", "timestamp": "time"}
    found: list[Json] = []
    for one in seen:
        waited = found and found[-1].get("task", {}).get("status", {}).get("state") == "TASK_STATE_SUBMITTED"
        if waited and len(found) > 1 and one.get("statusUpdate", {}).get("status") == bare:
            found[-1] = {"task": {**found[-1]["task"], "status": bare}}
        else:
            found.append(one)
    return found


async def _transcript(server: Server, slug: str, talk: Talk) -> list[Json]:
    async with asyncio.timeout(20), Client(server.agent(slug)) as client:
        return plain(await talk(client))

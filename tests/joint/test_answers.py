"""Everything that a local agent can answer, as the one who asked over A2A sees it: every piece a process."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from pathlib import Path

import httpx2
import pytest
import pytest_asyncio
from msgspec import Struct

from parley.client import Client, Json
from parley.testing.processes import ServerProcess, until
from tests.joint.chain import (
    Balancer,
    LocalAgent,
    agent_of,
    balanced,
    begun,
    ended,
    paired,
    reason,
    state,
    words,
    working,
)
from tests.joint.conftest import Place
from tests.joint.local_agent import FILE, OTHER

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


class Chain(Struct, frozen=True):
    server: ServerProcess
    local: LocalAgent
    home: Path
    wire: Balancer
    far: Client
    short: Client
    alone: Client


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chain(site: Place) -> AsyncGenerator[Chain, None]:
    """Three agents: one as usual, one that may take half a second only, and one with nobody at its endpoint."""
    server, local = await site.serve(), await site.local_agent()
    nobody = "http://127.0.0.1:1/run-task"
    options = {"far": (local.endpoint, "8", "60"), "short": (local.endpoint, "1", "0.5"), "alone": (nobody, "1", "60")}
    clients: list[Client] = []
    async with AsyncExitStack() as stack:
        wire = await stack.enter_async_context(balanced([server.url]))
        for slug, (endpoint, many, timeout) in options.items():
            await paired(server, slug, site.folder / slug, endpoint)
            settings = ("--api-base", wire.url, "--concurrency", many, "--timeout", timeout)
            await stack.enter_async_context(working(site.folder / slug, *settings))
            clients.append(await stack.enter_async_context(agent_of(server, slug)))
        yield Chain(server, local, site.folder / "far", wire, *clients)


async def told(client: Client, text: str) -> Json:
    return (await asyncio.wait_for(client.send(text), 30))["task"]


@pytest.mark.parametrize("shape", ["envelope", "direct"])
async def test_both_shapes_of_success_complete_the_task(chain: Chain, shape: str) -> None:
    task = await told(chain.far, shape)
    assert (state(task), words(task)) == ("completed", ["result"])


@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        ("failure", "agent_error", "failure reason"),
        ("500", "ADAPTER_HTTP_STATUS", "status 500"),
        ("plain", "ADAPTER_NOT_JSON", "JSON"),
        ("array", "ADAPTER_NOT_AN_OBJECT", "JSON object"),
    ],
)
async def test_what_is_no_success_fails_the_task(chain: Chain, answer: str, code: str, said: str) -> None:
    task = await told(chain.far, answer)
    assert state(task) == "failed"
    assert reason(task)[0] == code
    assert said in reason(task)[1]
    assert "artifacts" not in task
    (call,) = chain.wire.calls(task["id"])
    assert call.path == "fail"
    assert call.body["output"]["error"] == reason(task)[1]


async def test_nobody_at_the_endpoint_fails_the_task(chain: Chain) -> None:
    task = await told(chain.alone, "envelope")
    assert (state(task), reason(task)[0]) == ("failed", "ADAPTER_UNREACHABLE")
    assert "refused" in reason(task)[1]


async def test_a_local_agent_that_takes_too_long_fails_the_task_and_is_hung_up_on(chain: Chain) -> None:
    task = await told(chain.short, "hang")
    assert (state(task), reason(task)[0]) == ("failed", "ADAPTER_TIMEOUT")
    await until(lambda: task["id"] in chain.local.hung_up)


@pytest.mark.parametrize(
    ("answer", "files"), [("one file", [FILE]), ("many files", [FILE, OTHER]), ("alias", [FILE])]
)  # fmt: skip
async def test_files_are_artifacts_that_can_be_downloaded(chain: Chain, answer: str, files: list[Json]) -> None:
    task = await told(chain.far, answer)
    assert state(task) == "completed"
    made = [one for one in task["artifacts"] if one["name"] != "response"]
    assert [one["parts"] for one in made] == [
        [{"text": file["content_text"], "filename": file["filename"], "mediaType": file["mime_type"]}] for file in files
    ]
    assert (made[0]["name"], made[0]["description"]) == (FILE["title"], FILE["summary"])
    about = made[0]["metadata"]
    assert (about["artifactType"], about["keywords"]) == (FILE["artifact_type"], FILE["keywords"])
    async with httpx2.AsyncClient() as http:
        for one, file in zip(made, files, strict=True):
            got = await http.get(one["metadata"]["url"])
            assert got.text == file["content_text"]
            assert got.headers["content-type"].startswith(file["mime_type"])
    (answered,) = (one for one in task["artifacts"] if one["name"] == "response")
    assert [part["text"] for part in answered["parts"]] == ["see the file" if len(files) == 1 else "see the files"]
    assert "artifact_ref" not in json.dumps(task)


async def test_a_result_has_references_to_its_files_and_not_their_content(chain: Chain) -> None:
    """As the runtime tells the platform; both where the contract and where its companion look for them."""
    task = await told(chain.far, "many files")
    *writes, complete = chain.wire.calls(task["id"])
    assert [(call.path, call.body["content_text"]) for call in writes] == [
        ("artifacts", FILE["content_text"]), ("artifacts", OTHER["content_text"]),
    ]  # fmt: skip
    made = [one["artifactId"] for one in task["artifacts"] if one["name"] != "response"]
    output = complete.body["output"]
    assert complete.path == "complete"
    assert output.keys() == {"text", "parts", "artifact_refs"}
    assert [(part["type"], part["artifact_id"]) for part in output["parts"]] == [("artifact_ref", id_) for id_ in made]
    assert [ref["artifact_id"] for ref in output["artifact_refs"]] == made
    assert "content_text" not in json.dumps(complete.body)


async def test_a_file_that_cannot_be_written_fails_the_task_and_keeps_those_before_it(chain: Chain) -> None:
    task = await told(chain.far, "refused file")
    assert (state(task), reason(task)[0]) == ("failed", "ARTIFACT_WRITE_FAILED")
    assert "odd.bin" in reason(task)[1]
    assert words(task) == [FILE["content_text"]]
    calls = chain.wire.calls(task["id"])
    assert [call.path for call in calls] == ["artifacts", "artifacts", "fail"]
    assert calls[-1].body["output"]["code"] == "ARTIFACT_WRITE_FAILED"


async def test_the_local_agent_is_sent_the_contracts_fields_and_no_secret(chain: Chain) -> None:
    task = await told(chain.far, "envelope")
    asked = await chain.local.asked_for(task["id"])
    assert asked.body == {
        "task_run_id": task["id"], "conversation_id": task["contextId"], "workspace_id": task["contextId"],
        "task_type": "chat", "input": {"text": "envelope"}, "initiator_agent_id": "", "target_agent_id": "far",
        "platform": {"name": "Parley", "origin": "127.0.0.1"},
    }  # fmt: skip
    head = asked.raw.split(b"\r\n")
    assert head[0] == b"POST /run-task HTTP/1.1"
    assert b"content-type: application/json" in [line.lower() for line in head]
    profile = json.loads((chain.home / "runtime.json").read_text())["profiles"]["default"]
    assert profile["api_base"] == chain.server.url
    port = chain.server.url.rpartition(":")[2]
    for secret in (profile["runtime_token"], profile["runtime_id"], profile["api_base"], f":{port}", chain.wire.url):
        assert secret.encode() not in asked.raw
    for name in (b"runtime_token", b"api_base", b"authorization", b"x-runtime-token"):
        assert name not in asked.raw.lower()


async def test_more_than_text_reaches_the_local_agent_as_it_was_sent(chain: Chain) -> None:
    parts: list[Json] = [{"text": "direct"}, {"data": {"n": 1.0}}]
    task = (await chain.far.send(parts))["task"]
    assert (await chain.local.asked_for(task["id"])).body["input"] == {"text": "direct", "parts": parts}
    assert words(task) == ["result"]


async def test_a_question_waits_for_its_answer_in_the_same_task(chain: Chain) -> None:
    task = await told(chain.far, "ask")
    assert state(task) == "input_required"
    assert task["status"]["message"]["parts"] == [{"text": "Which colour?"}]
    again = (await chain.far.send("red", task=task["id"]))["task"]
    assert (again["id"], state(again), words(again)) == (task["id"], "completed", ["It is red."])
    first, second = [one.body for one in chain.local.asked if one.run == task["id"]]
    assert (first["input"], second["input"]) == ({"text": "ask"}, {"text": "red"})


async def test_progress_is_seen_in_order_before_the_answer(chain: Chain) -> None:
    seen = [event async for event in chain.far.stream("progress")]
    notes = [one["statusUpdate"]["status"].get("message") for one in seen if "statusUpdate" in one]
    assert [note["parts"] for note in notes if note] == [
        [{"text": "reading"}, {"data": {"percent": 10}}], [{"text": "writing"}],
    ]  # fmt: skip
    assert state(seen[-1]["statusUpdate"]) == "completed"


async def test_a_cancel_hangs_up_on_the_local_agent(chain: Chain) -> None:
    task = await begun(chain.far, "hang")
    await chain.local.asked_for(task)
    canceled = await chain.far.cancel(task)
    assert state(canceled) == "canceled"
    await until(lambda: task in chain.local.hung_up)
    assert state(await ended(chain.far, task)) == "canceled"

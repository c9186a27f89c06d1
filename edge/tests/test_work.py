"""What becomes of a task, over the real wire: the program between a platform and a local agent."""

import asyncio
import json
from typing import Any

import pytest

from edge.tests.conftest import Pair
from edge.tests.platform import ORIGIN, Platform
from edge.tests.programs import local_agent, runtime
from edge.tests.wire import Asked, Drop, Raw, Said

Json = dict[str, Any]


async def worked(platform: Platform, paired: Pair, answer: Any, **how: Any) -> Json:
    """The end of one task, given what the local agent answers: `{"completed": output}` or `{"failed": output}`."""
    async with local_agent(answer, **how) as agent:
        home = await paired(agent.endpoint)
        async with runtime(home):
            run = await platform.ended(platform.ask("hello"))
            return {run.state: run.output}


async def test_an_envelope_completes_with_its_output(platform: Platform, paired: Pair) -> None:
    assert await worked(platform, paired, {"success": True, "output": {"text": "result"}}) == {
        "completed": {"text": "result"}
    }


async def test_a_direct_object_is_the_output(platform: Platform, paired: Pair) -> None:
    ended = await worked(platform, paired, {"text": "result", "mood": {"good": True}})
    assert ended == {"completed": {"text": "result", "mood": {"good": True}}}


async def test_a_question_is_passed_on(platform: Platform, paired: Pair) -> None:
    output = {"state": "input-required", "text": "To whom?"}
    assert await worked(platform, paired, {"success": True, "output": output}) == {"completed": output}


async def test_an_explicit_failure_fails_with_its_words(platform: Platform, paired: Pair) -> None:
    assert await worked(platform, paired, {"success": False, "error": "no ink"}) == {"failed": {"error": "no ink"}}


@pytest.mark.parametrize(
    ("answer", "how", "code"),
    [
        ({"text": "oh"}, {"status": 500}, "ADAPTER_HTTP_STATUS"),
        ({"text": "oh"}, {"status": 302}, "ADAPTER_HTTP_STATUS"),
        (b"result", {"media_type": "text/plain"}, "ADAPTER_NOT_JSON"),
        (b"", {}, "ADAPTER_NOT_JSON"),
        (b'{"text": NaN}', {}, "ADAPTER_NOT_JSON"),
        (b"\xff\xfe{}", {}, "ADAPTER_NOT_JSON"),
        (["result"], {}, "ADAPTER_NOT_AN_OBJECT"),
        ({"success": True}, {}, "INVALID_ADAPTER_RESPONSE"),
        ({"success": "yes", "output": {}}, {}, "INVALID_ADAPTER_RESPONSE"),
        (b"[" * 100_000, {}, "ADAPTER_NOT_JSON"),
    ],
)
async def test_what_is_no_answer_fails(platform: Platform, paired: Pair, answer: Any, how: Json, code: str) -> None:
    ended = await worked(platform, paired, answer, **how)
    assert ended["failed"]["code"] == code
    assert ended["failed"]["error"]


async def test_json_is_json_whatever_its_media_type(platform: Platform, paired: Pair) -> None:
    assert await worked(platform, paired, {"text": "a"}, media_type="text/plain") == {"completed": {"text": "a"}}


async def test_nobody_at_the_endpoint_fails(platform: Platform, paired: Pair) -> None:
    async with local_agent({}) as agent:
        endpoint = agent.endpoint
    async with runtime(await paired(endpoint)):
        run = await platform.ended(platform.ask("hello"))
    assert run.output is not None
    assert run.output["code"] == "ADAPTER_UNREACHABLE"
    assert "refused" in run.output["error"]


async def test_an_agent_that_hangs_up_fails(platform: Platform, paired: Pair) -> None:
    async def drop(asked: Asked) -> Said:
        raise Drop

    ended = await worked(platform, paired, None, answering=drop)
    assert ended["failed"]["code"] == "ADAPTER_BROKE_OFF"


@pytest.mark.parametrize("content", [b"SSH-2.0-OpenSSH_9.6\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"])
async def test_what_is_not_http_or_ends_too_soon_fails(platform: Platform, paired: Pair, content: bytes) -> None:
    async def speak(asked: Asked) -> Said:
        raise Raw(content)

    ended = await worked(platform, paired, None, answering=speak)
    assert ended["failed"]["code"] == "ADAPTER_BROKE_OFF"


async def test_an_answer_without_a_length_ends_with_the_connection(platform: Platform, paired: Pair) -> None:
    async def speak(asked: Asked) -> Said:
        raise Raw(b'HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{"text": "old"}')

    assert await worked(platform, paired, None, answering=speak) == {"completed": {"text": "old"}}


async def test_too_large_an_answer_fails(platform: Platform, paired: Pair) -> None:
    ended = await worked(platform, paired, {"text": "a" * (10 * 1024 * 1024)})
    assert ended["failed"]["code"] == "ADAPTER_ANSWER_TOO_LARGE"


async def test_an_agent_that_takes_too_long_fails_and_is_hung_up_on(platform: Platform, paired: Pair) -> None:
    async def sleep(asked: Asked) -> Said:
        await asked.hung_up.wait()
        raise Drop

    async with local_agent(answering=sleep) as agent, runtime(await paired(agent.endpoint), "--timeout", "0.2"):
        run = await platform.ended(platform.ask("hello"))
        await asyncio.wait_for(agent.asked[0].hung_up.wait(), 5)
    assert run.output is not None
    assert run.output["code"] == "ADAPTER_TIMEOUT"


async def test_the_agent_is_sent_the_contracts_fields_and_no_secret(platform: Platform, paired: Pair) -> None:
    async with local_agent({"text": "ok"}) as agent, runtime(await paired(agent.endpoint)):
        run = platform.ask("hello", task_type="review")
        run.input["parts"] = [{"data": {"n": 1}}]
        await platform.ended(run)
    asked = agent.asked[0]
    assert asked.method == "POST"
    assert asked.path == "/run-task"
    assert asked.headers["content-type"] == "application/json"
    assert json.loads(asked.body) == {
        "task_run_id": run.id,
        "conversation_id": "talk-1",
        "workspace_id": "talk-1",
        "task_type": "review",
        "input": {"text": "hello", "parts": [{"data": {"n": 1}}]},
        "initiator_agent_id": "",
        "target_agent_id": "worker",
        "platform": ORIGIN,
    }
    everything = asked.body.decode() + json.dumps(asked.headers)
    assert platform.token is not None
    assert platform.token not in everything
    assert platform.url not in everything


async def test_the_token_goes_to_the_platform_in_its_header(platform: Platform, paired: Pair) -> None:
    await worked(platform, paired, {"text": "ok"})
    for call in platform.calls[1:]:
        assert call.headers["x-runtime-token"] == platform.token
        assert platform.token not in json.dumps(call.body)


async def test_as_many_at_once_as_allowed(platform: Platform, paired: Pair) -> None:
    at_once = most = 0
    full = asyncio.Event()

    async def work(asked: Asked) -> Said:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        if at_once == 3:
            full.set()
        await full.wait()
        at_once -= 1
        return Said(body=b'{"text": "ok"}')

    async with local_agent(answering=work) as agent, runtime(await paired(agent.endpoint), "--concurrency", "3"):
        for run in [platform.ask(f"task {number}") for number in range(9)]:
            assert (await platform.ended(run)).state == "completed"
    assert most == 3
    assert max(call.body["limit"] for call in platform.called("/pull")) == 3


async def test_two_runtimes_never_work_on_the_same_task(platform: Platform, paired: Pair, tmp_path: Any) -> None:
    async with local_agent({"text": "ok"}) as agent:
        home = await paired(agent.endpoint)
        other = tmp_path / "other"
        other.mkdir()
        (other / "runtime.json").write_bytes((home / "runtime.json").read_bytes())
        async with runtime(home, "--concurrency", "4"), runtime(other, "--concurrency", "4"):
            for run in [platform.ask(f"task {number}") for number in range(40)]:
                assert (await platform.ended(run)).attempt == 1
    asked = [json.loads(one.body)["task_run_id"] for one in agent.asked]
    assert len(asked) == len(set(asked)) == 40

"""The caller's object against the official SDK's server: one that numbers no events and knows no keys."""

from typing import Any

import httpx2
import pytest

from parley.node import A2A
from tests.drivers.remote.sdk_agent import STEPS, sdk_server
from tests.node.team import said, text_of
from tests.node.test_caller import Breaking

Json = dict[str, Any]
COUNTED = "".join(f"{number} " for number in range(STEPS))


def asks(text: str, method: str = "message/stream", **more: Any) -> Json:
    return {"method": method, "params": {"message": said(text, **more)}}


async def test_it_is_asked_and_answered() -> None:
    async with sdk_server() as (url, executor), A2A(f"{url}/rpc") as a2a:
        done = await a2a.send(asks("count", "message/send"))
        assert (done["status"], text_of(done), done["message"]) == ("completed", COUNTED, "counted")
        assert await a2a.get(f"/tasks/{done['id']}") == done
        direct = await a2a.send(asks("reply", "message/send"))
        assert (direct["status"], direct["message"], direct["id"]) == ("completed", "a direct answer", "")
        question = await a2a.send(asks("ask"))
        assert (question["status"], question["message"]) == ("input-required", "Which?")
        answer = await a2a.send(asks("answer", taskId=question["id"], contextId=question["contextId"]))
        assert (answer["status"], text_of(answer), answer["id"]) == ("completed", "answered", question["id"])
        assert (await a2a.send(asks("fail")))["message"] == "Out of paper."
        events = a2a.subscribe(asks("sleep"))
        async for event in events:
            if event["message"] == "asleep":
                await a2a.cancel(event["id"])
        assert event["status"] == "canceled"
        assert executor.canceled == [event["id"]]


@pytest.mark.slow
async def test_a_broken_stream_is_followed_anew() -> None:
    transport = Breaking(5, 3)
    http = httpx2.AsyncClient(transport=transport)
    async with sdk_server() as (url, executor), A2A(f"{url}/rpc", http=http, repeats=False) as a2a:
        done = await a2a.send(asks("count"))
    await http.aclose()
    assert (done["status"], text_of(done)) == ("completed", COUNTED)
    assert executor.begun == 1
    assert len(transport.resumed) >= 2

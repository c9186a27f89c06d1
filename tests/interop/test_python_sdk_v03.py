"""a2a-sdk 0.3.26 with its default settings: the last client of A2A 0.3, over both of its HTTP transports."""

from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from parley.testing.servers import serving

from .agents import AGENTS
from .installed import HERE, python_client, run_client

pytestmark = pytest.mark.slow

SDK = "a2a-sdk==0.3.26"


@pytest.fixture(scope="session")
def python() -> Path:
    return python_client(SDK)


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["JSONRPC", "HTTP+JSON"])
async def told(request: pytest.FixtureRequest, python: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Everything that one client did, and what came of it."""
    async with serving(tmp_path_factory.mktemp("data"), AGENTS) as server:
        return request.param, await run_client(python, HERE / "client_v03.py", server.url, request.param)


Told = tuple[str, dict[str, Any]]


def test_it_sends_and_waits(told: Told) -> None:
    assert told[1]["send"] == {"state": "completed", "text": "hello"}


def test_its_stream_is_the_task_and_then_its_updates(told: Told) -> None:
    stream = told[1]["stream"]
    assert stream["first"] == "task"
    assert stream["others"] == ["artifact-update", "status-update"]
    assert stream["text"] == "one two three"
    assert stream["final"][-1] is True
    assert not any(stream["final"][:-1])


def test_it_answers_a_question_by_the_task_alone(told: Told) -> None:
    assert told[1]["question"] == {
        "asked": "input-required", "question": "Which name?", "answered": "completed",
        "data": {"name": "Ada", "count": 42}, "contexts": 1,
    }  # fmt: skip


def test_a_direct_answer_is_a_message(told: Told) -> None:
    assert told[1]["message"] == {"kind": "message", "text": "Hello, Ada."}


def test_polling_answers_at_once(told: Told) -> None:
    assert told[1]["polling"]["state"] in ("submitted", "working")


def test_who_resubscribes_sees_the_cancellation(told: Told) -> None:
    assert told[1]["cancel"] == {"subscribed": True, "canceled": "canceled", "seen": "canceled"}


@pytest.mark.parametrize("scenario", ["silence", "silence_resubscribed"])
def test_a_silent_stream_outlives_its_patience(told: Told, scenario: str) -> None:
    assert told[1][scenario] == {"text": "Still here."}


def test_a_push_configuration_is_set_and_read(told: Told) -> None:
    config = {
        "id": "mine", "url": "http://127.0.0.1:9/hook", "token": "t",
        "authentication": {"schemes": ["Bearer"], "credentials": "secret"},
    }  # fmt: skip
    assert told[1]["push"] == {"same": True, "task": True, "config": config}


def test_bytes_travel_both_ways(told: Told) -> None:
    files = told[1]["files"]
    assert files["sent_back"] == [True, False, True, False]
    assert files["sizes"] == [256, 100_000, 256, 100_000]
    assert files["history"]
    assert (files["name"], files["media"]) == ("all.bin", "application/octet-stream")


def test_data_travels_both_ways(told: Told) -> None:
    assert told[1]["data"] == {"data": {"deep": {"n": 1.5}}}


def test_what_is_refused_has_a_code(told: Told) -> None:
    transport, results = told
    found = {name: results[name]["code"] for name in ("unknown", "ended")}
    if transport == "JSONRPC":
        assert found == {"unknown": -32001, "ended": -32002}
    else:
        # This client makes nothing of an error's body over HTTP.
        assert found == {"unknown": 404, "ended": 400}

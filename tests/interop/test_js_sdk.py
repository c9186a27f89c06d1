"""@a2a-js/sdk 1.3.0 with its default settings, over both of its HTTP bindings, and in its mode for A2A 0.3."""

import shutil
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest
import pytest_asyncio

from parley.testing.servers import serving
from sdk.node import find

from .agents import AGENTS
from .installed import HERE, node_client, run_client

pytestmark = pytest.mark.slow

SDK = ("@a2a-js/sdk", "1.3.0")
WAYS = [(binding, version) for version in ("1.0", "0.3") for binding in ("JSONRPC", "HTTP+JSON")]


class Told(NamedTuple):
    binding: str
    version: str
    did: dict[str, Any]


@pytest.fixture(scope="session")
def script() -> Path:
    """The client's program, where it finds the package."""
    return Path(shutil.copy(HERE / "client.mjs", node_client(*SDK)))


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=WAYS, ids=lambda way: "-".join(way))
async def told(request: pytest.FixtureRequest, script: Path, tmp_path_factory: pytest.TempPathFactory) -> Told:
    """Everything that one client did, and what came of it."""
    async with serving(tmp_path_factory.mktemp("data"), AGENTS) as server, httpx2.AsyncClient() as http:
        key = (await http.post(f"{server.url}/admin/keys", json={"name": "ci"})).json()["token"]
        return Told(*request.param, await run_client(find().program, script, server.url, *request.param, key))


def test_it_sends_and_waits(told: Told) -> None:
    assert told.did["send"] == {"version": told.version, "state": "TASK_STATE_COMPLETED", "text": "hello"}


def test_its_stream_is_the_task_and_then_its_updates(told: Told) -> None:
    assert told.did["stream"] == {
        "first": "task", "others": ["artifactUpdate", "statusUpdate"], "text": "one two three"
    }  # fmt: skip


def test_it_answers_a_question_by_the_task_alone(told: Told) -> None:
    assert told.did["question"] == {
        "asked": "TASK_STATE_INPUT_REQUIRED", "question": "Which name?", "answered": "TASK_STATE_COMPLETED",
        "data": {"name": "Ada", "count": 42}, "contexts": 1,
    }  # fmt: skip


def test_a_direct_answer_is_a_message(told: Told) -> None:
    assert told.did["message"] == {"text": "Hello, Ada.", "streamed": "message", "again": "Hello, Ada."}


def test_polling_answers_at_once(told: Told) -> None:
    assert told.did["polling"]["state"] in ("TASK_STATE_SUBMITTED", "TASK_STATE_WORKING")


def test_who_subscribes_sees_the_cancellation(told: Told) -> None:
    assert told.did["cancel"] == {"first": "task", "canceled": "TASK_STATE_CANCELED", "seen": "TASK_STATE_CANCELED"}


def test_a_silent_stream_goes_on(told: Told) -> None:
    assert told.did["silence"] == {"text": "Still here."}


def test_bytes_travel_both_ways(told: Told) -> None:
    assert told.did["files"] == {"same": [True, True]}


def test_push_configurations_are_made_read_listed_and_deleted(told: Told) -> None:
    authentication = {"scheme": "Bearer", "credentials": "secret"}
    found = {"id": "mine", "url": "http://127.0.0.1:9/hook", "token": "t", "authentication": authentication}
    assert told.did["push"] == {"found": found, "listed": 1, "after": "TaskNotFoundError"}


def test_the_signature_of_a_card_is_verified_with_our_published_keys(told: Told) -> None:
    assert told.did["signature"] == {"forged": True}


async def test_a_card_without_its_requirements_no_longer_verifies(script: Path, tmp_path: Path) -> None:
    verify = shutil.copy(HERE / "verify.mjs", script.parent)
    async with serving(tmp_path / "data", AGENTS) as server, httpx2.AsyncClient() as http:
        key = (await http.post(f"{server.url}/admin/keys", json={"name": "ci"})).json()["token"]
    async with serving(tmp_path / "data", AGENTS, auth="required") as server:
        jwks = f"{server.url}/.well-known/jwks.json"
        told = await run_client(find().program, verify, server.agent("member"), key, jwks)
    assert list(told.values()) == [{"whole": True, "required": 2, "without": False}] * 2


def test_errors_have_the_clients_own_names(told: Told) -> None:
    assert told.did["errors"] == {
        "unknown": "TaskNotFoundError", "ended": "TaskNotCancelableError", "late": "UnsupportedOperationError"
    }  # fmt: skip


def test_what_0_3_does_not_have_the_client_knows(told: Told) -> None:
    """Tasks are not listed in 0.3."""
    if told.version == "1.0":
        assert told.did["list"] == {"states": ["TASK_STATE_REJECTED"], "total": 1}
    else:
        assert "tasks/list" in told.did["list"]["raised"]


def test_the_extended_card_has_more_skills_and_needs_a_key(told: Told) -> None:
    assert told.did["extended"]["skills"] == ["member", "more"]
    assert told.did["extended"]["without"] is not None

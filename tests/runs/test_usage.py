"""Usage over the wire: recorded by agents, added up for trees, conversations and principals."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from parley import AgentError, Done, NeedInput, Reply, Text, Turn, Usage, agent
from parley.app import open_records
from parley.client import Client, Json
from parley.ids import RunId
from parley.runs import listing as sums
from parley.runs.requests import Branch
from parley.runs.rules.access import ALL_SCOPES, USER_SCOPES, Principal
from parley.runs.streams import read_all
from parley.security.keys import ApiKeys
from parley.settings import Settings
from parley.testing.databases import bare_database
from parley.testing.servers import Server, serving

PRICES = {"gpt-*": {"input": 1, "output": 10}, "gpt-5-mini": {"input": 2, "output": 20, "cached": 0.5}}


@agent("counter")
async def counter(turn: Turn):
    yield Text("counted")
    yield Usage("gpt-5-mini", 1_000, 100, 200)
    yield Usage("mine", 5, 6, cost=0.25)


@agent("leaf")
async def leaf(turn: Turn):
    turn.record(Usage("gpt-4", 10, 1))
    yield Done("leaf")


@agent("branch")
async def branch(turn: Turn):
    yield Usage("gpt-4", 100, 10)
    await turn.ask("leaf", "one")
    await turn.ask("leaf", "two")


@agent("trunk")
async def trunk(turn: Turn):
    yield Usage("gpt-4", 1_000, 100)
    await turn.ask("branch", "go")


@agent("wrong")
async def wrong(turn: Turn):
    yield Usage("gpt-4", -1)


@agent("caught")
async def caught(turn: Turn):
    try:
        turn.record(Usage("gpt-4", 1, cached_tokens=2))
    except AgentError as error:
        yield Text(error.message)


@agent("breaks")
async def breaks(turn: Turn):
    yield Text("half")
    turn.record(Usage("gpt-4", 7, 3))
    raise RuntimeError


@agent("asks")
async def asks(turn: Turn):
    yield Usage("gpt-4", 3, 3)
    if turn.number == 1:
        yield NeedInput("more?")


@agent("brief", replies="either")
async def brief(turn: Turn):
    yield Usage("gpt-4", 1, 1)
    yield Reply("short")


@agent("silent")
async def silent(turn: Turn):
    yield Text("nothing used")


@agent("own")
async def own(turn: Turn):
    yield Usage("gpt-4", 1, 1)
    yield Done(task_metadata={"usage": {"mine": 1}})


AGENTS = [counter, leaf, branch, trunk, wrong, caught, breaks, asks, brief, silent, own]


@asynccontextmanager
async def opened(tmp_path: Path, **settings: Any) -> AsyncIterator[Server]:
    async with serving(tmp_path / "data", AGENTS, prices=PRICES, **settings) as server:
        yield server


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with opened(tmp_path) as made:
        yield made


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=[pytest.mark.postgres, pytest.mark.slow]), "memory"])
async def either(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Server]:
    settings = {}
    if request.param == "postgres":
        settings["postgres_url"] = await bare_database(request.getfixturevalue("postgres"))
    async with opened(tmp_path, store=request.param, **settings) as made:
        yield made


async def sent(server: Server, slug: str, text: str = "go", **more: Any) -> Json:
    async with Client(server.agent(slug)) as client:
        return (await client.send(text, **more))["task"]


async def reported(server: Server, **query: Any) -> Json:
    async with httpx2.AsyncClient() as http:
        reply = await http.get(f"{server.url}/admin/usage", params=query)
        assert reply.status_code == 200, reply.text
        return reply.json()


COUNTED = {
    "inputTokens": 1_005, "outputTokens": 106, "cachedTokens": 200, "cost": 0.2537,
    "models": {
        "gpt-5-mini": {"inputTokens": 1_000, "outputTokens": 100, "cachedTokens": 200, "cost": 0.0037},
        "mine": {"inputTokens": 5, "outputTokens": 6, "cachedTokens": 0, "cost": 0.25},
    },
}  # fmt: skip


async def test_a_task_shows_its_usage_in_both_versions_of_a2a(server: Server) -> None:
    task = await sent(server, "counter")
    assert task["metadata"]["usage"] == COUNTED
    call = {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": task["id"]}}
    async with httpx2.AsyncClient() as http:
        old = (await http.post(server.agent("counter"), json=call)).json()["result"]
    assert old["metadata"]["usage"] == COUNTED
    assert "metadata" not in await sent(server, "silent")


async def test_usage_is_no_message_and_the_log_has_only_events_that_older_versions_know(server: Server) -> None:
    async with Client(server.agent("counter")) as client:
        frames = [frame async for frame in client.stream("go")]
    statuses = [frame["statusUpdate"] for frame in frames if "statusUpdate" in frame]
    assert [one["status"]["state"] for one in statuses] == ["TASK_STATE_WORKING", "TASK_STATE_COMPLETED"]
    assert all("message" not in one["status"] for one in statuses)
    assert statuses[-1]["metadata"]["usage"] == COUNTED
    task = frames[0]["task"]["id"]
    events = await read_all(server.exchange.store, RunId(task))
    assert [event.type for event in events] == [
        "submitted", "input", "started", "artifact", "progress", "progress", "completed",
    ]  # fmt: skip
    assert json.loads(events[4].body or b"") == {
        "type": "progress", "parts": [],
        "usage": {
            "model": "gpt-5-mini", "input_tokens": 1000, "output_tokens": 100, "cached_tokens": 200, "cost": 0.0037,
        },
    }  # fmt: skip
    assert events[3].payload.last, "The text before the usage is complete."
    view = await server.exchange.view(RunId(task))
    assert [said.role for said in view.history] == ["user"]


@pytest.mark.parametrize("cursor", [0, 3, 5, 6])
async def test_the_last_update_of_a_resumed_stream_has_the_usage_of_the_whole_task(server: Server, cursor: int) -> None:
    async with Client(server.agent("counter")) as client:
        task = (await client.send("go"))["task"]["id"]
        frames = [frame async for _, frame in client.tail(task, cursor)]
    assert frames[-1]["statusUpdate"]["metadata"]["usage"] == COUNTED


async def test_an_agents_own_metadata_named_usage_stays(server: Server) -> None:
    assert (await sent(server, "own"))["metadata"]["usage"] == {"mine": 1}


async def test_usage_before_a_direct_reply_does_not_make_it_a_task(server: Server) -> None:
    async with Client(server.agent("brief")) as client:
        frames = [frame async for frame in client.stream("go")]
    assert [list(frame) for frame in frames] == [["message"]]


async def test_a_usage_that_makes_no_sense_fails_the_turn_with_the_reason(server: Server) -> None:
    failed = (await sent(server, "wrong"))["status"]["message"]
    assert failed["metadata"]["code"] == "agent_error"
    assert "whole numbers" in failed["parts"][0]["text"]
    assert "cannot be more" in (await sent(server, "caught"))["artifacts"][0]["parts"][0]["text"]


async def test_usage_recorded_before_a_failure_is_kept(server: Server) -> None:
    task = await sent(server, "breaks")
    assert task["status"]["state"] == "TASK_STATE_FAILED"
    assert task["metadata"]["usage"]["inputTokens"] == 7


async def test_turns_add_up_and_a_fork_begins_with_none(server: Server) -> None:
    asked = await sent(server, "asks")
    done = await sent(server, "asks", task=asked["id"])
    assert done["metadata"]["usage"]["inputTokens"] == 6
    whole = await server.exchange.view(RunId(done["id"]))
    owner = Principal.parse(whole.run.principal)
    fork = await server.exchange.fork(Branch(RunId(done["id"]), owner))
    view = await server.exchange.settled(fork)
    assert view.run.usage["gpt-4"].input_tokens == 3


async def test_a_tree_a_conversation_and_a_principal_are_added_up(either: Server) -> None:
    task = await sent(either, "trunk", context="a-talk")
    await sent(either, "counter", context="a-talk")
    await sent(either, "counter", context="another")
    tree = await reported(either, task=task["id"])
    assert (tree["runs"], tree["complete"], tree["nextPageToken"]) == (4, True, "")
    assert tree["usage"]["models"] == {
        "gpt-4": {"inputTokens": 1_120, "outputTokens": 112, "cachedTokens": 0, "cost": 0.00224}
    }
    talk = await reported(either, conversation="a-talk")
    assert (talk["runs"], talk["usage"]["inputTokens"]) == (5, 1_120 + 1_005)
    principal = (await either.exchange.view(RunId(task["id"]))).run.principal
    mine = await reported(either, principal=principal)
    assert (mine["runs"], mine["usage"]["inputTokens"]) == (6, 1_120 + 2 * 1_005)
    assert (await reported(either, principal="user:nobody"))["runs"] == 0
    assert (await reported(either, principal=principal, since="2999-01-01T00:00:00Z"))["runs"] == 0
    assert (await reported(either, principal=principal, until="2000-01-01T00:00:00Z"))["runs"] == 0
    both = await reported(either, since="2000-01-01T00:00:00Z", until="2999-01-01T00:00:00Z")
    assert both["usage"] == mine["usage"]


async def test_a_request_adds_up_a_limited_number_of_runs_and_the_next_goes_on(
    either: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        await sent(either, "counter", context=f"talk-{number % 2}")
    monkeypatch.setattr(sums, "PAGE", 2)
    monkeypatch.setattr(sums, "MOST_RUNS", 2)
    pages, token = [], ""
    while not pages or token:
        pages.append(await reported(either, **({"pageToken": token} if token else {})))
        token = pages[-1]["nextPageToken"]
    assert [(page["runs"], page["complete"]) for page in pages] == [(2, False), (2, False), (1, True)]
    assert sum(page["usage"]["inputTokens"] for page in pages) == 5 * 1_005
    monkeypatch.setattr(sums, "MOST_IN_TREE", 2)
    trunk = await sent(either, "trunk")
    tree = await reported(either, task=trunk["id"])
    assert (tree["runs"], tree["complete"]) == (2, False)


async def test_what_a_run_used_stays_known_when_its_events_are_deleted(either: Server) -> None:
    task = await sent(either, "counter")
    store = either.exchange.store
    head = await store.head(RunId(task["id"]))
    assert head is not None
    view = await either.exchange.view(RunId(task["id"]))
    await store.trim(RunId(task["id"]), head.run.version, view.snapshot())
    assert (await reported(either))["usage"] == COUNTED
    async with Client(either.agent("counter")) as client:
        assert (await client.get(task["id"]))["metadata"]["usage"] == COUNTED


async def test_only_administrators_see_usage(tmp_path: Path) -> None:
    async with (
        opened(tmp_path, auth="required") as server,
        open_records(Settings(data_dir=tmp_path / "data")) as records,
        httpx2.AsyncClient(base_url=server.url) as http,
    ):
        keys = ApiKeys(records)
        user, root = [(await keys.create(*one))[1] for one in (("ann", USER_SCOPES), ("root", ALL_SCOPES))]
        async with Client(server.agent("counter"), token=user) as client:
            task = (await client.send("go"))["task"]
        assert (await http.get("/admin/usage")).status_code == 401
        assert (await http.get("/admin/usage", headers={"X-API-Key": user})).status_code == 403

        async def asked(**query: Any) -> httpx2.Response:
            return await http.get("/admin/usage", params=query, headers={"X-API-Key": root})

        assert (await asked(principal="service:ann")).json()["usage"] == COUNTED
        assert (await asked(task=task["id"])).json()["usage"] == COUNTED
        assert (await asked(task="nothing")).status_code == 404
        for bad in ({"since": "x"}, {"pageToken": "x"}, {"nothing": "x"}, {"task": "x", "principal": "y"}):
            assert (await asked(**bad)).status_code == 400, bad


async def test_metrics_count_tokens_and_cost_by_agent_and_model(server: Server) -> None:
    await sent(server, "counter")
    await sent(server, "leaf")
    async with httpx2.AsyncClient() as http:
        text = (await http.get(f"{server.url}/metrics")).text
    for line in (
        'parley_tokens_total{agent="counter",kind="input",model="gpt-5-mini"} 1000.0',
        'parley_tokens_total{agent="counter",kind="cached",model="gpt-5-mini"} 200.0',
        'parley_tokens_total{agent="counter",kind="output",model="mine"} 6.0',
        'parley_tokens_total{agent="leaf",kind="input",model="gpt-4"} 10.0',
        'parley_cost_total{agent="counter",model="mine"} 0.25',
    ):
        assert line in text


async def test_the_page_of_a_run_shows_tokens_and_cost(server: Server) -> None:
    task = await sent(server, "counter")
    async with httpx2.AsyncClient(follow_redirects=True) as http:
        page = (await http.get(f"{server.url}/console/runs/{task['id']}")).text
    assert "1,005 in, 106 out (200 cached)" in page
    assert "$0.2537" in page

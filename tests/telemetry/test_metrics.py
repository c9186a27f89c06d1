"""Metrics for Prometheus; no label has an unbounded set of values."""

import ast
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

import parley
from parley import NeedInput, Text, Turn, agent, telemetry
from parley.client import Client, message
from parley.telemetry import span, tell
from parley.telemetry.metrics import (
    ANSWER_LABELS,
    COST_LABELS,
    EVENT_LABELS,
    OTHER,
    SPAN_LABELS,
    TOKEN_LABELS,
    WARNING_LABELS,
    Gauge,
    Metrics,
)
from parley.testing.processes import until
from parley.testing.servers import Server, serving
from tests.faces.conftest import echo, sleeper

SENT = {
    "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    "tracestate": "congo=secretstate",
    "x-request-id": "req-secret-42",
}
FORBIDDEN = frozenset((
    "run", "run_id", "task", "task_id", "thread", "thread_id", "conversation", "context", "frame", "frame_id",
    "tool_call", "tool_call_id", "authorization", "authorization_id", "owner", "lease_owner", "replica", "trace",
    "trace_id", "request_id", "seq", "cursor", "user", "user_id", "guest", "guest_scope", "principal", "key", "hook",
    "kid", "receiver", "path", "url", "error", "reason", "message",
))  # fmt: skip
CLOSED = {"name", "agent", "code", "how", "state", "tool", "outcome", "route", "status", "model", "kind"}


@agent("narrow", max_concurrent=1)
async def narrow(turn: Turn):
    """One at a time."""
    yield Text("begun")
    yield NeedInput("Well?")


class Heard:
    """A registry of its own, attached for a test."""

    def __init__(self) -> None:
        self.metrics = Metrics({"echo"})

    def families(self) -> dict[str, Metric]:
        text = self.metrics.text().decode()
        return {one.name: one for one in text_string_to_metric_families(text)}

    def samples(self, family: str, suffix: str) -> dict[tuple[str, ...], float]:
        found = self.families()[family].samples
        return {tuple(filter(None, one.labels.values())): one.value for one in found if one.name.endswith(suffix)}


@pytest.fixture
def heard() -> Iterator[Heard]:
    heard = Heard()
    detach = telemetry.attach(heard.metrics.heard)
    yield heard
    detach()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with serving(tmp_path / "data", [echo, sleeper, narrow]) as running:
        yield running


@pytest.fixture
async def http() -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient() as made:
        yield made


async def send(http: httpx2.AsyncClient, server: Server, slug: str = "echo", **params: Any) -> httpx2.Response:
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message("hi"), **params}}
    return await http.post(server.agent(slug), json=body, headers={"A2A-Version": "1.0", **SENT})


async def scraped(http: httpx2.AsyncClient, server: Server) -> dict[str, Metric]:
    reply = await http.get(f"{server.url}/metrics")
    assert reply.status_code == 200
    assert reply.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return {one.name: one for one in text_string_to_metric_families(reply.text)}


def value(family: Metric, suffix: str = "", **labels: str) -> float:
    """The sum over all samples that have these labels."""
    return sum(
        one.value for one in family.samples
        if one.name == family.name + suffix and labels.items() <= one.labels.items()
    )  # fmt: skip


async def test_turns_spans_and_answers_are_counted(server: Server, http: httpx2.AsyncClient) -> None:
    before = await scraped(http, server)
    await send(http, server)
    await http.get(server.agent("echo") + "/tasks/unknown", headers={"A2A-Version": "1.0"})
    await http.get(server.url + "/no/such/page")
    await until(lambda: not server.exchange.execution.busy)
    found = await scraped(http, server)
    assert value(found["parley_events"], "_total", name="turn.ended", agent="echo", state="completed") == 1
    spans, answers = found["parley_span_seconds"], found["parley_http_answer_seconds"]
    assert value(spans, "_count", name="runtime.ingest", agent="echo", outcome="ok") == 1
    assert value(spans, "_count", name="runtime.infer", agent="echo", outcome="completed") == 1
    assert 0 < value(spans, "_sum", name="runtime.infer") < 5
    assert value(spans, "_bucket", name="runtime.infer", le="+Inf") == 1
    assert value(answers, "_count", route="/agents/{slug}", status="200") == 1
    assert value(answers, "_count", route="/agents/{slug}/tasks/{id}", status="404") == 1
    assert value(answers, "_count", route="other", status="404") == 1
    assert value(answers, "_count", route="/metrics", status="200") == 1
    assert before["process_resident_memory_bytes"].samples[0].value > 0


async def test_gauges_tell_what_is_under_way_and_what_waits(server: Server, http: httpx2.AsyncClient) -> None:
    at_once = {"configuration": {"returnImmediately": True}}
    await send(http, server, "sleeper", **at_once)
    task = (await send(http, server, "sleeper", **at_once)).json()["result"]["task"]["id"]
    async with Client(server.agent("sleeper")) as client:
        tail = client.tail(task)
        await anext(tail)
        found = await scraped(http, server)
        await tail.aclose()
    assert value(found["parley_runs_under_way"], agent="sleeper") == 2
    assert value(found["parley_followers"]) == 1
    assert found["parley_runs_waiting"].samples[0].labels == {"agent": "narrow"}
    assert value(found["parley_runs_waiting"], agent="narrow") == 0


async def test_a_queue_is_counted(server: Server, http: httpx2.AsyncClient) -> None:
    await server.exchange.execution.close()
    for _ in range(3):
        await send(http, server, "narrow", configuration={"returnImmediately": True})
    assert value((await scraped(http, server))["parley_runs_waiting"], agent="narrow") == 3


async def test_with_credentials_required_it_is_for_administrators(tmp_path: Path, http: httpx2.AsyncClient) -> None:
    async with serving(tmp_path / "data", [echo]) as server:

        async def key(*scopes: str) -> dict[str, str]:
            made = await http.post(f"{server.url}/admin/keys", json={"name": scopes[0], "scopes": scopes})
            return {"Authorization": f"Bearer {made.json()['token']}"}

        admin, user = await key("admin"), await key("read")
    async with serving(tmp_path / "data", [echo], auth="required") as server:
        replies = [await http.get(f"{server.url}/metrics", headers=headers) for headers in ({}, user, admin)]
    assert [reply.status_code for reply in replies] == [401, 403, 200]


async def test_each_server_counts_its_own_answers(tmp_path: Path, server: Server, http: httpx2.AsyncClient) -> None:
    async with serving(tmp_path / "other", [echo]) as other:
        await send(http, other)
        theirs = (await scraped(http, other))["parley_http_answer_seconds"]
        ours = (await scraped(http, server))["parley_http_answer_seconds"]
    assert value(theirs, "_count", route="/agents/{slug}") == 1
    assert value(ours, "_count", route="/agents/{slug}") == 0


async def test_nothing_of_a_request_is_in_them(server: Server, http: httpx2.AsyncClient) -> None:
    reply = await send(http, server)
    task = reply.json()["result"]["task"]
    paths = (
        f"/agents/echo/tasks/{task['id']}", f"/agents/echo/v1/tasks/{task['id']}", f"/agents/nobody-{task['id']}",
        f"/{task['id']}/message:send", f"/agents/echo/{task['id']}", f"/admin/{task['id']}",
        f"/agents/echo/tasks/{task['id']}/pushNotificationConfigs/{task['contextId']}",
    )  # fmt: skip
    for path in paths:
        for method in ("GET", "POST"):
            await http.request(method, server.url + path, headers={"A2A-Version": "1.0", **SENT})
    text = (await http.get(f"{server.url}/metrics")).text
    for secret in (task["id"], task["contextId"], *SENT.values(), SENT["traceparent"].split("-")[1], "nobody"):
        assert secret not in text


def test_the_labels_are_from_a_closed_list() -> None:
    labels = {*EVENT_LABELS, *SPAN_LABELS, *ANSWER_LABELS, *WARNING_LABELS, *TOKEN_LABELS, *COST_LABELS}
    assert labels == CLOSED
    assert not labels & FORBIDDEN


async def test_every_family_has_only_those_labels(server: Server, http: httpx2.AsyncClient) -> None:
    await send(http, server)
    families = await scraped(http, server)
    ours = [one for name, one in families.items() if name.startswith("parley_")]
    assert len(ours) == 13
    assert {label for one in ours for sample in one.samples for label in sample.labels} <= {*CLOSED, "le"}


def tells() -> list[tuple[str, str, set[str]]]:
    """Where something is told or begun, what, and with which fields: all of the source."""
    found: list[tuple[str, str, set[str]]] = []
    for path in Path(parley.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("tell", "span"):
                name = node.args[0]
                text = name.value if isinstance(name, ast.Constant) else ast.unparse(name)
                found.append((str(path), str(text), {one.arg for one in node.keywords if one.arg}))
    return found


@pytest.mark.slow
def test_all_that_is_told_leaves_no_trace_of_what_it_is_about(heard: Heard) -> None:
    assert len(tells()) > 50
    for _, name, fields in tells():
        values = {field: f"value-of-{field}" for field in fields if field != "error"}
        tell(name, **values)
        with span(name, **values):
            pass
    text = heard.metrics.text().decode()
    told = set(re.findall(r"value-of-(\w+)", text))
    assert told <= CLOSED - {"agent"}
    assert 'agent="other"' in text


def test_what_is_told_has_a_plain_name(heard: Heard) -> None:
    """A name is a label too: one that is put together of anything but closed words would have no end."""
    names = {name for _, name, _ in tells()}
    assert {name for name in names if not re.fullmatch(r"[a-z]+\.[a-z0-9_]+", name)} == {
        "f'push.{how}'", "row.more.span",  # The latter is one of a `Literal` in the control plane's table.
    }  # fmt: skip


def test_an_agent_that_is_not_served_is_another(heard: Heard) -> None:
    tell("turn.ended", agent="echo", state="completed")
    tell("turn.ended", agent="invented", state="completed")
    assert heard.samples("parley_events", "_total") == {
        ("echo", "turn.ended", "completed"): 1, (OTHER, "turn.ended", "completed"): 1,
    }  # fmt: skip


def test_a_family_has_an_end_whatever_is_told(heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parley.telemetry.metrics.MOST_SERIES", 20)
    for number in range(70):
        tell("tool.called", tool=f"tool-{number}")
        with span("runtime.tool", tool=f"tool-{number}" + "x" * 500):
            pass
        heard.metrics.answered(f"/route-{number}", 200, 0.1)
    for family, suffix in (("parley_events", "_total"), ("parley_span_seconds", "_count")):
        counts = heard.samples(family, suffix)
        assert len(counts) == 21
        assert sum(counts.values()) == 70
    assert len(heard.samples("parley_http_answer_seconds", "_count")) == 21
    assert max(len(label) for labels in heard.samples("parley_span_seconds", "_count") for label in labels) == 64


def test_a_duration_is_in_every_bucket_that_it_fits_in() -> None:
    metrics = Metrics(())
    for seconds in (0.0005, 0.001, 0.3, 10_000):
        metrics.answered("/", 200, seconds)
    (family,) = [one for one in _parsed(metrics) if one.name == "parley_http_answer_seconds"]
    buckets = {one.labels["le"]: one.value for one in family.samples if one.name.endswith("_bucket")}
    assert (buckets["0.001"], buckets["0.25"], buckets["0.5"], buckets["600.0"], buckets["+Inf"]) == (2, 2, 3, 3, 4)


def test_a_gauge_is_a_whole_or_by_agent() -> None:
    metrics = Metrics({"echo"})
    text = metrics.text(
        [Gauge("a", "A.", {"": 3}), Gauge("b", "B.", {"echo": 2, "gone": 1, "too": 4}), Gauge("c", "C.", {})]
    )
    lines = text.decode().splitlines()
    assert {"a 3.0", 'b{agent="echo"} 2.0', 'b{agent="other"} 5.0'} <= set(lines)


def _parsed(metrics: Metrics) -> list[Metric]:
    return list(text_string_to_metric_families(metrics.text().decode()))


async def test_whoever_watches_is_answered_while_the_store_is_away(server: Server, http: httpx2.AsyncClient) -> None:
    up = await scraped(http, server)
    await server.exchange.store.close()
    down = await scraped(http, server)
    assert (value(up["parley_store_up"]), value(down["parley_store_up"])) == (1, 0)
    assert value(up["parley_store_bytes"]) > 0
    assert "parley_store_bytes" not in down
    assert value(down["parley_replicas"]) == value(down["parley_leads"]) == 1

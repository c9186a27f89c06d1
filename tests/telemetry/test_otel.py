"""Our spans as OpenTelemetry's: under the caller's, above what an agent and a remote do."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc.aio
import httpx2
import pytest
from a2a.types import a2a_pb2, a2a_pb2_grpc
from google.protobuf import json_format
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased, Sampler
from opentelemetry.trace import SpanKind

from parley import ArtifactChunk, Failed, Text, Turn, Usage, agent
from parley.client import Client, message
from parley.definitions.loader import LoadedDefinitions, Sources
from parley.drivers.remote import RemoteDriver, RemoteOptions, blank_remote
from parley.telemetry import otel, span
from parley.telemetry.trace import Trace, current, entered, headers_for
from parley.testing.servers import Server, serving
from tests.faces.conftest import echo
from tests.models.vendors import OpenAi, answer, vendor

CALLER, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SENT = {"traceparent": f"00-{CALLER}-{SPAN}-01", "tracestate": "congo=1", "x-request-id": "req-42"}


class Exported:
    """Exported spans and metrics by name."""

    def __init__(self, sampler: Sampler) -> None:
        self._memory = InMemorySpanExporter()
        self.provider = TracerProvider(sampler=sampler)
        self.provider.add_span_processor(SimpleSpanProcessor(self._memory))
        trace.set_tracer_provider(self.provider)

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._memory.get_finished_spans() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (found,) = self.named(name)
        return found

    def above(self, found: ReadableSpan) -> list[str]:
        """The names of all that it lies under, from the outermost on; first the id of a span that is not of ours."""
        _, parent, _ = ids(found)
        for one in self._memory.get_finished_spans():
            if parent and ids(one)[2] == parent:
                return [*self.above(one), one.name]
        return [parent] if parent else []

    def clear(self) -> None:
        self._memory.clear()


_EXPORTED = Exported(ParentBased(ALWAYS_ON))
"""A process has one provider, once and for all."""


@pytest.fixture
def exported() -> Iterator[Exported]:
    _EXPORTED.clear()
    detach = otel.configure()
    yield _EXPORTED
    detach()


@agent("tracer")
async def tracer(turn: Turn):
    """Says which trace it is part of, and has a span of its own."""
    with trace.get_tracer("an agent's own").start_as_current_span("own"):
        yield ArtifactChunk(dict(headers_for(current())), id="trace")


@agent("asker")
async def asker(turn: Turn):
    yield Text((await turn.ask("tracer", "hi")).state)


@agent("broken")
async def broken(turn: Turn):
    yield Failed("no_paper", "Out of paper.")


@pytest.fixture
async def server(tmp_path: Path, exported: Exported) -> AsyncIterator[Server]:
    async with serving(tmp_path / "data", [echo, tracer, asker, broken]) as running:
        yield running


def ids(found: ReadableSpan) -> tuple[str, str, str]:
    """Its trace, its parent, and itself."""
    assert found.context is not None
    parent = f"{found.parent.span_id:016x}" if found.parent else ""
    return f"{found.context.trace_id:032x}", parent, f"{found.context.span_id:016x}"


async def send(server: Server, slug: str, method: str = "SendMessage", **headers: str) -> httpx2.Response:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"message": message("hi")}}
    async with httpx2.AsyncClient() as http:
        return await http.post(server.agent(slug), json=body, headers={"A2A-Version": "1.0", **headers})


def seen(reply: httpx2.Response) -> dict[str, str]:
    return reply.json()["result"]["task"]["artifacts"][0]["parts"][0]["data"]


async def test_a_turn_lies_under_the_input_which_lies_under_the_caller(server: Server, exported: Exported) -> None:
    reply = await send(server, "tracer", **SENT)
    await server.exchange.execution.close()
    own, driven = exported.one("own"), ids(exported.one("driver.turn"))
    assert exported.above(own) == [SPAN, "face.http", "runtime.ingest", "runtime.infer", "driver.turn"]
    assert ids(own)[0] == CALLER
    assert seen(reply) == {**SENT, "traceparent": f"00-{CALLER}-{driven[2]}-01"}
    assert {name: reply.headers[name] for name in SENT} == SENT
    about = exported.one("runtime.infer").attributes
    assert about is not None
    assert about["parley.agent"] == "tracer"
    assert about["parley.outcome"] == "completed"
    assert about["parley.request_id"] == "req-42"
    assert about["parley.run"] == reply.json()["result"]["task"]["id"]


async def test_without_a_caller_input_and_turn_are_a_trace_of_their_own(server: Server, exported: Exported) -> None:
    await send(server, "echo")
    await server.exchange.execution.close()
    face, driven = exported.one("face.http"), exported.one("driver.turn")
    assert exported.above(driven) == ["face.http", "runtime.ingest", "runtime.infer"]
    assert ids(driven)[0] == ids(face)[0]


async def test_a_child_lies_under_the_turn_that_asked(server: Server, exported: Exported) -> None:
    await send(server, "asker", **SENT)
    await server.exchange.execution.close()
    child, _ = exported.named("runtime.infer")
    assert exported.above(child) == [SPAN, "face.http", "runtime.ingest", "runtime.infer", "driver.turn"]
    assert ids(child)[0] == CALLER


async def test_a_remote_lies_under_the_turn_that_called(server: Server, exported: Exported, tmp_path: Path) -> None:
    driver = RemoteDriver(blank_remote("front"), RemoteOptions(server.agent("tracer")))
    async with serving(tmp_path / "front", [driver]) as front:
        await send(front, "front", **SENT)
    await server.exchange.execution.close()
    behind, _ = exported.named("driver.turn")
    through = ["face.http", "runtime.ingest", "runtime.infer"]
    here = exported.above(behind)
    assert (here[:5], here[-3:]) == ([SPAN, *through, "driver.turn"], through)
    assert ids(behind)[0] == CALLER


async def test_a_caller_that_is_not_sampled_is_not_exported(server: Server, exported: Exported) -> None:
    reply = await send(server, "tracer", traceparent=f"00-{CALLER}-{SPAN}-00")
    await server.exchange.execution.close()
    assert not exported.named("runtime.infer")
    assert seen(reply)["traceparent"].startswith(f"00-{CALLER}-")
    assert seen(reply)["traceparent"].endswith("-00")


async def test_a_stream_and_a_cancel_are_spans(server: Server, exported: Exported) -> None:
    async with Client(server.agent("echo")) as client:
        frames = [frame async for frame in client.stream("hi")]
        await server.exchange.execution.close()
        with pytest.raises(Exception, match="cannot be canceled"):
            await client.cancel(frames[0]["task"]["id"])
    assert exported.one("runtime.stream").status.is_ok
    about = exported.one("runtime.persist").attributes
    assert about is not None
    assert (about["parley.outcome"], about["parley.code"]) == ("refused", "run_not_cancelable")


async def test_a_turn_that_failed_is_an_error(server: Server, exported: Exported) -> None:
    await send(server, "broken")
    await server.exchange.execution.close()
    assert not exported.one("runtime.infer").status.is_ok
    assert not exported.one("driver.turn").status.is_ok
    assert exported.one("face.http").status.is_ok, "That the agent failed is a good answer."


def test_a_span_of_one_name_lies_in_another(exported: Exported) -> None:
    with entered(Trace(SENT["traceparent"])), span("runtime.ingest"), span("runtime.tool", tool="search"):
        pass
    outer, inner = ids(exported.one("runtime.ingest")), ids(exported.one("runtime.tool"))
    assert (outer[1], inner[1]) == (SPAN, outer[2])


async def test_what_is_told_is_counted_and_spans_are_not_counted_twice(server: Server) -> None:
    reader = InMemoryMetricReader()
    metrics.set_meter_provider(MeterProvider([reader]))
    detach = otel.configure()
    try:
        await send(server, "echo")
        await server.exchange.execution.close()
    finally:
        detach()
    data = reader.get_metrics_data()
    assert data is not None
    points = data.resource_metrics[0].scope_metrics[0].metrics[0].data.data_points
    assert [dict(point.attributes or {})["name"] for point in points] == ["turn.ended"]


async def test_a_request_says_how_it_was_answered_and_one_of_a_watcher_is_none(
    server: Server, exported: Exported
) -> None:
    async with httpx2.AsyncClient() as http:
        await http.get(f"{server.url}/healthz")
        await http.get(f"{server.agent('echo')}/tasks/unknown", headers={"A2A-Version": "1.0"})
    about = exported.one("face.http").attributes
    assert about is not None
    assert about["parley.route"] == "/agents/{slug}/tasks/{id}"
    assert (about["parley.method"], about["parley.status"], about["parley.outcome"]) == ("GET", 404, "refused")


async def test_a_call_over_grpc_is_a_span_too(tmp_path: Path, exported: Exported) -> None:
    async with serving(tmp_path / "data", [tracer], grpc_port=0) as server:
        async with httpx2.AsyncClient() as http:
            card = (await http.get(server.agent("tracer") + "/.well-known/agent-card.json")).json()
        url = next(one["url"] for one in card["supportedInterfaces"] if one["protocolBinding"] == "GRPC")
        async with grpc.aio.insecure_channel(url) as channel:
            stub = a2a_pb2_grpc.A2AServiceStub(channel)
            said = json_format.ParseDict({"message": message("hi")}, a2a_pb2.SendMessageRequest())
            metadata = [*SENT.items(), ("tenant", "tracer"), ("a2a-version", "1.0")]
            await stub.SendMessage(said, metadata=metadata)
            frames = [frame async for frame in stub.SendStreamingMessage(said, metadata=metadata)]
        await server.exchange.execution.close()
    assert frames
    through = [SPAN, "face.grpc", "runtime.ingest", "runtime.infer", "driver.turn"]
    assert [exported.above(one) for one in exported.named("own")] == [through, through]
    assert exported.above(exported.one("runtime.stream")) == [SPAN, "face.grpc"]
    operations = [dict(one.attributes or {})["parley.operation"] for one in exported.named("face.grpc")]
    assert operations == ["send", "stream"]


# The semantic conventions for generative AI.


@agent("counter")
async def counter(turn: Turn):
    yield Usage("small-1", input_tokens=100, output_tokens=10, cached_tokens=40)
    turn.record(Usage("small-1", input_tokens=5, output_tokens=1))
    yield Text("counted")


def attributes(found: ReadableSpan) -> dict[str, object]:
    return dict(found.attributes or {})


async def test_a_turn_shows_its_tokens_and_its_task_by_the_conventions(tmp_path: Path, exported: Exported) -> None:
    async with serving(tmp_path / "data", [counter, echo]) as server:
        task = (await send(server, "counter")).json()["result"]["task"]
        await send(server, "echo")
        await server.exchange.execution.close()
    used, plain = (attributes(one) for one in exported.named("driver.turn"))
    for name, value in {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "counter",
        "gen_ai.conversation.id": task["contextId"],
        "gen_ai.usage.input_tokens": 105,
        "gen_ai.usage.output_tokens": 11,
        "gen_ai.usage.cache_read.input_tokens": 40,
        "a2a.agent.name": "counter",
        "a2a.task.id": task["id"],
        "a2a.context.id": task["contextId"],
    }.items():
        assert used[name] == value, name
    assert not [name for name in plain if name.startswith("gen_ai.usage")]
    for name in ("runtime.ingest", "runtime.infer"):
        assert attributes(exported.named(name)[0])["a2a.task.id"] == task["id"], name


async def test_a_model_call_is_a_span_and_is_measured_by_the_conventions(
    tmp_path: Path, exported: Exported, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_KEY", "a-secret-key")
    reader = InMemoryMetricReader()
    monkeypatch.setattr(otel, "get_meter", MeterProvider([reader]).get_meter)
    detach = otel.configure()
    async with vendor() as model:
        model.replies = [answer(OpenAi, "Hello")]
        (tmp_path / "chat.yaml").write_text(
            f"model: openai:gpt-5\nllm: {{base_url: '{model.url}', key_from: TEST_KEY, retries: 0}}\n"
        )
        drivers = LoadedDefinitions(Sources((str(tmp_path / "chat.yaml"),))).drivers
        async with serving(tmp_path / "data", drivers) as server:
            task = (await send(server, "chat")).json()["result"]["task"]
            await server.exchange.execution.close()
    detach()
    called = exported.one("chat gpt-5")
    about = attributes(called)
    used = task["metadata"]["usage"]
    assert (called.kind, exported.above(called)[-1]) == (SpanKind.CLIENT, "driver.turn")
    for name, value in {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-5",
        "gen_ai.response.model": next(iter(used["models"])),
        "gen_ai.usage.input_tokens": used["inputTokens"],
        "gen_ai.usage.output_tokens": used["outputTokens"],
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.conversation.id": task["contextId"],
        "a2a.task.id": task["id"],
    }.items():
        assert about[name] == value, name
    assert "Hello" not in str(about)
    assert "a-secret-key" not in str(about)
    measured = measurements(reader)
    assert measured["gen_ai.client.token.usage"] == {"input": used["inputTokens"], "output": used["outputTokens"]}
    assert list(measured["gen_ai.client.operation.duration"]) == [""]


def measurements(reader: InMemoryMetricReader) -> dict[str, dict[str, float]]:
    """The sums of the histograms for generative AI, by name and type of token."""
    data = reader.get_metrics_data()
    assert data is not None
    found: dict[str, dict[str, float]] = {}
    for metric in data.resource_metrics[0].scope_metrics[0].metrics:
        for point in metric.data.data_points:
            about = dict(point.attributes or {})
            if metric.name.startswith("gen_ai."):
                assert (about["gen_ai.provider.name"], about["gen_ai.request.model"]) == ("openai", "gpt-5")
                found.setdefault(metric.name, {})[str(about.get("gen_ai.token.type", ""))] = point.sum  # type: ignore[union-attr]
    return found

"""One trace from a caller's span through everything that it sets in motion, as an OTLP receiver sees it."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.propagate import inject
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from parley.client import Json, message
from parley.testing.processes import ServerProcess, until
from parley.testing.receivers import Receiver, receiving
from tests.telemetry.otlp import TRACES, Tree, counters, spans

AGENTS = Path(__file__).parent / "traced_agents.py"
LEDGER = Path(__file__).parents[2] / "examples/mcp/sqlite_query.py"

pytestmark = pytest.mark.slow


@asynccontextmanager
async def running(name: str, directory: Path, receiver: Receiver, *more: Path) -> AsyncIterator[ServerProcess]:
    """A server that reports as OpenTelemetry's own environment variables say."""
    env = {
        "PARLEY_OTEL": "true", "PARLEY_ALLOW_HOSTS": '["127.0.0.1"]', "OTEL_SERVICE_NAME": name,
        "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url(""), "OTEL_BSP_SCHEDULE_DELAY": "50",
    }  # fmt: skip
    server = await ServerProcess.start([AGENTS, *more], directory / "data", env=env, cwd=directory)
    try:
        yield server
    finally:
        await server.stop()


async def asked(url: str, collector: Receiver, hook: str) -> Json:
    """As a caller would that traces its own work."""
    provider = TracerProvider(resource=Resource.create({"service.name": "caller"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=collector.url(TRACES))))
    headers = {"A2A-Version": "1.0"}
    configuration = {"taskPushNotificationConfig": {"url": hook}}
    body = {
        "jsonrpc": "2.0", "id": 1, "method": "SendMessage",
        "params": {"message": message("hello"), "configuration": configuration},
    }  # fmt: skip
    with provider.get_tracer("caller").start_as_current_span("errand"):
        inject(headers)
        async with httpx2.AsyncClient(timeout=60) as http:
            reply = await http.post(f"{url}/agents/desk", json=body, headers=headers)
    await asyncio.to_thread(provider.shutdown)
    return reply.json()["result"]["task"]


async def test_one_trace_leads_from_the_caller_to_everything_it_set_in_motion(tmp_path: Path) -> None:
    near, far_away = tmp_path / "near", tmp_path / "far"
    for one in (near, far_away):
        one.mkdir()
    (near / "parley.toml").write_text(f'[[mcp]]\nname = "ledger"\nrun = ["{sys.executable}", "{LEDGER}"]\n')
    async with receiving() as collector, receiving() as hooked:
        async with running("far", far_away, collector) as far:
            abroad = near / "abroad.yaml"
            abroad.write_text(f"slug: abroad\ndriver: remote\nremote: {{url: {far.url}/agents/clerk}}\n")
            async with running("near", near, collector, abroad) as server:
                task = await asked(server.url, collector, hooked.url())
                await until(lambda: any("COMPLETED" in post.body.decode() for post in hooked.on()), 30)
        # Both have stopped, and said everything.
        found = spans(collector)
        posts = hooked.on()
        counted = counters(collector)
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert "noted: completed hello" in str(task["artifacts"])
    (caller,) = [one for one in found if one.service == "caller"]
    tree = Tree([one for one in found if one.trace == caller.trace])
    taken = ["caller: errand", "near: face.http", "near: runtime.ingest (desk)"]
    turn = [*taken, "near: runtime.infer (desk)", "near: driver.turn (desk, function)"]
    remote = [*turn, "near: runtime.infer (abroad)", "near: driver.turn (abroad, remote)"]
    elsewhere = [*remote, "far: face.http", "far: runtime.ingest (clerk)", "far: runtime.infer (clerk)"]
    expected = {
        "near: driver.turn (desk, function)": turn[:-1],
        "near: tool.call (desk, ledger/supabase-query)": turn,
        "near: MCP send tools/call supabase-query": [*turn, "near: tool.call (desk, ledger/supabase-query)"],
        "near: driver.turn (abroad, remote)": remote[:-1],
        "far: driver.turn (clerk, function)": elsewhere,
        "near: push.post (desk)": taken,
    }
    for text, above in expected.items():
        assert tree.find(text), f"{text} is missing:\n{tree.shown()}"
        assert all(tree.above(one) == above for one in tree.find(text)), tree.shown()
    assert tree.roots() == [caller], "Everything lies under the caller's span."
    assert not [one for one in tree.spans if one.failed]
    # Who is told of an update, is told where in the trace that was.
    told = {tuple(post.headers["traceparent"].split("-")[1:3]) for post in posts}
    assert told == {(one.trace, one.id) for one in tree.find("near: push.post (desk)")}
    assert "parley.events" in counted


async def test_what_no_exporter_is_installed_for_is_said_at_the_start(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "parley", "serve", str(AGENTS), "--data-dir", str(tmp_path / "data"), "--port", "0",
        env={"PARLEY_OTEL": "true", "OTEL_TRACES_EXPORTER": "pigeon"}, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    _, said = await process.communicate()
    assert process.returncode == 2
    assert "OTEL_TRACES_EXPORTER names the exporter pigeon" in said.decode()

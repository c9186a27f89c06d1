"""The host and its servers: what they offer, what is called, and what of them is seen."""

import asyncio
import os
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec.structs import replace
from opentelemetry import context
from opentelemetry.propagate import extract

from parley.errors import ToolAmbiguous, ToolNotFound
from parley.telemetry import attach
from parley.telemetry.trace import Trace, entered, headers_for
from parley.testing.processes import until
from parley.tools.mcp.host import Host
from parley.tools.rules.mcp import McpServer
from tests.tools.mcp.conftest import Used, agent_with, example, new_host, server


@pytest.fixture
def starts(tmp_path: Path) -> Path:
    return tmp_path / "starts"


def started(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def is_alive(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


@pytest.mark.slow
async def test_a_query_over_stdio_gives_rows(host: Host) -> None:
    used = Used(host, agent_with(example("supabase-mcp", "sqlite_query.py")))
    asked = {
        "table": "financial_transactions", "select": ["date", "category"], "where": {"date_gte": "2025-03-01"},
        "orderBy": "date DESC",
    }  # fmt: skip
    output = await used.output("supabase-query", {"query": asked})
    march = [{"date": "2025-03-31", "category": "Revenue"}, {"date": "2025-03-09", "category": "Travel"}]
    assert output == {"rows": march, "count": 2}
    for wrong in ({"table": "x; DROP TABLE y"}, {**asked, "orderBy": "date; --"}, {**asked, "where": {"a'b": 1}}):
        assert (await used.call("supabase-query", {"query": wrong})).data["code"] == "tool_error"


@pytest.mark.slow
async def test_rows_become_a_chart(host: Host) -> None:
    used = Used(host, agent_with(example("charts", "charts.py")))
    rows = [{"c": "<Revenue>", "v": 3}, {"c": "Travel", "v": -1}, {"c": "<Revenue>", "v": 2}]
    output = await used.output("charts/chart-generator", {"rows": rows, "x": "c", "y": "v", "title": "Q1"})
    assert output["bars"] == 2
    assert output["svg"].startswith("<svg ")
    assert "&lt;Revenue&gt;: 5" in output["svg"]


@pytest.mark.slow
async def test_a_search_over_http_with_a_secret_header_finds_notes(
    search_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("open-sesame-1\n")
    monkeypatch.setenv("NOTES_TOKEN", "open-sesame-1")
    told: list[str] = []
    detach = attach(lambda name, fields: told.append(f"{name} {fields}"))
    for reference in ("${NOTES_TOKEN}", f"${{file:{tmp_path / 'token'}}}"):
        notes = McpServer("notes", url=search_url, headers={"Authorization": f"Bearer {reference}"})
        host = new_host(notes)
        used = Used(host, agent_with(tools=("notes/*",)))
        output = await used.output("obsidian-search", {"search": {"query": "lamp budget", "limit": 5}})
        assert [one["path"] for one in output["files"]] == ["work/budget.md", "lamps.md"]
        assert (await used.output("obsidian-search", {"search": {"query": "lamp", "path": "work"}}))["count"] == 1
        assert (await used.call("obsidian-search", {"search": {"query": "x", "path": ".."}})).state == "failed"
        await host.close()
    wrong = new_host(McpServer("notes", url=search_url))
    refused = await Used(wrong, agent_with(tools=("notes",))).call("notes/obsidian-search", {})
    assert refused.data["code"] == "server_unavailable"
    await wrong.close()
    detach()
    assert "open-sesame" not in "".join(told)


async def test_an_address_that_is_not_public_is_not_called(search_url: str) -> None:
    host = new_host(McpServer("notes", url=search_url), allow=())
    result = await Used(host, agent_with(tools=("notes",))).call("notes/x")
    assert "address is not public" in result.message
    await host.close()


async def test_a_session_is_kept_and_begun_anew_when_its_server_died(host: Host, starts: Path) -> None:
    used = Used(host, agent_with(server(env={"STARTS": str(starts)})))
    await asyncio.gather(*(used.output("echo", {"n": n}) for n in range(20)))
    assert len(started(starts)) == 1
    os.kill(started(starts)[0], 9)
    session = host._sessions["a", "s"]
    await until(lambda: session.state == "ended")
    assert session.reason
    assert await used.output("echo", {"n": 1}) == {"n": 1}
    assert len(started(starts)) == 2


async def test_closing_leaves_no_process(starts: Path) -> None:
    host = new_host()
    await Used(host, agent_with(server(env={"STARTS": str(starts)}))).output("echo")
    await host.close()
    assert not any(map(is_alive, started(starts)))


async def test_a_changed_list_of_tools_is_asked_for_again_and_an_unchanged_one_is_not(host: Host) -> None:
    used = Used(host, agent_with(server()))
    assert "grown" not in [one.name for one in await host.offers(used.agent)]
    await used.output("grow")
    assert "grown" in [one.name for one in await host.offers(used.agent)]


async def test_progress_is_told(host: Host) -> None:
    agent = agent_with(server())
    told: list[tuple[float, float | None, str | None]] = []

    async def progressed(done: float, total: float | None, message: str | None) -> None:
        told.append((done, total, message))

    offer = await host.find(agent, "steps", 20)
    await host.call(agent, offer, {}, progressed)
    assert sorted(told) == [(1.0, 2.0, "s1"), (2.0, 2.0, "s2")]


async def test_a_canceled_call_leaves_a_server_that_still_answers_alone(host: Host, starts: Path) -> None:
    used = Used(host, agent_with(server(env={"STARTS": str(starts)})))
    with pytest.raises(TimeoutError):
        await used.call("hang", within_s=0.3)
    assert await used.output("echo", {"n": 1}) == {"n": 1}
    assert len(started(starts)) == 1


@pytest.mark.slow
async def test_a_server_that_does_not_let_go_of_a_call_is_begun_anew(host: Host, starts: Path) -> None:
    used = Used(host, agent_with(server(env={"STARTS": str(starts)})))
    await used.output("echo")
    with pytest.raises(TimeoutError):
        await used.call("stuck", within_s=0.3)
    (first,) = started(starts)
    await until(lambda: not is_alive(first))
    assert await used.output("echo", {"n": 2}) == {"n": 2}
    assert len(started(starts)) == 2


async def test_a_tool_is_called_by_its_name_where_that_is_unique(host: Host) -> None:
    used = Used(host, agent_with(server("one"), server("two"), tools=("one/echo", "one/grow", "two/echo", "two/tell")))
    assert (await host.find(used.agent, "grow", 20)).full == "one/grow"
    assert (await host.find(used.agent, "two/echo", 20)).full == "two/echo"
    with pytest.raises(ToolAmbiguous) as ambiguous:
        await host.find(used.agent, "echo", 20)
    assert ambiguous.value.details["tools"] == ["one/echo", "two/echo"]
    for missing in ("two/grow", "die", "three/echo", "one/nothing"):
        with pytest.raises(ToolNotFound):
            await host.find(used.agent, missing, 20)


async def test_servers_of_everybody_are_for_those_who_name_them(host: Host) -> None:
    common = new_host(server("shared"), server("other"))
    assert [one.server for one in await common.offers(agent_with())] == []
    assert {one.full for one in await common.offers(agent_with(tools=("shared/e*",)))} == {"shared/echo"}
    own = agent_with(server("mine"), tools=("shared/echo", "echo"), slug="b")
    assert {one.full for one in await common.offers(own)} == {"mine/echo", "shared/echo"}
    await common.close()


async def test_another_definition_is_another_server_and_one_that_is_gone_is_let_go(host: Host, starts: Path) -> None:
    agent = agent_with(server(env={"STARTS": str(starts)}))
    await Used(host, agent).output("echo")
    changed = replace(agent, mcp=(server(env={"STARTS": str(starts), "MORE": "1"}),))
    assert (await Used(host, changed).output("tell", {"variable": "MORE"}))["said"] == "1"
    first, second = started(starts)
    await until(lambda: not is_alive(first))
    await host.keep([])
    assert not is_alive(second)


async def test_a_program_gets_its_secrets_and_nobody_else_does(
    host: Host, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OURS", "hush-hush-1")
    monkeypatch.setenv("UNRELATED", "visible")
    used = Used(host, agent_with(server(env={"SECRET": "${OURS}", "PLAIN": "p"})))
    output = await used.output("tell", {"variable": "SECRET"})
    assert output == {"said": "[REDACTED]", "near": "<[REDACTED]>"}
    assert (await used.output("tell", {"variable": "UNRELATED"}))["said"] == ""
    assert (await used.output("tell", {"variable": "PLAIN"}))["said"] == "p"
    refused = await used.call("refuse", {"why": "hush-hush-1"})
    assert refused.message == "I will not: [REDACTED]"


@pytest.mark.parametrize("value", ["${NOBODY_SET_THIS}", "${file:/nowhere/at/all}"])
async def test_a_missing_secret_is_named_and_costs_one_call(host: Host, value: str) -> None:
    result = await Used(host, agent_with(server(env={"SECRET": value}))).call("s/echo")
    assert result.data["code"] == "server_unavailable"
    assert "NOBODY_SET_THIS" in result.message or "secret file all" in result.message


async def test_chatter_on_stdout_is_no_message(host: Host) -> None:
    assert await Used(host, agent_with(server(mode="chatty"))).output("echo", {"n": 1}) == {"n": 1}


@pytest.mark.slow
async def test_a_server_that_could_not_be_started_does_not_hold_up_whoever_asks_what_there_is(
    host: Host, starts: Path
) -> None:
    ill = server("ill", "never", env={"STARTS": str(starts)}, start_timeout_s=1.5)
    agent = agent_with(ill, server("good"), tools=("ill", "good/echo"))
    for _ in range(3):
        assert [one.full for one in await host.offers(agent)] == ["good/echo"]
    assert len(started(starts)) == 1
    assert (await Used(host, agent).call("ill/x")).data["code"] == "server_unavailable"
    assert len(started(starts)) == 2


async def test_a_call_says_which_trace_it_is_part_of_and_nothing_else_of_the_request(host: Host) -> None:
    """Holds with and without a span of the library, which depends on this process's other setup."""
    used = Used(host, agent_with(server()))
    trace = Trace("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "congo=1", "req-42")
    around = context.attach(extract(headers_for(trace)))
    with entered(trace):
        told = await used.output("meta")
    context.detach(around)
    assert told["traceparent"][:36] == trace.traceparent[:36]
    assert told["tracestate"] == "congo=1"
    assert "req-42" not in str(told)

"""Pairing from a terminal."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from parley.testing.processes import ServerProcess
from tests.cli.test_cli import parley
from tests.faces.pairing.runtime import attach, error_of

pytestmark = pytest.mark.slow


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ServerProcess]:
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "far.yaml").write_text("driver: edge\nname: Far away\n")
    (tmp_path / "agents" / "near.yaml").write_text("model: offline\nllm: {}\n")
    running = await ServerProcess.start([], tmp_path / ".parley", cwd=tmp_path)
    yield running
    await running.stop()


async def test_an_agent_is_paired_and_unpaired(server: ServerProcess, tmp_path: Path) -> None:
    async def runtimes() -> list[str | None]:
        listed = await parley("agents", "list", "--json", cwd=tmp_path)
        return [one.get("runtime") for one in json.loads(listed.out)]

    assert await runtimes() == ["not paired", None]
    told = await parley("pair", "far", "--url", server.url)
    assert told.code == 0
    assert f"a2a-runtime pair --api-base {server.url} --code " in told.out
    assert '"Far away"' in told.out
    assert "public_url" in told.err
    code = json.loads((await parley("pair", "far", "--url", server.url, "--json")).out)["pairing_token"]
    async with httpx2.AsyncClient() as http:
        token = (await attach(http, server.url, code)).json()["runtime_token"]
        assert await runtimes() == ["online", None]
        assert "online" in (await parley("agents", "list", cwd=tmp_path)).out
        calls = {"headers": {"X-Runtime-Token": token}}
        await http.post(f"{server.url}/agent-runtimes/runtime/detach", **calls)
        assert await runtimes() == ["offline", None]
        revoked = await parley("unpair", "far", "--url", server.url)
        assert (revoked.code, revoked.out[:8]) == (0, "revoked ")
        refused = await http.post(f"{server.url}/agent-runtimes/runtime/heartbeat", **calls)
        assert error_of(refused) == (401, "runtime_revoked")
    assert await runtimes() == ["not paired", None]


async def test_what_cannot_be_paired_is_said_in_one_line(server: ServerProcess) -> None:
    for agent, words in (("nobody", "There is no agent"), ("near", "runs on this server")):
        told = await parley("pair", agent, "--url", server.url)
        assert told.code == 1
        assert words in told.err
        assert told.err.count("\n") == 1
    unreachable = await parley("pair", "far", "--url", "http://127.0.0.1:9")
    assert (unreachable.code, "unreachable" in unreachable.err) == (1, True)

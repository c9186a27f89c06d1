"""From an operator's `parley pair` to a profile that works, and every way in which it must not."""

import asyncio
import json
import re
import shlex
import stat
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from edge.tests.programs import environment, run
from parley.testing.processes import ServerProcess
from tests.joint.chain import agent_of, instruction, paired, pairing, parley, words, working
from tests.joint.conftest import Place

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(site: Place) -> ServerProcess:
    return await site.serve()


def profiles(home: Path) -> dict[str, dict[str, str]]:
    return json.loads((home / "runtime.json").read_text())["profiles"]


async def test_an_instruction_is_enough_by_itself(server: ServerProcess, tmp_path: Path) -> None:
    """Its commands are run as they stand, with a program in the place of PROGRAM, at a port that is free here."""
    text = await instruction(server, "far")
    install, *commands = [line.strip() for line in text.splitlines() if line.startswith("    ")]
    assert install.startswith(f'pip install "{server.url}/agent-runtimes/packages/parley_edge-')
    pair, start, adapter = (shlex.split(line.replace("PROGRAM", "tr a-z A-Z")) for line in commands)
    assert {line[0] for line in (pair, start, adapter)} == {"a2a-runtime"}
    assert (await run(tmp_path, *pair[1:])).code == 0
    assert start[1:] == ["start"]
    async with wrapped(tmp_path, *adapter[1:], "--port", "0") as endpoint, agent_of(server, "far") as client:
        async with working(tmp_path, "--endpoint", endpoint):
            assert words((await client.send("blue"))["task"]) == ["BLUE"]
        assert (await run(tmp_path, "doctor", "--endpoint", endpoint)).code == 0
    for said in ("Far", "far", server.url, profiles(tmp_path)["default"]["local_agent_endpoint"]):
        assert said in text


@asynccontextmanager
async def wrapped(home: Path, *arguments: str) -> AsyncGenerator[str, None]:
    """`a2a-runtime adapter`, from when it listens; its address."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "parley_edge", *arguments, stderr=asyncio.subprocess.PIPE, env=environment(home)
    )
    assert process.stderr is not None
    found = re.search(r"http://\S+", (await asyncio.wait_for(process.stderr.readline(), 15)).decode())
    assert found
    try:
        yield found[0]
    finally:
        process.terminate()
        await process.communicate()


async def test_a_code_works_once(server: ServerProcess, tmp_path: Path) -> None:
    order = pairing(await instruction(server, "far"))
    assert (await run(tmp_path / "one", *order)).code == 0
    again = await run(tmp_path / "two", *order)
    assert again.code == 4
    assert "Invalid pairing token" in again.err
    assert not (tmp_path / "two" / "runtime.json").exists()


async def test_a_code_of_another_platform_is_refused_and_the_one_asked_is_named(
    server: ServerProcess, site: Place, tmp_path: Path
) -> None:
    other = await site.serve("elsewhere")
    code = pairing(await instruction(server, "far"))[-1]
    tried = await run(tmp_path, "pair", "--code", code, A2A_API_BASE=other.url)
    assert tried.code == 4
    assert "Invalid pairing token" in tried.err
    assert other.url in tried.err
    assert (await run(tmp_path, "pair", "--code", code, "--api-base", server.url, A2A_API_BASE=other.url)).code == 0
    assert profiles(tmp_path)["default"]["api_base"] == server.url


async def test_a_profile_is_for_its_owner_only_and_the_token_for_nobody_else(
    server: ServerProcess, tmp_path: Path
) -> None:  # fmt: skip
    home = tmp_path / "a2a"
    done = await paired(server, "far", home, "http://127.0.0.1:1/run-task")
    assert stat.S_IMODE((home / "runtime.json").stat().st_mode) == 0o600
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    token = profiles(home)["default"]["runtime_token"]
    said = [done, await run(home, "status", "--json"), await run(home, "profiles", "list"), await run(home, "doctor")]
    assert token not in "".join(one.out + one.err for one in said)


async def test_the_profile_is_the_named_the_active_the_only_one_or_none(
    server: ServerProcess, site: Place, tmp_path: Path
) -> None:  # fmt: skip
    """Explicit, active, single, ambiguous; what is stored at pairing is used without being named again."""
    home = tmp_path / "a2a"
    for slug in ("far", "away"):
        await paired(server, slug, home, "http://127.0.0.1:1/run-task")
    first, second = profiles(home)
    agents = {name: profiles(home)[name]["agent_id"] for name in (first, second)}
    assert agents == {first: "far", second: "away"}

    async def meant(*options: str) -> tuple[int, str]:
        asked = await run(home, "status", "--json", *options, A2A_API_BASE="http://127.0.0.1:1")
        return asked.code, asked.json["remote"]["agent_id"] if asked.out else asked.err

    assert await meant() == (0, "away")
    assert await meant("--profile", first) == (0, "far")
    assert (await run(home, "profiles", "use", first)).code == 0
    assert await meant() == (0, "far")
    written = json.loads((home / "runtime.json").read_text())
    (home / "runtime.json").write_text(json.dumps({**written, "active_profile": None}))
    code, said = await meant()
    assert code == 2
    assert first in said
    assert second in said
    assert (await run(home, "profiles", "remove", second)).code == 0
    assert await meant() == (0, "far")


async def test_a_newer_pairing_takes_over_and_an_operator_takes_away(
    server: ServerProcess, site: Place, tmp_path: Path
) -> None:  # fmt: skip
    local = await site.local_agent("takes-over")
    await paired(server, "other", tmp_path / "old", local.endpoint)
    async with working(tmp_path / "old") as old:
        await paired(server, "other", tmp_path / "young", local.endpoint)
        over = await old.ended()
    assert (over.code, json.loads(over.err)["error"]["code"]) == (4, "runtime_revoked")
    async with working(tmp_path / "young") as young:
        listed = await parley("agents", "list", str(site.agents), "--data-dir", str(site.folder / "data"))
        assert re.search(r"other.*\bonline", listed.out), listed.out
        assert (await parley("unpair", "other", "--url", server.url)).code == 0
        over = await young.ended()
    assert over.code == 4

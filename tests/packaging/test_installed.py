"""Built, installed where nothing else is, and used as a new user would."""

import asyncio
import json
import shlex
import subprocess
import zipfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from parley import __version__, extras
from parley.testing.databases import fresh_database, give_back
from tests.packaging.distributions import ROOT, Distribution, Environment, surroundings

pytestmark = pytest.mark.slow

AGENT = '''
from parley import Text, Turn, agent


@agent("shout")
async def shout(turn: Turn):
    """Says it louder."""
    yield Text(turn.text.upper())
'''
START_S = 60.0


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "agents.py").write_text(AGENT)
    return tmp_path


@asynccontextmanager
async def server(environment: Environment, place: Path, *more: str, **env: str) -> AsyncIterator[str]:
    """The address of a server that this environment runs."""
    command = [environment.program("parley"), "serve", "agents.py", "--port", "0", "--data-dir", place / "data", *more]
    process = await asyncio.create_subprocess_exec(
        *map(str, command), cwd=place, env=surroundings(**env), stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(START_S):
            yield await _address(process)
    finally:
        if process.returncode is None:
            process.terminate()
        await process.communicate()


async def _address(process: asyncio.subprocess.Process) -> str:
    assert process.stderr is not None
    said = ""
    async for line in process.stderr:
        said += line.decode()
        if "listens on " in said:
            return said.rpartition("listens on ")[2].strip()
    raise AssertionError(said)


async def say(environment: Environment, place: Path, url: str, *more: str) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(environment.run, "parley", "send", "shout", "hello", "--url", url, *more, cwd=place)


def test_the_core_brings_no_extra(core: Environment) -> None:
    code = f"import importlib.util; print(*(m for m in {all_modules()} if importlib.util.find_spec(m)))"
    assert core.check("python", "-c", code).split() == []
    assert {"parley-a2a", "parley-edge"} <= core.installed()


def all_modules() -> list[str]:
    return sorted({module for modules in extras.MODULES.values() for module in modules})


def test_the_programs_are_there(core: Environment) -> None:
    assert core.check("parley", "--version").strip() == f"parley {__version__}"
    assert "send" in core.check("parley", "--help")
    assert "pair" in core.check("a2a-runtime", "--help")
    assert core.check("python", "-m", "parley", "--version").strip() == f"parley {__version__}"


async def test_an_agent_is_served_and_answers(core: Environment, place: Path) -> None:
    async with server(core, place) as url:
        said = await say(core, place, url)
        assert (said.returncode, said.stdout.strip()) == (0, "HELLO")
        async with httpx2.AsyncClient(base_url=url) as http:
            page = await http.get("/console/agents")
            assert (page.status_code, "shout" in page.text) == (200, True)
    checked = core.run("parley", "verify", "--data-dir", place / "data", cwd=place)
    assert checked.stdout.strip() == "1 runs verified, 0 broken"


def definition(kind: str) -> str:
    return {
        "openai": "description: d\nmodel: openai:gpt\ndriver: llm\n",
        "anthropic": "description: d\nmodel: anthropic:claude\ndriver: llm\n",
        "remote": "description: d\nremote:\n  url: https://example.com\n",
    }[kind]


@pytest.mark.parametrize(
    ("extra", "defined", "env"),
    [
        ("postgres", None, {"PARLEY_STORE": "postgres", "PARLEY_POSTGRES_URL": "postgresql://127.0.0.1:1/x"}),
        ("redis", None, {"PARLEY_REDIS_URL": "redis://127.0.0.1:1/0"}),
        ("grpc", None, {"PARLEY_GRPC_PORT": "0"}),
        ("otel", None, {"PARLEY_OTEL": "true"}),
        ("llm", "openai", {}),
        ("llm", "anthropic", {}),
        ("remote", "remote", {}),
        ("mcp", None, {"PARLEY_MCP": json.dumps([{"name": "t", "url": "http://127.0.0.1:1/mcp"}])}),
    ],
)
def test_what_needs_an_extra_says_which(
    core: Environment, place: Path, extra: str, defined: str | None, env: dict[str, str]
) -> None:
    if defined is not None:
        (place / "agents").mkdir()
        (place / "agents" / "one.yaml").write_text(definition(defined))
    what = "agents" if defined else "agents.py"
    done = core.run("parley", "serve", what, "--port", "0", "--data-dir", "data", cwd=place, **env)
    assert done.returncode == 2, done.stderr
    assert f"needs the extra {extra}: pip install 'parley-a2a[{extra}]'." in done.stderr
    assert done.stderr.rstrip().endswith("[extra_missing]")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("extra", ["postgres"])
def test_the_commands_of_an_operator_say_so_too(core: Environment, place: Path, extra: str) -> None:
    env = {"PARLEY_STORE": "postgres", "PARLEY_POSTGRES_URL": "postgresql://127.0.0.1:1/x"}
    for command in (("migrate",), ("verify",), ("keys", "list")):
        done = core.run("parley", *command, cwd=place, **env)
        assert (done.returncode, "[extra_missing]" in done.stderr) == (2, True), done.stderr
    doctor = core.run("parley", "doctor", "agents.py", "--json", cwd=place, **env)
    found = [one for one in json.loads(doctor.stdout)["findings"] if one["code"] == "extra_missing"]
    assert [one["todo"] for one in found] == [f"pip install 'parley-a2a[{extra}]'"]


async def test_an_export_without_its_extra_says_so(core: Environment, place: Path) -> None:
    async with server(core, place) as url:
        said = json.loads((await say(core, place, url, "--json")).stdout.splitlines()[0])["task"]
        asked = {"mode": "converse", "action": "export_conversation", "agentSlug": "shout", "format": "pdf"}
        async with httpx2.AsyncClient(base_url=url) as http:
            reply = await http.post(f"/api/agent2agent/conversations/{said['contextId']}/tasks", json=asked)
    assert reply.json()["error"]["code"] == "INVALID_STATE"
    assert "parley-a2a[pdf]" in reply.json()["error"]["message"]


async def test_an_extra_can_be_added_to_what_is_installed(
    core: Environment, parley: Distribution, place: Path, tmp_path_factory: pytest.TempPathFactory, postgres: str
) -> None:
    """In an environment of its own, so that the core stays without."""
    grown = Environment(tmp_path_factory.mktemp("grown") / "env")
    grown.install(f"{parley.wheel}[postgres]")
    assert "asyncpg" in grown.installed()
    url = await fresh_database(postgres)
    try:
        async with server(grown, place, "--store", "postgres", PARLEY_POSTGRES_URL=url) as address:
            said = await say(grown, place, address)
            assert (said.returncode, said.stdout.strip()) == (0, "HELLO")
    finally:
        await give_back(postgres, url)


async def test_a_computer_installs_the_runtime_from_the_server_that_it_works_for(
    core: Environment, place: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """With the command that `parley pair` prints; a file that is not what the command names is refused."""
    (place / "far.yaml").write_text("driver: edge\ndescription: Works elsewhere.\n")
    laptop = Environment(tmp_path_factory.mktemp("laptop") / "env")
    async with server(core, place, "far.yaml") as url:
        told = await asyncio.to_thread(core.run, "parley", "pair", "far", "--url", url, cwd=place)
        install, pair, _ = [shlex.split(line) for line in told.stdout.splitlines() if line.startswith("    ")][:3]
        assert install[:2] == ["pip", "install"]
        forged = f"{install[2].partition('=')[0]}={'0' * 64}"
        refused = await asyncio.to_thread(laptop.run, "pip", "install", "--no-deps", forged, cwd=place)
        assert (refused.returncode, "THESE PACKAGES DO NOT MATCH THE HASHES" in refused.stderr) == (1, True)
        await asyncio.to_thread(laptop.install, install[2])
        assert laptop.check("a2a-runtime", "--version").startswith("a2a-runtime ")
        assert {"parley-edge", "h11"} <= laptop.installed()
        home = {"A2A_HOME": str(place / "a2a")}
        paired = await asyncio.to_thread(laptop.run, *pair, cwd=place, **home)
        assert paired.returncode == 0, paired.stderr


def test_the_source_distributions_build_the_same_wheels(
    core: Environment, parley: Distribution, edge: Distribution, tmp_path: Path
) -> None:
    for one in (parley, edge):
        to = tmp_path / one.wheel.name
        core.check("python", "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", to, one.sdist)
        (rebuilt,) = to.glob("*.whl")
        with zipfile.ZipFile(rebuilt) as theirs, zipfile.ZipFile(one.wheel) as ours:
            assert {i.filename: i.CRC for i in theirs.infolist()} == {i.filename: i.CRC for i in ours.infolist()}


def test_the_pins_hold_what_is_installed(core: Environment) -> None:
    """A plain install gets the tested versions: every package has a pin."""
    pinned = {line.partition("==")[0].lower().replace("_", "-") for line in _pins()}
    ours = {"parley-a2a", "parley-edge", "pip", "setuptools"}
    assert {name.replace("_", "-") for name in core.installed()} - ours <= pinned


def _pins() -> list[str]:
    return (ROOT / "constraints.txt").read_text().splitlines()

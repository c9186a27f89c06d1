"""The program stands alone: nothing of the server, few modules, little memory."""

import ast
import asyncio
import subprocess
import sys
from pathlib import Path

import parley_edge
from edge.tests.conftest import Pair
from edge.tests.platform import Platform
from edge.tests.programs import environment, local_agent, runtime

PACKAGE = Path(parley_edge.__file__).parent
MEMORY_KB = 60_000


def imported(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {name.name.partition(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, path
            found.add((node.module or "").partition(".")[0])
    return found


def test_it_needs_python_and_h11_and_nothing_else() -> None:
    for path in PACKAGE.rglob("*.py"):
        assert imported(path) <= sys.stdlib_module_names | {"parley_edge", "h11"}, path


def loaded(*arguments: str, home: Path) -> set[str]:
    running = f"import sys; from parley_edge.cli import main; main({list(arguments)!r})"
    code = f"{running}; print('modules', *sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment(home), check=True
    )
    return set(done.stdout.rpartition("modules ")[2].split())


def test_a_command_loads_only_what_it_needs(tmp_path: Path) -> None:
    assert not {"asyncio", "h11", "ssl"} & loaded("profiles", "use", "x", home=tmp_path)
    heavy = {"urllib.request", "http.client", "email.parser", "mimetypes", "unittest", "parley", "msgspec"}
    assert not heavy & loaded("status", home=tmp_path)


def resident_kb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


async def test_an_idle_runtime_is_small(platform: Platform, paired: Pair) -> None:
    async with local_agent({"text": "ok"}) as agent, runtime(await paired(agent.endpoint)) as program:
        await program.says("platform.connected")
        await platform.until(lambda: platform.called("/pull"))
        assert await asyncio.to_thread(resident_kb, program.pid) < MEMORY_KB

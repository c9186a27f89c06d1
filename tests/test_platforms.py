"""Where modules of POSIX are missing, as on Windows, clients work, and the rest says where it runs."""

import subprocess
import sys
from pathlib import Path

import pytest

from parley.extras import POSIX

BLOCKED = f"""
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name in {sorted(POSIX)!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocked())
for name in {sorted(POSIX)!r}:
    sys.modules.pop(name, None)
"""


def run(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", BLOCKED + program], cwd=folder, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "program",
    [
        "import parley\n@parley.agent('a')\nasync def a(turn): yield parley.Text('x')",
        "from parley.client import Client",
        "from parley.cli import main; sys.argv = ['parley', '--help']; main()",
        "from parley.cli import main; sys.argv = ['parley', 'send', '--help']; main()",
    ],
)
def test_agents_clients_and_help_need_no_posix(program: str, tmp_path: Path) -> None:
    done = run(program, tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("command", ["serve", "up", "doctor"])
def test_a_server_says_where_it_runs(command: str, tmp_path: Path) -> None:
    done = run(f"from parley.cli import main; sys.argv = ['parley', {command!r}]; main()", tmp_path)
    assert done.returncode == 2
    assert "runs on Linux and macOS" in done.stderr
    assert "[platform_unsupported]" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_the_application_says_so_too(tmp_path: Path) -> None:
    done = run("import parley\nparley.Parley", tmp_path)
    assert "PlatformUnsupported: This part of Parley runs on Linux and macOS" in done.stderr

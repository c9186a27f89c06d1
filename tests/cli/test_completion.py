"""The shell completes commands, options and, where a server answers, its agents: as bash itself does it."""

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from parley import Text, Turn, agent
from parley.testing.servers import serving

BIN = Path(sys.executable).parent
pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")


def completed(*words: str) -> list[str]:
    """Completions that bash offers after these words; the last word is incomplete."""
    script = subprocess.run(
        [BIN / "parley", "--show-completion", "bash"], env={**os.environ, _NO_GUESS: "1"},
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    line = " ".join(f"'{word}'" for word in words)
    asking = f'COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _parley_completion parley; echo "${{COMPREPLY[*]}}"'
    done = subprocess.run(
        ["bash", "--norc", "-c", f"{script}\n{asking}"],
        env={**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stderr == ""
    return sorted(done.stdout.split())


_NO_GUESS = "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION"


def test_commands_are_completed() -> None:
    assert completed("parley", "se") == ["send", "serve", "sessions"]
    assert completed("parley", "keys", "cr") == ["create"]


def test_options_and_kinds_are_completed() -> None:
    assert completed("parley", "migrate", "--ph") == ["--phase"]
    assert completed("parley", "new", "a") == ["adapter", "agent"]


@agent("count-words")
async def count(turn: Turn):
    yield Text("0")


@agent("count-lines")
async def lines(turn: Turn):
    yield Text("0")


@pytest.mark.slow
async def test_agents_are_completed_where_a_server_answers(tmp_path: Path) -> None:
    async with serving(tmp_path, [count, lines], store="memory") as server:
        offered = await asyncio.to_thread(completed, "parley", "send", "--url", server.url, "count-w")
        assert offered == ["count-words"]
        assert await asyncio.to_thread(completed, "parley", "card", "--url", server.url, "count") == [
            "count-lines", "count-words",
        ]  # fmt: skip


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "nonsense", "file:///etc/passwd"])
def test_nobody_who_answers_is_no_trouble(url: str) -> None:
    assert completed("parley", "send", "--url", url, "co") == []

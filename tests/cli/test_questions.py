"""Questions with choices and schemas on a terminal: a numbered prompt, and a prompt for each value."""

import asyncio
import os
import re
import select
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from parley.testing.processes import ServerProcess
from tests.cli.test_cli import parley
from tests.cli.test_tasks import task_of

pytestmark = pytest.mark.slow
QUESTIONERS = Path(__file__).parent.parent / "faces" / "questions.py"
_START = """
import fcntl, runpy, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
runpy.run_module("parley", run_name="__main__")
"""
"""Makes the terminal the one that controls the process, so that Ctrl+C reaches it."""
_CONTROLS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ServerProcess]:
    running = await ServerProcess.start([QUESTIONERS], tmp_path / "data")
    yield running
    await running.stop()


class Terminal:
    """A command of `parley` on a terminal of its own."""

    def __init__(self, *arguments: str) -> None:
        self._ours, theirs = os.openpty()
        env = {**os.environ, "COLUMNS": "200", "TERM": "xterm"}
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START, *arguments], stdin=theirs, stdout=theirs, stderr=theirs, env=env,
            start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        self.shown = ""
        self._seen = 0

    async def until(self, words: str, *, pressing: str = "") -> str:
        """Wait for words after those that were waited for last; everything shown up to them. A key is pressed until
        something is shown: Python loses a Ctrl+C between showing a prompt and waiting for the answer."""
        async with asyncio.timeout(30):
            while (found := self.shown.find(words, self._seen)) < 0:
                read = await asyncio.to_thread(self._read)
                self.shown = _CONTROLS.sub("", self.shown + read)
                if pressing and not read:
                    self.type(pressing)
        before, self._seen = self.shown[self._seen : found], found + len(words)
        return before

    def _read(self) -> str:
        """Text that arrives within a second; no thread waits longer."""
        readable, _, _ = select.select([self._ours], [], [], 1)
        return os.read(self._ours, 4096).decode(errors="replace") if readable else ""

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    async def code(self) -> int:
        async with asyncio.timeout(30):
            code = await asyncio.to_thread(self._process.wait, 20)
        os.close(self._ours)
        return code


async def test_choices_are_numbered_and_values_are_asked_one_by_one(server: ServerProcess) -> None:
    terminal = Terminal("send", "flights", "go", "--url", server.url)
    assert "Which flight?\n  1. AF 12\n  2. BA 7\n" in await terminal.until("Your choice (1 to 2): ")
    terminal.type("3\n")
    assert "must be one of: 1. AF 12; 2. BA 7" in await terminal.until("Your choice (1 to 2): ")
    terminal.type("2\n")
    assert "'BA 7'." in await terminal.until("Passenger?")
    await terminal.until("Name: ")
    terminal.type("Ann\n")
    await terminal.until("Age: ")
    terminal.type("seven\n")
    await terminal.until("Seat (1. aisle, 2. window, optional): ")
    terminal.type("2\n")
    await terminal.until("Luggage (y/n): ")
    terminal.type("y\n")
    await terminal.until("Weight (optional): ")
    terminal.type("\n")
    assert "age must be an integer" in await terminal.until("Name: ")
    for question, answer in (("Age: ", "Ann"), ("Seat (", "7"), ("Luggage (", "window"), ("Weight (", "n")):
        terminal.type(f"{answer}\n")
        await terminal.until(question)
    terminal.type("1.5\n")
    await terminal.until("Ann is 7, window.")
    assert await terminal.code() == 0


async def test_a_user_who_does_not_answer_is_told_how_to_do_it_later(server: ServerProcess) -> None:
    terminal = Terminal("send", "flights", "go", "--url", server.url)
    await terminal.until("Your choice (1 to 2): ")
    terminal.type("\n")
    await terminal.until("Answer: parley answer ")
    task = (await terminal.until(" 1 --url")).strip()
    assert await terminal.code() == 4

    terminal = Terminal("answer", task, "--url", server.url)
    await terminal.until("Your choice (1 to 2): ")
    terminal.type("\x03")
    await terminal.until(f"Answer: parley answer {task} 1", pressing="\x03")
    assert await terminal.code() == 4

    terminal = Terminal("answer", task, "--url", server.url)
    await terminal.until("Your choice (1 to 2): ")
    terminal.type("af 12\n")
    await terminal.until("'AF 12'.")
    await terminal.until("Name: ")
    terminal.type("\x04")
    await terminal.until(f"Answer: parley answer {task} --data '{{…}}'")
    assert await terminal.code() == 4


async def test_a_free_question_is_asked_by_answer_only(server: ServerProcess) -> None:
    terminal = Terminal("send", "plain", "go", "--url", server.url)
    await terminal.until("Answer: parley answer ")
    task = (await terminal.until(" 'your answer'")).strip()
    assert await terminal.code() == 4
    terminal = Terminal("answer", task, "--url", server.url)
    await terminal.until("Your answer: ")
    terminal.type("this\n")
    await terminal.until("Heard 'this'")
    assert await terminal.code() == 0
    terminal = Terminal("answer", task, "--url", server.url)
    await terminal.until("The task is completed; it does not wait for an answer.")
    assert await terminal.code() == 2


async def test_a_program_is_never_asked(server: ServerProcess) -> None:
    url = ("--url", server.url)
    asked = await parley("send", "flights", "go", *url)
    assert asked.code == 4
    assert "Which flight?\n  1. AF 12\n  2. BA 7" in asked.err
    task = task_of(await parley("send", "flights", "go", *url, "--json"))
    refused = await parley("answer", task, "LH 3", *url)
    assert refused.code != 0
    assert "must be one of: 1. AF 12; 2. BA 7" in refused.err
    assert (await parley("answer", task, "1", *url)).code == 4
    shown = await parley("show", task, *url)
    assert "Passenger?\n  name: text\n  age: number\n  seat: aisle, window; optional\n" in shown.out
    done = await parley("answer", task, "--data", '{"name": "Ann", "age": 7}', *url)
    assert (done.code, done.err.count("Ann is 7, aisle.")) == (0, 1)
    assert (await parley("answer", task, *url)).code == 2

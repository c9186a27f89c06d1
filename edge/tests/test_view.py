"""What `start` shows to people."""

import asyncio
import io
import os
import re
import sys

from edge.tests.conftest import Pair
from edge.tests.platform import Platform
from edge.tests.programs import environment, local_agent
from parley_edge.commands.view import Lines, Live, clock, foot, sentence
from parley_edge.runtime.jobs import Job


def test_words_of_others_cannot_move_the_cursor() -> None:
    assert "\x1b" not in sentence("task.failed", {"run": "r", "seconds": 1, "reason": "\x1b[2Jboo\n"})


def test_what_has_no_words_is_shown_as_it_is() -> None:
    assert sentence("something.else", {"n": 1}) == "something.else n=1"
    assert sentence("task.failed", {"run": "r"}) == "task.failed run=r"


def test_the_foot_says_how_things_stand() -> None:
    job = Job("run-1", "lease", {}, note="reading")
    lines = foot("Worker", [job], {"completed": 3, "failed": 1}, up=True, seconds=3661)
    assert lines == [
        "── Worker",
        "   connected · 1 running · 3 completed, 1 failed · up 1:01:01",
        "   0:00:00  run-1  working · reading",
    ]
    assert "not connected · 0 running · no tasks done yet" in foot("W", [], {}, up=False, seconds=0)[1]
    assert clock(59.9) == "0:00:59"


def test_the_foot_is_erased_before_a_line() -> None:
    out = io.StringIO()
    view = Live(out, lambda: ["one", "two"])
    view("stopped")
    view("stopped")
    view.close()
    assert out.getvalue().count("\x1b[2A\x1b[J") == 2
    assert len(re.findall("stopped\n", out.getvalue())) == 2


def test_a_view_whose_reader_is_gone_is_silent() -> None:
    out = io.StringIO()
    view = Lines(out)
    out.close()
    view("stopped")
    view("stopped")


async def test_on_a_terminal_it_is_alive(platform: Platform, paired: Pair) -> None:
    async with local_agent({"text": "ok"}) as agent:
        home = await paired(agent.endpoint)
        ours, theirs = os.openpty()
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "parley_edge", "start", stdout=theirs, env=environment(home, TERM="xterm")
        )
        os.close(theirs)
        await platform.ended(platform.ask("hello"))
        shown = ""
        async with asyncio.timeout(15):
            while "1 completed" not in shown:
                shown += (await asyncio.to_thread(os.read, ours, 65536)).decode()
        process.terminate()
        while (more := await asyncio.to_thread(_last, ours)) != "":
            shown += more
        assert await asyncio.wait_for(process.wait(), 15) == 0
        os.close(ours)
    assert "run-1 completed" in shown
    assert "\x1b[2A\x1b[J" in shown
    assert "stopped" in shown


def _last(terminal: int) -> str:
    try:
        return os.read(terminal, 65536).decode()
    except OSError:
        return ""


async def test_elsewhere_it_is_a_log(platform: Platform, paired: Pair) -> None:
    async with local_agent({"success": False, "error": "no ink"}) as agent:
        home = await paired(agent.endpoint)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "parley_edge", "start", stdout=asyncio.subprocess.PIPE, env=environment(home)
        )
        assert process.stdout is not None
        await platform.ended(platform.ask("hello"))
        process.terminate()
        shown = (await asyncio.wait_for(process.stdout.read(), 15)).decode()
        assert await process.wait() == 0
    assert "\x1b" not in shown
    assert re.search(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\+\d{4} run-1 failed after \S+ s: no ink$", shown, re.MULTILINE)

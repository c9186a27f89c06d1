"""Any program as a local agent, with the whole chain as processes: platform, runtime, adapter, program."""

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from edge.tests.conftest import Pair
from edge.tests.platform import Platform
from edge.tests.programs import environment, run, runtime, until
from edge.tests.test_adapter import TASK, ask
from parley_edge.adapter import Failure
from parley_edge.program import meaning

Json = dict[str, Any]


@asynccontextmanager
async def wrapped(folder: Path, code: str, *options: str) -> AsyncIterator[str]:
    """`a2a-runtime adapter` around a Python program; the address."""
    script = folder / "prog.py"
    script.write_text(code)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "parley_edge", "adapter", "--port", "0", "--command", f"{sys.executable} {script}",
        *options, stderr=asyncio.subprocess.PIPE, env=environment(folder / "home", SEEN="yes"),
    )  # fmt: skip
    assert process.stderr is not None
    said = (await asyncio.wait_for(process.stderr.readline(), 15)).decode()
    found = re.search(r"http://\S+", said)
    assert found, said
    try:
        yield found[0]
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        await process.stderr.read()
        assert await asyncio.wait_for(process.wait(), 15) == 0


async def said(url: str, **change: Any) -> Json:
    return json.loads((await ask(url, {**TASK, **change})).body)


async def test_text_goes_in_and_text_comes_out(tmp_path: Path) -> None:
    async with wrapped(tmp_path, "print(input().upper())") as url:
        assert await said(url) == {"success": True, "output": {"text": "HELLO"}}


async def test_an_object_is_the_answer(tmp_path: Path) -> None:
    code = """if True:
        import json
        print(json.dumps({"text": "ok", "artifacts": [{"filename": "a.md", "content_text": "x"}]}))"""
    async with wrapped(tmp_path, code) as url:
        assert (await said(url))["output"]["artifacts"] == [{"filename": "a.md", "content_text": "x"}]


async def test_the_task_is_in_the_environment(tmp_path: Path) -> None:
    code = """if True:
        import json, os
        task = json.loads(os.environ["A2A_TASK"])
        print(task["input"]["text"], os.environ["A2A_TASK_RUN_ID"], os.environ["SEEN"], "A2A_HOME" in os.environ)"""
    async with wrapped(tmp_path, code) as url:
        assert (await said(url))["output"]["text"] == "hello run-1 yes False"


@pytest.mark.parametrize(("where", "reading"), [("argument", "sys.argv[-1]"), ("stdin", "sys.stdin.read()")])
async def test_the_task_is_elsewhere_if_it_is_asked_for(tmp_path: Path, where: str, reading: str) -> None:
    code = f"import json, os, sys; print(json.loads({reading}) == {TASK!r}, 'A2A_TASK' in os.environ)"
    async with wrapped(tmp_path, code, "--task", where) as url:
        assert (await said(url))["output"]["text"] == "True False"


async def test_a_large_task_still_reaches_standard_input(tmp_path: Path) -> None:
    async with wrapped(tmp_path, "import os, sys; print(len(sys.stdin.read()), 'A2A_TASK' in os.environ)") as url:
        assert (await said(url, input={"text": "ü" * 1_000_000}))["output"]["text"] == "1000000 False"


def test_what_a_program_wrote_means_something() -> None:
    assert meaning(0, b"{not json", "auto") == {"text": "{not json"}
    assert meaning(0, b'{"a": 1}', "text") == {"text": '{"a": 1}'}
    assert meaning(3, b'{"success": false, "error": "no ink"}', "auto") == {"success": False, "error": "no ink"}
    for code, output, mode, words in (
        (3, b"text", "auto", "exit code 3"),
        (3, b'{"success": true, "output": {}}', "auto", "exit code 3"),
        (-9, b"", "auto", "Signal 9"),
        (0, b"text", "json", "JSON object"),
    ):
        with pytest.raises(Failure, match=words):
            meaning(code, output, mode)


async def test_a_program_that_fails_says_its_code_only(tmp_path: Path) -> None:
    async with wrapped(tmp_path, "raise SystemExit(7)") as url:
        assert await said(url) == {"success": False, "error": "The program ended with exit code 7."}


async def test_a_program_that_reads_nothing_is_no_failure(tmp_path: Path) -> None:
    async with wrapped(tmp_path, "print('ok')") as url:
        assert (await said(url, input={"text": "x" * 3_000_000}))["output"]["text"] == "ok"


async def test_what_writes_too_much_or_too_long_is_ended(tmp_path: Path) -> None:
    async with wrapped(tmp_path, "while True: print('x' * 100000)") as url:
        assert "more than" in (await said(url))["error"]
    async with wrapped(tmp_path, "import time; time.sleep(60)", "--timeout", "0.5") as url:
        assert "within 0.5 s" in (await said(url))["error"]


CHILD = """
import os, pathlib, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
pathlib.Path("pids").write_text(f"{os.getpid()} {child.pid}")
%s
"""


def pids(folder: Path) -> list[int]:
    file = folder / "pids"
    return [int(pid) for pid in file.read_text().split()] if file.exists() else []


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def gone(found: list[int]) -> None:
    await until(lambda: not any(alive(pid) for pid in found))


async def test_what_a_program_leaves_running_ends_with_it(tmp_path: Path) -> None:
    async with wrapped(tmp_path, CHILD % "print('ok')", "--cwd", str(tmp_path)) as url:
        assert (await said(url))["output"]["text"] == "ok"
        await gone(pids(tmp_path))


async def test_a_cancel_on_the_platform_ends_the_program(platform: Platform, paired: Pair, tmp_path: Path) -> None:
    async with (
        wrapped(tmp_path, CHILD % "time.sleep(600)", "--cwd", str(tmp_path)) as url,
        runtime(await paired(url)) as program,
    ):
        task = platform.ask("hello")
        await until(lambda: len(pids(tmp_path)) == 2)
        platform.cancel(task)
        await program.says("task.canceled")
        await gone(pids(tmp_path))


async def test_stopping_the_adapter_ends_its_programs(tmp_path: Path) -> None:
    async with wrapped(tmp_path, CHILD % "time.sleep(600)", "--cwd", str(tmp_path)) as url:
        asking = asyncio.create_task(ask(url))
        await until(lambda: len(pids(tmp_path)) == 2)
    await gone(pids(tmp_path))
    await asyncio.wait((asking,))
    assert asking.exception() is not None


async def test_programs_at_once_are_limited(tmp_path: Path) -> None:
    """The second waits for the first, so it finds what that has left."""
    code = """if True:
        import pathlib, time
        mark = pathlib.Path("mark")
        alone = not mark.exists()
        mark.touch(); time.sleep(0.2); mark.unlink()
        print(alone)"""
    async with wrapped(tmp_path, code, "--cwd", str(tmp_path), "--concurrency", "1") as url:
        answers = await asyncio.gather(*(said(url) for _ in range(3)))
    assert [answer["output"]["text"] for answer in answers] == ["True"] * 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--command", "no-such-program-here"), "was not found"),
        (("--command", "'"), "quotes"),
        (("--command", "cat", "--cwd", "/no/such/folder"), "does not exist"),
        (("--command", "cat", "--host", "0.0.0.0"), "--i-know-this-is-not-an-authentication-boundary"),
        (("--command", "cat", "--concurrency", "0"), "1 to 256"),
        (("--command", "cat", "--timeout", "soon"), "seconds"),
        ((), "--command"),
    ],
)
async def test_wrong_use_is_said_at_once(home: Path, options: tuple[str, ...], words: str) -> None:
    done = await run(home, "adapter", *options)
    assert done.code == 2
    assert words in done.err


async def test_any_program_of_the_system_will_do(platform: Platform, paired: Pair, home: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "parley_edge", "adapter", "--port", "0", "--command", "tr a-z A-Z",
        stderr=asyncio.subprocess.PIPE, env=environment(home),
    )  # fmt: skip
    assert process.stderr is not None
    url = (await asyncio.wait_for(process.stderr.readline(), 15)).decode().split()[-1]
    async with runtime(await paired(url)):
        ended = await platform.ended(platform.ask("hello there"))
    os.kill(process.pid, signal.SIGTERM)
    await process.stderr.read()
    await process.wait()
    assert ended.output == {"text": "HELLO THERE"}


async def test_a_program_and_the_runtime_are_one_process(platform: Platform, paired: Pair, tmp_path: Path) -> None:
    """Nothing listens at the endpoint of the profile, and nobody is asked there."""
    script = tmp_path / "prog.py"
    script.write_text("import os; print(input().upper(), os.environ['A2A_TASK_TYPE'], os.path.basename(os.getcwd()))")
    home = await paired("http://127.0.0.1:1/run-task")
    options = ("--command", f"{sys.executable} {script}", "--cwd", str(tmp_path), "--concurrency", "2")
    async with runtime(home, *options) as program:
        runs = [platform.ask(text) for text in ("one", "two", "three")]
        for run_, word in zip(runs, ("ONE", "TWO", "THREE"), strict=True):
            assert (await platform.ended(run_)).output == {"text": f"{word} chat {tmp_path.name}"}
        assert (await program.stop()).code == 0
    assert program.seen("started")[0]["endpoint"].startswith("http://127.0.0.1:")


async def test_stopping_and_canceling_end_the_program_of_a_runtime(
    platform: Platform, paired: Pair, tmp_path: Path
) -> None:
    script, pid = tmp_path / "prog.py", tmp_path / "pid"
    script.write_text(f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(600)")
    home = await paired("http://127.0.0.1:1/run-task")
    async with runtime(home, "--command", f"{sys.executable} {script}", "--grace", "0.1") as program:
        first = platform.ask("hello")
        await until(lambda: pid.exists() and pid.read_text() != "")
        number = int(pid.read_text())
        platform.cancel(first)
        await program.says("task.canceled")
        await until(lambda: not alive(number))
        pid.unlink()
        second = platform.ask("hello")
        await until(lambda: pid.exists() and pid.read_text() != "")
        number = int(pid.read_text())
        assert (await program.stop()).code == 0
    assert not alive(number)
    assert second.state == "queued"


async def test_a_program_that_is_not_there_is_said_before_anything_is_pulled(platform: Platform, paired: Pair) -> None:
    home = await paired("http://127.0.0.1:1/run-task")
    done = await run(home, "start", "--command", "no-such-program")
    assert (done.code, "no-such-program" in done.err) == (2, True)
    both = await run(home, "start", "--command", "cat", "--endpoint", "http://127.0.0.1:1/run-task")
    assert (both.code, "not allowed with" in both.err) == (2, True)
    assert platform.called("/pull") == []

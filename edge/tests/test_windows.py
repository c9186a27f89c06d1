"""The program where there is neither `fcntl` nor SIGHUP, as on Windows: `edge/tests/windows.py` takes them away."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from edge.tests.platform import Platform
from edge.tests.programs import Ended, Runtime, environment, local_agent, until

ROOT = Path(__file__).parents[2]


async def process(home: Path, *arguments: str, **env: str) -> asyncio.subprocess.Process:
    given = environment(home, **env)
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "edge.tests.windows", *arguments, stdin=pipe, stdout=pipe, stderr=pipe,
        env={**given, "PYTHONPATH": f"{ROOT}:{given['PYTHONPATH']}"},
    )  # fmt: skip


async def run(home: Path, *arguments: str, **env: str) -> Ended:
    started = await process(home, *arguments, **env)
    out, err = await asyncio.wait_for(started.communicate(), 30)
    return Ended(started.returncode or 0, out.decode(), err.decode())


@asynccontextmanager
async def runtime(home: Path, *arguments: str) -> AsyncIterator[Runtime]:
    started = Runtime(await process(home, "start", "--json", *arguments))
    try:
        yield started
    finally:
        await started.kill()


async def pair(platform: Platform, home: Path, endpoint: str) -> Ended:
    done = await run(home, "pair", "--code", platform.code(), "--api-base", platform.url, "--endpoint", endpoint)
    assert done.code == 0, done.err
    return done


async def test_it_starts_without_what_windows_does_not_have(home: Path) -> None:
    done = await run(home, "--version")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("a2a-runtime ")


async def test_it_pairs_works_and_stops(platform: Platform, home: Path) -> None:
    async with local_agent({"text": "done"}) as agent:
        await pair(platform, home, agent.endpoint)
        async with runtime(home) as program:
            assert (await platform.ended(platform.ask("hello"))).output == {"text": "done"}
            ended = await program.stop()
    assert ended.code == 0
    assert platform.detached == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_every_signal_that_is_there_stops_it_in_good_order(
    platform: Platform, home: Path, number: signal.Signals
) -> None:
    async with local_agent({"text": "done"}) as agent:
        await pair(platform, home, agent.endpoint)
        async with runtime(home) as program:
            await program.says("platform.connected")
            program.signal(number)
            assert (await program.ended()).code == 0
            await program.says("stopped")


async def test_one_runtime_for_each_profile(platform: Platform, home: Path) -> None:
    async with local_agent({"text": "done"}) as agent:
        await pair(platform, home, agent.endpoint)
        async with runtime(home) as program:
            await program.says("platform.connected")
            second = await run(home, "start", "--json")
            status = await run(home, "status", "--json")
            await program.stop()
    assert (second.code, json.loads(second.err)["error"]["code"]) == (1, "already_running")
    assert str(program.pid) in json.loads(second.err)["error"]["message"]
    assert status.json["running_pid"] == program.pid
    assert (await run(home, "status", "--json")).json["running_pid"] is None


async def test_those_who_change_the_profiles_wait_for_each_other(platform: Platform, home: Path) -> None:
    await asyncio.gather(*(
        run(home, "pair", "--code", platform.code(), "--api-base", platform.url, "--profile", name)
        for name in ("one", "two", "three")
    ))  # fmt: skip
    listed = (await run(home, "profiles", "list", "--json")).json["profiles"]
    assert [one["profile"] for one in listed] == ["one", "three", "two"]


async def test_profiles_lie_in_the_local_application_data(tmp_path: Path, platform: Platform) -> None:
    local, user = tmp_path / "AppData" / "Local", tmp_path / "user"
    user.mkdir()
    env = {"A2A_HOME": "", "LOCALAPPDATA": str(local), "HOME": str(user)}
    code = ("--code", platform.code(), "--api-base", platform.url)
    assert (await run(tmp_path, "pair", *code, **env)).code == 0
    assert (local / "a2a" / "runtime.json").exists()
    assert not (user / ".a2a").exists()


async def test_the_mode_of_a_file_is_nobodys_complaint(platform: Platform, home: Path) -> None:
    async with local_agent({"text": "done"}) as agent:
        await pair(platform, home, agent.endpoint)
        (home / "runtime.json").chmod(0o666)
        assert (await run(home, "doctor")).code == 0


async def test_a_wrapped_program_works_and_is_ended(platform: Platform, home: Path, tmp_path: Path) -> None:
    program = tmp_path / "answer.py"
    program.write_text(
        "import pathlib, time\nif (text := input()) == 'wait':\n"
        f"    pathlib.Path({str(tmp_path / 'began')!r}).touch()\n    time.sleep(600)\nprint(text.upper())\n"
    )
    adapter = await process(home, "adapter", "--port", "0", "--command", f'"{sys.executable}" "{program}"')
    assert adapter.stderr is not None
    said = (await asyncio.wait_for(adapter.stderr.readline(), 20)).decode()
    await pair(platform, home, said.split()[-1])
    async with runtime(home) as started:
        assert (await platform.ended(platform.ask("hello"))).output == {"text": "HELLO"}
        task = platform.ask("wait")
        await until((tmp_path / "began").exists)
        platform.cancel(task)
        await started.says("task.canceled")
        assert (await platform.ended(platform.ask("again"))).output == {"text": "AGAIN"}
        await started.stop()
    adapter.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(adapter.wait(), 20) == 0

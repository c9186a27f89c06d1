"""The program as a person or a script runs it."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from parley.stores.schema import migrations
from parley.stores.sqlite import FILE
from parley.stores.sqlite_file import connect
from parley.testing.processes import ServerProcess

AGENTS = """
import asyncio
from parley import NeedInput, Text, agent

@agent("echo")
async def echo(turn):
    yield Text(turn.text)

@agent("asks")
async def asks(turn):
    if turn.number == 1:
        yield NeedInput("Which?")
    else:
        yield Text("You said " + turn.text)

@agent("raises")
async def raises(turn):
    raise ValueError("secret")
"""


class Run:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


async def parley(*arguments: str, cwd: Path | None = None) -> Run:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "parley", *arguments, cwd=cwd,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env={**os.environ, "COLUMNS": "200"},
    )  # fmt: skip
    out, err = await process.communicate()
    return Run(process.returncode or 0, out.decode(), err.decode())


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ServerProcess]:
    file = tmp_path / "agents.py"
    file.write_text(AGENTS)
    running = await ServerProcess.start([file], tmp_path / "data")
    yield running
    await running.stop()


@pytest.mark.slow
async def test_a_conversation_from_the_terminal(server: ServerProcess, tmp_path: Path) -> None:
    url = ("--url", server.url)
    hello = await parley("send", "echo", "hello there", *url)
    assert (hello.code, hello.out) == (0, "hello there\n")
    assert "completed" in hello.err

    asked = await parley("send", "asks", "something", *url, "--json")
    assert asked.code == 4
    task = json.loads(asked.out.splitlines()[0])["task"]["id"]
    answered = await parley("send", "asks", "this", "--task", task, "--no-stream", *url)
    assert (answered.code, answered.out) == (0, "You said this\n")

    tailed = await parley("tail", task, "--from", "3", *url, "--json")
    states = [
        json.loads(line).get("statusUpdate", {}).get("status", {}).get("state") for line in tailed.out.splitlines()
    ]
    assert tailed.code == 0
    assert states[0] == "TASK_STATE_INPUT_REQUIRED"
    assert states[-1] == "TASK_STATE_COMPLETED"

    failed = await parley("send", "raises", "x", *url)
    assert failed.code == 3
    assert "secret" not in failed.out + failed.err

    verified = await parley("verify", "--data-dir", str(tmp_path / "data"), "--json")
    assert verified.code == 0
    assert json.loads(verified.out) == {"checked": 3, "broken": []}


@pytest.mark.slow
async def test_what_cannot_be_done_is_said_in_one_line(server: ServerProcess, tmp_path: Path) -> None:
    unknown = await parley("send", "nobody", "x", "--url", server.url)
    assert (unknown.code, unknown.err) == (1, "parley: There is no agent 'nobody' on this server. [remote_error]\n")
    lost = await parley("tail", "no-such-task", "--url", server.url)
    assert lost.code == 1
    assert "Task not found" in lost.err
    gone = await parley("send", "echo", "x", "--no-stream", "--url", "http://127.0.0.1:9")
    assert gone.code == 1
    assert "does not answer" in gone.err
    second = await parley("serve", str(tmp_path / "agents.py"), "--data-dir", str(tmp_path / "data"), "--port", "0")
    assert second.code == 2
    assert "Another process" in second.err
    for arguments in (("serve", "missing.py"), ("serve", "no_such_module"), ("serve",), ("verify", "--data-dir", "x")):
        wrong = await parley(*arguments, cwd=tmp_path)
        assert wrong.code == 2, arguments
        assert wrong.err.startswith("parley: ")
        assert "Traceback" not in wrong.err


@pytest.mark.slow
async def test_a_tampered_log_is_reported(server: ServerProcess, tmp_path: Path) -> None:
    await parley("send", "echo", "hello", "--url", server.url)
    connection = connect(tmp_path / "data" / FILE)
    connection.execute("UPDATE events SET at = at + 1 WHERE seq = 2")
    connection.close()
    found = await parley("verify", "--data-dir", str(tmp_path / "data"))
    assert found.code == 1
    assert "BROKEN" in found.out
    assert "at 2" in found.out


@pytest.mark.slow
async def test_settings_and_migrations_are_shown(tmp_path: Path) -> None:
    (tmp_path / "parley.toml").write_text("port = 9000\n")
    shown = json.loads((await parley("config", "--json", cwd=tmp_path)).out)
    assert shown["port"] == {"value": 9000, "origin": "parley.toml"}
    assert shown["host"]["origin"] == "default"
    assert "9000" in (await parley("config", cwd=tmp_path)).out
    first = await parley("migrate", "--data-dir", str(tmp_path / "d"), "--json")
    assert json.loads(first.out) == {"applied": [one.id for one in migrations("sqlite")], "waiting": []}
    assert (await parley("migrate", "--data-dir", str(tmp_path / "d"))).out == "up to date\n"
    assert (await parley("migrate", "--data-dir", str(tmp_path / "d"), "--phase", "middle")).code == 2


BOT = "name: Bot\nvisibility: internal\nlimits: {max_concurrent: 2}\nfunction: {call: 'bots.py:echo'}\n"


@pytest.mark.slow
async def test_definitions_are_checked_and_listed(tmp_path: Path) -> None:
    folder = tmp_path / "agents"
    folder.mkdir()
    (folder / "bots.py").write_text(AGENTS)
    (folder / "bot.yaml").write_text(BOT)
    (tmp_path / "parley.toml").write_text('[[agent]]\nslug = "asker"\nfunction.call = "agents/bots.py:asks"\n')

    checked = await parley("agents", "check", cwd=tmp_path)
    assert (checked.code, checked.err) == (0, "")
    assert "agents/bot.yaml:1" in checked.out
    assert "parley.toml:2" in checked.out
    listed = json.loads((await parley("agents", "list", "--json", cwd=tmp_path)).out)
    assert listed[0] == {
        "slug": "bot", "name": "Bot", "driver": "function", "visibility": "internal",
        "limits": {
            "max_concurrent": 2, "max_queued": None, "timeout_s": None, "max_per_second": None, "max_burst": None,
        },
        "file": "agents/bot.yaml", "line": 1,
    }  # fmt: skip
    assert [one["slug"] for one in listed] == ["bot", "asker"]
    assert "max_concurrent 2" in (await parley("agents", "list", "agents/bot.yaml", cwd=tmp_path)).out

    (folder / "bot.yaml").write_text("nam: x\n" + BOT)
    wrong = await parley("agents", "check", cwd=tmp_path)
    assert (wrong.code, wrong.err) == (2, "agents/bot.yaml:1: nam: unknown field; did you mean name?\n")
    assert "asker" in wrong.out
    faults = json.loads((await parley("agents", "check", "--json", cwd=tmp_path)).out)["faults"]
    assert [(one["file"], one["line"], one["field"]) for one in faults] == [("agents/bot.yaml", 1, "nam")]
    # With nothing else to serve, the fault ends the start.
    (tmp_path / "parley.toml").unlink()
    refused = await parley("serve", "--port", "0", cwd=tmp_path)
    assert refused.code == 2
    assert refused.err.startswith("parley: agents/bot.yaml:1: nam: ")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "slugs"), [("serve", ["echo", "bot"]), ("up", ["writer", "relay", "chat", "echo", "bot"])]
)  # fmt: skip
async def test_the_agents_of_the_folder_are_served_by_default(
    command: str, slugs: list[str], tmp_path: Path
) -> None:  # fmt: skip
    folder = tmp_path / "agents"
    folder.mkdir()
    (folder / "bots.py").write_text(AGENTS)
    (folder / "bot.yaml").write_text(BOT)
    (folder / "a-echo.yaml").write_text("slug: echo\nname: Mine\nfunction: {call: 'bots.py:echo'}\n")
    running = await ServerProcess.start([], tmp_path / "data", command=command, cwd=tmp_path)
    async with httpx2.AsyncClient() as http:
        index = (await http.get(running.url + "/")).json()["agents"]
    assert [one["slug"] for one in index] == slugs
    assert next(one["name"] for one in index if one["slug"] == "echo") == "Mine"
    hello = await parley("send", "bot", "hello", "--url", running.url)
    assert (hello.code, hello.out) == (0, "hello\n")
    await running.stop()

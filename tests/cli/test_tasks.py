"""Tasks from a terminal: sent with files, listed, shown, answered, canceled, forked."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from parley.testing.processes import ServerProcess
from tests.cli.test_cli import Run, parley

pytestmark = pytest.mark.slow

AGENTS = """
import asyncio
from parley import ArtifactChunk, Done, NeedInput, Status, Text, agent

@agent("echo")
async def echo(turn):
    yield Text(turn.text)

@agent("asks")
async def asks(turn):
    if turn.number == 1:
        yield Status("thinking")
        yield NeedInput("Which?")
    else:
        yield Text(f"turn {turn.number}: {turn.text}")

@agent("files", input_modes=("*/*",))
async def files(turn):
    for part in turn.message.parts:
        if part.raw is not None or part.blob is not None:
            yield ArtifactChunk(part, filename="../../" + (part.filename or "stdin"))
        elif part.text is None:
            yield ArtifactChunk(part, id="data")
    yield Done("There.")

@agent("sleeper")
async def sleeper(turn):
    yield Status("asleep")
    await asyncio.sleep(60)
"""


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ServerProcess]:
    file = tmp_path / "agents.py"
    file.write_text(AGENTS)
    running = await ServerProcess.start([file], tmp_path / "data")
    yield running
    await running.stop()


def task_of(run: Run) -> str:
    assert run.out, run.err
    return json.loads(run.out.splitlines()[0])["task"]["id"]


async def test_files_and_data_go_there_and_come_back(server: ServerProcess, tmp_path: Path) -> None:
    url = ("--url", server.url)
    (tmp_path / "a.png").write_bytes(b"\x89PNG\x00" * 10_000)
    (tmp_path / "notes").write_text("plain words")
    sent = await parley(
        "send", "files", "look", "--file", "a.png", "--file", "notes", "--data", '{"n": 42}', *url, "--json",
        cwd=tmp_path,
    )  # fmt: skip
    assert sent.code == 0, sent.err
    task = task_of(sent)
    shown = await parley("show", task, *url)
    assert shown.code == 0
    for words in ("you: look", "agent: There.", "a.png", "image/png, 48.8 KiB", "notes", "text/plain", "plain words"):
        assert words in shown.out, words
    assert f"parley show {task} --save DIR" in shown.err

    saved = await parley("show", task, "--save", "out", *url, cwd=tmp_path)
    assert saved.code == 0, saved.err
    out = tmp_path / "out"
    assert sorted(path.name for path in out.iterdir()) == ["a.png", "data.json", "notes"]
    assert (out / "a.png").read_bytes() == b"\x89PNG\x00" * 10_000
    assert json.loads((out / "data.json").read_text()) == {"n": 42}
    (out / "notes").write_text("mine")
    refused = await parley("show", task, "--save", "out", *url, cwd=tmp_path)
    assert (refused.code, "[file_exists]" in refused.err) == (1, True)
    assert (out / "notes").read_text() == "mine"
    forced = await parley("show", task, "--save", "out", "--force", *url, "--json", cwd=tmp_path)
    assert len(json.loads(forced.out)["saved"]) == 3
    assert (out / "notes").read_text() == "plain words"


async def test_standard_input_is_a_text_or_a_file(server: ServerProcess) -> None:
    async def piped(given: bytes, *arguments: str) -> tuple[int, str]:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "parley", *arguments, "--url", server.url, stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=os.environ,
        )  # fmt: skip
        out, err = await process.communicate(given)
        return process.returncode or 0, (out + err).decode()

    code, said = await piped(b"hello", "send", "echo", "-")
    assert (code, said.startswith("hello\n")) == (0, True)
    assert "⠋" not in said
    code, said = await piped(b"\xff\x00", "send", "files", "--file", "-")
    assert (code, "application/octet-stream" in said) == (0, True)
    assert (await piped(b"x", "send", "files", "-", "--file", "-"))[0] == 2
    code, said = await piped(b"x" * (7 * 1024 * 1024 + 1), "send", "files", "--file", "-")
    assert (code, "7 MiB" in said) == (2, True)


async def test_wrong_use_is_said_before_anything_is_sent(tmp_path: Path) -> None:
    for arguments, words in (
        (("send", "echo"), "The message is empty"),
        (("send", "echo", "--file", "missing"), "cannot be read"),
        (("send", "echo", "--data", "{"), "not JSON"),
        (("runs", "--since", "yesterday"), "--since"),
        (("runs", "--state", "busy"), "--state"),
        (("runs", "--waiting", "--state", "failed"), "--waiting"),
        (("runs", "--all", "--agent", "http://127.0.0.1:9/x"), "slug"),
    ):
        wrong = await parley(*arguments, "--url", "http://127.0.0.1:9", cwd=tmp_path)
        assert (wrong.code, words in wrong.err) == (2, True), (arguments, wrong.err)


async def test_what_waits_is_found_and_answered(server: ServerProcess, tmp_path: Path) -> None:
    url = ("--url", server.url)
    assert (await parley("runs", *url)).out == "No tasks found.\n"
    assert (await parley("send", "echo", "hello", *url)).code == 0
    asked = await parley("send", "asks", "something", "--context", "trip", *url)
    assert (asked.code, "parley answer" in asked.err) == (4, True)
    waiting = await parley("runs", "--waiting", *url)
    assert "Which?" in waiting.out
    assert "echo" not in waiting.out
    (row,) = json.loads((await parley("runs", "--waiting", "--json", *url)).out)["runs"]
    assert (row["agent"], row["state"], row["contextId"]) == ("asks", "input_required", "trip")

    # The default agent is echo: the task's own agent is found all the same.
    answered = await parley("answer", row["id"], "this", *url)
    assert (answered.code, answered.out) == (0, "turn 2: this\n"), answered.err
    assert (await parley("runs", "--waiting", *url)).out == "No tasks wait for an answer.\n"
    again = await parley("answer", row["id"], "this", *url)
    assert (again.code, "accepts no further messages" in again.err) == (1, True)

    table = await parley("runs", *url)
    assert [line.split()[1] for line in table.out.splitlines()[1:]] == ["asks", "echo"]
    assert row["id"] in table.out
    for number in range(3):
        await parley("send", "echo", str(number), *url)
    first = json.loads((await parley("runs", "--limit", "2", "--json", *url)).out)
    rest = json.loads((await parley("runs", "--limit", "100", "--after", first["next"], "--json", *url)).out)
    assert [one["said"] for one in first["runs"]] == ["2", "1"]
    assert [one["said"] for one in rest["runs"]] == ["0", "this", "hello"]
    assert rest["next"] == ""

    async def count(*options: str) -> int:
        return len(json.loads((await parley("runs", *options, "--json", *url)).out)["runs"])

    assert await count("--agent", "asks") == 1
    assert await count("--context", "trip") == 1
    assert await count("--state", "completed", "--since", "1h") == 5
    assert await count("--since", "2100-01-01") == 0
    everybodys = json.loads((await parley("runs", "--all", "--agent", "asks", "--json", *url)).out)["runs"]
    assert [(one["principal"], one["state"]) for one in everybodys] == [("local", "completed")]
    assert "caller" in (await parley("runs", "--all", *url)).out


async def test_everybodys_tasks_are_for_operators(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "agents.py").write_text(AGENTS)
    data = ("--data-dir", str(tmp_path / "data"))
    ann = (await parley("keys", "create", "ann", *data)).out.strip()
    root = (await parley("keys", "create", "root", "--scope", "admin", *data)).out.strip()
    server = await ServerProcess.start([tmp_path / "agents.py"], tmp_path / "data", env={"PARLEY_AUTH": "required"})
    try:
        url = ("--url", server.url)
        monkeypatch.setenv("PARLEY_TOKEN", ann)
        task = task_of(await parley("send", "asks", "x", "--json", *url))
        refused = await parley("runs", "--all", *url)
        assert (refused.code, "scope operate" in refused.err) == (1, True)
        monkeypatch.setenv("PARLEY_TOKEN", root)
        assert (await parley("runs", *url)).out == "No tasks found.\n"
        (row,) = json.loads((await parley("runs", "--all", "--waiting", "--json", *url)).out)["runs"]
        assert (row["id"], row["principal"]) == (task, "service:ann")
        monkeypatch.delenv("PARLEY_TOKEN")
        nobody = await parley("runs", "--all", *url)
        assert (nobody.code, "X-API-Key" in nobody.err) == (1, True)
    finally:
        await server.stop()


async def test_a_task_is_begun_canceled_and_shown_as_it_is(server: ServerProcess) -> None:
    url = ("--url", server.url)
    begun = await parley("send", "sleeper", "x", "--no-wait", *url)
    assert (begun.code, "parley tail" in begun.err) == (0, True)
    task = json.loads((await parley("runs", "--json", *url)).out)["runs"][0]["id"]
    canceled = await parley("cancel", task, "--reason", "enough", *url)
    assert (canceled.code, canceled.out) == (0, "canceled\n")
    again = await parley("cancel", task, *url)
    assert (again.code, "cannot be canceled" in again.err) == (1, True)
    tailed = await parley("tail", task, *url)
    assert (tailed.code, "canceled" in tailed.err) == (3, True)
    other = task_of(await parley("send", "sleeper", "x", "--no-wait", "--json", *url))
    view = json.loads((await parley("cancel", other, "--json", *url)).out)
    assert view["status"]["state"] == "TASK_STATE_CANCELED"


async def test_a_task_is_forked_at_an_event_that_tail_shows(server: ServerProcess) -> None:
    url = ("--url", server.url)
    task = task_of(await parley("send", "asks", "go", "--json", *url))
    await parley("answer", task, "this", *url)
    events = [json.loads(line) for line in (await parley("tail", task, "--from", "0", "--json", *url)).out.splitlines()]
    states = {one["seq"]: one.get("statusUpdate", {}).get("status", {}).get("state", "") for one in events}
    question = next(seq for seq, state in states.items() if state.endswith("INPUT_REQUIRED"))
    numbered = await parley("tail", task, "--from", "0", *url)
    assert f"{question:>5} input_required: Which?" in numbered.err

    forked = await parley("fork", task, "that", "--at", str(question), *url)
    assert (forked.code, forked.out) == (0, "turn 2: that\n"), forked.err
    asked_again = await parley("fork", task, "--at", str(question), *url)
    assert (asked_again.code, "Which?" in asked_again.err) == (4, True)
    assert "Traceback" not in asked_again.err
    on = await parley("fork", task, "more", *url, "--json")
    assert on.code == 0
    new = task_of(on)
    shown = await parley("show", new, *url)
    assert f"forked from {task} at" in shown.out
    assert "turn 3: more" in shown.out
    later = await parley("fork", task, "more", "--no-wait", *url)
    assert (later.code, later.out) == (0, "")
    wrong = await parley("fork", task, "--at", "99", *url)
    assert (wrong.code, "there is no event 99" in wrong.err) == (1, True)
    lost = await parley("fork", "nothing", *url)
    assert (lost.code, "Task not found" in lost.err) == (1, True)

"""Programs as agents, over A2A: what goes in and comes out, their limits, and that nothing of them stays behind."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from parley.client import Client, Json, message
from parley.definitions.loader import LoadedDefinitions, Sources
from parley.errors import ConfigurationError
from parley.processes.sandbox import bubblewrap
from parley.telemetry import attach
from parley.testing.processes import ServerProcess, until
from parley.testing.servers import Server, serving

SECRET = "hunter2-and-more"


class House:
    """A server with one agent, `prog`, and what its operator was told."""

    def __init__(self, server: Server, client: Client, told: list[tuple[str, dict[str, Any]]]) -> None:
        self.server, self.client, self.told = server, client, told

    async def say(self, text: str, **more: Any) -> Json:
        return (await self.client.send(text, **more))["task"]


def define(folder: Path, code: str, **options: Any) -> Path:
    (folder / "prog.py").write_text(code)
    command = {"run": [sys.executable, "prog.py"], **options.pop("command", {})}
    definition = folder / "prog.yaml"
    definition.write_text(json.dumps({"command": command, **options}))
    return definition


@asynccontextmanager
async def house(folder: Path, code: str, **options: Any) -> AsyncIterator[House]:
    reading = LoadedDefinitions(Sources((str(define(folder, code, **options)),)))
    reading.check()
    told: list[tuple[str, dict[str, Any]]] = []
    detach = attach(lambda name, fields: told.append((name, fields)))
    try:
        async with serving(folder / "data", reading.drivers) as server, Client(server.agent("prog")) as client:
            yield House(server, client, told)
    finally:
        detach()


def said(task: Json) -> str:
    return "".join(part.get("text", "") for made in task.get("artifacts", []) for part in made["parts"])


def state(task: Json) -> str:
    return task["status"]["state"].removeprefix("TASK_STATE_").lower()


def why(task: Json) -> tuple[str, str]:
    status = task["status"]["message"]
    return status["metadata"]["code"], status["parts"][0]["text"]


def alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rsplit(")", 1)[1].split()[0] != "Z"


def noted(folder: Path) -> Callable[[], list[int]]:
    """The process ids that a program has written down."""

    def pids() -> list[int]:
        file = folder / "pids"
        return [int(line) for line in file.read_text().split()] if file.exists() else []

    return pids


async def test_text_goes_in_and_text_comes_out(tmp_path: Path) -> None:
    async with house(tmp_path, "import sys; print('You said', sys.stdin.read().upper())") as at:
        task = await at.say("hello äö")
    assert (state(task), said(task)) == ("completed", "You said HELLO ÄÖ\n")


async def test_lines_are_streamed_as_they_come(tmp_path: Path) -> None:
    code = "import time\nfor n in range(3): print(n, flush=True); time.sleep(0.15)"
    async with house(tmp_path, code) as at:
        frames = [frame async for frame in at.client.stream("go")]
    pieces = [frame["artifactUpdate"]["artifact"]["parts"][0]["text"] for frame in frames if "artifactUpdate" in frame]
    assert pieces == ["0\n", "1\n", "2\n"]


async def test_arguments_are_arguments_and_no_shell_reads_them(tmp_path: Path) -> None:
    evil = "$(touch oops); `touch oops` && *"
    command = {"run": [sys.executable, "prog.py", evil, "7"]}
    async with house(tmp_path, "import sys; print(sys.argv[1:])", command=command) as at:
        task = await at.say("; touch oops")
    assert said(task) == f"{[evil, '7']}\n"
    assert not (tmp_path / "oops").exists()


async def test_the_environment_is_what_the_definition_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", SECRET)
    monkeypatch.setenv("OTHER", "x")
    code = "import json, os; print(json.dumps(dict(os.environ)))"
    async with house(tmp_path, code, command={"env": ["TOKEN", "NOT_THERE"]}) as at:
        seen = json.loads(said(await at.say("go")))
    assert seen.keys() - {"LC_CTYPE"} == {"PATH", "HOME", "LANG", "TOKEN"}
    assert seen["TOKEN"] == SECRET


async def test_an_exit_code_is_told_and_stderr_only_to_the_operator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", SECRET)
    code = "import os, sys; print('half'); sys.stderr.write('x' * 9000 + 'oh: ' + os.environ['TOKEN']); sys.exit(3)"
    async with house(tmp_path, code, command={"env": ["TOKEN"]}) as at:
        task = await at.say("go")
    assert (state(task), said(task)) == ("failed", "half\n")
    assert why(task) == ("command_failed", "The program ended with exit code 3.")
    (told,) = [fields for name, fields in at.told if name == "command.failed"]
    assert told["stderr"].endswith("oh: [TOKEN]")
    assert len(told["stderr"]) < 5000
    assert SECRET not in str(at.told)


async def test_a_signal_is_named(tmp_path: Path) -> None:
    async with house(tmp_path, "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)") as at:
        assert why(await at.say("go")) == ("command_failed", "The program was stopped by SIGSEGV.")


async def test_a_program_that_went_away_is_told(tmp_path: Path) -> None:
    program = tmp_path / "tool"
    program.write_text("#!/bin/sh\necho hi\n")
    program.chmod(0o755)
    async with house(tmp_path, "", command={"run": ["./tool"]}) as at:
        assert said(await at.say("go")) == "hi\n"
        program.unlink()
        assert why(await at.say("go"))[0] == "command_failed"


async def test_a_lot_of_input_that_nobody_reads_and_a_lot_of_output(tmp_path: Path) -> None:
    code = "import sys\nfor n in range(40): sys.stdout.write('y' * 50_000)"
    async with house(tmp_path, code) as at:
        task = await at.say("x" * 800_000)
    assert state(task) == "completed"
    assert len(said(task)) == 2_000_000


async def test_what_goes_in_and_out_at_once_does_not_block(tmp_path: Path) -> None:
    code = "import sys\nfor line in sys.stdin: sys.stdout.write(line)"
    text = "0123456789\n" * 70_000
    async with house(tmp_path, code) as at:
        assert said(await at.say(text)) == text


async def test_endless_output_is_cut_and_the_program_ended(tmp_path: Path) -> None:
    code = "import os\nopen('pids', 'w').write(f'{os.getpid()}')\nwhile True: print('y' * 1000)"
    async with house(tmp_path, code, command={"max_output_bytes": 100_000}) as at:
        task = await at.say("go")
        assert why(task) == ("command_output", "The program wrote more than 100,000 bytes.")
        await until(lambda: not alive(noted(tmp_path)()[0]))


FAMILY = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
away = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
open("pids", "w").write(f"{os.getpid()} {child.pid} {away.pid}")
print("begun", flush=True)
"""
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + FAMILY + "time.sleep(60)"


async def canceled(at: House) -> Json:
    task = ""
    async with aclosing(at.client.stream("go")) as frames:
        async for frame in frames:
            task = frame.get("task", {}).get("id", task)
            if "artifactUpdate" in frame:
                break
    return await at.client.cancel(task)


async def test_a_cancel_ends_the_whole_family(tmp_path: Path) -> None:
    pids = noted(tmp_path)
    async with house(tmp_path, FAMILY + "time.sleep(60)") as at:
        task = await canceled(at)
        assert (state(task), said(task)) == ("canceled", "begun\n")
        assert len(pids()) == 3
        assert not any(map(alive, pids()))


async def test_a_program_may_tidy_up_when_it_is_asked_to_stop(tmp_path: Path) -> None:
    code = """
import signal, sys, time
def tidy(*_):
    open("tidied", "w").close()
    sys.exit(0)
signal.signal(signal.SIGTERM, tidy)
print("begun", flush=True)
time.sleep(60)
"""
    async with house(tmp_path, code) as at:
        assert state(await canceled(at)) == "canceled"
    assert (tmp_path / "tidied").exists()


async def test_one_that_does_not_stop_is_made_to(tmp_path: Path) -> None:
    pids = noted(tmp_path)
    async with house(tmp_path, STUBBORN, command={"grace_s": 0.2}) as at:
        assert state(await canceled(at)) == "canceled"
        assert not any(map(alive, pids()))


async def test_a_timeout_ends_it(tmp_path: Path) -> None:
    pids = noted(tmp_path)
    limits = {"timeout_s": 1.0}
    async with house(tmp_path, STUBBORN, command={"grace_s": 0.1}, limits=limits) as at:
        assert why(await at.say("go"))[0] == "timeout"
        assert not any(map(alive, pids()))


async def test_what_a_program_leaves_behind_ends_with_it(tmp_path: Path) -> None:
    pids = noted(tmp_path)
    async with house(tmp_path, FAMILY) as at:
        task = await at.say("go")
    assert (state(task), said(task)) == ("completed", "begun\n")
    assert not any(map(alive, pids()))


@pytest.mark.slow
async def test_the_same_under_the_event_loop_of_a_real_server(tmp_path: Path) -> None:
    pids = noted(tmp_path)
    server = await ServerProcess.start([define(tmp_path, STUBBORN, command={"grace_s": 0.2})], tmp_path / "data")
    try:
        async with Client(f"{server.url}/agents/prog") as client:
            async with aclosing(client.stream("x" * 300_000)) as frames:
                task = (await anext(frames))["task"]["id"]
            await until(lambda: len(pids()) == 3)
            assert state(await client.cancel(task)) == "canceled"
            assert not any(map(alive, pids()))
        (tmp_path / "prog.py").write_text("import sys; print(len(sys.stdin.read()))")
        async with Client(f"{server.url}/agents/prog") as client:
            assert said((await client.send("x" * 300_000))["task"]) == "300000\n"
    finally:
        await server.stop()


@pytest.mark.slow
async def test_kill_9_of_the_server_leaves_nothing_behind(tmp_path: Path) -> None:
    pids = noted(tmp_path)
    definition = define(tmp_path, STUBBORN)
    server = await ServerProcess.start([definition], tmp_path / "data")
    try:
        async with Client(f"{server.url}/agents/prog") as client:
            sending = {"message": message("go"), "configuration": {"returnImmediately": True}}
            await client.call("SendMessage", sending)
            await until(lambda: len(pids()) == 3)
    finally:
        await server.kill()
    await until(lambda: not any(map(alive, pids())))


async def test_kill_9_of_the_launcher_leaves_no_program(tmp_path: Path) -> None:
    pids = noted(tmp_path)
    code = "import os, time\nopen('pids', 'w').write(f'{os.getpid()} {os.getppid()}')\ntime.sleep(60)"
    async with house(tmp_path, code) as at:
        sending = asyncio.create_task(at.say("go"))
        await until(lambda: len(pids()) == 2)
        os.kill(pids()[1], signal.SIGKILL)
        task = await sending
        assert state(task) == "failed"
        await until(lambda: not alive(pids()[0]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "command"),
    [("x = bytearray(900_000_000)", {"memory_mb": 200}), ("while True: pass", {"cpu_s": 1})],
)
async def test_limits_hold(tmp_path: Path, code: str, command: dict[str, int]) -> None:
    async with house(tmp_path, code, command=command) as at:
        assert why(await at.say("go"))[0] == "command_failed"


TALK = """
import json, sys
def say(**word): print(json.dumps(word), flush=True)
given = json.load(sys.stdin)
if given["turn"] == 1:
    say(status="thinking")
    say(text="Hello ", metadata={"model": "mine"})
    say(text=given["text"])
    say(artifact={"id": "a", "text": "one", "filename": "a.txt", "media_type": "text/plain", "last": False})
    say(artifact={"id": "a", "text": "two", "append": True})
    say(artifact={"data": {"n": 1}, "name": "value"})
    say(artifact={"base64": "AAE=", "filename": "b.bin"})
    say(need_input="Which name?")
else:
    open("given.json", "w").write(json.dumps(given))
    say(done={"bye": given["text"]})
"""
JSONL = {"input": "json", "output": "jsonl"}


async def test_the_whole_vocabulary_and_a_question_over_two_turns(tmp_path: Path) -> None:
    async with house(tmp_path, TALK, command=JSONL) as at:
        task = await at.say("world")
        assert state(task) == "input_required"
        assert task["status"]["message"]["parts"] == [{"text": "Which name?"}]
        ended = await at.say("Ann", task=task["id"])
    assert state(ended) == "completed"
    assert ended["status"]["message"]["parts"] == [{"data": {"bye": "Ann"}}]
    made = {one.get("name", one["artifactId"]): one for one in ended["artifacts"]}
    assert made["response"]["parts"] == [{"text": "Hello world"}]
    assert made["response"]["metadata"] == {"model": "mine"}
    assert [part["text"] for part in made["a.txt"]["parts"]] == ["one", "two"]
    assert made["value"]["parts"] == [{"data": {"n": 1}}]
    assert made["b.bin"]["parts"] == [{"raw": "AAE=", "filename": "b.bin"}]
    given = json.loads((tmp_path / "given.json").read_text())
    assert (given["turn"], given["text"], given["parts"]) == (2, "Ann", [{"text": "Ann"}])
    assert [(one["role"], one["text"]) for one in given["history"]] == [
        ("user", "world"), ("agent", "thinking"), ("agent", "Which name?")
    ]  # fmt: skip
    assert given["artifacts"][0]["parts"] == [{"text": "Hello world"}]
    assert (given["run"], given["agent"], given["principal"]) == (ended["id"], "prog", "local")


async def test_large_files_reach_the_program(tmp_path: Path) -> None:
    code = "import json, sys; p = json.load(sys.stdin)['parts'][0]; print(json.dumps({'text': str(len(p['raw']))}))"
    async with house(tmp_path, code, command=JSONL) as at:
        wanted = {**message(""), "parts": [{"raw": "QUFB" * 20_000, "mediaType": "image/png"}]}
        task = (await at.client.call("SendMessage", {"message": wanted}))["task"]
    assert said(task) == "80000"


ENDS = [
    ('{"failed": {"code": "no_luck", "reason": "Not today."}}', 4, "failed", ("no_luck", "Not today.")),
    ('{"rejected": {"code": "no", "reason": "Never."}}', 0, "rejected", ("no", "Never.")),
    ('{"done": null}', 1, "failed", ("command_failed", "The program ended with exit code 1.")),
    ('{"need_auth": "Sign in."}', 0, "auth_required", None),
    ('{"done": "Bye."}', 0, "completed", None),
]


@pytest.mark.parametrize(("line", "code", "end", "reason"), ENDS)
async def test_how_it_ends(
    tmp_path: Path, line: str, code: int, end: str, reason: tuple[str, str] | None
) -> None:  # fmt: skip
    async with house(tmp_path, f"import sys; print('''{line}'''); sys.exit({code})", command=JSONL) as at:
        task = await at.say("go")
    assert state(task) == end
    assert reason is None or why(task) == reason


async def test_one_that_lingers_after_its_last_word_is_ended(tmp_path: Path) -> None:
    code = 'import time\nprint(\'{"done": "Bye."}\', flush=True)\ntime.sleep(60)'
    async with house(tmp_path, code, command={**JSONL, "grace_s": 0.2}) as at:
        assert state(await at.say("go")) == "completed"


WRONG = ["hello", "[]", "{}", '{"text": "a", "done": null}', '{"nonsense": 1}', '{"text": 7}', "\\xff",
         '{"artifact": {}}', '{"artifact": {"base64": "%"}}', '{"artifact": {"text": "a", "url": "b"}}']  # fmt: skip


@pytest.mark.parametrize("line", WRONG)
async def test_a_line_that_is_no_word_is_told_by_its_number(tmp_path: Path, line: str) -> None:
    code = f"import sys\nsys.stdout.buffer.write(b'''{{\"text\": \"fine\"}}\n\n{line}\n''')"
    async with house(tmp_path, code, command=JSONL) as at:
        task = await at.say("go")
    assert why(task) == ("command_output", "Line 2 of the program's output is not a valid output of a turn.")
    assert said(task) == "fine"


async def test_a_line_without_end_is_cut(tmp_path: Path) -> None:
    code = "import sys\nfor n in range(2000): sys.stdout.write('y' * 1000)"
    async with house(tmp_path, code, command=JSONL) as at:
        assert why(await at.say("go"))[0] == "command_output"


async def test_it_can_reply_with_a_message(tmp_path: Path) -> None:
    async with house(tmp_path, "print('hi', end='')", replies="message") as at:
        assert (await at.client.send("go"))["message"]["parts"] == [{"text": "hi"}]


async def test_many_at_once_and_no_pipe_is_lost(tmp_path: Path) -> None:
    async with house(tmp_path, "print('hi')") as at:
        await at.say("go")
        before = pipes()
        tasks = await asyncio.gather(*(at.say("go") for _ in range(8)))
        assert {state(task) for task in tasks} == {"completed"}
        await until(lambda: pipes() <= before)


def pipes() -> int:
    return sum("pipe" in os.readlink(fd) for fd in Path("/proc/self/fd").iterdir() if fd.is_symlink())


LOOKS = """
import os, socket, sys
def tried(what):
    try:
        return what()
    except OSError as error:
        return type(error).__name__
secret, out = sys.stdin.read().split()
print(tried(lambda: open(secret).read()), tried(lambda: open("prog.py", "a")), tried(lambda: open(out, "w").write("x")))
print(tried(lambda: socket.create_connection(("127.0.0.1", int(os.environ["NEAR"])), 1)), os.getppid())
"""
needs_bubblewrap = pytest.mark.skipif(bool(bubblewrap().reason), reason="bubblewrap cannot be used here")


@needs_bubblewrap
async def test_a_program_in_a_sandbox_sees_only_what_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    agents, out = tmp_path / "agents", tmp_path / "agents" / "out"
    out.mkdir(parents=True)
    asked = f"{tmp_path / 'secret.txt'} {out / 'made.txt'}"
    options = {"sandbox": {"write": ["out"]}, "env": ["NEAR"]}
    async with await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0) as near:
        monkeypatch.setenv("NEAR", str(near.sockets[0].getsockname()[1]))
        async with house(agents, LOOKS, command=options) as one:
            assert said(await one.say(asked)).split() == [
                "FileNotFoundError",
                "OSError",
                "1",
                "ConnectionRefusedError",
                "1",
            ]
        async with house(agents, LOOKS, command={**options, "sandbox": True}) as one:
            assert said(await one.say(asked)).split()[2] == "OSError"
        async with house(agents, LOOKS, command={"env": ["NEAR"]}) as one:
            assert said(await one.say(asked)).startswith("secret <")
    assert (out / "made.txt").read_text() == "x"


@needs_bubblewrap
async def test_a_program_in_a_sandbox_ends_with_its_task(tmp_path: Path) -> None:
    code = "import subprocess; open('out/begun', 'w'); subprocess.run(['sleep', '1234.5'])"
    (tmp_path / "out").mkdir()
    async with house(tmp_path, code, command={"sandbox": {"write": ["out"]}}) as one:
        task = await one.say("go", configuration={"returnImmediately": True})
        await until((tmp_path / "out" / "begun").exists)
        await one.client.cancel(task["id"])
        await until(lambda: not running_with("1234.5"))


def running_with(word: str) -> list[str]:
    return [one for one in _command_lines() if word in one]


def _command_lines() -> list[str]:
    found: list[str] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_bytes().decode(errors="replace"))
        except OSError:
            continue
    return found


async def test_a_file_larger_than_allowed_is_not_written(tmp_path: Path) -> None:
    code = "open('large.bin', 'wb').write(b'x' * 2_000_000)"
    async with house(tmp_path, code, command={"file_mb": 1}) as one:
        assert state(await one.say("go")) == "failed"
    assert (tmp_path / "large.bin").stat().st_size <= 1 << 20


def test_a_sandbox_needs_bubblewrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    reading = LoadedDefinitions(Sources((str(define(tmp_path, "", command={"sandbox": True})),)))
    with pytest.raises(ConfigurationError, match="install the package bubblewrap"):
        reading.check()

"""An organisation with a model, over A2A: what the model writes runs only after approval, and confined."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from parley.client import Client, Json
from parley.definitions.loader import LoadedDefinitions, Sources
from parley.drivers.org import OrgDriver
from parley.processes import sandbox
from parley.telemetry import attach
from parley.testing.servers import serving
from tests.drivers.conftest import send, state, words
from tests.drivers.org.test_driver import made, own, script, text
from tests.models.vendors import OpenAi, Vendor, answer, refusal, vendor

CODE = "def main():\n    open('ran.txt', 'a').write('x')\n    return 'hi'\n"
LOOK = """
import os, pathlib, resource, socket
def main():
    def tried(what):
        try:
            return what()
        except OSError as error:
            return type(error).__name__
    found = [tried(lambda: open({secret!r}).read()), tried(lambda: socket.create_connection(("127.0.0.1", {port}), 1)),
             *(resource.getrlimit(one)[0] for one in (resource.RLIMIT_CPU, resource.RLIMIT_AS, resource.RLIMIT_FSIZE))]
    pathlib.Path("found.txt").write_text(repr(found))
    return "hi"
"""
ASKED = "Create a script called implementation"
needs_bubblewrap = pytest.mark.skipif(bool(sandbox.bubblewrap().reason), reason="bubblewrap cannot be used here")


@pytest.fixture
async def far(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Vendor]:
    monkeypatch.setenv("TEST_KEY", "sk-test-key-0001")
    async with vendor() as made:
        yield made


def writes(far: Vendor, *codes: str) -> None:
    """The model plans first, and then writes one program after the other."""
    programs = [answer(OpenAi, f"```python\n{code}```") for code in codes]
    far.replies = [answer(OpenAi, "a plan"), *programs]


@asynccontextmanager
async def house(place: Path, far: Vendor, **options: Any) -> AsyncIterator[Client]:
    path = place / "org.yaml"
    org = {"base_url": far.url, "key_from": "TEST_KEY", **options}
    path.write_text(json.dumps({"driver": "org", "org": org, "model": OpenAi.name}))
    reading = LoadedDefinitions(Sources((str(path),)))
    reading.check()
    (driver,) = reading.drivers
    assert isinstance(driver, OrgDriver)
    async with serving(place / "data", [driver]) as server, Client(server.agent("org")) as client:
        yield client


def files_of(place: Path, task: Json) -> set[str]:
    return {path.name for path in (place / "org" / "tasks" / task["id"]).iterdir()}


async def test_code_of_a_model_runs_only_after_the_client_has_seen_and_approved_it(tmp_path: Path, far: Vendor) -> None:
    writes(far, CODE)
    async with house(tmp_path, far) as client:
        task = await send(client, ASKED)
        assert state(task) == "input_required"
        assert words(task).startswith("Approval is needed: Test the module runs code that a model wrote.")
        assert "Command: python" in words(task)
        assert "tools/run_tests.py ." in words(task)
        assert "--- implementation.py" in words(task)
        assert "".join(f"    {line}\n" for line in CODE.splitlines()) in words(task)
        assert "--- test_implementation.py" in words(task)
        assert str(tmp_path) not in json.dumps(task)
        assert "ran.txt" not in files_of(tmp_path, task)
        task = await send(client, "yes", task=task["id"])
    assert state(task) == "completed", words(task)
    assert text(made(task)["ran.txt"]) == "x"


async def test_what_is_not_approved_is_written_anew_and_shown_again(tmp_path: Path, far: Vendor) -> None:
    writes(far, CODE, CODE.replace("'hi'", "'hello'"))
    async with house(tmp_path, far) as client:
        task = await send(client, ASKED)
        task = await send(client, "No, say hello instead", task=task["id"])
        assert state(task) == "input_required"
        assert "return 'hello'" in words(task)
        assert "say hello instead" in json.dumps(far.asked[-1].body)
        assert "ran.txt" not in files_of(tmp_path, task)
        task = await send(client, "yes, but not yet", task=task["id"])
        assert state(task) == "input_required"
        assert "ran.txt" not in files_of(tmp_path, task)


async def test_an_approval_holds_only_for_what_was_shown(tmp_path: Path, far: Vendor) -> None:
    writes(far, CODE)
    async with house(tmp_path, far) as client:
        task = await send(client, ASKED)
        folder = tmp_path / "org" / "tasks" / task["id"]
        (folder / ".hidden.py").write_text("import os\n")
        task = await send(client, "yes", task=task["id"])
        assert state(task) == "input_required"
        assert "--- .hidden.py" in words(task)
        assert "ran.txt" not in files_of(tmp_path, task)
        assert state(await send(client, "yes", task=task["id"])) == "completed"


async def test_characters_that_hide_others_are_shown_escaped(tmp_path: Path, far: Vendor) -> None:
    writes(far, CODE + "# \u202e\x1b[2K\n")
    async with house(tmp_path, far) as client:
        said = words(await send(client, ASKED))
    assert "# \\u{202e}\\u{1b}[2K" in said


async def test_a_command_that_runs_no_files_of_the_task_needs_no_approval(tmp_path: Path, far: Vendor) -> None:
    writes(far, CODE)
    writer = {"name": "Write it", "tool": "model", "needs_model": True, "output_file": "made.py"}
    for runs, wanted in ((False, "completed"), (True, "input_required")):
        place = tmp_path / str(runs)
        place.mkdir()
        folder = own(place, writer, script(place / "org", "print('read')", runs_code=runs))
        async with house(place, far, folder=str(folder)) as client:
            assert state(await send(client, "Fix the bug")) == wanted


@needs_bubblewrap
async def test_approved_code_has_limits_no_network_and_no_files_but_its_own(tmp_path: Path, far: Vendor) -> None:
    (tmp_path / "data").mkdir()
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    port = far.url.rpartition(":")[2]
    writes(far, LOOK.format(secret=str(secret), port=port))
    async with house(tmp_path, far) as client:
        task = await send(client, ASKED)
        task = await send(client, "yes", task=task["id"])
    assert state(task) == "completed", words(task)
    hidden, network, *limits = eval(text(made(task)["found.txt"]))
    assert (hidden, network) == ("FileNotFoundError", "ConnectionRefusedError")
    assert limits == [120, 2 << 30, 64 << 20]


async def test_without_bubblewrap_the_limits_still_hold_and_the_log_says_so(
    tmp_path: Path, far: Vendor, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = sandbox.Bubblewrap(reason="the program bwrap is not installed")
    monkeypatch.setattr("parley.drivers.org.tools.bubblewrap", lambda: missing)
    told: list[str] = []
    detach = attach(lambda name, fields: told.append(name))
    writes(far, LOOK.format(secret=str(tmp_path / "no"), port=9))
    async with house(tmp_path, far) as client:
        task = await send(client, ASKED)
        task = await send(client, "yes", task=task["id"])
    detach()
    assert state(task) == "completed", words(task)
    assert eval(text(made(task)["found.txt"]))[2:] == [120, 2 << 30, 64 << 20]
    assert "org.no_sandbox" in told


@needs_bubblewrap
async def test_approved_code_sees_neither_other_tasks_nor_reports(tmp_path: Path, far: Vendor) -> None:
    (tmp_path / "org").mkdir()
    seen = "import os\ndef main():\n    open('found.txt', 'w').write(repr(sorted(os.listdir('..'))))\n    return 'hi'\n"
    writes(far, seen)
    async with house(tmp_path, far, roots=["."]) as client:
        (tmp_path / "org" / "tasks" / "another").mkdir(parents=True)
        task = await send(client, ASKED)
        task = await send(client, "yes", task=task["id"])
    assert text(made(task)["found.txt"]) == repr([task["id"]])


async def test_a_model_that_refuses_a_message_without_a_role_fails_the_task(tmp_path: Path, far: Vendor) -> None:
    far.replies = [refusal(401)]
    async with house(tmp_path, far) as client:
        task = await send(client, "How are you?")
    assert state(task) == "failed"
    assert words(task).startswith("=== Task Failure Report ===")
    assert made(task)["Failure report"]["parts"][0]["data"]["task"] == "How are you?"

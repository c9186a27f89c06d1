"""An organisation as one agent, over A2A (contract 001): the sample, and small ones that fail on purpose."""

import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx2
import pytest

from parley.client import Client, Json, RemoteError
from parley.client.control import Owner, RuntimeClient
from parley.definitions.loader import LoadedDefinitions, Sources
from parley.drivers.org import OrgDriver
from parley.drivers.org.driver import sample_folder
from parley.telemetry import attach
from parley.testing.processes import until
from parley.testing.servers import Server, serving
from tests.drivers.conftest import send, state, words
from tests.faces.control.wire import SECRET
from tests.orgkernel.organisations import ACTIVE, small, write

SKILLS = {
    "bugfix": "Bug Fix", "codegen": "Code Generation", "git_ops": "Git Operations", "docker_ops": "Docker Operations",
    "refactor": "Safe Refactoring", "file_ops": "File Operations", "analysis": "Analysis & Research",
    "osint": "OSINT & API Integration",
}  # fmt: skip


def defined(place: Path, **options: Any) -> Path:
    path = place / "org.yaml"
    limits = options.pop("limits", {})
    path.write_text(json.dumps({"driver": "org", "org": options, "limits": limits}))
    return path


def driver(place: Path, **options: Any) -> OrgDriver:
    reading = LoadedDefinitions(Sources((str(defined(place, **options)),)))
    reading.check()
    (found,) = reading.drivers
    assert isinstance(found, OrgDriver)
    return found


@asynccontextmanager
async def house(place: Path, **options: Any) -> AsyncIterator[tuple[Server, Client]]:
    async with (
        serving(place / "data", [driver(place, **options)]) as server,
        Client(server.agent("org")) as client,
    ):
        yield server, client


def plan(*nodes: Json, **more: Any) -> Json:
    """One node after the other; a node with a name of its own in `id`."""
    names = [node.get("id", f"step_{place}") for place, node in enumerate(nodes)]
    chain = ["start", *names, "done"]
    return {
        "name": "Bug Fix Workflow",
        "domains": ["bugfix"],
        "triggers": ["fix bug"],
        "graph": {
            "nodes": {
                "start": {"type": "start"},
                **{name: {"type": "task", **node} for name, node in zip(names, nodes, strict=True)},
                "done": {"type": "exit", "name": "All done"},
            },
            "edges": [{"from": one, "to": two, "condition": "on_success"} for one, two in pairwise(chain)],
        },
        **more,
    }


def script(folder: Path, code: str, **more: Any) -> Json:
    """A node whose command is a script of the organisation."""
    name = f"tool_{len(list(folder.glob('tools/*.py')))}.py"
    write(folder, f"tools/{name}", code)
    return {"name": f"Run {name}", "command": ["{python}", f"{{organisation}}/tools/{name}", "{work}"], **more}


def own(tmp_path: Path, *nodes: Json) -> Path:
    return small(tmp_path / "org", bugfix_workflow=plan(*nodes))


def made(task: Json) -> dict[str, Json]:
    return {one.get("name", one["artifactId"]): one for one in task.get("artifacts", [])}


def text(artifact: Json) -> str:
    return "".join(part.get("text", "") for part in artifact["parts"])


def latest(folder: Path, role: str) -> Json:
    return json.loads((folder / "reports" / f"{role}_latest.json").read_text())


async def statuses(client: Client, said: str) -> tuple[list[str], Json]:
    """The status messages of a stream, and the task at its end."""
    found: list[str] = []
    id_ = ""
    async for update in client.stream(said):
        id_ = id_ or update.get("task", {}).get("id", "")
        status = update.get("statusUpdate", {}).get("status", {})
        if "message" in status:
            found.append("".join(part.get("text", "") for part in status["message"]["parts"]))
    return found, await client.get(id_)


async def test_the_card_shows_the_organisation_and_the_contracts_own_fields(tmp_path: Path) -> None:
    async with house(tmp_path) as (server, _), httpx2.AsyncClient() as http:
        for path in ("/.well-known/agent.json", "/.well-known/agent-card.json"):
            card = (await http.get(server.url + path)).json()
            assert card["name"] == "Software Development Organization"
            assert card["version"] == "1.0"
            assert card["description"].startswith("Full-stack software development agent. Accepts bug reports")
            assert card["description"].endswith("automatic escalation on failure.")
            assert card["url"] == f"{server.url}/agents/org"
            assert card["capabilities"]["streaming"] is True
            assert card["capabilities"]["pushNotifications"] is False
            assert card["authentication"] == {"schemes": ["none"]}
            assert card["supportedProtocolVersions"] == ["1.0", "0.3"]
            assert "text" in card["defaultInputModes"]
            shown = {skill["id"]: skill["name"] for skill in card["skills"]}
        modern = (await http.get(server.url + path, headers={"A2A-Version": "1.0"})).json()
        assert "authentication" not in modern
    assert shown == SKILLS


async def test_the_card_says_which_credentials_are_asked_for(tmp_path: Path) -> None:
    async with serving(tmp_path / "data", [driver(tmp_path)], auth="required") as server, httpx2.AsyncClient() as http:
        card = (await http.get(f"{server.url}/.well-known/agent.json")).json()
    assert card["authentication"] == {"schemes": ["bearer", "apiKey"]}
    assert set(card["securitySchemes"]) == {"bearer", "apiKey"}


async def test_a_definition_goes_before_the_organisation(tmp_path: Path) -> None:
    path = tmp_path / "org.yaml"
    path.write_text("driver: org\nname: Ours\nlimits: {max_queued: 3}\npush: true\n")
    reading = LoadedDefinitions(Sources((str(path),)))
    reading.check()
    (found,) = reading.drivers
    assert (found.agent.name, found.agent.push, found.agent.version) == ("Ours", True, "1.0")
    assert (found.agent.limits.max_concurrent, found.agent.limits.max_queued) == (1, 3)
    assert [skill.id for skill in found.agent.skills] == list(SKILLS)


async def test_files_below_a_root_are_listed(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "figures.csv").touch()
    async with house(tmp_path, roots=["shared"]) as (_, client):
        task = await send(client, f"List the files in {tmp_path / 'shared'}")
    assert state(task) == "completed"
    assert "figures.csv" in text(made(task)["response"])
    assert words(task) == "File work complete. Verified: Look at the files."


async def test_a_stream_tells_of_every_step_and_files_are_delivered(tmp_path: Path) -> None:
    async with house(tmp_path) as (_, client):
        said, task = await statuses(client, "Create a hello world Python script, test it, then clean up")
    assert state(task) == "completed"
    assert said[1] == (
        "Code Generation: scaffolding the module (step 2/5, 20% complete), role: Code Generation Specialist, "
        "tool: code_execution_tool"
    )
    assert [one.partition("(")[2].partition(",")[0] for one in said[:5]] == [f"step {n}/5" for n in range(1, 6)]
    artifact = made(task)["hello_world.py"]
    assert "Hello, world!" in text(artifact)
    assert artifact["metadata"]["mimeType"] == "text/x-python"
    report = latest(tmp_path / "org", "codegen_specialist")
    assert report["status"]["state"] == "complete"
    assert report["status"]["progress"] == 1.0
    assert any(path.endswith("/hello_world.py") for path in report["location"]["files_modified"])
    assert report["time"]["task_started"] is not None


async def test_guidance_is_asked_for_and_the_task_resumes_with_it(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "app.py").write_text("def main()\n    return 1\n")
    levels: list[tuple[str, str]] = []
    detach = attach(
        lambda name, fields: levels.append((fields["pace"], fields["state"])) if name == "org.pace" else None
    )
    async with house(tmp_path, roots=["shared"]) as (_, client):
        task = await send(client, "Fix the bug in /nonexistent/critical/app.py")
        assert state(task) == "input_required"
        for part in (
            "Guidance is needed",
            "What failed",
            "outside the folders",
            "Name a file that this agent can reach",
        ):
            assert part in words(task)
        report = latest(tmp_path / "org", "bugfix_specialist")
        assert (report["status"]["pace_level"], report["status"]["health"]) == ("contingent", "critical")
        task = await send(client, f"It is in {tmp_path / 'shared' / 'app.py'}", task=task["id"])
    assert state(task) == "completed"
    assert text(made(task)["app.py"]) == "def main():\n    return 1\n"
    assert (tmp_path / "shared" / "app.py").read_text() == "def main()\n    return 1\n"
    detach()
    assert levels == [("contingent", "input-required")]


async def test_giving_up_delivers_the_report_and_what_was_made(tmp_path: Path) -> None:
    folder = own(
        tmp_path,
        script(tmp_path / "org", "import sys; open(sys.argv[1] + '/partial.txt', 'w').write('half'); print('ok')"),
        {"id": "fatal", "type": "escalate", "name": "Stop", "reason": "The disk is full", "pace_level": "emergency"},
    )
    async with house(tmp_path, folder=str(folder)) as (_, client):
        task = await send(client, "Fix the bug, please")
    assert state(task) == "failed"
    assert task["status"]["message"]["metadata"]["code"] == "pace_emergency"
    assert "=== Task Failure Report ===" in words(task)
    assert "The disk is full" in words(task)
    assert text(made(task)["partial.txt"]) == "half"
    report = made(task)["Failure report"]["parts"][0]["data"]
    assert report["reason"] == "The disk is full"
    assert report["suggestions"]
    assert latest(folder, "bugfix_specialist")["status"]["state"] == "aborted"


async def test_the_card_follows_the_active_organisation(tmp_path: Path) -> None:
    folder = small(tmp_path / "org")
    told: list[tuple[str, Json]] = []
    detach = attach(lambda name, fields: told.append((name, fields)))
    async with house(tmp_path, folder=str(folder)) as (_, client):
        assert (await client.card())["name"] == "Small Organization"
        write(folder, "active.json", {**ACTIVE, "org_name": "Another", "_version": "2.0"})
        await until(lambda: any(name == "org.changed" for name, _ in told))
        card = await client.card()
        assert (card["name"], card["version"]) == ("Another", "2.0")
        write(folder, "active.json", '{"org_name": "Half')
        await until(lambda: any(name == "org.problem" for name, _ in told))
        (problem,) = [fields["message"] for name, fields in told if name == "org.problem"]
        assert problem.endswith("its last good content is still used")
        assert (await client.card())["name"] == "Another"
        (folder / "active.json").unlink()
        told.clear()
        await until(lambda: any(name == "org.changed" for name, _ in told))
        card = await client.card()
        assert (card["name"], card["skills"][0]["id"]) == ("Organization Kernel", "general")
    detach()


async def test_without_a_role_a_message_passes_through_without_a_report(tmp_path: Path) -> None:
    folder = small(tmp_path / "org")
    async with house(tmp_path, folder=str(folder)) as (_, client):
        task = await send(client, "How are you?")
    assert state(task) == "completed"
    assert "How are you?" in text(made(task)["response"])
    assert not (folder / "reports").exists()


@pytest.mark.parametrize("said", SKILLS.values())
async def test_every_skill_reaches_its_domain_its_role_and_its_workflow(
    tmp_path: Path, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "git").symlink_to(shutil.which("git") or "git")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "app.py").write_text("x = 1\n")
    async with house(tmp_path, roots=["shared"]) as (_, client):
        skill = next(one for one in (await client.card())["skills"] if one["name"] == said)
        task = await send(client, f"{said}: app.py, called shop")
    if skill["id"] in ("analysis", "osint"):
        assert "this step needs a language model" in words(task)
    else:
        assert state(task) == "completed"
    (report,) = [json.loads(path.read_text()) for path in (tmp_path / "org" / "reports").glob("*_latest.json")]
    assert report["activity"]["bst_domain"] == skill["id"]
    assert report["activity"]["htn_plan"].removesuffix(" Workflow") == skill["name"]
    role = json.loads((sample_folder() / "roles" / f"{report['unit']['role_id']}.json").read_text())
    assert skill["id"] in role["capabilities"]["bst_domains"]
    assert role["role_type"] == "specialist"


BLOCK = """
import pathlib, sys, time
here = pathlib.Path(sys.argv[1])
(here / "begun").touch()
while not (here / "go").exists():
    time.sleep(0.01)
print("done")
"""


async def test_one_task_at_a_time_a_queue_and_a_refusal_beyond_it(tmp_path: Path) -> None:
    folder = own(tmp_path, script(tmp_path / "org", BLOCK))
    no_wait = {"configuration": {"returnImmediately": True}}
    async with house(tmp_path, folder=str(folder), limits={"max_queued": 2}) as (_, client):
        first = await send(client, "Fix the bug", **no_wait)
        work = tmp_path / "org" / "tasks" / first["id"]
        await until((work / "begun").exists)
        second, third = [await send(client, "Fix the bug", **no_wait) for _ in range(2)]
        assert (state(second), state(third)) == ("submitted", "submitted")
        over = await send(client, "Fix the bug", **no_wait)
        assert state(over) == "rejected"
        assert over["status"]["message"]["metadata"]["code"] == "queue_full"
        assert state(await client.cancel(second["id"])) == "canceled"
        (work / "go").touch()
        work = tmp_path / "org" / "tasks" / third["id"]
        await until((work / "begun").exists)
        assert state(await client.get(third["id"])) == "working"
        assert not (tmp_path / "org" / "tasks" / second["id"]).exists()
        assert state(await client.cancel(third["id"])) == "canceled"


async def test_a_client_that_hangs_up_leaves_the_work_alone(tmp_path: Path) -> None:
    folder = own(tmp_path, script(tmp_path / "org", BLOCK))
    async with house(tmp_path, folder=str(folder)) as (_, client):
        stream = client.stream("Fix the bug")
        update = await anext(stream)
        await stream.aclose()
        work = tmp_path / "org" / "tasks" / update["task"]["id"]
        await until((work / "begun").exists)
        (work / "go").touch()

        async def ended() -> bool:
            return state(await client.get(update["task"]["id"])) == "completed"

        await until(ended)


@pytest.mark.parametrize(
    "text_",
    [
        "Fix bug; touch pwned; $(touch pwned) `touch pwned` | && > x",
        "Fix bug in ../../../../etc/passwd",
        "Fix bug --help -c 'import os' {path} {python} {work}",
        "Fix bug " + "../x;" * 2_000_000,
    ],
)
async def test_a_message_is_nothing_but_text(tmp_path: Path, text_: str) -> None:
    code = "import sys; print(len(sys.argv), len(sys.stdin.read()), repr(sys.argv[2])[:80])"
    node = script(tmp_path / "org", code)
    node["command"] = [*node["command"], "{text}"]
    folder = own(tmp_path, node)
    async with house(tmp_path, folder=str(folder)) as (_, client):
        task = await send(client, text_)
    assert state(task) == "completed"
    assert text(made(task)["response"]).startswith((f"3 {len(text_)} 'Fix bug", f'3 {len(text_)} "Fix bug'))
    assert [one for one in (tmp_path / "org" / "tasks").rglob("*") if one.is_file()] == []


async def test_more_than_a_request_may_hold_is_refused_before_anything_happens(tmp_path: Path) -> None:
    async with house(tmp_path) as (_, client):
        with pytest.raises(RemoteError):
            await send(client, "Fix bug " + "x" * 11_000_000)
    assert not (tmp_path / "org" / "tasks").exists()


async def test_bytes_come_back_as_they_are_and_nothing_from_outside(tmp_path: Path) -> None:
    code = """
import os, sys
here = sys.argv[1]
open(here + "/image.bin", "wb").write(bytes(range(256)))
os.symlink("/etc/passwd", here + "/passwd.txt")
print("ok")
"""
    folder = own(tmp_path, script(tmp_path / "org", code))
    async with house(tmp_path, folder=str(folder)) as (_, client):
        task = await send(client, "Fix the bug")
    assert set(made(task)) == {"image.bin", "response"}
    (part,) = made(task)["image.bin"]["parts"]
    assert part["raw"].startswith("AAECAwQF")
    assert made(task)["image.bin"]["metadata"]["encoding"] == "base64"


async def test_a_large_file_is_fetched_from_an_address_of_its_own(tmp_path: Path) -> None:
    code = "import sys; open(sys.argv[1] + '/Großes.bin', 'wb').write(b'x\\0' * 700_000); print('ok')"
    folder = own(tmp_path, script(tmp_path / "org", code))
    async with house(tmp_path, folder=str(folder)) as (server, client), httpx2.AsyncClient() as http:
        streamed = [update async for update in client.stream("Fix the bug")]
        (update,) = [one["artifactUpdate"] for one in streamed if "Großes" in json.dumps(one, ensure_ascii=False)]
        (part,) = update["artifact"]["parts"]
        task = await client.get(update["taskId"])
        assert made(task)["Großes.bin"]["parts"] == [part]
        assert part["url"].startswith(f"{server.agent('org')}/tasks/{task['id']}/artifacts/")
        assert made(task)["Großes.bin"]["metadata"]["size"] == 1_400_000
        reply = await http.get(part["url"])
        assert reply.content == b"x\0" * 700_000
        assert reply.headers["content-disposition"] == "attachment; filename*=UTF-8''Gro%C3%9Fes.bin"
        artifact = part["url"].rpartition("/")[2]
        for path in (f"tasks/{task['id']}/artifacts/nothing", f"tasks/nobody/artifacts/{artifact}"):
            assert (await http.get(f"{server.agent('org')}/{path}")).status_code == 404


async def test_limits_of_a_command_are_failures_like_others(tmp_path: Path) -> None:
    slow = script(tmp_path / "org", "import time; time.sleep(60)", timeout_s=0.3)
    async with house(tmp_path, folder=str(own(tmp_path, slow))) as (_, client):
        task = await send(client, "Fix the bug")
    assert state(task) == "input_required"
    assert "longer than 0.3 s" in words(task)
    loud = script(tmp_path / "org", "print('x' * 3_000_000)")
    async with house(tmp_path, folder=str(own(tmp_path, loud))) as (_, client):
        task = await send(client, "Fix the bug")
    assert "more than 1,048,576 bytes" in words(task)


async def test_a_report_that_cannot_be_written_does_not_end_the_work(tmp_path: Path) -> None:
    folder = own(tmp_path, script(tmp_path / "org", "print('ok')"))
    write(folder, "reports", "in the way")
    async with house(tmp_path, folder=str(folder)) as (_, client):
        assert state(await send(client, "Fix the bug")) == "completed"


async def test_a_tasks_folder_goes_when_the_task_has_ended(tmp_path: Path) -> None:
    count = "import sys; open(sys.argv[1] + '/count.txt', 'a').write('x'); print('ok')"
    folder = own(tmp_path, script(tmp_path / "org", count), script(tmp_path / "org", BLOCK))
    tasks = tmp_path / "org" / "tasks"
    async with house(tmp_path, folder=str(folder)) as (_, client):
        task = await send(client, "Fix the bug", configuration={"returnImmediately": True})
        await until((tasks / task["id"] / "begun").exists)
        (tasks / task["id"] / "go").touch()
        await until(lambda: not (tasks / task["id"]).exists())
        assert text(made(await client.get(task["id"]))["count.txt"]) == "x"
        task = await send(client, "Fix the bug", configuration={"returnImmediately": True})
        await until((tasks / task["id"] / "begun").exists)
        await client.cancel(task["id"])
        await until(lambda: not (tasks / task["id"]).exists())


async def test_what_was_left_by_a_crash_goes_at_the_next_start_and_nothing_else_does(tmp_path: Path) -> None:
    tasks = tmp_path / "org" / "tasks"
    folder = own(tmp_path, script(tmp_path / "org", "print('ok')"))
    async with house(tmp_path, folder=str(folder)) as (_, client):
        task = await send(client, "Fix the bug")
        await until(lambda: not (tasks / task["id"]).exists())
    for name in (task["id"], "somebodys"):
        (tasks / name).mkdir()
    async with house(tmp_path, folder=str(folder)):
        await until(lambda: not (tasks / task["id"]).exists())
    assert (tasks / "somebodys").exists()


async def test_a_file_that_is_too_large_for_an_artifact_stays_where_it_is(tmp_path: Path) -> None:
    large = "import sys; open(sys.argv[1] + '/large.bin', 'wb').truncate(65 << 20); print('ok')"
    folder = own(tmp_path, script(tmp_path / "org", large))
    async with house(tmp_path, folder=str(folder)) as (_, client):
        task = await send(client, "Fix the bug")
        assert "is not included" in text(made(task)["large.bin"])
    assert (tmp_path / "org" / "tasks" / task["id"] / "large.bin").exists()


async def test_the_name_of_a_run_leads_nowhere(tmp_path: Path) -> None:
    folder = own(tmp_path, script(tmp_path / "org", BLOCK))
    run, thread = "a/../../../../far/away", "thread"
    async with (
        house(tmp_path, folder=str(folder)) as (server, _),
        RuntimeClient(server.url, SECRET, owner=Owner(user_id=42)) as client,
    ):
        await client.create_run(thread, run=run, agent="org")
        await client.say(run, thread, "Fix the bug")
        work = tmp_path / "org" / "tasks" / "a%2F..%2F..%2F..%2F..%2Ffar%2Faway"
        await until((work / "begun").exists)
        await client.cancel(run, thread)
        await until(lambda: not work.exists())
    assert not (tmp_path.parent / "far").exists()


@pytest.mark.slow
async def test_a_restart_in_the_middle_goes_on_from_there(tmp_path: Path) -> None:
    count = "import sys; open(sys.argv[1] + '/count.txt', 'a').write('x'); print('ok')"
    folder = own(tmp_path, script(tmp_path / "org", count), script(tmp_path / "org", BLOCK))
    async with house(tmp_path, folder=str(folder)) as (_, client):
        task = await send(client, "Fix the bug", configuration={"returnImmediately": True})
        work = tmp_path / "org" / "tasks" / task["id"]
        await until((work / "begun").exists)
    (work / "go").touch()
    async with house(tmp_path, folder=str(folder)) as (_, client):

        async def ended() -> bool:
            return state(await client.get(task["id"])) == "completed"

        await until(ended)
        assert text(made(await client.get(task["id"]))["count.txt"]) == "x"

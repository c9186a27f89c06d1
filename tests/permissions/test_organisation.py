"""The permission matrix of an organisation's files: those of one principal's task are out of the reach of all others,
however they are named."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.drivers.org.test_driver import driver, own, script
from tests.permissions.belongings import ANN, BOB, unknown_like
from tests.permissions.house import House, Json, open_house
from tests.permissions.table import SENDERS

pytestmark = pytest.mark.asyncio(loop_scope="module")

SECRET = "anns-own-words"
KEEPS = f"""
import pathlib, sys
here, named = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
if sys.stdin.read().startswith("Fix bug: keep"):
    (here / "notes.txt").write_text("{SECRET}")
    sys.exit("kept in " + str(here))
print(sorted(one.name for one in named.iterdir()) if named.is_dir() else named.read_text())
"""
OTHERS = (BOB, *sorted(SENDERS & {"oidc", "signed", "guest", "admin"}))
PATHS = (
    "../../tasks", "../{id}", "../{id}/notes.txt", "./../{id}/notes.txt", "x/../../{id}/notes.txt",
    "{tasks}", "{tasks}/", "{tasks}/{id}", "{tasks}/{id}/notes.txt", "{tasks}/../tasks/{id}/notes.txt",
    "{shared}/../org/tasks/{id}",
    "{shared}/way/{id}/notes.txt", "way/{id}/notes.txt", "{outer}/org/tasks/{id}/notes.txt",
)  # fmt: skip
"""Ways to name what Ann's task has: from one's own folder, from the root of the disk, through a link in a shared
folder, and through a shared folder that lies above all tasks."""


class Place:
    def __init__(self, house: House, folder: Path) -> None:
        self.house = house
        self.folder = folder
        self.task = ""

    async def ask(self, who: str, text: str, **more: Any) -> Json:
        message = {"messageId": f"m-{text}", "role": "ROLE_USER", "parts": [{"text": text}], **more}
        reply = await self.house.ask(
            who, "POST", "/agents/org/message:send", {"message": message}, {"A2A-Version": "1.0"}
        )
        assert reply.status_code == 200, reply.text
        return reply.json()["task"]

    def named(self, path: str, id_: str) -> str:
        tasks, shared = self.folder / "org" / "tasks", self.folder / "outer" / "shared"
        return path.format(id=id_, tasks=tasks, shared=shared, outer=self.folder)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    folder = tmp_path_factory.mktemp("organisation")
    shared = folder / "outer" / "shared"
    shared.mkdir(parents=True)
    (shared / "prices.py").write_text("shared on purpose")
    node = script(folder / "org", KEEPS)
    node["command"] = [*node["command"], "{path?}"]
    (shared / "way").symlink_to(folder / "org" / "tasks")
    made = driver(folder, folder=str(own(folder, node)), roots=[str(shared), str(folder)], limits={"max_queued": 1000})
    async with open_house(folder / "data", made) as house:
        found = Place(house, folder)
        task = await found.ask(ANN, "Fix bug: keep this")
        assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        found.task = task["id"]
        assert (folder / "org" / "tasks" / task["id"] / "notes.txt").read_text() == SECRET
        yield found


@pytest.mark.parametrize("path", PATHS)
async def test_another_principals_files_cannot_be_listed_or_read(place: Place, path: str) -> None:
    unknown = unknown_like(place.task)
    for who in OTHERS:
        answers = {}
        for id_ in (place.task, unknown):
            task = await place.ask(who, f"Fix bug: show {place.named(path, id_)}")
            assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED", task
            said = task["status"]["message"]["parts"][0]["text"]
            assert "outside the folders" in said or "No such file" in said
            # Long reasons are cut, in the middle of an id if need be.
            answers[id_] = re.sub("[0-9a-f-]*…", "…", said.replace(id_, "ID"))
            assert SECRET not in json.dumps(task)
        assert answers[place.task] == answers[unknown]


async def test_what_an_operator_shares_is_shared(place: Place) -> None:
    for who in (ANN, BOB):
        for path in (str(place.folder / "outer" / "shared" / "prices.py"), "prices.py"):
            task = await place.ask(who, f"Fix bug: show {path}")
            assert "shared on purpose" in json.dumps(task["artifacts"])


async def test_no_answer_shows_where_files_lie_on_the_server(place: Place) -> None:
    for text in ("Fix bug: keep that", "Fix bug: show nothing.txt", "Fix bug: show ../x"):
        task = await place.ask(BOB, text)
        assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        assert str(place.folder) not in json.dumps(task)
    kept = await place.ask(BOB, "Fix bug: keep that too")
    assert "notes.txt" in kept["status"]["message"]["parts"][0]["metadata"]["guidance"]["partial"]


@pytest.mark.parametrize("path", ["..", "../", "../.."])
async def test_what_is_not_taken_for_a_path_leads_to_ones_own_folder(place: Place, path: str) -> None:
    task = await place.ask(BOB, f"Fix bug: show {place.named(path, place.task)}")
    assert task["artifacts"][0]["parts"] == [{"text": "[]"}]


async def test_a_task_reaches_its_own_files(place: Place) -> None:
    task = await place.ask(ANN, "Fix bug: show late.txt")
    assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    (place.folder / "org" / "tasks" / task["id"] / "late.txt").write_text("here now")
    answered = await place.ask(ANN, "It is in late.txt", taskId=task["id"])
    assert answered["artifacts"][-1]["parts"] == [{"text": "here now"}]


@pytest.mark.parametrize(
    "page", ["/console/organisation/org", "/console/organisation/org/now", "/console/organisation"]
)
async def test_the_console_shows_reports_only_to_those_who_may_see_their_task(place: Place, page: str) -> None:
    bobs = await place.ask(BOB, "Fix bug: show prices.py")
    assert bobs["status"]["state"] == "TASK_STATE_COMPLETED"
    await place.ask(ANN, "Fix bug: keep the report")
    shown = {who: (await place.house.ask(who, "GET", page)).text for who in (ANN, "admin", *OTHERS, "reader")}
    assert {who for who, text in shown.items() if "escalating, critical" in text} == {ANN, "admin"}
    assert {who for who, text in shown.items() if "No reports yet" in text} == {*OTHERS, "reader"} - {"admin"}

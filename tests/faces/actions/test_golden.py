"""The contract's examples to the letter: a transcript of requests and answers, with ids and times made plain.

What changed on purpose is taken over by deleting the file and running this once; the difference is then looked at.
"""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.faces.actions.desk import Desk

pytestmark = pytest.mark.asyncio(loop_scope="module")

FILE = Path(__file__).with_name("golden.json")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")

TALK: list[tuple[str, dict[str, Any]]] = [
    ("a plan is written", {"mode": "plan", "action": "create", "message": "Write a post about tides"}),
    ("and read", {"mode": "plan", "action": "read"}),
    ("and edited", {"mode": "plan", "action": "edit", "editedContent": "# Tides", "editNotes": "by hand"}),
    ("its versions are listed", {"mode": "plan", "action": "list", "limit": 1}),
    ("the first one holds again", {"mode": "plan", "action": "set_current", "versionId": "<id 1>"}),
    (
        "two are merged",
        {"mode": "plan", "action": "merge_versions", "versionIds": ["<id 1>", "<id 2>"], "mergePrompt": "Keep both"},
    ),
    (
        "an agent that cannot",
        {
            "mode": "plan", "action": "merge_versions", "versionIds": ["<id 1>", "<id 2>"], "mergePrompt": "Keep both",
            "agentSlug": "blog_post_writer",
        },
    ),
    ("one is copied", {"mode": "plan", "action": "copy_version", "versionId": "<id 2>"}),
    ("and deleted", {"mode": "plan", "action": "delete_version", "versionId": "<id 2>", "confirm": True}),
    ("the current one is not", {"mode": "plan", "action": "delete_version", "versionId": "<current>"}),
    ("a deliverable is built from the plan", {"mode": "build", "action": "create"}),
    (
        "and once more, otherwise",
        {"mode": "build", "action": "rerun", "rerunConfig": {"model": "offline-2", "temperature": 0.2}},
    ),
    ("what was said is read", {"mode": "converse", "action": "read_conversation", "limit": 2}),
    ("the plan is deleted", {"mode": "plan", "action": "delete", "confirm": True}),
    ("and is not there", {"mode": "plan", "action": "list"}),
    ("a mode that is none", {"mode": "dream", "action": "read"}),
    ("a parameter that is missing", {"mode": "plan", "action": "create"}),
    (
        "the conversation is deleted",
        {"mode": "converse", "action": "delete_conversation", "confirm": True, "deleteArtifacts": True},
    ),
    ("and is not there", {"mode": "converse", "action": "read_conversation"}),
]  # fmt: skip


class Names:
    """Ids by the order in which they are first seen."""

    def __init__(self, conversation: str) -> None:
        self.known = {conversation: "conv-123"}
        self.made: dict[str, str] = {}

    def plain(self, text: str) -> str:
        for found in _UUID.findall(text):
            self.known.setdefault(found, f"id-{len(self.known)}")
            text = text.replace(found, self.known[found])
        text = _TIME.sub("2025-10-04T18:30:00.000Z", text)
        return re.sub(r'"executionTimeMs":\d+', '"executionTimeMs":1', text)

    def meant(self, text: str) -> str:
        for name, id_ in self.made.items():
            text = text.replace(f"<{name}>", id_)
        return text


async def test_the_transcript_is_as_it_was(desk: Desk) -> None:
    conversation = await desk.begin()
    names, said = Names(conversation), list[Any]()
    for title, asked in TALK:
        body = {"agentSlug": "writer", **msgspec.json.decode(names.meant(msgspec.json.encode(asked).decode()))}
        answer = await desk.send("POST", f"/conversations/{conversation}/tasks", body)
        if answer.status == 200 and isinstance(answer.result, dict) and "version" in answer.result:
            names.made[f"id {len([one for one in names.made if one != 'current']) + 1}"] = answer.task
            if answer.result["version"]["isCurrent"]:
                names.made["current"] = answer.task
        request = msgspec.json.decode(names.plain(msgspec.json.encode(body).decode()))
        shown = msgspec.json.decode(names.plain(answer.reply.text))
        said.append({"title": title, "request": request, "status": answer.status, "answer": shown})
    found = msgspec.json.format(msgspec.json.encode(said), indent=2) + b"\n"
    if not FILE.exists():
        FILE.write_bytes(found)
        pytest.fail("The transcript was written; look at it.")
    assert found.decode() == FILE.read_text()

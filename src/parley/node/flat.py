"""What A2A 0.3 says, as contract 004 shows it: flat.

{"id": …, "status": "completed", "message": …, "artifacts": [{"type": "text/plain", "content": …}]}
"""

import base64
from typing import Any

Json = dict[str, Any]

TERMINAL = frozenset(("completed", "failed", "canceled", "rejected"))
WAITING = frozenset(("input-required", "auth-required"))
_ABOUT = {"artifactId": "artifact", "name": "name"}
"""What is known of an artifact, and how it is called beside each of its contents."""
TEXT, DATA, BYTES = "text/plain", "application/json", "application/octet-stream"


class Flattener:
    """Follows one task, or one direct message, from event to event. `artifacts` is in what ends or waits; until then
    an event has the piece that has come as `artifact`, and its text as `message`."""

    def __init__(self, task: str = "") -> None:
        self.task = task
        self.context: str | None = None
        self._artifacts: dict[str, Json] = {}

    def flat(self, result: Json) -> Json:
        """One result of A2A 0.3: a task, a message, or an update."""
        match result.get("kind"):
            case "status-update":
                return self._status(result["taskId"], result)
            case "artifact-update":
                return self._piece(result)
            case "message":
                return self._message(result)
            case _:
                return self._whole(result)

    def _whole(self, task: Json) -> Json:
        self._artifacts = {one["artifactId"]: one for one in task.get("artifacts") or ()}
        event = self._status(task["id"], task)
        return {**event, "artifacts": self._all(), "snapshot": True}

    def _status(self, task: str, result: Json) -> Json:
        self.task, self.context = task, result.get("contextId")
        state = str(result["status"]["state"])
        event = self._event(state, said(result["status"].get("message")))
        if state in TERMINAL or state in WAITING:
            event["artifacts"] = self._all()
        return event

    def _piece(self, result: Json) -> Json:
        self.task, self.context = result["taskId"], result.get("contextId")
        piece, append = result["artifact"], bool(result.get("append"))
        before = self._artifacts.get(piece["artifactId"])
        if append and before is not None:
            before["parts"].extend(piece["parts"])
        else:
            self._artifacts[piece["artifactId"]] = {**piece, "parts": list(piece["parts"])}
        shown = {"id": piece["artifactId"], "append": append, "contents": contents(piece)}
        return {**self._event("working", text_in(piece["parts"])), "artifact": shown}

    def _message(self, message: Json) -> Json:
        """An agent that answers directly has no task: it is done."""
        self.context = message.get("contextId")
        event = self._event("completed", said(message))
        return {**event, "artifacts": contents({"parts": message.get("parts") or []})}

    def _event(self, status: str, message: str) -> Json:
        return {"id": self.task, "contextId": self.context, "status": status, "message": message, "artifacts": []}

    def _all(self) -> list[Json]:
        return [content for one in self._artifacts.values() for content in contents(one)]


def contents(artifact: Json) -> list[Json]:
    """An artifact as contents with a type: its texts are one, everything else is on its own."""
    found: list[Json] = []
    about = {ours: artifact[theirs] for theirs, ours in _ABOUT.items() if artifact.get(theirs)}
    for part in artifact.get("parts") or ():
        one = {**_content(part), **about}
        if found and _is_text(one) and _is_text(found[-1]):
            found[-1]["content"] += one["content"]
        else:
            found.append(one)
    return found


def _is_text(content: Json) -> bool:
    return content["type"] == TEXT and isinstance(content["content"], str)


def _content(part: Json) -> Json:
    metadata: Json = part.get("metadata") or {}
    if "text" in part:
        return {"type": metadata.get("mimeType") or TEXT, "content": part["text"]}
    if "data" in part:
        return {"type": metadata.get("mimeType") or DATA, "content": part["data"]}
    file: Json = part.get("file") or {}
    about = {"filename": file["name"]} if file.get("name") else {}
    kind = file.get("mimeType") or BYTES
    if file.get("bytes") is not None:
        return {"type": kind, "content": base64.b64decode(file["bytes"]), **about}
    return {"type": kind, "content": None, "url": file.get("uri"), **about}


def text_in(parts: list[Json]) -> str:
    return "".join(part["text"] for part in parts if isinstance(part.get("text"), str))


def said(message: Json | None) -> str:
    return text_in(message.get("parts") or []) if message else ""

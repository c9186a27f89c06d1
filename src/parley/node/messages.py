"""Messages between a node, its platform and its peers, and the errors of their calls."""

import base64
import time
from collections.abc import Iterable
from datetime import datetime
from itertools import groupby
from typing import Any, cast

import msgspec
from msgspec import Raw, Struct

from parley.errors import AgentError, ParleyError
from parley.runs.rules.content import Artifact, Part
from parley.runs.rules.state import State

Json = dict[str, Any]

RENEW_S = 30.0
"""A pair token is not used for new calls when its remaining life is less than this, or than a tenth of its life."""


class PlatformUnreachable(ParleyError):
    """The platform cannot be reached at the moment, so information that only it has is not available."""

    code = "platform_unreachable"


class PlatformRefused(ParleyError):
    """The platform refused this node's credentials or its request."""

    code = "platform_refused"

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message, status=status)
        self.status = status


class PeerRefused(AgentError):
    """The hierarchy does not allow the call, or the peer refused this node or its question."""

    code = "peer_refused"


class PeerUnavailable(AgentError):
    """The peer does not exist, or cannot be reached at the moment."""

    code = "peer_unavailable"


class TooManyHops(AgentError):
    """A question passed through so many nodes that they may form a loop."""

    code = "too_many_hops"


class Address(Struct, frozen=True):
    """URL of a peer, and the token for calling it."""

    id: str
    url: str
    token: str | None = None
    fresh_until: float = 0.0
    """Time of the monotonic clock until which the token is used for new calls."""

    @property
    def fresh(self) -> bool:
        return self.token is not None and time.monotonic() < self.fresh_until


class Discovered(Struct, frozen=True):
    """The answer of `/registry/discover`."""

    id: str
    url: str
    token: str | None = None
    token_expires_at: datetime | None = None

    def address(self) -> Address:
        left = self.token_expires_at.timestamp() - time.time() if self.token_expires_at else 0.0
        return Address(self.id, self.url, self.token, time.monotonic() + left - min(RENEW_S, left / 10))


class Peer(Struct, frozen=True):
    """Another node that this node may call, as described by the platform."""

    id: str
    name: str
    role: str | None = None
    status: str = ""
    agent_card: Json | None = None
    parent_id: str | None = None

    @property
    def description(self) -> str:
        """Description on the peer's card."""
        return str((self.agent_card or {}).get("description") or "")

    @property
    def extensions(self) -> frozenset[str]:
        """URIs of the A2A extensions that its agent supports."""
        try:
            card = msgspec.convert(self.agent_card or {}, _Card)
        except msgspec.ValidationError:
            return frozenset()
        return frozenset(one.uri for one in card.capabilities.extensions)

    @property
    def skills(self) -> list[Json]:
        """Skills on the peer's card."""
        return [skill for skill in (self.agent_card or {}).get("skills") or () if isinstance(skill, dict)]


class _Extension(Struct, frozen=True):
    uri: str = ""


class _Capabilities(Struct, frozen=True):
    extensions: list[_Extension] = []


class _Card(Struct, frozen=True):
    capabilities: _Capabilities = _Capabilities()


def briefing(peers: list[Peer]) -> str:
    """Describe the peers that an agent can ask, as text for a system prompt."""
    if not peers:
        return "There are no other nodes that you could ask."
    return "\n".join(["You can ask:", *(line for peer in peers for line in _lines(peer))])


def _lines(peer: Peer) -> list[str]:
    about, role = _line(peer.description), f" ({peer.role})" if peer.role else ""
    skills = [(skill.get("name", ""), _line(skill.get("description", ""))) for skill in peer.skills]
    more = [f"    - {name}: {words}" for name, words in skills if words != about]
    return [f"- {peer.name}{role}, id {peer.id}: {about}", *more]


def _line(text: object) -> str:
    return " ".join(str(text).split())


# Results of A2A 0.3 in the flat form of the registry contract (004).
#
# {"id": …, "status": "completed", "message": …, "artifacts": [{"type": "text/plain", "content": …}]}

FlatJson = dict[str, Any]

TERMINAL = frozenset(("completed", "failed", "canceled", "rejected"))
WAITING = frozenset(("input-required", "auth-required"))
_ABOUT = {"artifactId": "artifact", "name": "name"}
"""Fields of an artifact, and their names in each of its contents."""
_STATES = frozenset(one.value for one in State)
TEXT, DATA, BYTES = "text/plain", "application/json", "application/octet-stream"


class Flattener:
    """Flattens the events of one task or one direct message. `artifacts` is present when the task ends or waits; before
    that an event has the new piece as `artifact`, and its text as `message`."""

    def __init__(self, task: str = "") -> None:
        self.task = task
        self.context: str | None = None
        self._artifacts: dict[str, FlatJson] = {}

    def flat(self, result: FlatJson) -> FlatJson:
        """Flatten one result of A2A 0.3: a task, a message, or an update."""
        match result.get("kind"):
            case "status-update":
                return self._status(result["taskId"], result)
            case "artifact-update":
                return self._piece(result)
            case "message":
                return self._message(result)
            case _:
                return self._whole(result)

    def _whole(self, task: FlatJson) -> FlatJson:
        self._artifacts = {one["artifactId"]: one for one in task.get("artifacts") or ()}
        event = self._status(task["id"], task)
        return {**event, "artifacts": self._all(), "snapshot": True}

    def _status(self, task: str, result: FlatJson) -> FlatJson:
        self.task, self.context = task, result.get("contextId")
        state = str(result["status"]["state"])
        event = {**self._event(state, said(result["status"].get("message"))), **_reported(result)}
        if state in TERMINAL or state in WAITING:
            event["artifacts"] = self._all()
        return event

    def _piece(self, result: FlatJson) -> FlatJson:
        self.task, self.context = result["taskId"], result.get("contextId")
        piece, append = result["artifact"], bool(result.get("append"))
        before = self._artifacts.get(piece["artifactId"])
        if append and before is not None:
            before["parts"].extend(piece["parts"])
        else:
            self._artifacts[piece["artifactId"]] = {**piece, "parts": list(piece["parts"])}
        shown = {"id": piece["artifactId"], "append": append, "contents": contents(piece)}
        return {**self._event("working", text_in(piece["parts"])), "artifact": shown}

    def _message(self, message: FlatJson) -> FlatJson:
        """Flatten a direct message. There is no task, so the status is completed."""
        self.context = message.get("contextId")
        event = self._event("completed", said(message))
        return {**event, "artifacts": contents({"parts": message.get("parts") or []})}

    def _event(self, status: str, message: str) -> FlatJson:
        return {"id": self.task, "contextId": self.context, "status": status, "message": message, "artifacts": []}

    def _all(self) -> list[FlatJson]:
        return [content for one in self._artifacts.values() for content in contents(one)]


def contents(artifact: FlatJson) -> list[FlatJson]:
    """Convert an artifact to typed contents. Consecutive texts of the same type are joined."""
    found: list[FlatJson] = []
    text_before = False
    about = {ours: artifact[theirs] for theirs, ours in _ABOUT.items() if artifact.get(theirs)}
    for part in artifact.get("parts") or ():
        one = {**_content(part), **about}
        is_text = "text" in part
        if is_text and text_before and one["type"] == found[-1]["type"]:
            found[-1]["content"] += one["content"]
        else:
            found.append(one)
        text_before = is_text
    return found


def _content(part: FlatJson) -> FlatJson:
    metadata: FlatJson = part.get("metadata") or {}
    if "text" in part:
        return {"type": metadata.get("mimeType") or TEXT, "content": part["text"]}
    if "data" in part:
        return {"type": metadata.get("mimeType") or DATA, "content": part["data"]}
    file: FlatJson = part.get("file") or {}
    about = {"filename": file["name"]} if file.get("name") else {}
    kind = file.get("mimeType") or BYTES
    if file.get("bytes") is not None:
        return {"type": kind, "content": base64.b64decode(file["bytes"]), **about}
    return {"type": kind, "content": None, "url": file.get("uri"), **about}


def _reported(result: FlatJson) -> FlatJson:
    """Return the code of a failure and the usage of a task, if the server reports them."""
    found: FlatJson = {}
    code = _metadata(result["status"].get("message")).get("code")
    if isinstance(code, str):
        found["code"] = code
    usage = _metadata(result).get("usage")
    if isinstance(usage, dict):
        found["usage"] = usage
    return found


def _metadata(holder: FlatJson | None) -> FlatJson:
    found = (holder or {}).get("metadata")
    return cast(FlatJson, found) if isinstance(found, dict) else {}


def state_in(status: str) -> State:
    """Return the state for a word of A2A 0.3. A word that is not known counts as working."""
    word = status.replace("-", "_")
    return State(word) if word in _STATES else State.WORKING


class PeerArtifact(Artifact, frozen=True):
    """An artifact of a peer. `artifact["content"]`, `["type"]` and so on read its content in the flat form, if it has
    only one; the contents of all artifacts are in `answer.contents`."""

    contents: tuple[FlatJson, ...] = ()

    def __getitem__(self, name: str) -> Any:
        return self._content()[name]

    def get(self, name: str, default: Any = None) -> Any:
        return self._content().get(name, default)

    def _content(self) -> FlatJson:
        if len(self.contents) != 1:
            raise LookupError(f"The artifact {self.id} has {len(self.contents)} contents: read `answer.contents`.")
        return self.contents[0]


def artifacts_in(flat: Iterable[FlatJson]) -> tuple[PeerArtifact, ...]:
    """Return the artifacts whose contents are given in the flat form."""
    grouped = groupby(flat, key=lambda one: (one.get("artifact", ""), one.get("name")))
    return tuple(_artifact(id_, name, tuple(ones)) for (id_, name), ones in grouped)


def _artifact(id_: str, name: str | None, found: tuple[FlatJson, ...]) -> PeerArtifact:
    return PeerArtifact(id_, tuple(map(_part, found)), name, complete=True, contents=found)


def _part(content: FlatJson) -> Part:
    kind, given = content["type"], content["content"]
    filename, media_type = content.get("filename"), None if kind in (TEXT, DATA) else kind
    match given:
        case None:
            return Part(url=content.get("url"), media_type=media_type, filename=filename)
        case bytes():
            return Part(raw=given, media_type=media_type, filename=filename)
        case str():
            return Part(text=given, media_type=media_type)
        case _:
            return Part(data=Raw(msgspec.json.encode(given)), media_type=media_type)


def text_in(parts: list[FlatJson]) -> str:
    return "".join(part["text"] for part in parts if isinstance(part.get("text"), str))


def said(message: FlatJson | None) -> str:
    return text_in(message.get("parts") or []) if message else ""

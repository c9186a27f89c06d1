"""A peer that does a turn of ours: what it says becomes what we say, once, whatever breaks in between."""

from collections.abc import Iterator

from parley.core.artifacts import Part
from parley.core.events import RESPONSE, Failed
from parley.core.turns import ArtifactChunk, Done, NeedAuth, NeedInput, Note, Output, Status, Text
from parley.engine.turns import Turn
from parley.node.flat import DATA, TEXT, WAITING
from parley.node.words import Json

_SHORT = 8
MOST = 40
"""So many artifacts are remembered, of the latest: a note is kept with the state of a run."""


class Relay:
    """One turn. What earlier turns have passed on is noted with the task, and not said again."""

    def __init__(self, turn: Turn, peer: str) -> None:
        self._turn = turn
        self._peer = peer
        task, _, passed = (turn.notes.get(f"relay:{peer}", "") if turn.answers else "").partition(" ")
        self.task: str | None = task or None
        self._before = passed.split()
        self._seen: dict[str, None] = {}
        """The artifacts of which this turn has passed on something."""
        self._noted = self.task
        self._waiting: Json | None = None
        """The task as it waited when the stream began: that is its end only if nothing follows."""

    def outputs(self, event: Json) -> Iterator[Output]:
        if event["id"] and event["id"] != self._noted:
            self._noted = event["id"]
            yield self._note()
        self._waiting = None
        if "artifact" in event:
            yield from self._piece(event["artifact"])
        elif not event.get("snapshot"):
            yield from self._ending(event)
        else:
            yield from self._caught_up(event["artifacts"])
            if event["status"] in WAITING:
                self._waiting = event
            else:
                yield from self._ending(event)

    def rest(self) -> Iterator[Output]:
        """What is to be said when the stream has ended."""
        if self._waiting is not None:
            yield from self._ending(self._waiting)

    def _ending(self, event: Json) -> Iterator[Output]:
        status, message = event["status"], event["message"]
        match status:
            case "completed":
                yield Done(message) if message else Done()
            case "input-required" | "auth-required":
                yield self._note()
                yield NeedInput(message) if status == "input-required" else NeedAuth(message)
            case "failed" | "canceled" | "rejected":
                yield Failed("peer_failed", f"{self._peer} {status}: {message}"[:500])
            case _ if message:
                yield Status(message)
            case _:
                pass

    def _caught_up(self, contents: list[Json]) -> Iterator[Output]:
        """All that there is now, in place of what was said of it before."""
        fresh = [one for one in contents if one.get("artifact") not in self._before]
        text = "".join(one["content"] for one in fresh if is_answer(one))
        if text:
            yield self._said(text, anew=True)
        for one in fresh:
            self._seen[one["artifact"]] = None
            if not is_answer(one):
                yield self._made(one, append=False)

    def _piece(self, piece: Json) -> Iterator[Output]:
        again = piece["id"] in self._seen and not piece["append"]
        self._seen[piece["id"]] = None
        for one in piece["contents"]:
            yield self._said(one["content"], anew=again) if is_answer(one) else self._made(one, append=piece["append"])

    def _said(self, text: str, *, anew: bool) -> Output:
        """A peer that was broken off begins its answer anew, and so do we."""
        if not anew:
            return Text(text)
        return ArtifactChunk(text, id=f"{RESPONSE}-{self._turn.number}", name=RESPONSE, append=False, last=False)

    def _made(self, content: Json, *, append: bool) -> Output:
        kind, given, name = content["type"], content["content"], content.get("name")
        id_ = f"{self._peer[:_SHORT]}.{content['artifact']}"
        if kind in (DATA, TEXT):
            return ArtifactChunk(given, id=id_, name=name, append=append)
        linked = Part(url=content.get("url")) if given is None else given
        filename = content.get("filename")
        return ArtifactChunk(linked, id=id_, name=name, filename=filename, media_type=kind, append=append)

    def _note(self) -> Note:
        passed = [*self._before, *self._seen][-MOST:]
        return Note({f"relay:{self._peer}": " ".join([self._noted or "", *passed])})


def is_answer(content: Json) -> bool:
    """Text without a name, or under that of what an agent says: everything else is something that it has made."""
    return content["type"] == TEXT and content.get("name") in (None, RESPONSE)

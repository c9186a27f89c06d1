"""A peer's output becomes the node's own output exactly once, also when connections break."""

from types import SimpleNamespace
from typing import Any

from parley.execution.rules import ArtifactChunk, Done, NeedInput, Note, Scribe, Text
from parley.node.delegations import Relay
from parley.node.messages import Flattener
from parley.runs.rules.events import Failed

Json = dict[str, Any]
PEER = "6f1c9c1e-7b0a-4d5e-9d43-0a4f3d1c2b11"


class Play:
    """Events of one task, through a relay, into what a reader of our task would see."""

    def __init__(self, notes: dict[str, str] | None = None, number: int = 1) -> None:
        turn: Any = SimpleNamespace(notes=notes or {}, answers=bool(notes), number=number)
        self.relay = Relay(turn, PEER)
        self._flattener = Flattener()
        self._scribe = Scribe(number)
        self.outputs: list[Any] = []

    def hear(self, *results: Json) -> "Play":
        for result in results:
            self.outputs += self.relay.outputs(self._flattener.flat({"contextId": "c", **result}))
        return self

    def said(self) -> dict[str, str]:
        made: dict[str, str] = {}
        for output in self.outputs:
            if isinstance(output, Text | ArtifactChunk):
                chunk: Any = self._scribe.report(output)
                text = "".join(part.text or "" for part in chunk.parts)
                made[chunk.artifact] = made.get(chunk.artifact, "") + text if chunk.append else text
        return made

    @property
    def notes(self) -> dict[str, str]:
        return {name: value for one in self.outputs if isinstance(one, Note) for name, value in one.notes.items()}


def piece(text: str, append: bool = False, id_: str = "response-1", name: str = "response") -> Json:
    artifact = {"artifactId": id_, "name": name, "parts": [{"kind": "text", "text": text}]}
    return {"kind": "artifact-update", "taskId": "t", "artifact": artifact, "append": append}


def task(state: str, **artifacts: str) -> Json:
    made = [piece(text, id_=id_.replace("_", "-"))["artifact"] for id_, text in artifacts.items()]
    return {"kind": "task", "id": "t", "status": {"state": state}, "artifacts": made}


def moved(state: str, text: str = "") -> Json:
    message = {"message": {"parts": [{"kind": "text", "text": text}]}} if text else {}
    return {"kind": "status-update", "taskId": "t", "status": {"state": state, **message}}


def test_pieces_are_said_as_they_come() -> None:
    play = Play().hear(task("working"), piece("a"), piece("b", append=True), moved("completed"))
    assert play.said() == {"response-1": "ab"}
    assert isinstance(play.outputs[-1], Done)


def test_a_peer_that_begins_its_answer_anew_is_not_heard_twice() -> None:
    play = Play().hear(task("working"), piece("a"), piece("b", append=True), piece("A"), piece("B", append=True))
    assert play.said() == {"response-1": "AB"}


def test_a_snapshot_in_between_stands_for_all_that_was_said() -> None:
    play = Play().hear(task("working"), piece("a"), task("working", response_1="abc"), piece("d", append=True))
    assert play.said() == {"response-1": "abcd"}


def test_a_task_that_is_found_done_is_told_whole() -> None:
    play = Play().hear(task("completed", response_1="all of it"))
    assert play.said() == {"response-1": "all of it"}
    assert isinstance(play.outputs[-1], Done)


def test_what_was_said_before_the_question_is_not_said_after_it() -> None:
    first = Play().hear(task("working"), piece("Hm. "), moved("input-required", "Which?"))
    assert first.outputs[-1] == NeedInput("Which?")
    second = Play(first.notes, number=2)
    assert second.relay.task == "t"
    second.hear(task("input-required", response_1="Hm. "), piece("That.", id_="response-2"), moved("completed"))
    assert second.said() == {"response-2": "That."}
    again = Play(first.notes, number=2).hear(task("completed", response_1="Hm. ", response_2="That."))
    assert again.said() == {"response-2": "That."}


def test_a_task_that_is_found_waiting_asks_when_nothing_follows() -> None:
    play = Play().hear({**task("input-required"), "status": moved("input-required", "Which?")["status"]})
    assert not any(isinstance(one, NeedInput) for one in play.outputs)
    assert [*play.relay.rest()][-1] == NeedInput("Which?")


def test_what_a_peer_has_made_keeps_its_name_and_has_an_id_of_its_own() -> None:
    play = Play().hear(task("working"), piece("# Title", id_="draft", name="draft"), moved("failed", "no ink"))
    made = next(one for one in play.outputs if isinstance(one, ArtifactChunk))
    assert (made.id, made.name, made.content) == ("6f1c9c1e.draft", "draft", "# Title")
    assert isinstance(failed := play.outputs[-1], Failed)
    assert "no ink" in failed.reason

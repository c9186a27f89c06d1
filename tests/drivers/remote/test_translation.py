"""Computation of what is still to be shown of a remote task, as a function of values."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from parley import ArtifactChunk, Failed, Status
from parley.drivers.remote.translation import RemoteArtifact, RemoteMessage, RemoteTask, ShownUpdates, ending, marked
from parley.execution.rules import Done
from parley.runs.rules.content import Artifact, BlobRef, Part, merged
from parley.runs.rules.state import State

parts = st.one_of(
    st.text(min_size=1, max_size=5).map(lambda text: Part(text=text)),
    st.binary(max_size=5).map(lambda raw: Part(raw=raw, media_type="image/png")),
    st.integers().map(lambda number: Part(data=Raw(b"%d" % number))),
)
chunks = st.lists(st.tuples(st.sampled_from(["a", "b"]), parts, st.booleans()), max_size=12)


def built(made: list[RemoteArtifact | ArtifactChunk]) -> dict[str, tuple[Part, ...]]:
    """Artifacts as a reader of the chunks would build them."""
    found: dict[str, list[Part]] = {}
    for one in made:
        id_ = one.artifact if isinstance(one, RemoteArtifact) else one.id
        more = list(one.parts if isinstance(one, RemoteArtifact) else one.content)
        found[id_] = [*found.get(id_, []), *more] if one.append else more
    return {id_: merged(content) for id_, content in found.items()}


def task(artifacts: dict[str, tuple[Part, ...]], **more: object) -> RemoteTask:
    made = tuple(Artifact(id_, content) for id_, content in artifacts.items())
    return RemoteTask("t", "c", **{"state": State.WORKING, "said": None, "history": (), "artifacts": made, **more})


@given(chunks, st.integers(0, 12))
def test_whatever_was_missed_is_made_up_for(steps: list[tuple[str, Part, bool]], cut: int) -> None:
    """The first chunks are seen as they come, the rest only in a snapshot: the reader ends with the same artifacts."""
    made = [RemoteArtifact(id_, (part,), None, None, append, False) for id_, part, append in steps]
    shown = ShownUpdates([])
    outputs = [output for one in made[:cut] for output in shown.made(one)]
    outputs += shown.caught_up(task(built(made)), "m")
    assert built(outputs) == built(made)
    assert shown.caught_up(task(built(made)), "m") == []


@given(chunks, st.integers(0, 12))
def test_what_our_log_has_is_known_after_a_crash(steps: list[tuple[str, Part, bool]], cut: int) -> None:
    made = [RemoteArtifact(id_, (part,), None, None, append, False) for id_, part, append in steps]
    before = built(made[:cut])
    shown = ShownUpdates([Artifact(id_, content) for id_, content in before.items()])
    seen = [RemoteArtifact(id_, content, None, None, False, False) for id_, content in before.items()]
    assert built([*seen, *shown.caught_up(task(built(made)), "m")]) == built(made)


def test_bytes_beside_the_log_are_known_by_their_digest() -> None:
    digest = "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"
    shown = ShownUpdates([Artifact("f", (Part(blob=BlobRef(digest, 3)),))])
    assert shown.caught_up(task({"f": (Part(raw=b"foo"),)}), "m") == []


def test_words_since_our_message_are_shown_once() -> None:
    def says(id_: str) -> RemoteMessage:
        return RemoteMessage(id_, "agent", (Part(text=id_),))

    history = (says("old"), RemoteMessage("m", "user", (Part(text="go"),)), says("one"), says("two"))
    shown = ShownUpdates([], ["said:one"])
    now = task({}, history=history, said=says("three"))
    assert [output.content[0].text for output in shown.caught_up(now, "m")] == ["two", "three"]
    assert shown.caught_up(now, "m") == []
    assert ShownUpdates([], ["7"], "t").caught_up(task({}, said=says("t.7")), "m") == []


def test_only_the_last_output_of_an_event_carries_its_number() -> None:
    outputs = marked([Status("a", "said:1"), ArtifactChunk("b", id="x")], 7)
    assert [output.mark for output in outputs] == ["", "7"]
    assert marked([Status("a", "said:1")], None) == [Status("a", "said:1")]


def test_a_code_that_is_none_is_not_taken_over() -> None:
    said = RemoteMessage("x", "agent", (Part(text="w" * 5000),), "no code at all")
    assert ending(State.FAILED, said) == Failed("remote_failed", "w" * 2000)
    assert ending(State.COMPLETED, None) == Done(())
    assert ending(State.WORKING, said) is None
    assert ending(State.CANCELED, None) == Failed("remote_canceled", "The task was canceled at the remote agent.")

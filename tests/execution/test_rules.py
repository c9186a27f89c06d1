import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from parley import ArtifactChunk, Done, NeedInput, Reply, Status, Text
from parley.errors import AgentError, Invalid
from parley.execution.rules import MAX_JOINED, Scribe, closed, joined, parts_of, size_of
from parley.runs.rules.content import Part, check_parts, merged, text_of, text_part
from parley.runs.rules.events import ArtifactAdded, Completed, InputRequired, Progress, Replied


def test_the_pieces_of_an_answer_grow_one_artifact() -> None:
    scribe = Scribe(1)
    first, second = scribe.report(Text("a")), scribe.report(Text("b"))
    assert first == ArtifactAdded("response-1", (text_part("a"),), "response")
    assert second == ArtifactAdded("response-1", (text_part("b"),), "response", append=True)


def test_what_an_agent_yields_becomes_what_the_log_knows() -> None:
    scribe = Scribe(2)
    assert scribe.report(Status("busy")) == Progress((text_part("busy"),))
    assert scribe.report(NeedInput("which?")) == InputRequired((text_part("which?"),))
    assert scribe.report(Done()) == Completed()
    assert scribe.report(Reply("hi")) == Replied((text_part("hi"),))
    report = scribe.report(ArtifactChunk(b"\x00", filename="a.bin", media_type="application/x"))
    assert report == ArtifactAdded(
        "artifact-2-1", (Part(raw=b"\x00", filename="a.bin", media_type="application/x"),), "a.bin", last=True
    )


def test_an_answer_that_is_not_part_of_a_turn_is_refused() -> None:
    with pytest.raises(AgentError):
        Scribe(1).report(42)  # type: ignore[arg-type]


def test_a_dict_becomes_data() -> None:
    assert parts_of({"count": 42}) == (Part(data=Raw(b'{"count":42}')),)


@given(st.lists(st.text(max_size=5), min_size=1, max_size=20))
def test_joining_chunks_loses_nothing(texts: list[str]) -> None:
    scribe = Scribe(1)
    reports = joined([scribe.report(Text(text)) for text in texts])
    assert len(reports) == 1
    (report,) = reports
    assert isinstance(report, ArtifactAdded)
    assert text_of(report.parts) == "".join(texts)
    assert not report.append


def test_chunks_of_different_artifacts_stay_apart() -> None:
    a, b = ArtifactAdded("a", (text_part("1"),)), ArtifactAdded("b", (text_part("2"),), append=True)
    assert joined([a, b, a]) == [a, b, a]


def test_the_last_chunk_of_a_turn_is_marked() -> None:
    (report,) = closed([ArtifactAdded("a", (text_part("1"),))])
    assert isinstance(report, ArtifactAdded)
    assert report.last
    assert closed([Progress(())]) == [Progress(())]


def test_files_and_text_with_metadata_are_not_run_together() -> None:
    parts = (text_part("a"), Part(text="b", filename="b.txt"), text_part("c"), text_part("d"))
    assert [part.text for part in merged(parts)] == ["a", "b", "cd"]


@pytest.mark.parametrize("part", [Part(), Part(text="a", url="b"), Part(raw=b"", data=Raw(b"1"))])
def test_a_part_has_exactly_one_content(part: Part) -> None:
    with pytest.raises(Invalid) as refused:
        check_parts((text_part("fine"), part))
    assert refused.value.details["field"] == "parts[1]"


def test_a_message_needs_a_part() -> None:
    with pytest.raises(Invalid):
        check_parts(())


def test_chunks_are_joined_up_to_a_size_and_no_further() -> None:
    scribe = Scribe(1)
    piece = "x" * 10_000
    written = joined([scribe.report(Text(piece)) for _ in range(20)])
    assert all(size_of(report) <= MAX_JOINED for report in written)
    assert len(written) == 4
    assert sum(size_of(report) for report in written) == 200_000

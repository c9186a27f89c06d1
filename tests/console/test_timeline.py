"""A run's events folded into what people read: the same whether it is read at once or as it comes."""

from msgspec import Raw

from parley.console.timeline import MAX_TEXT, Timeline, remembered
from parley.runs.rules.content import Part, text_part
from parley.runs.rules.events import (
    ArtifactAdded,
    Canceled,
    Completed,
    InputRequired,
    Payload,
    Progress,
    Started,
    ToolCalled,
    ToolReturned,
)
from parley.runs.rules.state import State
from parley.runs.rules.view import view_of
from parley.testing.logs import LogWriter


def told(*payloads: Payload) -> tuple[Timeline, LogWriter]:
    log, timeline = LogWriter(), Timeline()
    log.start()
    log.append(*payloads)
    for event in log.events:
        timeline.feed(event)
    return timeline, log


def chunk(text: str, *, append: bool = True, last: bool = False) -> ArtifactAdded:
    return ArtifactAdded("response-1", (text_part(text),), "response", append=append, last=last)


def kinds(timeline: Timeline) -> list[str]:
    return [entry.kind for entry in timeline.entries.values()]


def test_text_grows_in_one_entry_and_is_settled_by_what_follows() -> None:
    timeline = Timeline()
    log = LogWriter()
    log.start()
    log.append(
        Started(1, "r"), chunk("one ", append=False), chunk("two "), Progress((text_part("busy"),)), chunk("three")
    )
    changes = [timeline.feed(event) for event in log.events]
    assert [change.grown for told in changes for change in told if change.entry.kind == "agent"] == [
        None,
        "two ",
        "three",
    ]
    answer = next(entry for entry in timeline.entries.values() if entry.kind == "agent")
    assert (answer.text, answer.growing) == ("one two three", True)
    log.append(InputRequired((text_part("And?"),)))
    settled, question = timeline.feed(log.events[-1])
    assert (settled.entry is answer, answer.growing, question.entry.kind) == (True, False, "question")
    assert timeline.run is not None
    assert timeline.run.state is State.INPUT_REQUIRED


def test_a_text_is_cut_where_it_gets_too_long() -> None:
    timeline, _ = told(Started(1, "r"), chunk("x" * MAX_TEXT, append=False), chunk("y"), chunk("z"))
    answer = list(timeline.entries.values())[-1]
    assert (len(answer.text), answer.cut) == (MAX_TEXT, True)


def test_a_tool_is_one_entry_with_the_hash_of_its_result() -> None:
    timeline, log = told(
        Started(1, "r"),
        ToolCalled("c1", "look", Raw(b'{"a": 1}')),
        ToolReturned("c1", "look", "failed", code="broken", reason="It broke."),
    )
    (tool,) = [entry for entry in timeline.entries.values() if entry.kind == "tool"]
    assert tool.result is not None
    assert (tool.name, tool.result.status, tool.receipt) == ("look", "failed", log.events[-1].hash.hex())


def test_files_say_where_they_are_in_the_log() -> None:
    files = (Part(raw=b"\x89", media_type="image/png", filename="a.png"), Part(text="# A", filename="a.md"))
    timeline, log = told(Started(1, "r"), ArtifactAdded("x", (text_part("see:"), *files), "Things", last=True))
    pieces = list(timeline.entries.values())[-1].pieces
    assert [(one.seq, one.number, one.kind) for one in pieces] == [
        (log.events[-1].seq, 1, "image"), (log.events[-1].seq, 2, "markdown"),
    ]  # fmt: skip


def test_nothing_dangerous_is_shown_as_a_picture() -> None:
    timeline, _ = told(
        Started(1, "r"), ArtifactAdded("x", (Part(raw=b"<svg>", media_type="image/svg+xml; x=1"),), last=True)
    )
    assert [one.kind for one in list(timeline.entries.values())[-1].pieces] == ["file"]


def test_of_a_run_whose_events_are_forgotten_the_words_are_left() -> None:
    _, log = told(Started(1, "r"), chunk("the answer", append=False, last=True), Completed((text_part("Done."),)))
    view = view_of(log.events)
    timeline = Timeline(view)
    assert [(one.kind, one.text) for one in remembered(view)] == [
        ("you", "words"), ("agent", "Done."), ("file", "the answer"),
    ]  # fmt: skip
    assert timeline.run == view.run
    assert kinds(timeline) == ["you", "agent", "file"]


def test_an_end_without_words_is_told() -> None:
    assert kinds(told(Started(1, "r"), Completed())[0])[-1] == "done"
    canceled, _ = told(Canceled("Enough."))
    assert list(canceled.entries.values())[-1].text == "Canceled: Enough."

"""Bars of a run: where they begin, how long they are, and how they end."""

from msgspec import Raw

from parley.console.gantt import MOST_BARS, WIDTH, Gantt, drawn
from parley.runs.rules.content import Message, text_part
from parley.runs.rules.events import (
    ChildStarted,
    Completed,
    Failed,
    InputReceived,
    InputRequired,
    Payload,
    Progress,
    Started,
    StepRecord,
    ToolCalled,
    ToolReturned,
)
from parley.testing.logs import LogWriter


def bars(*payloads: Payload, now: int = 0) -> Gantt:
    log = LogWriter()
    log.start()
    log.append(*payloads)
    assert log.run is not None
    return drawn(log.events, log.run, {}, now)


def test_turns_tools_steps_and_waits_are_bars() -> None:
    answer = InputReceived(Message("n", (text_part("yes"),)))
    step = Progress((), step=StepRecord(1, 1, "fetch", duration_ms=1))
    called, returned = ToolCalled("c", "look", Raw(b"{}")), ToolReturned("c", "look", "failed")
    found = bars(
        Started(1, "r"), called, returned, step, InputRequired(()), answer, Started(2, "r"), Failed("x", "y")
    ).bars  # fmt: skip
    assert [(bar.kind, bar.name, bar.state, (bar.end or 0) - bar.start) for bar in found] == [
        ("turn", "Turn 1", "good", 4),
        ("tool", "look", "bad", 1),
        ("step", "fetch", "good", 1),
        ("wait", "Waiting for input", "wait", 1),
        ("turn", "Turn 2", "bad", 1),
    ]


def test_what_goes_on_ends_now_and_a_lost_child_ends_with_its_run() -> None:
    working = bars(Started(1, "r"), now=5000)
    assert (working.bars[-1].end, working.end) == (None, 5000)
    ended = bars(Started(1, "r"), ChildStarted(LogWriter().run_id, "echo"), Completed())
    assert ended.bars[-1].end == ended.end


def test_a_long_wait_leaves_room_for_the_work() -> None:
    log = LogWriter()
    log.start()
    log.append(Started(1, "r"), InputRequired(()))
    log._at += 86_400_000
    log.append(InputReceived(Message("n", (text_part("yes"),))), Started(2, "r"), Completed())
    assert log.run is not None
    turn, wait, other = [bar for bar in drawn(log.events, log.run, {}, 0).bars if bar.kind != "queued"]
    assert wait.width < WIDTH / 2
    assert turn.width > WIDTH / 20
    assert turn.x < wait.x < other.x
    assert round(other.x + other.width) <= WIDTH


def test_a_run_with_very_many_bars_says_how_many_are_left_out() -> None:
    calls = [ToolCalled(str(number), "look", Raw(b"{}")) for number in range(MOST_BARS + 10)]
    found = bars(Started(1, "r"), *calls)
    assert (len(found.bars), found.more) == (MOST_BARS, 11)

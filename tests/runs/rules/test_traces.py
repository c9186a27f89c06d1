"""The trace of an input stays with the run until a newer one comes."""

import msgspec

from parley.ids import ConversationId, RunId
from parley.runs.rules.commands import Begin, Command, Emit, Fork, Give, Recover, Start, decide
from parley.runs.rules.content import Message, text_part
from parley.runs.rules.events import Forked, InputReceived, InputRequired, Origin, Payload, decode, encode
from parley.runs.rules.state import Run, evolve
from parley.telemetry.trace import Trace

ID = RunId("run")
MESSAGE = Message("m", (text_part("w"),))
FIRST, SECOND = Trace("00-" + "1" * 32 + "-" + "2" * 16 + "-01", "a=1"), Trace(request_id="r-2")
TRACED = Start("a", ConversationId("c"), "local", MESSAGE, begin=Begin("here"), trace=FIRST)
QUESTION = Emit(1, InputRequired((text_part("?"),)))


def played(*commands: Command) -> tuple[Run, list[Payload]]:
    run: Run | None = None
    events: list[Payload] = []
    for command in commands:
        for event in decide(run, command):
            events.append(event)
            run = evolve(run, ID, len(events), 0, event)
    assert run is not None
    return run, events


def forked(message: Message | None, trace: Trace | None) -> tuple[Run, list[Payload]]:
    events = tuple(played(TRACED, QUESTION)[1])
    return played(Fork(Origin(ID, len(events), ""), events, "local", message, trace=trace))


def test_the_trace_of_an_input_is_the_runs() -> None:
    assert played(TRACED)[0].trace == FIRST


def test_a_newer_trace_takes_its_place() -> None:
    assert played(TRACED, QUESTION, Give(MESSAGE, trace=SECOND))[0].trace == SECOND


def test_an_input_without_a_trace_leaves_it() -> None:
    assert played(TRACED, QUESTION, Give(MESSAGE))[0].trace == FIRST


def test_a_rescued_turn_still_belongs_to_it() -> None:
    run, _ = played(TRACED, Recover(1, "restart"))
    assert (run.trace, run.ready) == (FIRST, True)


def test_a_fork_belongs_to_the_trace_it_was_made_in() -> None:
    assert forked(None, SECOND)[0].trace == SECOND
    assert forked(MESSAGE, SECOND)[0].trace == SECOND
    assert forked(None, None)[0].trace is None
    assert forked(MESSAGE, None)[0].trace is None


def test_a_fork_keeps_the_entries_as_they_were() -> None:
    copy = forked(MESSAGE, SECOND)[1]
    assert InputReceived(MESSAGE, FIRST) in copy
    assert copy[-2:] == [Forked("local"), InputReceived(MESSAGE, SECOND)]


def test_a_log_without_traces_has_the_same_bytes_as_ever() -> None:
    before = b'{"type":"input","message":{"id":"m","parts":[{"text":"w"}]}}'
    assert decode(before) == InputReceived(MESSAGE)
    assert encode(InputReceived(MESSAGE)) == before
    assert encode(Forked("local", again=True)) == b'{"type":"forked","by":"local","again":true}'


def test_a_trace_is_stored_without_what_it_does_not_say() -> None:
    body = encode(InputReceived(MESSAGE, SECOND))
    assert body.endswith(b'"trace":{"requestId":"r-2"}}')
    assert decode(body) == InputReceived(MESSAGE, SECOND)


def test_a_run_that_was_stored_before_there_were_traces_can_be_read() -> None:
    run, _ = played(Start("a", ConversationId("c"), "local", MESSAGE))
    stored = msgspec.json.encode(run)
    assert b"trace" not in stored
    assert msgspec.json.decode(stored, type=Run) == run
    traced, _ = played(TRACED)
    assert msgspec.json.decode(msgspec.json.encode(traced), type=Run) == traced

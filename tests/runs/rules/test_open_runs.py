"""Runs that wait for input until somebody closes them."""

import pytest

from parley.errors import Invalid, LateResult, RunEnded
from parley.ids import ConversationId, RunId
from parley.runs.rules.commands import Begin, Cancel, Close, Command, Emit, Fail, Give, Report, Start, decide
from parley.runs.rules.content import Message, text_part
from parley.runs.rules.events import (
    GENESIS,
    AuthRequired,
    Canceled,
    Closing,
    Completed,
    Event,
    Failed,
    InputReceived,
    InputRequired,
    Payload,
    Replied,
    Started,
    Submitted,
    TurnEnded,
    sealed,
)
from parley.runs.rules.state import Run, State, evolve
from parley.runs.rules.transcript import rounds

WORDS = (text_part("words"),)
MESSAGE = Message("m1", WORDS)
OPEN = Start("echo", ConversationId("c1"), "local", None, open=True)


def after(*commands: Command) -> tuple[Run, list[Payload]]:
    run: Run | None = None
    payloads: list[Payload] = []
    for command in commands:
        for payload in decide(run, command):
            payloads.append(payload)
            run = evolve(run, RunId("run-1"), len(payloads), 1000, payload)
    assert run is not None
    return run, payloads


GIVE = Give(MESSAGE, Begin("here"))


def test_an_open_run_waits_from_the_start() -> None:
    run, payloads = after(OPEN)
    assert payloads == [Submitted("echo", ConversationId("c1"), "local", open=True)]
    assert run.state is State.INPUT_REQUIRED
    assert not run.ready


def test_only_an_open_run_begins_without_a_message() -> None:
    with pytest.raises(Invalid):
        decide(None, Start("echo", ConversationId("c1"), "local", None))


def test_an_open_run_that_begins_with_a_message_is_worked_on() -> None:
    run, payloads = after(Start("echo", ConversationId("c1"), "local", MESSAGE, begin=Begin("here"), open=True))
    assert [type(payload) for payload in payloads] == [Submitted, InputReceived, Started]
    assert run.state is State.WORKING


@pytest.mark.parametrize("end", [Completed(WORDS), Replied(WORDS)])
def test_what_completes_a_turn_leaves_an_open_run_waiting(end: Report) -> None:
    run, payloads = after(OPEN, GIVE, Emit(1, end))
    assert payloads[-1] == InputRequired(WORDS)
    assert run.state is State.INPUT_REQUIRED


def test_a_failure_ends_an_open_run() -> None:
    run, _ = after(OPEN, GIVE, Emit(1, Failed("broken", "It broke.")))
    assert run.state is State.FAILED


def test_closing_a_run_at_rest_completes_it() -> None:
    run, payloads = after(OPEN, GIVE, Emit(1, Completed()), Close("local"))
    assert payloads[-2:] == [Closing("local"), Completed()]
    assert run.state is State.COMPLETED


def test_closing_a_run_at_work_lets_it_finish() -> None:
    run, payloads = after(OPEN, GIVE, Close("local"))
    assert payloads[-1] == Closing("local")
    assert run.state is State.WORKING
    run, payloads = after(OPEN, GIVE, Close("local"), Emit(1, Completed(WORDS)))
    assert payloads[-1] == Completed(WORDS)


def test_input_given_before_the_close_is_read_before_the_end() -> None:
    run, payloads = after(OPEN, GIVE, Give(MESSAGE), Close("local"), Emit(1, Completed(WORDS)))
    assert payloads[-1] == TurnEnded(WORDS)
    assert run.ready
    run, _ = after(OPEN, GIVE, Give(MESSAGE), Close("local"), Emit(1, Completed()), Begin("here"), Emit(2, Completed()))
    assert run.state is State.COMPLETED


@pytest.mark.parametrize("question", [InputRequired(WORDS), AuthRequired(WORDS)])
def test_a_question_in_a_closed_run_is_its_last_word(question: Report) -> None:
    _, payloads = after(OPEN, GIVE, Close("local"), Emit(1, question))
    assert payloads[-1] == Completed(WORDS)


@pytest.mark.parametrize("command", [GIVE, Close("local"), Fail("x", "y")])
def test_a_closed_run_takes_nothing_more(command: Command) -> None:
    run, _ = after(OPEN, GIVE, Close("local"))
    with pytest.raises(RunEnded):
        decide(run, command)


def test_a_closed_run_can_still_be_canceled() -> None:
    run, payloads = after(OPEN, GIVE, Close("local"), Cancel("local"), Emit(1, Completed()))
    assert payloads[-1] == Canceled()
    assert run.state is State.CANCELED


def test_a_run_that_somebody_failed_drops_what_its_agent_says_later() -> None:
    run, payloads = after(OPEN, GIVE, Fail("quota", "No money left."))
    assert payloads[-1] == Failed("quota", "No money left.")
    with pytest.raises(LateResult):
        decide(run, Emit(1, Completed()))


def test_closing_does_not_forget_what_the_agent_said_last() -> None:
    _, payloads = after(OPEN, GIVE, Emit(1, Completed(WORDS)), Close("local"))
    log: list[Event] = []
    for payload in payloads:
        log.append(sealed(RunId("r"), len(log) + 1, 0, payload, log[-1].hash if log else GENESIS))
    assert [one.answer for one in rounds(log)] == ["words"]


def test_a_run_that_was_closed_before_it_began_has_no_rounds() -> None:
    _, payloads = after(OPEN, Close("local"))
    log = [sealed(RunId("r"), seq, 0, payload, GENESIS) for seq, payload in enumerate(payloads, 1)]
    assert rounds(log) == []

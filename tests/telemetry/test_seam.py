import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from parley.errors import NotReady
from parley.telemetry import FAILED, Opened, attach, export, logs, span, tell
from parley.telemetry.trace import NONE, Trace, current, entered


def test_whoever_is_attached_is_told_until_detached() -> None:
    told: list[tuple[str, dict[str, Any]]] = []
    detach = attach(lambda name, fields: told.append((name, fields)))
    tell("something", run="r")
    detach()
    tell("else")
    assert told == [("something", {"run": "r"})]


def test_a_handler_that_raises_is_reported_to_the_others_and_stops_nobody() -> None:
    told: list[str] = []

    def broken(name: str, fields: dict[str, Any]) -> None:
        raise BrokenPipeError

    detaching = [attach(broken), attach(lambda name, fields: told.append(name))]
    try:
        tell("something")
        with span("runtime.tool"):
            pass
    finally:
        for detach in detaching:
            detach()
    assert told == [FAILED, "something", FAILED, "span.ended"]


def test_an_exporter_that_raises_does_not_break_what_it_measures() -> None:
    def broken(name: str, trace: Trace, at_ns: int) -> Opened:
        raise ConnectionError

    detach = export(broken)
    try:
        with entered(CALLERS), span("runtime.tool"):
            assert current() == CALLERS
        assert current() == NONE
    finally:
        detach()


def test_a_span_that_cannot_be_ended_does_not_break_what_it_measures() -> None:
    class Broken:
        trace = OURS

        def end(self, at_ns: int, fields: dict[str, Any]) -> None:
            raise ConnectionError

    detach = export(lambda name, trace, at_ns: Broken())
    try:
        with entered(CALLERS):
            with span("runtime.tool"):
                assert current() == OURS
            assert current() == CALLERS
    finally:
        detach()


def test_log_lines_carry_the_fields_and_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    detach = logs.configure("json", "info")
    try:
        tell("turn.ended", run="quiet")
        tell("run.rescued", run="r1", how="restart")
        try:
            raise ValueError("inside")
        except ValueError as error:
            tell("agent.raised", run="r2", error=error)
    finally:
        detach()
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert '"how": "restart"' in lines[0]
    assert '"level": "warning"' in lines[1]
    assert "ValueError: inside" in lines[1]


def test_a_log_line_names_the_request_it_belongs_to(capsys: pytest.CaptureFixture[str]) -> None:
    detach = logs.configure("json", "debug")
    try:
        with entered(CALLERS), span("runtime.tool"):
            tell("turn.ended", run="r1")
    finally:
        detach()
    (line,) = capsys.readouterr().err.splitlines()
    assert '"request_id": "req-1"' in line
    assert f'"trace_id": "{"1" * 32}"' in line


CALLERS = Trace(f"00-{'1' * 32}-{'2' * 16}-01", "a=1", "req-1")
OURS = Trace(f"00-{'1' * 32}-{'3' * 16}-01", "a=1", "req-1")


@pytest.fixture
def ended() -> Iterator[list[dict[str, Any]]]:
    told: list[dict[str, Any]] = []
    detach = attach(lambda name, fields: told.append(fields) if name == "span.ended" else None)
    yield told
    detach()


def test_a_span_tells_how_long_it_took_and_what_came_of_it(ended: list[dict[str, Any]]) -> None:
    with span("runtime.tool", tool="search"):
        pass
    (told,) = ended
    assert 0 <= told.pop("ended_ns") - told.pop("started_ns") < 1e9
    assert told == {"name": "runtime.tool", "tool": "search", "outcome": "ok", "trace": NONE}


@pytest.mark.parametrize(
    ("error", "outcome", "code"),
    [
        (ValueError(), "error", None),
        (NotReady("Not yet."), "refused", "not_ready"),
        (asyncio.CancelledError(), "canceled", None),
        (GeneratorExit(), "canceled", None),
    ],
)
def test_a_span_tells_what_broke_it(
    ended: list[dict[str, Any]], error: BaseException, outcome: str, code: str | None
) -> None:
    with pytest.raises(type(error)), span("runtime.tool"):
        raise error
    assert (ended[0]["outcome"], ended[0].get("code")) == (outcome, code)


def test_a_span_can_say_in_its_own_word_what_came_of_it(ended: list[dict[str, Any]]) -> None:
    with span("runtime.infer") as turn:
        turn.outcome = "input_required"
    assert ended[0]["outcome"] == "input_required"


def test_a_span_that_nobody_exports_leaves_the_trace_as_it_is(ended: list[dict[str, Any]]) -> None:
    with entered(CALLERS), span("runtime.tool"):
        assert current() == CALLERS
    assert ended[0]["trace"] == CALLERS


class Exported:
    trace = OURS

    def end(self, at_ns: int, fields: dict[str, Any]) -> None:
        pass


def test_an_exported_span_is_the_parent_of_what_happens_in_it(ended: list[dict[str, Any]]) -> None:
    asked: list[tuple[str, Trace]] = []

    def exporter(name: str, parent: Trace, at_ns: int) -> Opened:
        asked.append((name, parent))
        return Exported()

    detach = export(exporter)
    try:
        with entered(CALLERS):
            with span("runtime.tool"):
                assert current() == OURS
            assert current() == CALLERS
    finally:
        detach()
    assert asked == [("runtime.tool", CALLERS)]
    assert ended[0]["trace"] == OURS


def test_a_span_that_nobody_hears_does_nothing() -> None:
    with span("runtime.tool") as quiet:
        quiet.outcome = "ok"

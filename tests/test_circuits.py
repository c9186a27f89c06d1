"""A circuit opens after three failures in a row, rests ten seconds, and then lets one call decide."""

from hypothesis import given
from hypothesis import strategies as st

from parley.limits import FAILURES, MINUTE_MS, REST_MS, Circuit, Minute, admitted, returned


def failed(times: int, at: int = 0) -> Circuit:
    circuit = Circuit()
    for _ in range(times):
        circuit = returned(circuit, at, well=False)
    return circuit


def test_three_failures_in_a_row_open_it() -> None:
    assert admitted(failed(FAILURES - 1), 0) is not None
    assert admitted(failed(FAILURES), 0) is None
    between = returned(failed(FAILURES - 1), 0, well=True)
    assert admitted(returned(between, 0, well=False), 0) is not None


def test_after_a_rest_one_call_decides() -> None:
    opened = failed(FAILURES)
    assert admitted(opened, REST_MS - 1) is None
    trying = admitted(opened, REST_MS)
    assert trying is not None
    assert admitted(trying, REST_MS) is None
    assert admitted(returned(trying, REST_MS, well=True), REST_MS) == Circuit()
    again = returned(trying, REST_MS, well=False)
    assert admitted(again, 2 * REST_MS - 1) is None
    assert admitted(again, 2 * REST_MS) is not None


def test_a_call_that_never_came_back_holds_up_the_others_for_a_rest_only() -> None:
    trying = admitted(failed(FAILURES), REST_MS)
    assert trying is not None
    assert admitted(trying, 2 * REST_MS) is not None


@given(st.lists(st.tuples(st.integers(0, 8000), st.sampled_from(["call", "well", "ill"]))))
def test_an_open_circuit_lets_through_one_call_per_rest(steps: list[tuple[int, str]]) -> None:
    circuit, now, passed = Circuit(), 0, list[int]()
    for pause, what in steps:
        now += pause
        if what == "call":
            was_open, after = circuit.opened_at is not None, admitted(circuit, now)
            if was_open and after is not None:
                assert not passed or now - passed[-1] >= REST_MS
                passed.append(now)
            circuit = after or circuit
        else:
            circuit = returned(circuit, now, well=what == "well")
            passed = [] if what == "well" else passed


@given(st.lists(st.integers(0, 30_000)), st.integers(1, 5))
def test_never_more_than_the_limit_in_any_minute(pauses: list[int], most: int) -> None:
    minute, now, times = Minute(), 0, list[int]()
    for pause in pauses:
        now += pause
        if minute.admits(most, now):
            times.append(now)
        else:
            assert len([at for at in times if at > now - MINUTE_MS]) == most
    for at in times:
        assert len([one for one in times if at - MINUTE_MS < one <= at]) <= most

"""The small parts, as values."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from parley_edge.json_values import encoded
from parley_edge.runtime.answers import Completed, Failed, Result, Write
from parley_edge.runtime.backoff import Backoff
from parley_edge.runtime.jobs import SHORTEST_BEAT_S, Job, next_beat
from parley_edge.runtime.ledger import Entry, Ledger
from parley_edge.runtime.platform import moment
from parley_edge.storage.files import Claim, sweep

names = st.text(min_size=1, max_size=20)


def test_waits_double_up_to_a_cap_and_begin_anew() -> None:
    backoff = Backoff(4.0, first_s=1.0, chance=lambda: 1.0)
    assert [backoff.next() for _ in range(4)] == [1.0, 2.0, 4.0, 4.0]
    backoff.reset()
    assert backoff.next() == 1.0
    assert backoff.next(at_least_s=9.0) == 9.0
    assert Backoff(4.0, first_s=1.0, chance=lambda: 0.0).next() == 0.5


@given(st.floats(0.0, 1.0), st.integers(1, 60))
def test_a_wait_is_never_nothing_and_never_over_the_cap(chance: float, tries: int) -> None:
    backoff = Backoff(10.0, chance=lambda: chance)
    for _ in range(tries):
        assert 0.1 < backoff.next() <= 10.0


def test_a_lease_is_renewed_before_half_of_it_is_over() -> None:
    assert next_beat(30.0, []) == 30.0
    assert next_beat(30.0, [60.0, 60.0]) == 30.0
    assert next_beat(30.0, [60.0, 4.0]) == 2.0
    assert next_beat(30.0, [0.01]) == SHORTEST_BEAT_S
    assert next_beat(30.0, [-5.0]) == 30.0


def test_a_finished_job_is_not_given_up() -> None:
    job = Job("run", "lease", {}, phase="delivering")
    job.give_up("canceled")
    assert job.ended is None
    job.phase = "working"
    job.give_up("canceled")
    job.give_up("lost")
    assert job.ended == "canceled"


def test_times_are_read_with_and_without_a_zone() -> None:
    assert (
        moment("1970-01-01T00:01:00Z") == moment("1970-01-01T00:01:00") == moment("1970-01-01T01:01:00+01:00") == 60.0
    )
    assert moment("soon") == moment(None) == moment(7) == 0.0


def test_half_a_character_does_not_stop_a_result() -> None:
    assert encoded({"text": "\ud800"}) == b'{"text":"?"}'


@given(
    names,
    names,
    st.sampled_from([None, Failed("no", "CODE"), Completed({"text": "ü\ud800"}, (Write({"filename": "a"}),))]),
)
def test_what_the_ledger_keeps_it_gives_back(run: str, lease: str, result: Result | None) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger(Path(folder) / "runs" / "default")
        ledger.open()
        ledger.keep(Entry(run, lease, "runtime-1", result))
        (back,) = ledger.entries()
        assert back.lease == lease.encode("utf-8", "replace").decode()
        assert type(back.result) is type(result)
        ledger.forget(run)
        assert ledger.entries() == []


def test_what_a_killed_process_was_writing_is_swept_up(tmp_path: Path) -> None:
    for name in (".a.json.12.0123abcd", ".b.json.12.0123abcd", ".a.json.bak", "a.json"):
        (tmp_path / name).touch()
    sweep(tmp_path, "a.json")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".a.json.bak", ".b.json.12.0123abcd", "a.json"]
    sweep(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".a.json.bak", "a.json"]


def test_a_claim_is_held_by_one(tmp_path: Path) -> None:
    first, second = Claim(tmp_path / "lock"), Claim(tmp_path / "lock")
    assert first.holder() is None
    assert first.take()
    assert not second.take()
    assert second.holder() is not None
    first.release()
    assert second.holder() is None
    assert second.take()
    second.release()

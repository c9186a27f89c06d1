"""Waking by name."""

from parley.runs.wakeups import Wakeups


def test_a_bell_rings_for_its_names_and_for_no_other() -> None:
    wakeups = Wakeups()
    with wakeups.subscribed(["a", "b", "a"]) as one, wakeups.subscribed(["b"]) as other:
        wakeups.wake("c")
        assert not one.is_set()
        wakeups.wake("a")
        assert (one.is_set(), other.is_set()) == (True, False)
        wakeups.wake("b")
        assert other.is_set()
        assert sorted(wakeups.awaited) == ["a", "b"]
    assert wakeups.awaited == []


def test_what_is_told_again_is_no_news() -> None:
    wakeups = Wakeups()
    for _ in range(2):
        with wakeups.subscribed(["run"]) as bell:
            wakeups.wake("run", 3)
            assert bell.is_set()
            bell.clear()
            wakeups.wake("run", 3)
            wakeups.wake("run", 2)
            assert not bell.is_set()
            wakeups.wake("run", 4)
            assert bell.is_set()

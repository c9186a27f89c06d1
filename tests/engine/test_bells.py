"""Waking by name."""

from parley.engine.bells import Bells


def test_a_bell_rings_for_its_names_and_for_no_other() -> None:
    bells = Bells()
    with bells.hung(["a", "b", "a"]) as one, bells.hung(["b"]) as other:
        bells.ring("c")
        assert not one.is_set()
        bells.ring("a")
        assert (one.is_set(), other.is_set()) == (True, False)
        bells.ring("b")
        assert other.is_set()
        assert sorted(bells.awaited) == ["a", "b"]
    assert bells.awaited == []


def test_what_is_told_again_is_no_news() -> None:
    bells = Bells()
    for _ in range(2):
        with bells.hung(["run"]) as bell:
            bells.ring("run", 3)
            assert bell.is_set()
            bell.clear()
            bells.ring("run", 3)
            bells.ring("run", 2)
            assert not bell.is_set()
            bells.ring("run", 4)
            assert bell.is_set()

"""A README that is followed: what it says is read, done, and compared with what happens."""

import pytest

from dev.firstuse.comparing import Difference, Names
from dev.firstuse.readme import Opened, Typed, Written, read

ID, OTHER = "01a1e737-a1f1-7001-93fc-d9bf793f0fb1", "01a1e738-9925-7001-a041-95cd158d7a84"
CODE = "DP0S-A806-WEQT-5GA0"

PAGE = """
# A project

    make run     # not a terminal, and not followed

## 1. First

```console
$ make run
…
It listens.
…
$ ask 'hello'
hello

  twice
```

Open <http://127.0.0.1:8200/console>, which
shows `To whom?`. And `this` too.

```python
# agents/shout.py
def shout(turn): ...
```

```python
from parley import agent
```
"""


def test_a_readme_is_read_as_a_list_of_things_to_do() -> None:
    assert read(PAGE) == [
        Typed("make run", ("…", "It listens.", "…"), "1. First"),
        Typed("ask 'hello'", ("hello", "", "  twice"), "1. First"),
        Opened("http://127.0.0.1:8200/console", ("To whom?", "this")),
        Written("agents/shout.py", "# agents/shout.py\ndef shout(turn): ...\n"),
    ]


@pytest.mark.parametrize(
    ("shown", "seen"),
    [
        (["hello"], ["hello"]),
        ([f"completed {ID}"], [f"completed {OTHER}"]),
        (["2026-11-17 01:55:59+0000 done in 0.05 s"], ["2031-01-02 11:12:13+0100 done in 12.5 s"]),
        (["a", "…", "z"], ["a", "b", "c", "z"]),
        (["a", "…", "z"], ["a", "z"]),
        (["…", "z", "…"], ["y", "z"]),
        (["…", f"one {ID}", f"two {ID}"], [f"one {ID}", f"one {OTHER}", f"two {OTHER}"]),
        ([], []),
        (["completed"], ["submitted: Waiting for its turn: number 2 in the queue.", "completed"]),
    ],
)
def test_what_may_differ_does_not_count(shown: list[str], seen: list[str]) -> None:
    Names().compare(shown, seen)


@pytest.mark.parametrize(
    ("shown", "seen"),
    [
        (["hello"], ["hullo"]),
        (["hello"], ["hello", "again"]),
        (["hello", "again"], ["hello"]),
        (["hello"], []),
        ([], ["hello"]),
        (["  indented"], ["indented"]),
        ([f"completed {ID}"], ["completed"]),
        ([f"completed {ID}"], [f"failed {OTHER}"]),
        ([f"{ID} {ID}"], [f"{ID} {OTHER}"]),
        ([f"the code is {CODE}"], [f"the code is {ID}"]),
        (["a", "…", "z"], ["a", "b", "c"]),
        (["5 words"], ["6 words"]),
    ],
)
def test_any_other_difference_is_found(shown: list[str], seen: list[str]) -> None:
    with pytest.raises(Difference, match="README shows"):
        Names().compare(shown, seen)


def test_ids_are_called_by_their_new_names_in_what_is_typed_later() -> None:
    names = Names()
    names.compare([f"Answer {ID} with {CODE}"], [f"Answer {OTHER} with AAAA-BBBB-CCCC-DDDD"])
    assert names.filled(f"answer {ID} {CODE}") == f"answer {OTHER} AAAA-BBBB-CCCC-DDDD"
    with pytest.raises(Difference):
        names.compare([f"completed {ID}"], [f"completed {ID}"])

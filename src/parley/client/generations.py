"""Generations of A2A 1.1, as a client reads them: the number of a task or an update, and gaps between updates."""

from typing import Any

Json = dict[str, Any]


def whole_number(value: object) -> int:
    """Return a generation as it is written in JSON, as a number or a text; 0 if it is neither."""
    if isinstance(value, bool):
        return 0
    return int(value) if isinstance(value, int) or (isinstance(value, str) and value.isdigit()) else 0


def generation_in(task: Json) -> int:
    """Return the generation of a task or an update; 0 if it has none."""
    return whole_number(task.get("generation", 0))


class Updates:
    """The updates of one task that its reader has seen, by their generation. A server whose numbers repeat, or that
    sends none, does not number updates, and its stream is taken as it is."""

    def __init__(self) -> None:
        self._last = 0
        self._caught_up = 0
        self._numbered = True

    def missed(self, number: int, *, whole: bool = False) -> bool:
        """Take the next update of a stream, or the whole task. Return True if updates before it are missing."""
        before, self._last = self._last, max(number, self._caught_up)
        if whole or number <= self._caught_up:
            return False
        self._numbered = self._numbered and number > before
        return self._numbered and bool(before) and number > before + 1

    def caught_up(self, number: int) -> None:
        """Note that the reader has seen the whole task of this generation."""
        self._last = self._caught_up = number

    def is_known(self, number: int) -> bool:
        """Return whether an update is part of the task that the reader caught up with."""
        return self._numbered and 0 < number <= self._caught_up

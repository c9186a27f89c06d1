"""Calls that a model writes piece by piece."""

from typing import cast

import msgspec

from parley.core.canonical import Fields
from parley.core.functions import Function, Wanted

MAX_INPUT = 1024 * 1024


class Calls:
    """Those of one answer, in the order in which they began."""

    def __init__(self) -> None:
        self._ids: dict[int, str] = {}
        self._names: dict[int, str] = {}
        self._texts: dict[int, list[str]] = {}

    def begin(self, place: int, id_: str | None, name: str | None) -> None:
        """Told again, it adds what was missing."""
        self._texts.setdefault(place, [])
        if id_:
            self._ids[place] = id_
        if name:
            self._names[place] = self._names.get(place) or name

    def more(self, place: int, text: str | None) -> None:
        self._texts.setdefault(place, []).append(text or "")
        if sum(map(len, self._texts[place])) > MAX_INPUT:
            raise ValueError("a tool's arguments are too long")

    def ended(self) -> list[Wanted]:
        return [
            Wanted(self._ids.get(place) or f"call_{place}", self._names[place], input_of("".join(texts)))
            for place, texts in self._texts.items()
            if self._names.get(place)
        ]


def schema_of(function: Function) -> Fields:
    """Vendors want an object, and say so even where a server did not."""
    return {"type": "object", **cast(Fields, msgspec.json.decode(function.schema, type=dict))}


def input_of(text: str) -> Fields | None:
    """What is written, if it is an object of JSON."""
    try:
        return cast(Fields, msgspec.json.decode(text or "{}", type=dict))
    except (msgspec.MsgspecError, RecursionError):
        return None

"""Every event of a run's log, and what each is made of."""

from typing import get_args

import msgspec
from msgspec import Struct

from dev.docsite.reference.types import required, said, structs, written
from dev.docsite.reference.writing import code, sentence, table, whole
from parley.runs.rules.events import ENDINGS, EVENT_TYPES, QUESTIONS, Payload

_INTRODUCTION = """\
What happens when is told in [the log](../log.md); this is what stands in it. An entry has a number (`seq`), a time
(`at`, milliseconds since 1970), a type, a payload of JSON with the members below, and a hash. Members that hold
their default are left out. `?` marks those that may be missing."""


def page() -> str:
    kinds = sorted(get_args(Payload), key=lambda kind: EVENT_TYPES.index(kind.__struct_config__.tag))
    return whole("Events", _INTRODUCTION, *map(_event, kinds), "## What they are made of", *map(_shape, _shapes(kinds)))


def _event(kind: type[Struct]) -> str:
    name = str(kind.__struct_config__.tag)
    ends = "Nothing follows it." if name in ENDINGS else "The run waits for an answer." if name in QUESTIONS else ""
    words = " ".join(filter(None, [sentence(kind.__doc__), ends]))
    return "\n\n".join(filter(None, [f"## `{name}`", words, _fields(kind)]))


def _shape(kind: type[Struct]) -> str:
    return "\n\n".join(filter(None, [f"### {kind.__name__}", sentence(kind.__doc__), _fields(kind)]))


def _fields(kind: type[Struct]) -> str:
    fields = msgspec.structs.fields(kind)
    notes = said(kind)
    rows = [
        (code(one.encode_name + ("" if required(one) else "?")), written(one.type), sentence(notes.get(one.name)))
        for one in fields
    ]
    return table(("member", "type", ""), rows) if rows else ""


def _shapes(kinds: list[type[Struct]]) -> list[type[Struct]]:
    """The structs that payloads hold, and those that these hold."""
    found: list[type[Struct]] = []
    waiting = list(kinds)
    while waiting:
        inner = [one for field in msgspec.structs.fields(waiting.pop(0)) for one in structs(field.type)]
        new = [one for one in dict.fromkeys(inner) if one not in found]
        found += new
        waiting += new
    return sorted(found, key=lambda one: one.__name__)

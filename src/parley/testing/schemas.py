"""Whether a JSON Schema of an OpenAPI document changed by addition only."""

from collections.abc import Iterator
from typing import Any, Literal, cast

from msgspec import Struct

Json = dict[str, Any]
Direction = Literal["request", "response"]

ANYTHING = "anything"
_LOWER = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_UPPER = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_EXACT = ("pattern", "format", "multipleOf", "uniqueItems", "default")
_OPAQUE = ("allOf", "not", "if", "then", "else", "patternProperties", "propertyNames", "prefixItems", "contains")
_KINDS: list[tuple[type, str]] = [
    (bool, "boolean"), (str, "string"), (int, "integer"), (float, "number"), (dict, "object"), (list, "array"),
    (type(None), "null"),
]  # fmt: skip


class Place(Struct, frozen=True):
    """Where in a document a schema stands, and the references that led there."""

    name: str
    through: frozenset[tuple[str, str]] = frozenset()

    def at(self, step: str) -> "Place":
        return Place(f"{self.name}.{step}", self.through)


class Schemas:
    """Compares schemas of two documents: one that is sent may only become wider, one that is answered must keep its
    types and everything in it."""

    def __init__(self, before: Json, after: Json) -> None:
        self._before = before
        self._after = after

    def requested(self, place: Place, old: Json, new: Json) -> Iterator[str]:
        yield from self._compared(place, old, new, "request")

    def answered(self, place: Place, old: Json, new: Json) -> Iterator[str]:
        yield from self._compared(place, old, new, "response")

    def _compared(self, place: Place, old: Json, new: Json, direction: Direction) -> Iterator[str]:
        refs = old.get("$ref", ""), new.get("$ref", "")
        if any(refs) and refs in place.through:
            return
        place = Place(place.name, place.through | {refs})
        olds, news = _alternatives(self._before, old), _alternatives(self._after, new)
        for one in olds:
            yield from self._matched(place, one, news, direction)
        if direction == "response" and ANYTHING not in map(kind, olds):
            for name in sorted(set(map(kind, news)) - set(map(kind, olds))):
                yield f"{place.name} can also be {name}."

    def _matched(self, place: Place, old: Json, news: list[Json], direction: Direction) -> Iterator[str]:
        """Against whichever alternative comes closest."""
        rivals = [new for new in news if _covers(new, old, direction)]
        if not rivals:
            yield f"{place.name} {'no longer takes' if direction == 'request' else 'is no longer'} {kind(old)}."
            return
        compare = self._narrowed if direction == "request" else self._lost
        yield from min((list(compare(place, old, new)) for new in rivals), key=len)

    def _narrowed(self, place: Place, old: Json, new: Json) -> Iterator[str]:
        for name in sorted(set(new.get("required", ())) - set(old.get("required", ()))):
            yield f"{place.at(name).name} is required, and was not."
        yield from _fewer_values(place, old, new)
        yield from _tighter(place, old, new)
        yield from _opaque(place, old, new)
        yield from self._inner(place, old, new, "request")
        if new.get("additionalProperties", True) is False and old.get("additionalProperties", True) is not False:
            yield f"{place.name} no longer takes other members."

    def _lost(self, place: Place, old: Json, new: Json) -> Iterator[str]:
        for name in sorted(set(old.get("required", ())) - set(new.get("required", ()))):
            if name in new.get("properties", {}):
                yield f"{place.at(name).name} may be missing, and was always there."
        yield from _lost_values(place, old, new)
        yield from _opaque(place, old, new)
        yield from self._inner(place, old, new, "response")

    def _inner(self, place: Place, old: Json, new: Json, direction: Direction) -> Iterator[str]:
        kept: Json = new.get("properties", {})
        for name, schema in cast("Json", old.get("properties", {})).items():
            if name not in kept:
                yield f"{place.at(name).name} is gone."
            else:
                yield from self._compared(place.at(name), schema, kept[name], direction)
        for word, step in (("items", "[]"), ("additionalProperties", "*")):
            both = _schema(old.get(word)), _schema(new.get(word))
            if any(both) and None not in both:
                yield from self._compared(place.at(step), both[0] or {}, both[1] or {}, direction)


def kind(schema: Json) -> str:
    """The type that a schema names, or that its values have."""
    if (named := schema.get("type")) is not None:
        return str(named)
    kinds = {_kind_of(value) for value in _values(schema) or ()}
    return kinds.pop() if len(kinds) == 1 else ANYTHING


def _kind_of(value: object) -> str:
    return next(name for type_, name in _KINDS if isinstance(value, type_))


def _alternatives(document: Json, schema: Json) -> list[Json]:
    """Its types one by one, without references."""
    while "$ref" in schema:
        schema = _resolved(document, schema["$ref"])
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return [one for each in schema[word] for one in _alternatives(document, each)]
    if isinstance(types := schema.get("type"), list):
        return [{**schema, "type": one} for one in cast("list[str]", types)]
    return [schema]


def _resolved(document: Json, ref: str) -> Json:
    found = document
    for step in ref.removeprefix("#/").split("/"):
        found = found[step]
    return found


def _covers(new: Json, old: Json, direction: Direction) -> bool:
    if direction == "response":
        return kind(old) in (kind(new), ANYTHING)
    return kind(new) in (kind(old), ANYTHING) or (kind(old), kind(new)) == ("integer", "number")


def _schema(value: object) -> Json | None:
    """What is not said allows everything; None allows nothing."""
    return None if value is False else cast("Json", value) if isinstance(value, dict) else {}


def _values(schema: Json) -> list[Any] | None:
    return [schema["const"]] if "const" in schema else schema.get("enum")


def _fewer_values(place: Place, old: Json, new: Json) -> Iterator[str]:
    before, after = _values(old), _values(new)
    if after is None:
        return
    if before is None:
        yield f"{place.name} takes only {_listed(after)}."
    elif missing := [value for value in before if value not in after]:
        yield f"{place.name} no longer takes {_listed(missing)}."


def _lost_values(place: Place, old: Json, new: Json) -> Iterator[str]:
    before, after = _values(old), _values(new)
    if before is None:
        return
    if after is None:
        yield f"{place.name} can be anything, and was one of {_listed(before)}."
    elif missing := [value for value in before if value not in after]:
        yield f"{place.name} is no longer {_listed(missing)}."


def _tighter(place: Place, old: Json, new: Json) -> Iterator[str]:
    for words, sign in ((_LOWER, 1), (_UPPER, -1)):
        for word in words:
            if word in new and (word not in old or sign * (new[word] - old[word]) > 0):
                yield f"{place.name} has {word} {new[word]}, and had {old.get(word, 'none')}."
    for word in _EXACT:
        appears_harmlessly = word == "default" and word not in old
        if word in new and old.get(word) != new[word] and not appears_harmlessly:
            yield f"{place.name} has {word} {new[word]!r}, and had {old.get(word, 'none')!r}."


def _opaque(place: Place, old: Json, new: Json) -> Iterator[str]:
    """What is not understood here must not change at all."""
    for word in _OPAQUE:
        if old.get(word) != new.get(word):
            yield f"{place.name} has another {word}."


def _listed(values: list[Any]) -> str:
    return ", ".join(map(repr, values))

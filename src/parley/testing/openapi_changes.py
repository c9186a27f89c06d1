"""Checks that an OpenAPI document changed by addition only: finds what was removed for its clients."""

from collections.abc import Iterator
from typing import Any, Literal, cast

from msgspec import Struct

__all__ = ["taken_away"]

# Checks that a JSON Schema of an OpenAPI document changed by addition only.

Json = dict[str, Any]
Direction = Literal["request", "response"]

ANYTHING = "anything"
_LOWER = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_UPPER = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_EXACT = ("pattern", "format", "multipleOf", "uniqueItems", "default")
_OPAQUE = ("allOf", "not", "if", "then", "else", "patternProperties", "propertyNames", "prefixItems", "contains")
_KINDS: list[tuple[type, str]] = [
    (bool, "boolean"),
    (str, "string"),
    (int, "integer"),
    (float, "number"),
    (dict, "object"),
    (list, "array"),
    (type(None), "null"),
]


class SchemaPath(Struct, frozen=True):
    """Place of a schema in a document, and the references that led there."""

    name: str
    through: frozenset[tuple[str, str]] = frozenset()

    def at(self, step: str) -> "SchemaPath":
        return SchemaPath(f"{self.name}.{step}", self.through)


class Schemas:
    """Compares schemas of two documents: a request schema may only become wider; a response schema must keep its types
    and all its members."""

    def __init__(self, before: Json, after: Json) -> None:
        self._before = before
        self._after = after

    def requested(self, place: SchemaPath, old: Json, new: Json) -> Iterator[str]:
        yield from self._compared(place, old, new, "request")

    def answered(self, place: SchemaPath, old: Json, new: Json) -> Iterator[str]:
        yield from self._compared(place, old, new, "response")

    def _compared(self, place: SchemaPath, old: Json, new: Json, direction: Direction) -> Iterator[str]:
        refs = old.get("$ref", ""), new.get("$ref", "")
        if any(refs) and refs in place.through:
            return
        place = SchemaPath(place.name, place.through | {refs})
        olds, news = _alternatives(self._before, old), _alternatives(self._after, new)
        for one in olds:
            yield from self._matched(place, one, news, direction)
        if direction == "response" and ANYTHING not in map(kind, olds):
            for name in sorted(set(map(kind, news)) - set(map(kind, olds))):
                yield f"{place.name} can also be {name}."

    def _matched(self, place: SchemaPath, old: Json, news: list[Json], direction: Direction) -> Iterator[str]:
        """Compare with the alternative that comes closest."""
        rivals = [new for new in news if _covers(new, old, direction)]
        if not rivals:
            yield f"{place.name} {'no longer takes' if direction == 'request' else 'is no longer'} {kind(old)}."
            return
        compare = self._narrowed if direction == "request" else self._lost
        yield from min((list(compare(place, old, new)) for new in rivals), key=len)

    def _narrowed(self, place: SchemaPath, old: Json, new: Json) -> Iterator[str]:
        for name in sorted(set(new.get("required", ())) - set(old.get("required", ()))):
            yield f"{place.at(name).name} is required, and was not."
        yield from _fewer_values(place, old, new)
        yield from _tighter(place, old, new)
        yield from _opaque(place, old, new)
        yield from self._inner(place, old, new, "request")
        if new.get("additionalProperties", True) is False and old.get("additionalProperties", True) is not False:
            yield f"{place.name} no longer takes other members."

    def _lost(self, place: SchemaPath, old: Json, new: Json) -> Iterator[str]:
        for name in sorted(set(old.get("required", ())) - set(new.get("required", ()))):
            if name in new.get("properties", {}):
                yield f"{place.at(name).name} may be missing, and was always there."
        yield from _lost_values(place, old, new)
        yield from _opaque(place, old, new)
        yield from self._inner(place, old, new, "response")

    def _inner(self, place: SchemaPath, old: Json, new: Json, direction: Direction) -> Iterator[str]:
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
    """Return the type that a schema names, or that its values have."""
    if (named := schema.get("type")) is not None:
        return str(named)
    kinds = {_kind_of(value) for value in _values(schema) or ()}
    return kinds.pop() if len(kinds) == 1 else ANYTHING


def _kind_of(value: object) -> str:
    return next(name for type_, name in _KINDS if isinstance(value, type_))


def _alternatives(document: Json, schema: Json) -> list[Json]:
    """Return the types of a schema one by one, with references resolved."""
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
    """Return a schema. A missing one allows everything; None allows nothing."""
    return None if value is False else cast("Json", value) if isinstance(value, dict) else {}


def _values(schema: Json) -> list[Any] | None:
    return [schema["const"]] if "const" in schema else schema.get("enum")


def _fewer_values(place: SchemaPath, old: Json, new: Json) -> Iterator[str]:
    before, after = _values(old), _values(new)
    if after is None:
        return
    if before is None:
        yield f"{place.name} takes only {_listed(after)}."
    elif missing := [value for value in before if value not in after]:
        yield f"{place.name} no longer takes {_listed(missing)}."


def _lost_values(place: SchemaPath, old: Json, new: Json) -> Iterator[str]:
    before, after = _values(old), _values(new)
    if before is None:
        return
    if after is None:
        yield f"{place.name} can be anything, and was one of {_listed(before)}."
    elif missing := [value for value in before if value not in after]:
        yield f"{place.name} is no longer {_listed(missing)}."


def _tighter(place: SchemaPath, old: Json, new: Json) -> Iterator[str]:
    for words, sign in ((_LOWER, 1), (_UPPER, -1)):
        for word in words:
            if word in new and (word not in old or sign * (new[word] - old[word]) > 0):
                yield f"{place.name} has {word} {new[word]}, and had {old.get(word, 'none')}."
    for word in _EXACT:
        appears_harmlessly = word == "default" and word not in old
        if word in new and old.get(word) != new[word] and not appears_harmlessly:
            yield f"{place.name} has {word} {new[word]!r}, and had {old.get(word, 'none')!r}."


def _opaque(place: SchemaPath, old: Json, new: Json) -> Iterator[str]:
    """Report any change of keywords that this module does not interpret."""
    for word in _OPAQUE:
        if old.get(word) != new.get(word):
            yield f"{place.name} has another {word}."


def _listed(values: list[Any]) -> str:
    return ", ".join(map(repr, values))


_METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
_NONE: Json = {}


def taken_away(before: Json, after: Json) -> list[str]:
    """Return one sentence for each thing that a client of the earlier document would miss; none if everything was
    added."""
    return list(_Documents(before, after).differences())


class _Documents:
    def __init__(self, before: Json, after: Json) -> None:
        self._before = before
        self._after = after
        self._schemas = Schemas(before, after)

    def differences(self) -> Iterator[str]:
        if self._before.get("security") != self._after.get("security"):
            yield "The document asks for other credentials."
        for path, operations in self._before["paths"].items():
            there: Json | None = self._after["paths"].get(path)
            if there is None:
                yield f"{path} is gone."
                continue
            for method in _METHODS:
                if method in operations:
                    yield from self._method(f"{method.upper()} {path}", operations[method], there.get(method))

    def _method(self, name: str, old: Json, new: Json | None) -> Iterator[str]:
        if new is None:
            yield f"{name} is gone."
            return
        for word in ("operationId", "security"):
            if old.get(word) != new.get(word):
                yield f"{name} has another {word}: {new.get(word)}, and had {old.get(word)}."
        yield from self._parameters(name, _parameters(old), _parameters(new))
        yield from self._body(name, old.get("requestBody"), new.get("requestBody"))
        yield from self._responses(name, old["responses"], new["responses"])

    def _parameters(self, name: str, old: dict[str, Json], new: dict[str, Json]) -> Iterator[str]:
        for word, parameter in new.items():
            if parameter.get("required", False) and not old.get(word, _NONE).get("required", False):
                yield f"{name}: {word} is required, and was not."
        for word, parameter in old.items():
            if word not in new:
                yield f"{name}: {word} is gone."
            else:
                yield from self._schemas.requested(
                    SchemaPath(f"{name}: {word}"), parameter["schema"], new[word]["schema"]
                )

    def _body(self, name: str, old: Json | None, new: Json | None) -> Iterator[str]:
        if (new or _NONE).get("required", False) and not (old or _NONE).get("required", False):
            yield f"{name}: a body is required, and was not."
        if old is None:
            return
        contents = (new or _NONE).get("content", _NONE)
        for media, content in old["content"].items():
            if media not in contents:
                yield f"{name}: a body of {media} is gone."
            else:
                yield from self._schemas.requested(SchemaPath(f"{name}: body"), *_both(content, contents[media]))

    def _responses(self, name: str, old: Json, new: Json) -> Iterator[str]:
        for status, response in old.items():
            if status not in new:
                yield f"{name}: the response {status} is gone."
                continue
            contents = new[status].get("content", _NONE)
            for media, content in response.get("content", _NONE).items():
                if media not in contents:
                    yield f"{name}: the response {status} of {media} is gone."
                else:
                    yield from self._schemas.answered(SchemaPath(f"{name}: {status}"), *_both(content, contents[media]))


def _parameters(operation: Json) -> dict[str, Json]:
    """Return the parameters by the names that sentences use for them."""
    found: list[Any] = operation.get("parameters", [])
    return {f"{one['in']} parameter {one['name']}": one for one in found}


def _both(old: Json, new: Json) -> tuple[Json, Json]:
    return old.get("schema", _NONE), new.get("schema", _NONE)

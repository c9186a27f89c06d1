"""Contracts that change by addition only: what an OpenAPI document has taken away from its clients."""

from collections.abc import Iterator
from typing import Any

from parley.testing.schemas import Json, Place, Schemas

_METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
_NONE: Json = {}


def taken_away(before: Json, after: Json) -> list[str]:
    """A sentence for each thing that a client of the document before would miss; none when all was added."""
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
                yield from self._schemas.requested(Place(f"{name}: {word}"), parameter["schema"], new[word]["schema"])

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
                yield from self._schemas.requested(Place(f"{name}: body"), *_both(content, contents[media]))

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
                    yield from self._schemas.answered(Place(f"{name}: {status}"), *_both(content, contents[media]))


def _parameters(operation: Json) -> dict[str, Json]:
    """By what a sentence calls them."""
    found: list[Any] = operation.get("parameters", [])
    return {f"{one['in']} parameter {one['name']}": one for one in found}


def _both(old: Json, new: Json) -> tuple[Json, Json]:
    return old.get("schema", _NONE), new.get("schema", _NONE)

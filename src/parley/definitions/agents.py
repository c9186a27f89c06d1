"""From a document to an agent: which fields there are, what they may hold, and what is said when they do not."""

import re
from collections.abc import Iterator
from typing import Any, cast, get_args, get_origin

import msgspec
from msgspec import UNSET, Struct, structs

from parley.core.agents import Agent, Limits, check_agent, plain_skill
from parley.definitions.documents import Document, Route
from parley.definitions.kind import Kind, Kinds, Site
from parley.definitions.kinds import did_you_mean
from parley.definitions.servers import placed
from parley.engine.ports import Driver
from parley.errors import ConfigurationError, Invalid, ParleyError
from parley.extras import ExtraMissing

_FIELDS: dict[str, Any] = {field.name: field.type for field in structs.fields(Agent)}
_LIMITS = frozenset(Limits.__struct_fields__)
_AT = re.compile(r" - at `\$?(.*)`$")
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+)\]")
_MISSING = re.compile(r"Object missing required field `(.*)`")
_WORDS = {" | null": "", "null | ": "", "array": "list", "object": "mapping", "`": ""}
DEFAULT_KIND = "function"


class Draft(Struct, frozen=True):
    """What a document says, each field in its type."""

    document: Document
    slug: str
    kind: str
    fields: dict[str, Any]
    options: Struct


def drafted(
    document: Document, kinds: Kinds, slug: str | None, faults: list[ConfigurationError]
) -> Draft | None:  # fmt: skip
    """The fields that are right. None when there is too little to go on; the faults tell what is wrong."""
    reader = _Fields(document, faults)
    value = document.value
    if not isinstance(value, dict):
        faults.append(document.fault((), "expected a mapping of fields"))
        return None
    named = cast(dict[str, Any], value)
    kind = _kind(document, named, kinds, faults)
    if kind is None:
        return None
    reader.refuse_strangers(named, kind, kinds)
    fields = {name: reader.field((name,), named[name], type_) for name, type_ in _FIELDS.items() if name in named}
    options = reader.field((kind,), named.get(kind, {}), kinds[kind].options)
    slug = fields.pop("slug", slug)
    if slug is None:
        faults.append(document.fault(("slug",), "is missing"))
    if options is UNSET or slug is UNSET or slug is None:
        return None
    return Draft(document, slug, kind, {name: one for name, one in fields.items() if one is not UNSET}, options)


def build(draft: Draft, kind: Kind[Any], site: Site) -> Driver:
    """The agent at work, or the fault that shows only now."""
    try:
        agent = _agent(draft, kind.start(draft.slug, draft.options, site))
        check_agent(agent)
        agent = structs.replace(agent, mcp=placed(agent.mcp, site.folder))
        return kind.build(agent, draft.options, site)
    except (Invalid, ExtraMissing) as error:
        wrong = ExtraMissing if isinstance(error, ExtraMissing) else ConfigurationError
        raise draft.document.fault(_route_of(draft, error), error.message, wrong) from None


def _agent(draft: Draft, start: Agent) -> Agent:
    """What the definition leaves out stays as it was, each limit by itself."""
    fields = dict(draft.fields)
    if isinstance(limits := fields.get("limits"), Limits):
        written = draft.document.value["limits"]
        fields["limits"] = structs.replace(
            start.limits, **{name: getattr(limits, name) for name in _LIMITS & written.keys()}
        )
    agent = structs.replace(start, **fields)
    return agent if agent.skills else structs.replace(agent, skills=(_only_skill(agent),))


def _only_skill(agent: Agent) -> Any:
    return plain_skill(agent.slug, agent.name, agent.description)


def _route_of(draft: Draft, error: ParleyError) -> Route:
    field = str(error.details.get("field", ""))
    if field in type(draft.options).__struct_fields__:
        return (draft.kind, field)
    return ("limits", field) if field in _LIMITS else (field,) if field else ()


def _kind(document: Document, value: dict[str, Any], kinds: Kinds, faults: list[ConfigurationError]) -> str | None:
    """The driver that is named; else the one whose table is there; else a function."""
    tables = [name for name in kinds if name in value]
    kind: object = value.get("driver", tables[0] if len(tables) == 1 else DEFAULT_KIND)
    if isinstance(kind, str) and kind in kinds:
        return kind
    faults.append(document.fault(("driver",), f"expected {_listed(list(kinds))}, got {kind!r}"))
    return None


class _Fields:
    """Converts values, and goes on after a fault so that all of them are told."""

    def __init__(self, document: Document, faults: list[ConfigurationError]) -> None:
        self._document = document
        self._faults = faults

    def refuse_strangers(self, value: dict[str, Any], kind: str, kinds: Kinds) -> None:
        known = [*_FIELDS, "driver", kind]
        for name in value:
            if name in kinds and name != kind:
                self._wrong((name,), f"these are options of another driver, but the driver is {kind}")
            elif name not in known:
                self._wrong((name,), "there is no such field" + did_you_mean(name, known))

    def field(self, route: Route, value: Any, type_: Any) -> Any:
        try:
            return msgspec.convert(self._fitted(route, value, type_), type_, strict=True)
        except msgspec.ValidationError as error:
            self._wrong(*_translated(route, type_, value, str(error)))
        return UNSET

    def _fitted(self, route: Route, value: Any, type_: Any) -> Any:
        """The value without fields that nobody knows, and with its text as it was written."""
        if isinstance(value, list) and get_origin(type_) is tuple:
            items = cast(list[Any], value)
            return [self._fitted((*route, place), item, get_args(type_)[0]) for place, item in enumerate(items)]
        struct = next(_structs(type_), None)
        if struct is not None and isinstance(value, dict):
            return self._fitted_struct(route, cast(dict[str, Any], value), struct)
        wants_text = type_ is str or str in get_args(type_)
        return self._document.texts.get(route, cast(object, value)) if wants_text else cast(object, value)

    def _fitted_struct(self, route: Route, value: dict[str, Any], struct: type[Struct]) -> dict[str, Any]:
        types = {field.encode_name: field.type for field in structs.fields(struct)}
        for name in value.keys() - types.keys():
            self._wrong((*route, name), "there is no such field" + did_you_mean(name, types))
        return {
            name: self._fitted((*route, name), item, types[name]) for name, item in value.items() if name in types
        }  # fmt: skip

    def _wrong(self, route: Route, message: str) -> None:
        self._faults.append(self._document.fault(route, message))


def _structs(type_: Any) -> Iterator[type[Struct]]:
    for one in (type_, *get_args(type_)):
        if isinstance(one, type) and issubclass(one, Struct):
            yield one


def _translated(route: Route, type_: Any, value: Any, message: str) -> tuple[Route, str]:
    """What msgspec says, in the words of a definition: where, and what was expected there."""
    at = _AT.search(message)
    steps = _STEP.findall(at[1]) if at else []
    route = (*route, *(name or int(place) for name, place in steps))
    message = _AT.sub("", message)
    if missing := _MISSING.fullmatch(message):
        return (*route, missing[1]), "is missing"
    if message.startswith("Invalid enum value"):
        choices, given = _choices(type_, value, steps)
        return route, f"expected {_listed(choices)}, got {given!r}"
    for word, plain in _WORDS.items():
        message = message.replace(word, plain)
    return route, message[:1].lower() + message[1:]


def _choices(type_: Any, value: Any, steps: list[tuple[str, str]]) -> tuple[list[Any], Any]:
    """What may stand where the steps lead, and what does."""
    for name, place in steps:
        if name:
            struct = next(_structs(type_))
            type_ = next(field.type for field in structs.fields(struct) if field.encode_name == name)
        else:
            type_ = get_args(type_)[0]
        value = value[name or int(place)]
    # What may also be missing is a union of the choices and nothing.
    choices = [one for arg in get_args(type_) for one in (get_args(arg) or (arg,))]
    return [one for one in choices if isinstance(one, str)], value


def _listed(words: Any) -> str:
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else str(last)

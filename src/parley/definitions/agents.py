"""Build agents from definitions: the fields, their types, and the error messages for invalid values."""

import inspect
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeGuard, cast, get_args, get_origin

import msgspec
from msgspec import UNSET, Struct, structs
from msgspec.structs import replace

from parley.definitions.files import DefinitionFile, Route
from parley.definitions.frameworks import FRAMEWORK_KINDS
from parley.drivers.agentzero import AgentZeroOptions
from parley.drivers.agentzero.driver import build_agentzero, start_agentzero
from parley.drivers.command import CommandOptions, build_command, short_command, start_command
from parley.drivers.function import Function, FunctionDriver
from parley.drivers.kind import DriverKind, Kinds, Site, did_you_mean, folder_at, named_object, program_at
from parley.drivers.llm.driver import LlmOptions, build_llm, start_llm
from parley.drivers.org.driver import OrgOptions, build_organisation, start_organisation
from parley.drivers.remote import RemoteDriver, RemoteOptions, blank_remote
from parley.drivers.remote.options import BINDINGS
from parley.drivers.workflow import WorkflowOptions, build_workflow, short_workflow
from parley.errors import ConfigurationError, Invalid, OutboundRefused, ParleyError
from parley.execution.driver import Driver
from parley.extras import ExtraMissing
from parley.paired.driver import EdgeDriver, EdgeOptions
from parley.runs.rules.agents import Agent, Limits, check_agent, plain_name, plain_skill
from parley.security.netguard import Guard
from parley.tools.rules.mcp import McpServer, check_servers

# The kinds of drivers that a definition can use. The options of each kind are in a table with its name.


class FunctionOptions(Struct, frozen=True):
    call: str
    """`path/to/file.py:name`, relative to the definition, or `package.module:name`."""


def _start_function(slug: str, options: FunctionOptions, site: Site) -> Agent:
    found = _named_by(options, site)
    if isinstance(found, FunctionDriver):
        return replace(found.agent, slug=slug)
    return Agent(slug, plain_name(slug), inspect.getdoc(found) or f"The agent {slug}.")


def _build_function(agent: Agent, options: FunctionOptions, site: Site) -> Driver:
    found = _named_by(options, site)
    if isinstance(found, FunctionDriver):
        return FunctionDriver(agent, found.function, found.output)
    return FunctionDriver(agent, found)


def _named_by(options: FunctionOptions, site: Site) -> FunctionDriver | Function:
    found = named_object(options.call, site, "function")
    if not isinstance(found, FunctionDriver) and (not callable(found) or inspect.isclass(found)):
        name = options.call.rpartition(":")[2]
        raise Invalid(f"{name} is not a function; its type is {type(found).__name__}", field="call")
    return cast(FunctionDriver | Function, found)


def _start_remote(slug: str, options: RemoteOptions, site: Site) -> Agent:
    return blank_remote(slug)


def _build_remote(agent: Agent, options: RemoteOptions, site: Site) -> Driver:
    if site.outside is None:
        return RemoteDriver(agent, options)
    # The guard covers only HTTP.
    bindings = tuple(one for one in options.bindings or BINDINGS if one != "GRPC")
    if not bindings:
        raise Invalid("must include JSONRPC or HTTP+JSON: added agents cannot use gRPC", field="bindings")
    return RemoteDriver(agent, replace(options, bindings=bindings), site.outside)


def _build_edge(agent: Agent, options: EdgeOptions, site: Site) -> Driver:
    return EdgeDriver(agent)


KINDS: Kinds = {
    "function": DriverKind(FunctionOptions, _build_function, _start_function, lambda call: {"call": call}),
    "llm": DriverKind(LlmOptions, build_llm, start_llm, lambda model: {"model": model}),
    "command": DriverKind(CommandOptions, build_command, start_command, short_command, lambda run: {"run": run}),
    "remote": DriverKind(RemoteOptions, _build_remote, _start_remote, lambda url: {"url": url}),
    "edge": DriverKind(EdgeOptions, _build_edge),
    "agentzero": DriverKind(AgentZeroOptions, build_agentzero, start_agentzero, lambda url: {"url": url}),
    "org": DriverKind(OrgOptions, build_organisation, start_organisation, lambda folder: {"folder": folder}),
    "workflow": DriverKind(WorkflowOptions, build_workflow, short_list=short_workflow),
    **FRAMEWORK_KINDS,
}


# MCP servers in a definition or in the settings: resolve their paths and check them.

_FILE = re.compile(r"\$\{file:([^}]+)\}")
FIELD = "mcp"


def placed(servers: Iterable[McpServer], folder: Path) -> tuple[McpServer, ...]:
    """Return the servers with absolute paths; paths are relative to the definition's folder."""
    return tuple(_placed(server, folder) for server in servers)


def common_servers(given: Sequence[Mapping[str, Any]], folder: Path) -> list[McpServer]:
    """Return the MCP servers of the settings, which any agent may use."""
    try:
        servers = msgspec.convert(list(given), list[_Strict])
        found = [McpServer(**msgspec.structs.asdict(one)) for one in servers]
        check_servers(found)
        return list(placed(found, folder))
    except (msgspec.ValidationError, Invalid) as error:
        raise ConfigurationError(f"Setting {FIELD}: {error}", field=FIELD) from None


class _Strict(McpServer, frozen=True, forbid_unknown_fields=True):
    """Refuses unknown fields, because the settings have no other check for them."""


def _placed(server: McpServer, folder: Path) -> McpServer:
    if not server.run:
        _check_url(server.url or "")
        return replace(server, headers=_with_files(server.headers, folder))
    if os.name != "posix":
        raise Invalid("programs can run only on Linux, macOS and other POSIX systems", field=FIELD)
    run = (program_at(server.run[0], folder, FIELD), *server.run[1:])
    return replace(server, run=run, cwd=folder_at(server.cwd, folder, FIELD), env=_with_files(server.env, folder))


def _check_url(url: str) -> None:
    """Check only the form of the URL. The guard checks its address when the server is called."""
    try:
        Guard(("0.0.0.0/0", "::/0")).check_url(url)
    except OutboundRefused as error:
        raise Invalid(error.message, field=FIELD) from None


def _with_files(values: Mapping[str, str], folder: Path) -> dict[str, str]:
    def whole(match: re.Match[str]) -> str:
        return f"${{file:{(folder / match[1]).absolute()}}}"

    return {name: _FILE.sub(whole, value) for name, value in values.items()}


_FIELDS: dict[str, Any] = {field.name: field.type for field in structs.fields(Agent)}
_LIMITS = frozenset(Limits.__struct_fields__)
_AT = re.compile(r" - at `\$?(.*)`$")
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+)\]")
_MISSING = re.compile(r"Object missing required field `(.*)`")
_WORDS = {" | null": "", "null | ": "", "array": "list", "object": "mapping", "`": ""}
DEFAULT_KIND = "function"


class Draft(Struct, frozen=True):
    """The fields of a definition, converted to their types."""

    document: DefinitionFile
    slug: str
    kind: str
    fields: dict[str, Any]
    options: Struct


def drafted(document: DefinitionFile, kinds: Kinds, slug: str | None, faults: list[ConfigurationError]) -> Draft | None:
    """Return the valid fields, and add all errors to `faults`. Returns None if too little is valid to continue."""
    reader = _Fields(document, faults)
    value = document.value
    if not isinstance(value, dict):
        faults.append(document.fault((), "must be a mapping of fields"))
        return None
    named = cast(dict[str, Any], value)
    kind = _kind(document, named, kinds, faults)
    if kind is None:
        return None
    reader.refuse_strangers(named, kind, kinds)
    fields = {name: reader.field((name,), named[name], type_) for name, type_ in _FIELDS.items() if name in named}
    options = reader.options(kind, named.get(kind, {}), kinds[kind])
    slug = fields.pop("slug", slug)
    if slug is None:
        faults.append(document.fault(("slug",), "is missing"))
    if options is UNSET or slug is UNSET or slug is None:
        return None
    return Draft(document, slug, kind, {name: one for name, one in fields.items() if one is not UNSET}, options)


def build(draft: Draft, kind: DriverKind[Any], site: Site) -> Driver:
    """Build the driver. Raises an error that shows only at this point, with its line."""
    try:
        agent = _agent(draft, kind.start(draft.slug, draft.options, site))
        check_agent(agent)
        agent = structs.replace(agent, mcp=placed(agent.mcp, site.folder))
        return kind.build(agent, draft.options, site)
    except (Invalid, ExtraMissing) as error:
        wrong = ExtraMissing if isinstance(error, ExtraMissing) else ConfigurationError
        raise draft.document.fault(_route_of(draft, error), error.message, wrong) from None


def _agent(draft: Draft, start: Agent) -> Agent:
    """Apply the definition's fields to the agent. Fields that it leaves out keep their values; so does each limit."""
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
    if field in type(draft.options).__struct_fields__ and (field not in _FIELDS or _is_option(draft, field)):
        return (draft.kind, field)
    return ("limits", field) if field in _LIMITS else (field,) if field else ()


def _is_option(draft: Draft, field: str) -> bool:
    """Return whether a field that the agent and its driver share is written among the options of the driver."""
    options: object = draft.document.value.get(draft.kind, {})
    return not isinstance(options, dict) or field in options


def _kind(
    document: DefinitionFile, value: dict[str, Any], kinds: Kinds, faults: list[ConfigurationError]
) -> str | None:
    """Return the driver that the definition names; else the one whose options are present; else `function`."""
    tables = [name for name in kinds if name in value]
    kind: object = value.get("driver", tables[0] if len(tables) == 1 else DEFAULT_KIND)
    if isinstance(kind, str) and kind in kinds:
        return kind
    faults.append(document.fault(("driver",), f"expected {_listed(list(kinds))}, got {kind!r}"))
    return None


class _Fields:
    """Converts values, and continues after an error so that all errors are reported."""

    def __init__(self, document: DefinitionFile, faults: list[ConfigurationError]) -> None:
        self._document = document
        self._faults = faults

    def refuse_strangers(self, value: dict[str, Any], kind: str, kinds: Kinds) -> None:
        known = [*_FIELDS, "driver", kind]
        for name in value:
            if name in kinds and name != kind:
                self._wrong((name,), f"has options for another driver; the driver of this agent is {kind}")
            elif name not in known:
                self._wrong((name,), "unknown field" + did_you_mean(name, known))

    def options(self, name: str, value: Any, kind: DriverKind[Any]) -> Any:
        """Return the options of a driver; a text or a list is their short form."""
        try:
            return self.field((name,), _in_full(value, kind), kind.options)
        except Invalid as error:
            self._wrong((name,), error.message)
            return UNSET

    def field(self, route: Route, value: Any, type_: Any) -> Any:
        try:
            return msgspec.convert(self._fitted(route, value, type_), type_, strict=True)
        except msgspec.ValidationError as error:
            self._wrong(*_translated(route, type_, value, str(error)))
        return UNSET

    def _fitted(self, route: Route, value: Any, type_: Any) -> Any:
        """Return the value without unknown fields, and with its text as it was written."""
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
            self._wrong((*route, name), "unknown field" + did_you_mean(name, types))
        return {name: self._fitted((*route, name), item, types[name]) for name, item in value.items() if name in types}

    def _wrong(self, route: Route, message: str) -> None:
        self._faults.append(self._document.fault(route, message))


def _in_full(value: object, kind: DriverKind[Any]) -> object:
    """Return the options that a short form stands for."""
    if isinstance(value, str) and kind.short is not None:
        return kind.short(value)
    return kind.short_list(value) if kind.short_list is not None and _is_words(value) else value


def _is_words(value: object) -> TypeGuard[list[str]]:
    words = cast(list[object], value) if isinstance(value, list) else []
    return bool(words) and all(isinstance(one, str) for one in words)


def _structs(type_: Any) -> Iterator[type[Struct]]:
    for one in (type_, *get_args(type_)):
        if isinstance(one, type) and issubclass(one, Struct):
            yield one


def _translated(route: Route, type_: Any, value: Any, message: str) -> tuple[Route, str]:
    """Translate an error of msgspec to the place in the definition and what was expected there."""
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
    """Return the allowed values at the place that `steps` lead to, and the value that is there."""
    for name, place in steps:
        if name:
            struct = next(_structs(type_))
            type_ = next(field.type for field in structs.fields(struct) if field.encode_name == name)
        else:
            type_ = get_args(type_)[0]
        value = value[name or int(place)]
    # An optional field is a union of the choices and None.
    choices = [one for arg in get_args(type_) for one in (get_args(arg) or (arg,))]
    return [one for one in choices if isinstance(one, str)], value


def _listed(words: Any) -> str:
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else str(last)

"""The drivers that a definition can name. Each has a table of options of its own, called after it."""

import difflib
import inspect
from collections.abc import Iterable
from typing import cast

from msgspec import Struct
from msgspec.structs import replace

from parley.core.agents import Agent, plain_name
from parley.definitions.agentzeros import build_agentzero, start_agentzero
from parley.definitions.commands import CommandOptions, build_command, start_command
from parley.definitions.kind import Kind, Kinds, Site
from parley.definitions.llms import LlmOptions, build_llm, start_llm
from parley.definitions.organisations import OrgOptions, build_organisation, start_organisation
from parley.definitions.workflows import WorkflowOptions, build_workflow
from parley.drivers.agentzero import AgentZeroOptions
from parley.drivers.edge import EdgeDriver, EdgeOptions
from parley.drivers.function import Function, FunctionDriver
from parley.drivers.remote import RemoteDriver, RemoteOptions, blank_remote
from parley.drivers.remote.options import BINDINGS
from parley.engine.ports import Driver
from parley.errors import Invalid


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
    return FunctionDriver(agent, found.function if isinstance(found, FunctionDriver) else found)


def _named_by(options: FunctionOptions, site: Site) -> FunctionDriver | Function:
    where, _, name = options.call.rpartition(":")
    if not where or not name.isidentifier():
        raise Invalid("write path/to/file.py:name or package.module:name", field="call")
    try:
        module = site.imports.file(site.folder / where) if where.endswith(".py") else site.imports.named(where)
    except Invalid as error:
        raise Invalid(error.message, field="call") from None
    found: object = getattr(module, name, None)
    if found is None:
        raise Invalid(f"{where} has no function {name}{did_you_mean(name, vars(module))}", field="call")
    if not isinstance(found, FunctionDriver) and (not callable(found) or inspect.isclass(found)):
        raise Invalid(f"{name} is not a function but of type {type(found).__name__}", field="call")
    return cast(FunctionDriver | Function, found)


def _start_remote(slug: str, options: RemoteOptions, site: Site) -> Agent:
    return blank_remote(slug)


def _build_remote(agent: Agent, options: RemoteOptions, site: Site) -> Driver:
    if site.outside is None:
        return RemoteDriver(agent, options)
    # A guard looks after HTTP only.
    bindings = tuple(one for one in options.bindings or BINDINGS if one != "GRPC")
    if not bindings:
        raise Invalid("an agent that is added like this is called by JSONRPC or HTTP+JSON", field="bindings")
    return RemoteDriver(agent, replace(options, bindings=bindings), site.outside)


def _build_edge(agent: Agent, options: EdgeOptions, site: Site) -> Driver:
    return EdgeDriver(agent)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, known, 1)
    return f"; did you mean {near[0]}?" if near else ""


KINDS: Kinds = {
    "function": Kind(FunctionOptions, _build_function, _start_function),
    "llm": Kind(LlmOptions, build_llm, start_llm),
    "command": Kind(CommandOptions, build_command, start_command),
    "remote": Kind(RemoteOptions, _build_remote, _start_remote),
    "edge": Kind(EdgeOptions, _build_edge),
    "agentzero": Kind(AgentZeroOptions, build_agentzero, start_agentzero),
    "org": Kind(OrgOptions, build_organisation, start_organisation),
    "workflow": Kind(WorkflowOptions, build_workflow),
}

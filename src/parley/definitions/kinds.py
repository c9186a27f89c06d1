"""The drivers that a definition can name. Each has a table of options of its own, called after it."""

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from parley.core.agents import Agent, plain_name
from parley.definitions.imports import Imports
from parley.drivers.function import Function, FunctionDriver
from parley.drivers.remote import RemoteDriver, RemoteOptions, blank_remote
from parley.engine.ports import Driver
from parley.errors import Invalid

Options = TypeVar("Options", bound=Struct)


class Site(Struct, frozen=True):
    """Where a definition stands: paths in it are relative to its folder, and its Python comes from these imports."""

    folder: Path
    imports: Imports


def blank(slug: str, options: Struct, site: Site) -> Agent:
    """An agent about which nothing is known but its address."""
    return Agent(slug, plain_name(slug), f"The agent {slug}.")


@dataclass(frozen=True)
class Kind(Generic[Options]):
    """How a definition becomes a driver. What is wrong with an option is raised as Invalid with its `field`."""

    options: type[Options]
    build: Callable[[Agent, Options, Site], Driver]
    start: Callable[[str, Options, Site], Agent] = blank
    """The agent before the definition's own fields are put on it."""


Kinds = Mapping[str, Kind[Any]]


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
    return RemoteDriver(agent, options)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, known, 1)
    return f"; did you mean {near[0]}?" if near else ""


KINDS: Kinds = {
    "function": Kind(FunctionOptions, _build_function, _start_function),
    "remote": Kind(RemoteOptions, _build_remote, _start_remote),
}

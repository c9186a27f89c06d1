"""How a definition becomes a driver."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from msgspec import Struct

from parley.core.agents import Agent, plain_name
from parley.definitions.imports import Imports
from parley.drivers.remote import Outside
from parley.engine.ports import Driver

Options = TypeVar("Options", bound=Struct)


class Site(Struct, frozen=True):
    """Where a definition stands: paths in it are relative to its folder, and its Python comes from these imports."""

    folder: Path
    imports: Imports
    outside: Outside | None = None
    """The guarded connections of agents whose address an operator of this machine has not written."""


def blank(slug: str, options: Struct, site: Site) -> Agent:
    """An agent about which nothing is known but its address."""
    return Agent(slug, plain_name(slug), f"The agent {slug}.")


@dataclass(frozen=True)
class Kind(Generic[Options]):
    """A driver's options, and what is made of them. What is wrong with one is raised as Invalid with its `field`."""

    options: type[Options]
    build: Callable[[Agent, Options, Site], Driver]
    start: Callable[[str, Options, Site], Agent] = blank
    """The agent before the definition's own fields are put on it."""


Kinds = Mapping[str, Kind[Any]]

"""Agents of frameworks: recognise them in a module, and the drivers that a definition can name for them."""

import re
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from parley import extras
from parley.drivers.framework import framework_agent
from parley.drivers.kind import DriverKind, Kinds, Site, named_object
from parley.errors import Invalid
from parley.execution.driver import Driver
from parley.runs.rules.agents import Agent

_COMMON = frozenset(("agent", "app", "graph", "LangGraph"))
"""Names that say nothing about an agent: it gets the name of its file."""


class Framework(Struct, frozen=True):
    """A framework: the class of its agents, and the driver for them."""

    kind: str
    """Name of the driver in a definition, and of the extra."""
    package: str
    of_class: str
    module: str
    driver: str


FRAMEWORKS = (
    Framework("pydantic-ai", "pydantic_ai", "AbstractAgent", "parley.drivers.pydantic_ai", "PydanticAiDriver"),
    Framework("openai-agents", "agents", "Agent", "parley.drivers.openai_agents", "OpenAiAgentsDriver"),
    Framework("langgraph", "langgraph", "Pregel", "parley.drivers.graph", "GraphDriver"),
)


def framework_of(value: object) -> Framework | None:
    """Return the framework whose agent a value is. No framework is imported for this."""
    names = {(one.__module__.partition(".")[0], one.__name__) for one in type(value).__mro__}
    return next((one for one in FRAMEWORKS if (one.package, one.of_class) in names), None)


def adapted(value: object, variable: str = "", file: str = "") -> Driver | None:
    """Return a driver for an agent of a framework; None for any other value. Its slug is made from its name, or else
    from the variable or the file that holds it."""
    framework = framework_of(value)
    return None if framework is None else _made(framework, _described(_slug(value, variable, file), value), value)


def _slug(value: object, variable: str, file: str) -> str:
    named = getattr(value, "name", None)
    candidates = (named if isinstance(named, str) else "", variable, file)
    name = next((one for one in candidates if one and one not in _COMMON), "agent")
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:63] or "agent"


def _described(slug: str, value: object) -> Agent:
    """Return the agent with the text that it has for other agents. Its instructions are not public."""
    found = getattr(value, "handoff_description", None) or getattr(value, "description", None)
    return framework_agent(slug, description=found if isinstance(found, str) else None)


def _made(framework: Framework, agent: Agent, value: object, **options: Any) -> Driver:
    extras.check(framework.kind, f"An agent of {framework.kind}")
    driver: Callable[..., Driver] = getattr(import_module(framework.module), framework.driver)
    return driver(agent, value, **options)


# Options of the drivers in a definition.


class PydanticAiOptions(Struct, frozen=True):
    call: str
    """The agent: `path/to/file.py:name`, relative to the definition, or `package.module:name`."""
    deps: str | None = None
    """A function that makes the dependencies of the tools from a turn, written like `call`."""
    history: int = 20
    """Number of earlier exchanges of the conversation that the model reads."""


class OpenAiAgentsOptions(Struct, frozen=True):
    call: str
    """The agent: `path/to/file.py:name`, relative to the definition, or `package.module:name`."""
    context: str | None = None
    """A function that makes the context of the tools from a turn, written like `call`."""
    history: int = 20
    """Number of earlier exchanges of the conversation that the model reads."""
    max_turns: int = 10
    """Maximum number of model calls in a row."""


class LangGraphOptions(Struct, frozen=True):
    call: str
    """The compiled graph: `path/to/file.py:name`, relative to the definition, or `package.module:name`."""
    artifacts: Mapping[str, str | None] = {}
    """Members of the graph's state to deliver at the end, with their media types."""
    answer: str | None = None
    """The member that holds the answer, for graphs without messages."""
    history: int = 20
    """Number of earlier exchanges of the conversation that a graph without a checkpointer reads."""


_FUNCTIONS = ("deps", "context")
"""Options that name a function."""


def _kind(framework: Framework, options: type[Any]) -> DriverKind[Any]:
    def start(slug: str, given: Any, site: Site) -> Agent:
        return _described(slug, _named_by(framework, given, site))

    def build(agent: Agent, given: Any, site: Site) -> Driver:
        values = {name: value for name, value in asdict(given).items() if name != "call" and value is not None}
        functions = {name: named_object(values[name], site, "function", name) for name in _FUNCTIONS if name in values}
        return _made(framework, agent, _named_by(framework, given, site), **values | functions)

    return DriverKind(options, build, start, lambda call: {"call": call})


def _named_by(framework: Framework, given: Any, site: Site) -> object:
    extras.check(framework.kind, f"The driver {framework.kind}", field="call")
    found = named_object(given.call, site, "agent")
    if framework_of(found) is not framework:
        raise Invalid(f"must name an agent of {framework.kind}; its type is {type(found).__name__}", field="call")
    return found


_OPTIONS: tuple[type[Struct], ...] = (PydanticAiOptions, OpenAiAgentsOptions, LangGraphOptions)
FRAMEWORK_KINDS: Kinds = {one.kind: _kind(one, options) for one, options in zip(FRAMEWORKS, _OPTIONS, strict=True)}

"""Agents: their identity, card, limits and rights."""

import re
from fnmatch import fnmatchcase
from typing import Literal

from msgspec import UNSET, Struct

from parley.errors import ContentNotSupported, Invalid
from parley.runs.rules.content import Part, Parts
from parley.tools.rules.mcp import McpServer, check_servers

SLUG = re.compile(r"[a-z0-9](?:[a-z0-9_-]{0,61}[a-z0-9])?")

MOST = 1_000_000
"""The largest limit: each slot is a row in the store, and the number must fit everywhere."""

_RATES = (("max_per_second", 1e-9), ("max_burst", 1))

Rescue = Literal["restart", "resume", "fail"]
Replies = Literal["task", "message", "either"]
"""The kind of answer: a task, a direct message, or the agent's choice in each turn."""

Visibility = Literal["public", "internal", "private"]
"""Callers that can see an agent: all, all with credentials, or only the principals that it allows."""


class Skill(Struct, frozen=True, omit_defaults=True, rename="camel"):
    id: str
    name: str
    description: str
    tags: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()


class Limits(Struct, frozen=True):
    """Limits of an agent; None means unlimited. `timeout_s` counts only time spent working."""

    max_concurrent: int | None = None
    max_queued: int | None = None
    timeout_s: float | None = None
    max_per_second: float | None = None
    """Number of runs that may begin per second; `max_burst` of them at once (the same number if None)."""
    max_burst: int | None = None


class Extended(Struct, frozen=True):
    """Information about an agent for callers with credentials only."""

    description: str | None = None
    skills: tuple[Skill, ...] = ()


class Extension(Struct, frozen=True):
    """An A2A extension that the agent itself implements."""

    uri: str
    description: str = ""
    required: bool = False
    params: dict[str, object] = {}
    """Configuration of the extension, as its specification defines it."""


class Provider(Struct, frozen=True):
    organization: str
    url: str


class Agent(Struct, frozen=True):
    slug: str
    name: str
    description: str
    version: str = "1.0.0"
    skills: tuple[Skill, ...] = ()
    model: str | None = None
    capabilities: tuple[str, ...] = ()
    """Abilities beyond chat, by the names that other contracts use (`plan.create`)."""
    tools: tuple[str, ...] = ()
    """Tools that it may use: `server`, `server/tool`, with `*` in either; all tools of its own servers if empty."""
    mcp: tuple[McpServer, ...] = ()
    """Its own MCP servers."""
    visibility: Visibility = "public"
    allow: tuple[str, ...] = ()
    """The principals that may use a private agent (`service:ci`, `user:ann`)."""
    limits: Limits = Limits()
    rescue: Rescue = "restart"
    replies: Replies = "task"
    streaming: bool = True
    push: bool = True
    extended: Extended | None = None
    extensions: tuple[Extension, ...] = ()
    provider: Provider | None = None
    documentation_url: str | None = None
    icon_url: str | None = None
    input_modes: tuple[str, ...] = ("text/plain", "application/json")
    """Media types that it reads; patterns such as `*/*` and `image/*` are allowed."""
    output_modes: tuple[str, ...] = ("text/plain", "application/json")
    inline_bytes: int | None = None
    """Larger artifacts are shown as a URL from which they can be fetched; None shows all artifacts in full."""
    extra: dict[str, object] = {}
    """Additional members of the card, for clients that read more than A2A 1.0; the face adds `authentication` to
    them."""


def vendor_and_model(agent: Agent) -> tuple[str, str]:
    """Return the vendor and the model of an agent whose model is `vendor:model`. Either is empty if it is unknown."""
    vendor, colon, model = (agent.model or "").partition(":")
    return (vendor, model) if colon else ("", vendor)


def check_agent(agent: Agent) -> None:
    if SLUG.fullmatch(agent.slug) is None:
        raise Invalid(
            f"Agent slug {agent.slug!r}: use 1 to 63 lower-case letters, digits, - or _, "
            "starting and ending with a letter or digit.",
            field="slug",
        )
    check_servers(agent.mcp)
    for name, least in (("max_concurrent", 1), ("max_queued", 0), ("timeout_s", 1e-9), *_RATES):
        value = getattr(agent.limits, name)
        if value is not None and not least <= value <= MOST:
            allowed = "positive" if least else "zero or more"
            raise Invalid(f"Agent {agent.slug}: limit {name} must be {allowed}, and at most {MOST:,}.", field=name)


def check_content(agent: Agent, parts: Parts) -> None:
    """Raise ContentNotSupported for a part that the agent does not read. Only the declared type counts; bytes without a
    type are accepted."""
    for part in parts:
        kind = _media_of(part)
        if kind and not _reads(agent, kind):
            raise ContentNotSupported(f"This agent does not read {kind}; it reads {', '.join(agent.input_modes)}.")


def _media_of(part: Part) -> str:
    """Return the media type without its parameters; empty if it is unknown."""
    media = part.media_type
    if media is None:
        media = "text/plain" if part.text is not None else "application/json" if part.data is not UNSET else ""
    return media.partition(";")[0].strip().lower()


def _reads(agent: Agent, kind: str) -> bool:
    return kind in agent.input_modes or any(fnmatchcase(kind, _pattern(mode)) for mode in agent.input_modes)


def _pattern(mode: str) -> str:
    """Return a pattern for a media type. Older cards use `text` and `*` for `text/*` and `*/*`."""
    return mode.lower() if "/" in mode or mode == "*" else f"{mode.lower()}/*"


def plain_name(slug: str) -> str:
    """Return the default name of an agent."""
    return slug.replace("-", " ").replace("_", " ").capitalize()


def plain_skill(slug: str, name: str, description: str) -> Skill:
    """Return the default skill of an agent, because a card must show at least one."""
    return Skill(slug, name, description.split("\n\n")[0], ("general",))


def has_capability(agent: Agent, mode: str, action: str, capability: str) -> bool:
    """Return whether an agent has a capability. An agent that lists none has all; `plan.create`, `plan.*` and `*` are
    accepted too."""
    listed = agent.capabilities
    return not listed or not {capability, f"{mode}.{action}", f"{mode}.*", "*"}.isdisjoint(listed)

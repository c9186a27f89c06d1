"""An agent as the exchange knows it: an identity that can be asked to work."""

import re
from fnmatch import fnmatchcase
from typing import Literal

from msgspec import UNSET, Struct

from parley.core.artifacts import Part, Parts
from parley.core.mcp import McpServer, check_servers
from parley.errors import ContentNotSupported, Invalid

SLUG = re.compile(r"[a-z0-9](?:[a-z0-9_-]{0,61}[a-z0-9])?")

MOST = 1_000_000
"""The largest limit: a slot is a row, and a number must fit everywhere."""

_RATES = (("max_per_second", 1e-9), ("max_burst", 1))

Rescue = Literal["restart", "resume", "fail"]
Replies = Literal["task", "message", "either"]
"""Whether an answer is a task, a direct message, or as the agent decides in each turn."""

Visibility = Literal["public", "internal", "private"]
"""Who knows of an agent: everybody, everybody with credentials, or only the principals it allows."""


class Skill(Struct, frozen=True, omit_defaults=True, rename="camel"):
    id: str
    name: str
    description: str
    tags: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()


class Limits(Struct, frozen=True):
    """None means without limit. `timeout_s` counts only time spent working."""

    max_concurrent: int | None = None
    max_queued: int | None = None
    timeout_s: float | None = None
    max_per_second: float | None = None
    """How many runs may be begun in a second, and how many of them at once (as many, if None)."""
    max_burst: int | None = None


class Extended(Struct, frozen=True):
    """What only callers with credentials learn about an agent."""

    description: str | None = None
    skills: tuple[Skill, ...] = ()


class Extension(Struct, frozen=True):
    """An A2A extension that the agent itself speaks."""

    uri: str
    description: str = ""
    required: bool = False


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
    """What it can do beyond chat, by the names that other contracts ask for (`plan.create`)."""
    tools: tuple[str, ...] = ()
    """Which tools it may use: `server`, `server/tool`, with `*` in either; all of its own servers if empty."""
    mcp: tuple[McpServer, ...] = ()
    """Servers of tools that are its own."""
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
    """Media types it reads; `*/*` and `image/*` are understood."""
    output_modes: tuple[str, ...] = ("text/plain", "application/json")
    inline_bytes: int | None = None
    """Artifacts of more bytes are shown by an address from which they can be fetched; None shows all of them whole."""
    extra: dict[str, object] = {}
    """More members of its card, for whoever reads more than A2A 1.0; the face fills in `authentication` among them."""


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
    """Only what a part says of itself counts; bytes without a type are taken as they are."""
    for part in parts:
        kind = _media_of(part)
        if kind and not _reads(agent, kind):
            raise ContentNotSupported(f"This agent does not read {kind}; it reads {', '.join(agent.input_modes)}.")


def _media_of(part: Part) -> str:
    """The media type without its parameters; empty when nothing is known of it."""
    media = part.media_type
    if media is None:
        media = "text/plain" if part.text is not None else "application/json" if part.data is not UNSET else ""
    return media.partition(";")[0].strip().lower()


def _reads(agent: Agent, kind: str) -> bool:
    return kind in agent.input_modes or any(fnmatchcase(kind, _pattern(mode)) for mode in agent.input_modes)


def _pattern(mode: str) -> str:
    """`text` and `*` are what older cards say for `text/*` and `*/*`."""
    return mode.lower() if "/" in mode or mode == "*" else f"{mode.lower()}/*"


def plain_name(slug: str) -> str:
    """What an agent is called when nobody gave it a name."""
    return slug.replace("-", " ").replace("_", " ").capitalize()


def plain_skill(slug: str, name: str, description: str) -> Skill:
    """A card must show a skill: this one, when nobody named any."""
    return Skill(slug, name, description.split("\n\n")[0], ("general",))

"""An agent as the exchange knows it: an identity that can be asked to work."""

import re
from typing import Literal

from msgspec import Struct

from parley.errors import Invalid

SLUG = re.compile(r"[a-z0-9](?:[a-z0-9_-]{0,61}[a-z0-9])?")

Rescue = Literal["restart", "resume", "fail"]
Replies = Literal["task", "message"]


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


class Agent(Struct, frozen=True):
    slug: str
    name: str
    description: str
    version: str = "1.0.0"
    skills: tuple[Skill, ...] = ()
    limits: Limits = Limits()
    rescue: Rescue = "restart"
    replies: Replies = "task"
    streaming: bool = True
    input_modes: tuple[str, ...] = ("text/plain", "application/json")
    output_modes: tuple[str, ...] = ("text/plain", "application/json")


def check_agent(agent: Agent) -> None:
    if SLUG.fullmatch(agent.slug) is None:
        raise Invalid(
            f"Agent slug {agent.slug!r}: use 1 to 63 lower-case letters, digits, - or _, "
            "starting and ending with a letter or digit.",
            field="slug",
        )
    for name in ("max_concurrent", "max_queued", "timeout_s"):
        value = getattr(agent.limits, name)
        if value is not None and value < (0 if name == "max_queued" else 1e-9):
            raise Invalid(f"Agent {agent.slug}: limit {name} must be positive.", field=name)

"""What an SDK program says of its agent in a card, as we say it."""

import re
from urllib.parse import urlsplit

from a2a.types import AgentCard
from msgspec.structs import replace

from parley.core.agents import Agent, Extension, Limits, Provider, Rescue, Skill, plain_skill
from parley.errors import ConfigurationError

_OTHERS = re.compile(r"[^a-z0-9]+")


def agent_of(card: AgentCard, slug: str | None, rescue: Rescue, limits: Limits) -> Agent:
    """Addresses, security and signatures are not taken over: those are the server's, and it says them itself."""
    slug = slug or slug_of(card.name)
    skills = tuple(
        Skill(one.id, one.name, one.description, tuple(one.tags), tuple(one.examples)) for one in card.skills
    )
    described = card.description or f"The agent {card.name}."
    agent = Agent(
        slug, card.name or slug, described, card.version or "1.0.0",
        skills or (plain_skill(slug, card.name or slug, described),), limits=limits, rescue=rescue, replies="either",
        streaming=card.capabilities.streaming, extensions=tuple(
            Extension(one.uri, one.description, one.required) for one in card.capabilities.extensions
        ),
        provider=Provider(card.provider.organization, card.provider.url) if card.HasField("provider") else None,
        documentation_url=card.documentation_url or None, icon_url=card.icon_url or None,
    )  # fmt: skip
    # A card without modes says nothing of them, and an executor reads whatever its SDK hands it.
    inputs, outputs = tuple(card.default_input_modes), tuple(card.default_output_modes)
    return replace(agent, input_modes=inputs or ("*/*",), output_modes=outputs or agent.output_modes)


def slug_of(name: str) -> str:
    slug = _OTHERS.sub("-", name.lower()).strip("-")[:63].rstrip("-")
    if not slug:
        raise ConfigurationError("The card has no name to make an address of: say slug=….", field="slug")
    return slug


def origin_of(card: AgentCard) -> str | None:
    """Where the program says that it is served; what stands behind the host is for our server to say."""
    for one in card.supported_interfaces:
        address = urlsplit(one.url)
        if address.scheme in ("http", "https") and address.netloc:
            return f"{address.scheme}://{address.netloc}"
    return None

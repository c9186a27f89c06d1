"""Options of a remote agent in a definition, and the defaults that come from the remote's own card."""

import os
import re
from typing import Literal
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from parley import extras
from parley.errors import Invalid
from parley.runs.rules.agents import Agent, Skill, plain_name, plain_skill

Binding = Literal["JSONRPC", "HTTP+JSON", "GRPC"]
BINDINGS: tuple[Binding, ...] = ("JSONRPC", "HTTP+JSON")
ANY = "*/*"
_MODES = ("text/plain", "application/json")
_TOKEN = re.compile(r"[\x21-\x7e]+")
_HEADER = re.compile(r"[A-Za-z0-9-]+")


class RemoteOptions(Struct, frozen=True):
    url: str
    """URL of the agent, with its card at `/.well-known/agent-card.json` below it; or the URL of the card itself."""
    bindings: tuple[Binding, ...] = ()
    """Bindings to use, the preferred one first. Defaults to those of the card, in its order."""
    version: Literal["1.1", "1.0", "0.3"] | None = None
    """Version of A2A to use. Defaults to the newest that the card offers."""
    token_from: str | None = None
    """Name of the environment variable that holds the credential."""
    header: str | None = None
    """Header that carries only the credential. Defaults to `Authorization` with a bearer token."""
    timeout_s: float = 60.0
    """Longest time that the remote agent may send nothing. Comments in a stream count as activity."""
    patience_s: float = 60.0
    """Time to wait for a remote agent that becomes unreachable in the middle of a task."""


class Known(Struct, frozen=True):
    """Fields of a remote card that the agent's own card may take over."""

    description: str
    skills: tuple[Skill, ...]
    input_modes: tuple[str, ...]
    output_modes: tuple[str, ...]


def blank_remote(slug: str) -> Agent:
    """Return an empty agent. Fields that the definition leaves out stay empty until the remote's card is read."""
    return Agent(
        slug,
        plain_name(slug),
        "",
        rescue="resume",
        replies="either",
        input_modes=(),
        output_modes=(),
    )


def completed(agent: Agent, known: Known | None) -> Agent:
    """Return the agent with its empty fields filled: from the remote's card if it is known, else with defaults."""
    description = agent.description or (known.description if known else "") or f"The agent {agent.slug}."
    skills = agent.skills
    if not skills or skills == (plain_skill(agent.slug, agent.name, agent.description),):
        skills = (known.skills if known else ()) or (plain_skill(agent.slug, agent.name, description),)
    # A card's modes are only defaults, and its skills may accept more; the remote itself refuses what it cannot read.
    # Our card adds "any", so that this server refuses nothing unless the definition says so.
    modes = (*(known.input_modes if known else ()), ANY)
    return replace(
        agent,
        description=description,
        skills=skills,
        input_modes=agent.input_modes or tuple(dict.fromkeys(modes)),
        output_modes=agent.output_modes or (known.output_modes if known else ()) or _MODES,
    )


def check_options(options: RemoteOptions) -> None:
    extras.check("remote", "The driver remote", field="url")
    try:
        url = urlsplit(options.url)
        port_is_right = url.port is None or url.port > 0
    except ValueError:
        raise Invalid("is not a valid URL", field="url") from None
    if url.scheme not in ("http", "https") or not url.hostname or not port_is_right:
        raise Invalid("must be an http or https URL", field="url")
    if url.username is not None or url.password is not None:
        raise Invalid("must not contain credentials; use token_from", field="url")
    if "GRPC" in options.bindings:
        extras.check("grpc", "The binding GRPC", field="bindings")
    for name in ("timeout_s", "patience_s"):
        if not 0 < getattr(options, name) <= 86_400:
            raise Invalid("must be more than 0 and at most 86400 seconds (one day)", field=name)
    credentials(options)


def credentials(options: RemoteOptions) -> dict[str, str]:
    """Return the headers with our credentials. Errors never contain the credential."""
    if options.header is not None and not (options.token_from and _HEADER.fullmatch(options.header)):
        raise Invalid("must be the name of a header, and needs token_from", field="header")
    if options.token_from is None:
        return {}
    token = os.environ.get(options.token_from, "").strip()
    if not token:
        raise Invalid(f"the environment variable {options.token_from} is not set", field="token_from")
    if not _TOKEN.fullmatch(token):
        raise Invalid(
            f"the value of {options.token_from} has characters that a header cannot contain", field="token_from"
        )
    return {options.header: token} if options.header else {"Authorization": f"Bearer {token}"}

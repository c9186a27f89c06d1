"""What a definition says of a remote agent, and what is taken from the remote's own card where it says nothing."""

import os
import re
from typing import Literal
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from parley import extras
from parley.core.agents import Agent, Skill, plain_name, plain_skill
from parley.errors import Invalid

Binding = Literal["JSONRPC", "HTTP+JSON", "GRPC"]
BINDINGS: tuple[Binding, ...] = ("JSONRPC", "HTTP+JSON")
ANY = "*/*"
_MODES = ("text/plain", "application/json")
_TOKEN = re.compile(r"[\x21-\x7e]+")
_HEADER = re.compile(r"[A-Za-z0-9-]+")


class RemoteOptions(Struct, frozen=True):
    url: str
    """The agent's address: its card is at `/.well-known/agent-card.json` below it. Or the address of the card."""
    bindings: tuple[Binding, ...] = ()
    """The bindings to use, the preferred one first; else those of the card, in its order."""
    version: Literal["1.0", "0.3"] | None = None
    """The generation of A2A to speak; else the newest that the card offers."""
    token_from: str | None = None
    """The environment variable that holds the credential."""
    header: str | None = None
    """The header for it, alone; else `Authorization`, as a bearer token."""
    timeout_s: float = 60.0
    """How long the remote agent may be silent; comments in a stream count as life."""
    patience_s: float = 60.0
    """How long a remote agent that is gone in the middle of a task is waited for."""


class Known(Struct, frozen=True):
    """What a card says that ours may say too."""

    description: str
    skills: tuple[Skill, ...]
    input_modes: tuple[str, ...]
    output_modes: tuple[str, ...]


def blank_remote(slug: str) -> Agent:
    """Only the remote knows more of it: what the definition leaves out stays empty until its card is read."""
    return Agent(
        slug, plain_name(slug), "", rescue="resume", replies="either", input_modes=(), output_modes=(),
    )  # fmt: skip


def completed(agent: Agent, known: Known | None) -> Agent:
    """The agent with its gaps filled: from the remote's card if it is known, else with plain words."""
    description = agent.description or (known.description if known else "") or f"The agent {agent.slug}."
    skills = agent.skills
    if not skills or skills == (plain_skill(agent.slug, agent.name, agent.description),):
        skills = (known.skills if known else ()) or (plain_skill(agent.slug, agent.name, description),)
    # The modes of a card are the remote's defaults, and its skills may read more: it refuses by itself what it does not
    # read. Ours says both, so that nothing is refused here unless the definition says so.
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
        raise Invalid("cannot be read as an address", field="url") from None
    if url.scheme not in ("http", "https") or not url.hostname or not port_is_right:
        raise Invalid("expected an address with http or https", field="url")
    if url.username is not None or url.password is not None:
        raise Invalid("credentials do not belong in an address; name them in token_from", field="url")
    if "GRPC" in options.bindings:
        extras.check("grpc", "The binding GRPC", field="bindings")
    for name in ("timeout_s", "patience_s"):
        if not 0 < getattr(options, name) <= 86_400:
            raise Invalid("expected seconds, more than 0 and at most a day", field=name)
    credentials(options)


def credentials(options: RemoteOptions) -> dict[str, str]:
    """The headers that show who we are. What is wrong with them is told without repeating them."""
    if options.header is not None and not (options.token_from and _HEADER.fullmatch(options.header)):
        raise Invalid("expected the name of a header, and token_from beside it", field="header")
    if options.token_from is None:
        return {}
    token = os.environ.get(options.token_from, "").strip()
    if not token:
        raise Invalid(f"the environment has no {options.token_from}", field="token_from")
    if not _TOKEN.fullmatch(token):
        raise Invalid(f"what {options.token_from} holds cannot stand in a header", field="token_from")
    return {options.header: token} if options.header else {"Authorization": f"Bearer {token}"}

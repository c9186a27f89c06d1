"""What a platform tells its nodes, and what can go wrong between nodes."""

import time
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from parley.errors import AgentError, ParleyError

Json = dict[str, Any]

RENEW_S = 30.0
"""A pair token that lives no longer than this, or than a tenth of its life, is not used for anything new."""


class PlatformUnreachable(ParleyError):
    """Neither the platform nor anything that only it knows can be had at the moment."""

    code = "platform_unreachable"


class PlatformRefused(ParleyError):
    """The platform does not believe this node, or does not like what it says."""

    code = "platform_refused"

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message, status=status)
        self.status = status


class PeerRefused(AgentError):
    """The hierarchy does not allow it, or the peer does not let this node in, or it refuses what it is asked."""

    code = "peer_refused"


class PeerUnavailable(AgentError):
    """There is no such peer, or it cannot be reached at the moment."""

    code = "peer_unavailable"


class TooManyHops(AgentError):
    """A question came through so many nodes that they may be asking each other in a circle."""

    code = "too_many_hops"


class Address(Struct, frozen=True):
    """Where a peer is, and what lets this node in there."""

    id: str
    url: str
    token: str | None = None
    fresh_until: float = 0.0
    """By the monotonic clock."""

    @property
    def fresh(self) -> bool:
        return self.token is not None and time.monotonic() < self.fresh_until


class Discovered(Struct, frozen=True):
    """The answer of `/registry/discover`."""

    id: str
    url: str
    token: str | None = None
    token_expires_at: datetime | None = None

    def address(self) -> Address:
        left = self.token_expires_at.timestamp() - time.time() if self.token_expires_at else 0.0
        return Address(self.id, self.url, self.token, time.monotonic() + left - min(RENEW_S, left / 10))


class Peer(Struct, frozen=True):
    """Another node that this one may talk to, as its platform shows it."""

    id: str
    name: str
    role: str | None = None
    status: str = ""
    agent_card: Json | None = None
    parent_id: str | None = None

    @property
    def description(self) -> str:
        return str((self.agent_card or {}).get("description") or "")

    @property
    def extensions(self) -> frozenset[str]:
        """Which of A2A's extensions its agent speaks."""
        try:
            card = msgspec.convert(self.agent_card or {}, _Card)
        except msgspec.ValidationError:
            return frozenset()
        return frozenset(one.uri for one in card.capabilities.extensions)

    @property
    def skills(self) -> list[Json]:
        return [skill for skill in (self.agent_card or {}).get("skills") or () if isinstance(skill, dict)]


class _Extension(Struct, frozen=True):
    uri: str = ""


class _Capabilities(Struct, frozen=True):
    extensions: list[_Extension] = []


class _Card(Struct, frozen=True):
    capabilities: _Capabilities = _Capabilities()


def peers_in(body: bytes) -> list[Peer]:
    return msgspec.json.decode(body, type=list[Peer])


def briefing(peers: list[Peer]) -> str:
    """Whom an agent can ask, in words for a system prompt."""
    if not peers:
        return "There is nobody you could ask."
    return "\n".join(["You can ask:", *(line for peer in peers for line in _lines(peer))])


def _lines(peer: Peer) -> list[str]:
    about, role = _line(peer.description), f" ({peer.role})" if peer.role else ""
    skills = [(skill.get("name", ""), _line(skill.get("description", ""))) for skill in peer.skills]
    more = [f"    - {name}: {words}" for name, words in skills if words != about]
    return [f"- {peer.name}{role}, id {peer.id}: {about}", *more]


def _line(text: object) -> str:
    return " ".join(str(text).split())

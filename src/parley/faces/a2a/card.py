"""Agent cards, which clients read before they call an agent, in the formats of A2A 1.0 and 0.3."""

import hashlib
import time
from collections.abc import Awaitable, Callable
from email.utils import formatdate
from typing import Any, cast

import msgspec
from msgspec import Struct

from parley.errors import NoExtendedCard
from parley.faces.a2a.protobuf_json import FORK
from parley.runs.rules.agents import Agent, Extension, Skill

Json = dict[str, Any]
Sign = Callable[[Json], Awaitable[Json]]

SIGNED_FOR_S = 300.0
"""Seconds after which a card is signed again, so that a rotated key takes effect."""

BINDINGS = ("JSONRPC", "HTTP+JSON")
MODERN = frozenset(("1.0", "1.1"))
"""Versions whose cards have no fields of 0.3."""
OURS = (
    Extension(
        "urn:parley:extension:resumable-streams:1",
        "Over HTTP every stream event has an id; `Last-Event-ID` resumes a stream after it, also after a restart.",
    ),
    Extension(
        "urn:parley:extension:idempotency-key:1",
        "`Idempotency-Key` makes a send safe to retry: the same key and message return the same task.",
    ),
    Extension(
        FORK,
        '`POST {url}/tasks/{id}:fork` with `{"at": EVENT, "message": …}` (both optional) creates a task as a copy of '
        "another up to an event, and continues from there.",
    ),
)


def card_version(asked: str, *, modern: bool = False) -> str:
    """Return the version of the card for a client that asks for a version, or for none. `modern`: without the fields of
    0.3 for every client. A client that asks for 1.0 gets the card as it was before 1.1."""
    return asked if asked in MODERN else "1.1" if modern else "0.3"


class CardAccess(Struct, frozen=True):
    """Authentication that cards declare; none is required by default."""

    required: bool = False
    oidc_url: str | None = None


class ServedCard(Struct, frozen=True):
    body: bytes
    etag: bytes
    modified: bytes
    made: float


class Cards:
    """Cache of signed cards. A client that asks for 1.x gets only the fields of 1.x; all others get those of 0.3
    too, because a client that names no version may be one of 0.3."""

    def __init__(
        self, base_url: str, access: CardAccess, sign: Sign, default: Callable[[], str | None] = lambda: None
    ) -> None:
        """`default` returns the agent at the server's root."""
        self._base_url = base_url
        self._default = default
        self._access = access
        self._sign = sign
        self._made: dict[tuple[str, str, bool, bool], tuple[Agent, ServedCard]] = {}
        self._grpc: str | None = None

    @property
    def base_url(self) -> str:
        return self._base_url

    def show_grpc(self, address: str) -> None:
        """Add the address of gRPC (`host:port`), which is known only once it listens."""
        self._grpc = address
        self._made.clear()

    async def public(self, agent: Agent, version: str) -> ServedCard:
        return await self._card(agent, version, extended=False)

    async def extended(self, agent: Agent, version: str) -> bytes:
        """Return the extended card. The calling code must have checked the credentials."""
        if agent.extended is None or (not agent.extended.skills and agent.extended.description is None):
            raise NoExtendedCard("The extended card of this agent has no content yet.")
        return (await self._card(agent, version, extended=True)).body

    async def passed_on(self, told: Json, url: str, version: str) -> bytes:
        """Return the signed card of an agent behind this server's proxy: its own description, with `url` as address."""
        return msgspec.json.encode(await self._sign(passed_on(told, url, self._access, version)))

    async def _card(self, agent: Agent, version: str, *, extended: bool) -> ServedCard:
        default = agent.slug == self._default()
        place = (agent.slug, version, extended, default)
        made = self._made.get(place)
        if made is not None and made[0] is agent and time.monotonic() - made[1].made < SIGNED_FOR_S:
            return made[1]
        plain = card(agent, self._base_url, self._access, version, extended=extended, grpc=self._grpc, default=default)
        tag = hashlib.sha256(msgspec.json.encode(plain, order="deterministic")).hexdigest()[:32]
        body = msgspec.json.encode(await self._sign(plain))
        modified = made[1].modified if made is not None and made[0] == agent else formatdate(usegmt=True).encode()
        fresh = ServedCard(body, f'W/"{tag}"'.encode(), modified, time.monotonic())
        self._made[place] = (agent, fresh)
        return fresh


def card(
    agent: Agent,
    base_url: str,
    access: CardAccess,
    version: str,
    *,
    extended: bool = False,
    grpc: str | None = None,
    default: bool = False,
) -> Json:
    """Return the card of an agent, unsigned. `default`: requests that name no agent reach this one."""
    more = agent.extended if extended and agent.extended else None
    url = f"{base_url}/agents/{agent.slug}"
    found: Json = {
        "name": agent.name,
        "description": (more.description if more else None) or agent.description or agent.name,
        "version": agent.version,
        "supportedInterfaces": [
            interface for spoken in _offered(version) for interface in _interfaces(agent, url, grpc, spoken)
        ],
        "capabilities": {
            "streaming": agent.streaming,
            "pushNotifications": agent.push,
            "extendedAgentCard": agent.extended is not None,
            "extensions": [_extension(one) for one in (*OURS, *agent.extensions)],
        },
        "defaultInputModes": list(agent.input_modes),
        "defaultOutputModes": list(agent.output_modes),
        "skills": [_skill(skill, agent) for skill in (*agent.skills, *(more.skills if more else ()))],
        **_about(agent),
    }
    schemes = _schemes(access, extended=agent.extended is not None)
    found |= _security(schemes, access)
    if version in MODERN:
        return found
    old = _with_old_fields(found, agent, url, schemes, access)
    if grpc is not None and default:
        # Only for the default agent: a 0.3 request has no tenant field, so without metadata it reaches that agent.
        old["additionalInterfaces"].append({"url": grpc, "transport": "GRPC"})
    return old


_KEPT = ("name", "description", "version", "provider", "documentationUrl", "iconUrl")
_MODES = ("defaultInputModes", "defaultOutputModes")


def passed_on(told: Json, url: str, access: CardAccess, version: str) -> Json:
    """Return the card of a proxied agent, unsigned. Signatures, addresses, credentials, streams and webhooks are those
    of this server, because clients call this server. Members that no version of A2A defines are left out."""
    agent = Agent("", str(told.get("name") or "Workspace"), "")
    spoken = told.get("capabilities")
    more: object = cast(Json, spoken).get("extensions") if isinstance(spoken, dict) else None
    ours = {one.uri for one in OURS}
    theirs = [one for one in cast(list[Json], more) if one.get("uri") not in ours] if isinstance(more, list) else []
    found: Json = {
        "description": "An agent behind this server.",
        "version": "1.0.0",
        **{name: told[name] for name in _KEPT if told.get(name)},
        "name": agent.name,
        "supportedInterfaces": [
            {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": spoken} for spoken in _offered(version)
        ],
        "capabilities": {
            "streaming": True,
            "pushNotifications": True,
            "extendedAgentCard": False,
            "extensions": [*(_extension(one) for one in OURS[:2]), *theirs],
        },
        **{name: told.get(name) or ["text/plain", "application/json"] for name in _MODES},
        "skills": told.get("skills") or [],
    }
    schemes = _schemes(access)
    found |= _security(schemes, access)
    if version in MODERN:
        return found
    old = _with_old_fields(found, agent, url, schemes, access)
    return {**old, "additionalInterfaces": [{"url": url, "transport": "JSONRPC"}]}


def _extra(agent: Agent, schemes: list[str]) -> Json:
    """Return the agent's additional members. Cards of 1.0 leave them out: a 1.0 client verifies the signature over the
    members of 1.0 only. They cannot replace A2A's own members. `authentication` is filled in here, because only this
    code knows which schemes are required."""
    known = {"authentication": {"schemes": schemes or ["none"]}} if "authentication" in agent.extra else {}
    return {**agent.extra, **known}


def _offered(version: str) -> tuple[str, ...]:
    """Return the versions that a card lists, in the order in which clients should try them. 1.1 is a draft, so clients
    that take the first interface get 1.0."""
    return ("1.0", "0.3") if version == "1.0" else ("1.0", "1.1", "0.3")


def _interfaces(agent: Agent, url: str, grpc: str | None, version: str) -> list[Json]:
    found: list[Json] = [{"url": url, "protocolBinding": binding, "protocolVersion": version} for binding in BINDINGS]
    if grpc is not None:
        # 0.3 requests have no tenant field: the tenant is metadata, and without it the default agent answers.
        interface = {"url": grpc, "protocolBinding": "GRPC", "protocolVersion": version, "tenant": agent.slug}
        found.append(interface)
    return found


def _with_old_fields(
    found: Json, agent: Agent, url: str, schemes: dict[str, tuple[Json, Json]], access: CardAccess
) -> Json:
    """Add the fields of 0.3 for the same content; a security scheme is written both ways in one object."""
    old: Json = {
        "url": url,
        "preferredTransport": "JSONRPC",
        "additionalInterfaces": [{"url": url, "transport": binding} for binding in BINDINGS],
        "protocolVersion": "0.3.0",
        "supportsAuthenticatedExtendedCard": agent.extended is not None,
    }
    if schemes:
        old["securitySchemes"] = {name: {**modern, **ancient} for name, (modern, ancient) in schemes.items()}
    if access.required:
        old["security"] = [{name: _asked_of(name)} for name in schemes]
    return {**_extra(agent, list(schemes) if access.required else []), **found, **old}


def _security(schemes: dict[str, tuple[Json, Json]], access: CardAccess) -> Json:
    """Return the security members. Schemes are also declared if only the extended card needs one (§13.3); then none is
    required."""
    found: Json = {}
    if schemes:
        found["securitySchemes"] = {name: modern for name, (modern, _) in schemes.items()}
    if access.required:
        found["securityRequirements"] = [{"schemes": {name: {"list": _asked_of(name)}}} for name in schemes]
    return found


def _asked_of(scheme: str) -> list[str]:
    """Return the scopes, or for a key the roles, of a requirement. Never empty: §8.4.1 keeps a scheme with an empty
    list and the official SDKs drop it, so each would verify a signature over different content."""
    return ["openid"] if scheme == "oidc" else ["read", "send"]


def _schemes(access: CardAccess, *, extended: bool = False) -> dict[str, tuple[Json, Json]]:
    """Return each security scheme in the formats of 1.0 and 0.3."""
    if not access.required and not extended:
        return {}
    bearer: Json = {"scheme": "Bearer", "description": "An API key or an access token."}
    key: Json = {"name": "X-API-Key", "description": "An API key."}
    schemes: dict[str, tuple[Json, Json]] = {
        "bearer": ({"httpAuthSecurityScheme": bearer}, {"type": "http", **bearer}),
        "apiKey": (
            {"apiKeySecurityScheme": {"location": "header", **key}},
            {"type": "apiKey", "in": "header", **key},
        ),
    }
    if access.oidc_url:
        oidc = {"openIdConnectUrl": access.oidc_url}
        schemes["oidc"] = ({"openIdConnectSecurityScheme": oidc}, {"type": "openIdConnect", **oidc})
    return schemes


def _about(agent: Agent) -> Json:
    found: Json = {}
    if agent.provider:
        found["provider"] = {"organization": agent.provider.organization, "url": agent.provider.url}
    if agent.documentation_url:
        found["documentationUrl"] = agent.documentation_url
    if agent.icon_url:
        found["iconUrl"] = agent.icon_url
    return found


def _extension(extension: Extension) -> Json:
    wire: Json = {"uri": extension.uri, "description": extension.description, "required": extension.required}
    return {**wire, "params": extension.params} if extension.params else wire


def _skill(skill: Skill, agent: Agent) -> Json:
    """Render a skill. Required members are never empty: §8.4.1 signs them, and the official SDKs leave empty ones out.
    The modes are those of the agent; A2A makes them optional, but some clients cannot read a skill without them
    (fasta2a)."""
    wire: Json = {
        "id": skill.id,
        "name": skill.name,
        "description": skill.description or skill.name,
        "tags": list(skill.tags) or ["general"],
        "inputModes": list(agent.input_modes),
        "outputModes": list(agent.output_modes),
    }
    if skill.examples:
        wire["examples"] = list(skill.examples)
    return wire

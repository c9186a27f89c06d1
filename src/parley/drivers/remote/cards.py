"""Agent cards of remote agents: fetch and parse them, and choose the interface through which an agent is called."""

import re
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from parley.drivers.remote.http import TRANSIENT, RemoteHttp, readable
from parley.drivers.remote.options import BINDINGS, Known, RemoteOptions, credentials
from parley.drivers.remote.translation import ConnectionLost, RemoteRefused
from parley.runs.rules.agents import Skill

CARD_PATHS = ("/.well-known/agent-card.json", "/.well-known/agent.json")
CURRENT, NUMBERED = "1.0", "1.1"
RESUMABLE = "urn:parley:extension:resumable-streams:1"
IDEMPOTENT = "urn:parley:extension:idempotency-key:1"
_UNKNOWN_VERSION = frozenset((400, 406, 501))
"""HTTP statuses with which a server may refuse a version of A2A that it does not know."""
_VERSION = re.compile(r"v?(\d+)(?:\.(\d+))?(?:[.\-+]?\w+)*")
_OLDEST, _FIRST = (0, 3), (1, 0)


class Interface(Struct, frozen=True):
    """An address of an agent, with the binding and version of A2A that it speaks."""

    url: str
    binding: str
    version: str
    tenant: str = ""

    @property
    def numbers(self) -> tuple[int, int] | None:
        """The major and minor version; None if it is missing or no version."""
        found = _VERSION.fullmatch(self.version)
        return (int(found[1]), int(found[2] or 0)) if found else None

    @property
    def is_old(self) -> bool:
        """True for A2A 0.3."""
        return self.numbers is not None and self.numbers < _FIRST


class RemoteCard(Struct, frozen=True):
    """A fetched card, with the URL and ETag that are needed to check whether it has changed."""

    known: Known
    streaming: bool
    extensions: frozenset[str]
    interfaces: tuple[Interface, ...]
    url: str
    etag: str | None = None


class Offer(Struct, frozen=True):
    """The interface of a card that is used, and what its agent offers there."""

    interface: Interface
    streams: bool
    resumable: bool
    """The agent numbers the events of a stream, and resumes it after any of them."""
    idempotent: bool
    """The agent recognizes a message that is sent again by its idempotency key."""
    rejoins: bool
    """A stream can be resumed without a gap. In A2A 0.3 a new stream does not repeat what happened before it. A server
    of a2a-sdk 0.3 also stores each artifact chunk once more for every stream that joined later, so its task is only
    correct while no other stream has joined."""
    generations: bool
    """The agent offers A2A 1.1, and so numbers the updates of a task."""

    @property
    def extensions(self) -> str:
        """The extensions that requests activate, as they are named in a header."""
        uris = ((IDEMPOTENT, self.idempotent), (RESUMABLE, self.resumable))
        return ",".join(uri for uri, offered in uris if offered)


# The JSON of cards. Protobuf's JSON has two spellings of each name, and null for a missing value.


class _SkillIn(Struct):
    id: str | None = None
    name: str | None = None
    description: str | None = None
    tags: list[str] | None = None
    examples: list[str] | None = None


class _ExtensionIn(Struct):
    uri: str | None = None


class _CapabilitiesIn(Struct):
    streaming: bool | None = None
    extensions: list[_ExtensionIn] | None = None


class _InterfaceIn(Struct, rename="camel"):
    url: str | None = None
    protocol_binding: str | None = None
    protocol_version: str | None = None
    tenant: str | None = None
    transport: str | None = None
    """Name of the binding in A2A 0.3."""
    snake_protocol_binding: str | None = field(default=None, name="protocol_binding")
    snake_protocol_version: str | None = field(default=None, name="protocol_version")


class _CardIn(Struct, rename="camel"):
    description: str | None = None
    skills: list[_SkillIn] | None = None
    capabilities: _CapabilitiesIn | None = None
    default_input_modes: list[str] | None = None
    default_output_modes: list[str] | None = None
    supported_interfaces: list[_InterfaceIn] | None = None
    url: str | None = None
    preferred_transport: str | None = None
    protocol_version: str | None = None
    additional_interfaces: list[_InterfaceIn] | None = None
    snake_default_input_modes: list[str] | None = field(default=None, name="default_input_modes")
    snake_default_output_modes: list[str] | None = field(default=None, name="default_output_modes")
    snake_supported_interfaces: list[_InterfaceIn] | None = field(default=None, name="supported_interfaces")


_read = msgspec.json.Decoder(_CardIn).decode


def _parsed(content: bytes, url: str, etag: str | None = None) -> RemoteCard:
    """Parse a card. Raise RemoteRefused if the content is no card."""
    try:
        card = readable(_read, content)
    except RemoteRefused:
        raise RemoteRefused("other", "The document at the URL of its card is not an agent card.") from None
    offered = card.capabilities or _CapabilitiesIn()
    return RemoteCard(
        Known(
            card.description or "",
            tuple(_skill(one) for one in card.skills or ()),
            tuple(card.default_input_modes or card.snake_default_input_modes or ()),
            tuple(card.default_output_modes or card.snake_default_output_modes or ()),
        ),
        bool(offered.streaming),
        frozenset(one.uri or "" for one in offered.extensions or ()),
        _interfaces(card),
        url,
        etag,
    )


def _skill(one: _SkillIn) -> Skill:
    return Skill(one.id or "", one.name or "", one.description or "", tuple(one.tags or ()), tuple(one.examples or ()))


def _interfaces(card: _CardIn) -> tuple[Interface, ...]:
    given = card.supported_interfaces if card.supported_interfaces is not None else card.snake_supported_interfaces
    if given is not None:
        return tuple(
            Interface(
                one.url or "",
                one.protocol_binding or one.snake_protocol_binding or "",
                one.protocol_version or one.snake_protocol_version or "",
                one.tenant or "",
            )
            for one in given
        )
    if not card.url:
        return ()
    version = card.protocol_version or "0.3.0"
    others = (Interface(one.url or "", one.transport or "", version) for one in card.additional_interfaces or ())
    return Interface(card.url, card.preferred_transport or "JSONRPC", version), *others


# The interface that is used.


def choose(options: RemoteOptions, card: RemoteCard, *, bound: bool = False) -> Offer:
    """Return the interface to use: of the first binding that both sides support, the newest stable version. `bound`:
    the requests carry credentials, which are sent only to the host that they are for."""
    offered = [one for one in card.interfaces if _may_use(options, one, bound=bound)]
    ours = options.bindings or _bindings()
    for binding in options.bindings or [one.binding for one in offered]:
        same = [one for one in offered if one.binding == binding]
        if binding not in ours or (best := _best(same)) is None:
            continue
        places = {one.version: one.url for one in same}
        numbered, resumable = places.get(NUMBERED), RESUMABLE in card.extensions
        return Offer(
            best,
            card.streaming,
            resumable,
            IDEMPOTENT in card.extensions,
            resumable or (card.streaming and any(version.startswith("1.") for version in places)),
            numbered is not None and places.get(CURRENT, numbered) == numbered,
        )
    raise RemoteRefused("other", "The card offers no binding and version that this server may use.")


def _may_use(options: RemoteOptions, one: Interface, *, bound: bool) -> bool:
    if options.version and not f"{one.version}.".startswith(f"{options.version}."):
        return False
    # The guard covers only HTTP, so gRPC may connect only to the host that the definition names.
    strict = bool(options.token_from) or bound or one.binding == "GRPC"
    return not strict or is_same_place(options.url, one.url)


def _best(interfaces: list[Interface]) -> Interface | None:
    """Return the interface of A2A 1.0, else the first newer one, else the first of 0.3 or later, else one that names no
    version."""
    known = [(numbers, one) for one in interfaces if (numbers := one.numbers) is not None and numbers >= _OLDEST]
    stable = (one for numbers, one in known if numbers == _FIRST)
    newer = (one for numbers, one in known if numbers > _FIRST)
    older = (one for _, one in known)
    unnamed = (one for one in interfaces if not one.version)
    return next((one for group in (stable, newer, older, unnamed) for one in group), None)


def _bindings() -> tuple[str, ...]:
    try:
        import grpc  # noqa: F401  # pyright: ignore
    except ImportError:
        return BINDINGS
    return (*BINDINGS, "GRPC")


def is_same_place(ours: str, theirs: str) -> bool:
    try:
        here, there = urlsplit(ours), urlsplit(theirs if "://" in theirs else f"grpc://{theirs}")
        if there.scheme == "grpc":
            return here.hostname == there.hostname
        return (here.scheme, here.hostname, here.port) == (there.scheme, there.hostname, there.port)
    except ValueError:  # an invalid URL matches nothing
        return False


# Fetch a card, or make one for an agent whose card cannot be fetched or has no URL that works from here.


async def fetch_card(options: RemoteOptions, http: RemoteHttp, before: RemoteCard | None = None) -> RemoteCard:
    """Fetch the current card. Returns `before` if it has not changed. A server that does not know A2A 1.1 may refuse to
    show a card to its clients."""
    versions = [CURRENT] if options.version in ("1.0", "0.3") else [NUMBERED, CURRENT]
    status, card = 0, None
    for version in versions:
        status, card = await _asked_for_card(options, http, before, version)
        if before and status == 304:
            return before
        if status not in _UNKNOWN_VERSION:
            break
    if card is not None:
        return card
    if status in TRANSIENT:
        raise ConnectionLost(f"HTTP {status}", unsent=True)
    if status in (401, 403):
        raise RemoteRefused("credentials", f"It refused our credentials (HTTP {status}).")
    raise RemoteRefused("other", f"There is no agent card at its URL (HTTP {status}).")


async def _asked_for_card(
    options: RemoteOptions, http: RemoteHttp, before: RemoteCard | None, version: str
) -> tuple[int, RemoteCard | None]:
    """Return the status, and the card, of the first address where there is something."""
    base = options.url.rstrip("/")
    urls = [before.url] if before else [base] if base.endswith(".json") else [base + path for path in CARD_PATHS]
    headers = {"A2A-Version": version, **credentials(options)}
    if before and before.etag:
        headers["If-None-Match"] = before.etag
    status = 0
    for url in urls:
        reply = await http.send("GET", url, headers)
        content = await http.content(reply)
        status = reply.status_code
        if status == 200:
            return status, _parsed(content, url, reply.headers.get("etag"))
        if status != 404:
            break
    return status, None


def written_card(text: bytes, url: str) -> RemoteCard | None:
    """Parse a card that was given as text. Returns None if it is not a card or has no URL."""
    try:
        card = _parsed(text, url)
    except RemoteRefused:
        return None
    return card if card.interfaces else None


def plain_card(url: str) -> RemoteCard:
    """Return a minimal card for an agent of which only the URL is known: JSON-RPC of A2A 0.3."""
    return RemoteCard(Known("", (), (), ()), False, frozenset(), (Interface(url, "JSONRPC", "0.3.0"),), url)


def moved_card(card: RemoteCard, url: str) -> RemoteCard:
    """Return the card with the URL that the agent registered, if the card has only URLs of other hosts: a URL in the
    card of an agent in a container is often valid only inside that container."""
    if any(is_same_place(url, one.url) for one in card.interfaces):
        return card
    versions = [one.version for one in card.interfaces if one.binding == "JSONRPC"] or ["0.3"]
    return replace(card, interfaces=tuple(Interface(url, "JSONRPC", version) for version in versions))

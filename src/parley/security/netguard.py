"""Guard for all outbound requests: a name is resolved once, and only an address that was checked is connected to.

Callers that can give this server an address to call (a webhook, a remote agent) must not reach what only this server
can reach. So every address that is not globally routable is refused unless the operator lists it, and the name is not
resolved a second time, which could give another answer (DNS rebinding).
"""

import asyncio
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import cast

import httpcore2
import httpx2
from msgspec import Struct

from parley.errors import ConfigurationError, OutboundRefused
from parley.security.outbound import certificates

TIMEOUT_S = 15.0
CONNECT_S = 5.0
MAX_BYTES = 1024 * 1024
MAX_REDIRECTS = 3
RESOLVERS = 16
RESOLVE_S = 2.0

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
Resolve = Callable[[str, int], Awaitable[list[str]]]

LOOPBACK = ("127.0.0.0/8", "::1")

_UNICAST6 = IPv6Network("2000::/3")
_NAT64 = IPv6Network("64:ff9b::/96")
_NEVER: tuple[Network, ...] = (
    ip_network("168.63.129.16"),  # Azure's internal services, at an address that looks public
    ip_network("192.0.0.0/24"),  # protocol assignments, including Oracle's metadata service
    ip_network("192.88.99.0/24"),  # 6to4 relays
    ip_network("2002::/16"),  # 6to4: an IPv4 address in disguise
    ip_network("2001::/32"),  # Teredo: the same
    ip_network("3fff::/20"),  # documentation, unknown to older Pythons
)
_INTERNAL: tuple[Network, ...] = (
    ip_network("10.0.0.0/8"),
    ip_network("172.16.0.0/12"),
    ip_network("192.168.0.0/16"),
    ip_network("fc00::/7"),
)
_METADATA: tuple[Network, ...] = (
    ip_network("169.254.169.254"),  # most clouds
    ip_network("169.254.170.2"),  # Amazon's, for containers
    ip_network("168.63.129.16"),
    ip_network("192.0.0.192"),
    ip_network("100.100.100.200"),  # Alibaba's
    ip_network("fd00:ec2::254"),
)
_HOST = re.compile(r"[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_REDIRECTS = (301, 302, 303, 307, 308)
_KEPT_ELSEWHERE = frozenset(("accept", "accept-encoding", "content-type", "user-agent"))


# Why: docs/decisions/security.md#refuse-mapped-and-6to4-addresses-and-judge-nat64-by-its-ipv4-address
def is_public(address: Address) -> bool:
    """Return whether the address can be reached from the whole internet."""
    if isinstance(address, IPv6Address):
        if address in _NAT64:
            return is_public(IPv4Address(address.packed[-4:]))
        if address.scope_id is not None or address not in _UNICAST6:
            return False
    return (
        address.is_global
        and not (address.is_multicast or address.is_reserved or address.is_unspecified)
        and not any(address in network for network in _NEVER if network.version == address.version)
    )


def is_metadata(address: Address) -> bool:
    """Return whether the address is a cloud's metadata service, which gives machines their secrets."""
    if isinstance(address, IPv6Address) and address in _NAT64:
        return is_metadata(IPv4Address(address.packed[-4:]))
    return any(_unscoped(address) in network for network in _METADATA if network.version == address.version)


def _is_internal(address: Address) -> bool:
    return not is_metadata(address) and any(address in one for one in _INTERNAL if one.version == address.version)


class NotResolved(httpcore2.ConnectError):
    """The name has no address."""


def not_resolved(error: BaseException) -> bool:
    """Return whether a request failed because its name has no address; httpx2 hides that in the cause."""
    return isinstance(error, NotResolved) or (error.__cause__ is not None and not_resolved(error.__cause__))


class _Rule(Struct, frozen=True):
    """An entry of the allow list: a name or a network, on one port or on all."""

    name: str | None
    network: Network | None
    port: int | None


class Guard:
    """Decides which addresses may be connected to."""

    def __init__(self, allow: Iterable[str] = (), *, private: bool = False) -> None:
        """`private` allows private networks, except for metadata addresses in them."""
        self._rules = [_rule(text) for text in allow]
        self._private = private

    def permits(self, host: str, port: int, address: Address) -> bool:
        if is_public(address) or (self._private and _is_internal(address)):
            return True
        return any(_matches(rule, host, port, address) for rule in self._rules)

    def check_url(self, url: str | httpx2.URL) -> None:
        """Check everything that can be checked before a name is resolved."""
        try:
            parsed = httpx2.URL(url)
        except (httpx2.InvalidURL, ValueError):
            raise _unreadable("The URL is not valid.") from None
        if parsed.scheme not in ("http", "https") or not parsed.host or not 0 < _port(parsed) < 65536:
            raise _unreadable("Only http and https URLs are allowed.")
        if parsed.userinfo:
            raise _unreadable("The URL must not contain credentials.")
        meant = _meant(parsed)
        if meant and not any(self.permits(parsed.host, _port(parsed), address) for address in meant):
            raise _refused(parsed.host, meant)


async def check_places(guard: Guard, url: str, resolve: Resolve | None = None) -> None:
    """Check a URL that other programs will call. A name with any forbidden address is refused, since it is unknown
    which one they use. A name without an address here, or whose name server is too slow, is accepted: it may have an
    address where it is called from."""
    guard.check_url(url)
    parsed = httpx2.URL(url)
    try:
        async with asyncio.timeout(RESOLVE_S):
            found = [ip_address(text) for text in await (resolve or _resolved)(parsed.host, _port(parsed))]
    except (OSError, UnicodeError):
        return
    forbidden = [one for one in found if not guard.permits(parsed.host, _port(parsed), one)]
    if forbidden:
        raise _refused(parsed.host, forbidden)


class _Backend(httpcore2.AsyncNetworkBackend):
    """Connects only to addresses that were checked."""

    def __init__(self, guard: Guard, resolve: Resolve) -> None:
        self._guard = guard
        self._resolve = resolve
        self._network = cast(httpcore2.AsyncNetworkBackend, httpcore2.AnyIOBackend())

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        last: httpcore2.ConnectError | httpcore2.ConnectTimeout = NotResolved("The name has no address.")
        for address in await self._checked(host, port):
            try:
                return await self._network.connect_tcp(str(address), port, timeout, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                last = error
        raise last

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None
    ) -> httpcore2.AsyncNetworkStream:
        raise _refused(path, [])

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def _checked(self, host: str, port: int) -> list[Address]:
        try:
            found = [ip_address(text) for text in await self._resolve(host, port)]
        except (OSError, UnicodeError) as error:
            raise NotResolved(f"The name cannot be resolved ({type(error).__name__}).") from error
        permitted = [address for address in found if self._guard.permits(host, port, address)]
        if found and not permitted:
            raise _refused(host, found)
        return permitted


# Why: docs/decisions/security.md#guard-outbound-connections-below-the-connection-pool
class GuardedTransport(httpx2.AsyncHTTPTransport):
    """Transport for any httpx2 client that checks every request and every redirect."""

    def __init__(self, guard: Guard, resolve: Resolve | None = None, tls: ssl.SSLContext | None = None) -> None:
        context = tls or certificates()
        super().__init__(verify=context, trust_env=False)
        self._guard = guard
        # httpx2 has no parameter for the network backend of its pool; httpcore2 has one.
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=context,
            max_connections=200,
            max_keepalive_connections=20,
            keepalive_expiry=5.0,
            network_backend=_Backend(guard, resolve or _resolved),
        )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self._guard.check_url(request.url)
        return await super().handle_async_request(request)


class OutboundReply(Struct, frozen=True):
    status: int
    headers: Mapping[str, str]
    body: bytes
    complete: bool
    """False if the answer was longer than the requested limit."""


class Outbound:
    """HTTP requests without cookies and without proxies from the environment, with limits of time and size."""

    def __init__(
        self, guard: Guard | None = None, *, resolve: Resolve | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        self.guard = guard or Guard()
        self.transport = GuardedTransport(self.guard, resolve, tls)

    async def send(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
        timeout_s: float = TIMEOUT_S,
        max_bytes: int = MAX_BYTES,
        redirects: int = 0,
    ) -> OutboundReply:
        """Send a request. Raise OutboundRefused, httpx2.HTTPError or TimeoutError if there is no answer.

        Redirects are returned like other answers, unless `redirects` says how many to follow, at most three.
        Credentials are not sent to another origin, and a redirect from https to http is refused.
        """
        sent = {
            "accept-encoding": "identity",
            "user-agent": "parley",
            **{k.lower(): v for k, v in (headers or {}).items()},
        }
        left = min(redirects, MAX_REDIRECTS)
        async with asyncio.timeout(timeout_s):
            while True:
                self.guard.check_url(url)
                reply = await self._once(method, url, sent, content, timeout_s, max_bytes)
                target = reply.headers.get("location") if reply.status in _REDIRECTS else None
                if target is None or left == 0:
                    return reply
                left -= 1
                method, url, sent, content = _redirected(method, url, target, sent, content, reply.status)

    async def get(self, url: str, *, timeout_s: float = TIMEOUT_S, max_bytes: int = MAX_BYTES) -> bytes:
        """Return the whole body of a page; raise ValueError if the page is missing or too long."""
        reply = await self.send("GET", url, timeout_s=timeout_s, max_bytes=max_bytes)
        if reply.status != 200:
            raise ValueError(f"The server answered with status {reply.status}.")
        if not reply.complete:
            raise ValueError("The answer is too long.")
        return reply.body

    async def close(self) -> None:
        await self.transport.aclose()

    async def _once(
        self, method: str, url: str, headers: Mapping[str, str], content: bytes | None, timeout_s: float, most: int
    ) -> OutboundReply:
        waits = {"connect": min(CONNECT_S, timeout_s), "read": timeout_s, "write": timeout_s, "pool": timeout_s}
        request = httpx2.Request(method, url, headers=headers, content=content, extensions={"timeout": waits})
        response = await self.transport.handle_async_request(request)
        response.request = request
        try:
            body = b""
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > most:
                    break
        finally:
            await response.aclose()
        return OutboundReply(response.status_code, response.headers, body[:most], len(body) <= most)


def own_places(*urls: str | None) -> list[str]:
    """Return the hosts and ports of URLs that the operator configured, as entries of an allow list."""
    parsed = [httpx2.URL(url) for url in urls if url]
    return [f"{_bracketed(url.host)}:{_port(url)}" for url in parsed if url.host]


def _redirected(
    method: str, url: str, target: str, headers: dict[str, str], content: bytes | None, status: int
) -> tuple[str, str, dict[str, str], bytes | None]:
    try:
        before, after = httpx2.URL(url), httpx2.URL(url).join(target)
    except (httpx2.InvalidURL, ValueError):
        raise OutboundRefused("The answer redirects to an invalid URL.") from None
    if before.scheme == "https" and after.scheme != "https":
        raise OutboundRefused("The answer redirects from https to http.")
    if status == 303 or (status in (301, 302) and method == "POST"):
        method, content = "GET", None
        headers = {name: value for name, value in headers.items() if name != "content-type"}
    if (before.scheme, before.host, _port(before)) != (after.scheme, after.host, _port(after)):
        headers = {name: value for name, value in headers.items() if name in _KEPT_ELSEWHERE}
    return method, str(after), headers, content


def _rule(text: str) -> _Rule:
    """Parse a name, an address or a network, with or without a port."""
    try:
        return _Rule(None, ip_network(text.strip("[]"), strict=False), None)
    except ValueError:
        host, colon, port = text.rpartition(":")
    try:
        number = int(port) if colon else None
        host = (host if colon else text).strip("[]").rstrip(".").lower()
        if not host or "/" in host or " " in host or (number is not None and not 0 < number < 65536):
            raise ValueError
    except ValueError:
        raise ConfigurationError(
            f"Setting allow_hosts: {text!r} is not a name, an address or a network, with or without a port.",
            field="allow_hosts",
        ) from None
    literal = _literal(host)
    return _Rule(host if literal is None else None, None if literal is None else ip_network(literal), number)


def _matches(rule: _Rule, host: str, port: int, address: Address) -> bool:
    if rule.port not in (None, port):
        return False
    if rule.network is not None:
        return address.version == rule.network.version and _unscoped(address) in rule.network
    return rule.name == host.rstrip(".").lower()


def _unscoped(address: Address) -> Address:
    return IPv6Address(int(address)) if isinstance(address, IPv6Address) else address


def _literal(host: str) -> Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _meant(url: httpx2.URL) -> list[Address]:
    """Return the addresses that a host denotes by itself, in any notation; none for a name."""
    literal, host = _literal(url.host), url.raw_host.decode("ascii").lower().rstrip(".")
    if literal is not None:
        return [literal]
    if _HOST.fullmatch(host) is None or url.host.endswith(".."):
        raise _unreadable("The URL's host is neither a name nor an address.")
    if host == "localhost" or host.endswith(".localhost"):
        return [IPv4Address("127.0.0.1"), IPv6Address("::1")]
    if _NUMBER.fullmatch(host.rpartition(".")[2]) is None:
        return []
    try:  # short, octal and hexadecimal, as the system's resolver accepts them
        return [IPv4Address(socket.inet_aton(host))]
    except OSError:
        raise _unreadable("The URL's host is neither a name nor an address.") from None


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _port(url: httpx2.URL) -> int:
    return url.port or (443 if url.scheme == "https" else 80)


def _refused(host: str, found: Iterable[Address]) -> OutboundRefused:
    why = "metadata_endpoint" if any(is_metadata(address) for address in found) else "private_address"
    return OutboundRefused(
        f"{host} is not a public address. An operator can allow it with the setting allow_hosts.", field="url", why=why
    )


def _unreadable(message: str) -> OutboundRefused:
    return OutboundRefused(message, field="url", why="invalid_url")


async def _resolved(host: str, port: int) -> list[str]:
    """Resolve a name. It has its own threads, so that a slow name server delays only other lookups."""
    literal = _literal(host)
    if literal is not None:
        return [str(literal)]
    work = _resolvers().submit(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    found = await asyncio.wrap_future(work)
    return list(dict.fromkeys(str(info[4][0]) for info in found))


@cache
def _resolvers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(RESOLVERS, thread_name_prefix="parley-names")

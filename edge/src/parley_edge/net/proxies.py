"""HTTP proxies from environment variables, for machines that reach the platform only through a proxy."""

import asyncio
import os
from base64 import b64encode
from dataclasses import dataclass, field
from urllib.parse import SplitResult, unquote, urlsplit

_NAMES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
_MAX_HEAD = 64 * 1024


class TunnelRefused(OSError):
    pass


@dataclass(frozen=True, slots=True)
class Proxy:
    host: str
    port: int
    credentials: dict[str, str] = field(default_factory=dict[str, str], repr=False)

    async def tunnel(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int) -> None:
        """Open a tunnel through the proxy (CONNECT)."""
        name = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        lines = [f"CONNECT {name} HTTP/1.1", f"Host: {name}"]
        lines += [f"{header}: {value}" for header, value in self.credentials.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
        try:
            answer = (await reader.readuntil(b"\r\n\r\n"))[:_MAX_HEAD].split(b" ", 2)
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            raise TunnelRefused(0, f"the proxy {self.host} does not speak HTTP") from error
        if len(answer) < 2 or answer[1][:1] != b"2":
            raise TunnelRefused(0, f"the proxy {self.host} refused")


class Proxies:
    def __init__(self, by_scheme: dict[str, str]) -> None:
        self._by_scheme = by_scheme

    @staticmethod
    def from_environment() -> "Proxies":
        named = ((name, os.environ.get(name) or os.environ.get(name.upper())) for name in _NAMES)
        return Proxies({name.removesuffix("_proxy"): value for name, value in named if value})

    def of(self, parts: SplitResult) -> Proxy | None:
        address = self._by_scheme.get(parts.scheme) or self._by_scheme.get("all")
        host = parts.hostname or ""
        if not address or is_loopback(host) or _bypassed(host, self._by_scheme):
            return None
        proxy = urlsplit(address if "://" in address else f"http://{address}")
        return Proxy(proxy.hostname or "", proxy.port or 80, _credentials(proxy))


def is_loopback(host: str) -> bool:
    """True if a name or address can only be this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    from ipaddress import ip_address

    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _bypassed(host: str, by_scheme: dict[str, str]) -> bool:
    """True if `NO_PROXY` lists the host, one of its parent domains, or `*`."""
    names = [name.strip().lstrip(".").lower() for name in by_scheme.get("no", "").split(",")]
    return "*" in names or any(name and (host == name or host.endswith(f".{name}")) for name in names)


def _credentials(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": f"Basic {b64encode(pair.encode()).decode()}"}

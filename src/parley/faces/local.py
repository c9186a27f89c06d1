"""Without credentials only this machine may ask, and no web page through it."""

from functools import lru_cache
from urllib.parse import urlsplit

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]", "::1"})


@lru_cache(maxsize=256)
def is_local(host: bytes, origin: bytes | None, allowed_origins: frozenset[str]) -> bool:
    """Whether neither `Host` (a rebound name) nor `Origin` (a page of another site) is foreign."""
    if _name(host.decode("latin-1").strip()) not in _LOOPBACK:
        return False
    if origin is None:
        return True
    text = origin.decode("latin-1").strip()
    return text in allowed_origins or _origin_name(text) in _LOOPBACK


def _name(host: str) -> str:
    """The host without its port."""
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0].lower()


def _origin_name(origin: str) -> str:
    try:
        return urlsplit(origin).hostname or ""
    except ValueError:
        return ""

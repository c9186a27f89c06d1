"""Whom to believe over TLS."""

import ssl
from functools import cache

import httpx2


@cache
def certificates() -> ssl.SSLContext:
    """What every client of ours checks servers with. Read once: it takes longer than all else about a client."""
    return httpx2.create_ssl_context()

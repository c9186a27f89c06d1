"""The real provider as a process, and a user who fills in its pages without a browser."""

import asyncio
import json
import re
import socket
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urljoin, urlsplit

import httpx2
from joserfc.jwk import KeySet, RSAKey

from sdk.node import find
from tests.interop.installed import node_client

VERSION = "9.13.3"
SCRIPT = Path(__file__).with_name("provider.mjs")
ACCOUNTS: dict[str, list[str]] = {
    "root": ["platform"], "olga": ["on-call", "staff"], "ursula": ["staff"], "rita": ["auditors"], "guest": [],
}  # fmt: skip
ROLE_GROUPS = {"admin": ["platform"], "operator": ["on-call"], "user": ["staff"], "reader": ["auditors"]}
SECRET = "the secret of/the:console"
_FORM = re.compile(r'<form[^>]*action="([^"]+)"')
_HIDDEN = re.compile(r'<input type="hidden" name="(\w+)" value="([^"]*)"')


def free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return f"http://127.0.0.1:{found.getsockname()[1]}"


def new_keys() -> dict[str, Any]:
    key = RSAKey.generate_key(2048, {"use": "sig", "alg": "RS256"}, auto_kid=True)
    return dict(KeySet([key]).as_dict(private=True))


def client(id_: str, console: str, secret: str = SECRET) -> dict[str, Any]:
    given = {"client_secret": secret} if secret else {"token_endpoint_auth_method": "none"}
    return {
        "client_id": id_, **given, "response_types": ["code"], "grant_types": ["authorization_code"],
        "redirect_uris": [f"{console}/console/login/callback"],
        "post_logout_redirect_uris": [f"{console}/console/login"],
    }  # fmt: skip


def terminal_client(id_: str = "terminal") -> dict[str, Any]:
    return {
        "client_id": id_, "token_endpoint_auth_method": "none", "response_types": [], "redirect_uris": [],
        "grant_types": ["urn:ietf:params:oauth:grant-type:device_code", "refresh_token"], "application_type": "native",
    }  # fmt: skip


class Provider:
    def __init__(self, url: str, process: Process, keys: dict[str, Any]) -> None:
        self.url = url
        self.keys = keys
        self._process = process

    async def move_clock(self, ahead_s: float) -> None:
        async with httpx2.AsyncClient() as http:
            (await http.post(f"{self.url}/control/clock", params={"ahead_s": ahead_s})).raise_for_status()

    async def stop(self) -> None:
        if self._process.returncode is None:
            self._process.terminate()
            await self._process.communicate()


@asynccontextmanager
async def provider_at(
    url: str, *clients: dict[str, Any], keys: dict[str, Any] | None = None, userinfo: bool = True,
    id_token_s: int = 3600, accounts: Mapping[str, list[str]] = ACCOUNTS,
) -> AsyncIterator[Provider]:  # fmt: skip
    """`userinfo`: claims of users are only at the provider's userinfo endpoint, not in ID tokens."""
    place = await asyncio.to_thread(node_client, "oidc-provider", VERSION)
    keys = keys or new_keys()
    config = {
        "modules": str(place), "issuer": url, "clients": clients, "jwks": keys, "userinfo": userinfo,
        "idTokenS": id_token_s, "accounts": accounts,
    }  # fmt: skip
    process = await asyncio.create_subprocess_exec(
        str(find().program), str(SCRIPT), json.dumps(config), stdout=PIPE, stderr=PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    line = await asyncio.wait_for(process.stdout.readline(), 30)
    assert line == b"listening\n", (await process.stderr.read()).decode()
    found = Provider(url, process, keys)
    try:
        yield found
    finally:
        await found.stop()


class User:
    """A user at the provider's own pages, with a cookie jar for the provider alone."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.http = httpx2.AsyncClient(timeout=30)

    async def __aenter__(self) -> "User":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.aclose()

    async def signs_in(self, address: str) -> str:
        """Follow the pages from an address; return the address that the provider sends the browser back to, or the
        text of its last page."""
        origin, reply = urlsplit(address)[:2], await self.http.get(address)
        for _ in range(20):
            if reply.is_redirect:
                target = urljoin(str(reply.url), reply.headers["location"])
                if urlsplit(target)[:2] != origin:
                    return target
                reply = await self.http.get(target)
            elif (form := _FORM.search(reply.text)) is None:
                return reply.text
            else:
                fields = dict(_HIDDEN.findall(reply.text))
                fields |= {"login": self.name, "password": "any"} if 'name="login"' in reply.text else {}
                target = urljoin(str(reply.url), unescape(form[1]))
                reply = await self.http.post(target, data=fields)
        raise AssertionError(f"The provider does not come to an end: {reply.url}")


def query_of(address: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(address).query))

"""A small OpenID Connect issuer on a real port."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from joserfc import jwt
from joserfc.jwk import ECKey, Key, KeySet, OKPKey, RSAKey
from joserfc.jws import JWSRegistry

AUDIENCE = "parley"


class Issuer:
    def __init__(self) -> None:
        self.url = ""
        self.keys: list[Key] = []
        self.asked: list[str] = []
        self.documents: dict[str, Any] = {}

    def add_key(self, kind: str = "RSA", **parameters: Any) -> Key:
        made: Key = {
            "RSA": lambda: RSAKey.generate_key(2048, parameters or None, auto_kid=True),
            "EC": lambda: ECKey.generate_key("P-256", parameters or None, auto_kid=True),
            "OKP": lambda: OKPKey.generate_key("Ed25519", parameters or None, auto_kid=True),
        }[kind]()
        self.keys.append(made)
        return made

    def token(
        self, key: Key | None = None, alg: str = "RS256", header: dict[str, Any] | None = None, **claims: Any
    ) -> str:
        """A good token; `claims` change it, None takes one out."""
        signer = key or self.keys[-1]
        now = int(time.time())
        every = {"iss": self.url, "aud": AUDIENCE, "sub": "ann", "exp": now + 300, **claims}
        every = {name: value for name, value in every.items() if value is not None}
        head = {"alg": alg, "kid": signer.kid, **(header or {})}
        head = {name: value for name, value in head.items() if value is not None}
        registry = JWSRegistry(algorithms=["RS256", "PS256", "ES256", "Ed25519", "HS256"], strict_check_header=False)
        return jwt.encode(head, every, signer, registry=registry)

    def page(self, path: str) -> bytes | None:
        if path in self.documents:
            found = self.documents[path]
            return found if isinstance(found, bytes) else json.dumps(found).encode()
        if path == "/.well-known/openid-configuration":
            return json.dumps({"issuer": self.url, "jwks_uri": f"{self.url}/jwks"}).encode()
        return json.dumps(KeySet(self.keys).as_dict(private=False)).encode() if path == "/jwks" else None

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        path = request.split()[1].decode()
        self.asked.append(path)
        body = self.page(path)
        status = b"200 OK" if body is not None else b"404 Not Found"
        writer.write(b"HTTP/1.1 %b\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % (status, len(body or b"")))
        writer.write(body or b"")
        await writer.drain()
        writer.close()


@asynccontextmanager
async def issuing() -> AsyncIterator[Issuer]:
    issuer = Issuer()
    issuer.add_key()
    server = await asyncio.start_server(issuer.answer, "127.0.0.1", 0)
    issuer.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield issuer
    finally:
        server.close()
        await server.wait_closed()

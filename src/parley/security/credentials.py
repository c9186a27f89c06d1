"""The principal of a presented credential, on every transport."""

import hmac
from typing import Literal

from parley.errors import Unauthenticated
from parley.runs.rules.access import LOCAL, Principal
from parley.security.keys import PREFIX, ApiKeys
from parley.security.tokens import Tokens

Auth = Literal["local", "required", "none"]

ANONYMOUS = Principal("guest", "anonymous")
CONFIGURED = Principal("service", "configured")
"""The principal of the key that the configuration names."""


class Credentials:
    """Checks API keys, tokens of an issuer if there is one, and the key of the configuration if it names one."""

    def __init__(self, keys: ApiKeys, tokens: Tokens | None = None, configured: str | None = None) -> None:
        self.keys = keys
        self.tokens = tokens
        self._configured = configured.encode() if configured else b""

    async def principal_for(self, token: str) -> Principal:
        if self._configured and hmac.compare_digest(token.encode(), self._configured):
            return CONFIGURED
        if token.startswith(PREFIX):
            return await self.keys.principal_for(token)
        if self.tokens is None or token.count(".") != 2:
            raise Unauthenticated("The credential is neither an API key nor a token of a known issuer.")
        return await self.tokens.principal_for(token)


class Gate:
    """Authentication mode. `local`: this machine needs no credentials. `required`: every caller does. `none`:
    credentials are not checked."""

    def __init__(self, auth: Auth, credentials: Credentials) -> None:
        self.auth: Auth = auth
        self.credentials = credentials

    async def principal(self, authorization: str | None, api_key: str | None) -> Principal | None:
        """Return the caller; None if credentials are missing. Credentials that are given are checked, needed or not."""
        if self.auth == "none":
            return ANONYMOUS
        return await self.owner(authorization, api_key) or (LOCAL if self.auth == "local" else None)

    async def owner(self, authorization: str | None, api_key: str | None) -> Principal | None:
        """Return the owner of a credential, in every mode; None if there is no credential."""
        if api_key is not None:
            return await self.credentials.principal_for(api_key.strip())
        if authorization is not None:
            return await self.credentials.principal_for(bearer(authorization.strip()))
        return None


def bearer(authorization: str) -> str:
    """Return the token in an `Authorization` value."""
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise Unauthenticated("Authorization must be: Bearer, a space, and an API key or a token.")
    return token.strip()

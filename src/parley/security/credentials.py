"""Whoever a presented credential stands for, on every transport."""

from parley.core.access import Principal
from parley.errors import Unauthenticated
from parley.security.keys import PREFIX, ApiKeys
from parley.security.tokens import Tokens


class Credentials:
    """API keys, and tokens of an issuer when there is one."""

    def __init__(self, keys: ApiKeys, tokens: Tokens | None = None) -> None:
        self.keys = keys
        self._tokens = tokens

    async def principal_for(self, token: str) -> Principal:
        if token.startswith(PREFIX):
            return await self.keys.principal_for(token)
        if self._tokens is None or token.count(".") != 2:
            raise Unauthenticated("The credential is neither an API key nor a token of a known issuer.")
        return await self._tokens.principal_for(token)


def bearer(authorization: str) -> str:
    """The token in an `Authorization` value."""
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise Unauthenticated("Authorization must be: Bearer, a space, and an API key or a token.")
    return token.strip()

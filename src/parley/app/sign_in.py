"""Assembles sign-in at the identity provider, and the sessions of those who have signed in."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from msgspec import Struct

from parley.console.request import CALLBACK
from parley.console.responses import PREFIX as CONSOLE
from parley.errors import ConfigurationError
from parley.faces.sign_in import SessionFace, SignInFace
from parley.records import Records
from parley.security.credentials import Gate
from parley.security.secrets import Secrets
from parley.security.sessions import StoredSessions
from parley.security.sign_in import ProviderClient, SignIn
from parley.security.tokens import Tokens
from parley.settings import Settings


class ConsoleAccess(Struct, frozen=True):
    """Services that say who visits the console."""

    gate: Gate
    secrets: Secrets
    stored: StoredSessions
    sign_in: SignIn | None

    @property
    def faces(self) -> tuple[SignInFace, SessionFace]:
        return SignInFace(self.sign_in), SessionFace(self.stored)


def console_access(settings: Settings, gate: Gate, records: Records, secrets: Secrets, base_url: str) -> ConsoleAccess:
    provider = sign_in(settings, gate.credentials.tokens, secrets, base_url)
    return ConsoleAccess(gate, secrets, stored_sessions(settings, records), provider)


@asynccontextmanager
async def connected(tokens: Tokens | None) -> AsyncGenerator[None, None]:
    """Close the connections to the issuer at the end."""
    try:
        yield
    finally:
        if tokens is not None:
            await tokens.outbound.close()


def sign_in(settings: Settings, tokens: Tokens | None, secrets: Secrets, base_url: str) -> SignIn | None:
    """Build the sign-in at the issuer, if this server is one of its clients."""
    if settings.oidc_client_id is None:
        return None
    if tokens is None:
        raise ConfigurationError("The setting oidc_client_id needs oidc_issuer.", field="oidc_issuer")
    if "openid" not in settings.oidc_scopes:
        raise ConfigurationError("The setting oidc_scopes must contain openid.", field="oidc_scopes")
    secret = settings.oidc_client_secret.get_secret_value() if settings.oidc_client_secret else ""
    client = ProviderClient(
        settings.oidc_client_id, secret, tuple(settings.oidc_scopes), settings.oidc_cli_client_id or ""
    )
    console = f"{base_url}{CONSOLE}"
    return SignIn(tokens, client, secrets, f"{console}{CALLBACK}", f"{console}/login", settings.oidc_name or "")


def stored_sessions(settings: Settings, records: Records) -> StoredSessions:
    idle_s = None if settings.console_idle_hours is None else int(settings.console_idle_hours * 3600)
    return StoredSessions(records, int(settings.console_session_hours * 3600), idle_s)

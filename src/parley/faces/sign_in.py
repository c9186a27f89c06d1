"""Where users of this server sign in, for `parley login`; and sessions of the console, for administrators."""

from typing import ClassVar

from msgspec import Struct

from parley.clock import iso
from parley.errors import NotFound
from parley.http.face import Face, Request, Response, operation
from parley.http.requests import Headers
from parley.runs.rules.access import Principal
from parley.security.sessions import StoredSession, StoredSessions
from parley.security.sign_in import SignIn

MAX_SESSIONS = 1000
"""Sessions in one response."""


class SignInPlace(Struct, frozen=True, rename="camel"):
    issuer: str
    client_id: str
    audiences: list[str]
    scopes: list[str]


class SignInFace(Face[None]):
    headers: ClassVar[Headers] = [(b"cache-control", b"public, max-age=300")]

    def __init__(self, sign_in: SignIn | None) -> None:
        self._sign_in = sign_in

    @operation("GET", "/.well-known/parley-sign-in", open=True)
    async def show(self, request: Request[None]) -> Response:
        """Tell the issuer and the client of `parley login`, and the audiences that a token may name."""
        if self._sign_in is None:
            raise NotFound("Users of this server do not sign in at an identity provider.")
        client, tokens = self._sign_in.client, self._sign_in.tokens
        place = SignInPlace(tokens.issuer, client.cli_id or client.id, tokens.audiences, list(client.scopes))
        return Response(200, place)


class SessionFace(Face[Principal]):
    def __init__(self, sessions: StoredSessions) -> None:
        self._sessions = sessions

    @operation("GET", "/admin/sessions", permission="admin")
    async def list(self, request: Request[Principal]) -> Response:
        """List sessions, the last used first; with `principal` those of one."""
        found = await self._sessions.list(request.query.get("principal"))
        views = [session_view(one) for one in found[:MAX_SESSIONS]]
        return Response(200, {"sessions": views, "complete": len(found) <= MAX_SESSIONS})

    @operation("DELETE", "/admin/sessions/{id:path}", permission="admin")
    async def revoke(self, request: Request[Principal]) -> Response:
        """End a session, or with a principal in place of the id all of its sessions."""
        return Response(200, {"revoked": [one.id for one in await self._sessions.revoke(request.path["id"])]})


def session_view(session: StoredSession) -> dict[str, object]:
    """Render a session without its secrets."""
    return {
        "id": session.id,
        "principal": session.principal,
        "method": session.method,
        "groups": sorted(session.groups),
        "createdAt": iso(session.created_at),
        "seenAt": iso(session.seen_at),
        "expiresAt": iso(session.expires_at),
    }

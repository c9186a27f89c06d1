"""Sign-in at an OpenID Connect provider: authorization code with PKCE, and sign-out where the provider offers it."""

import base64
import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable, Mapping
from urllib.parse import quote, urlencode

import httpx2
import msgspec
from joserfc.jwt import JWTClaimsRegistry, Token
from msgspec import Struct

from parley.errors import IssuerUnavailable, NoRole, OutboundRefused, SignInExpired, SignInRefused, Unauthenticated
from parley.runs.rules.access import Principal, Scope
from parley.security.groups import claimed_groups
from parley.security.netguard import OutboundReply
from parley.security.secrets import CookieSeal, Secrets
from parley.security.tokens import FETCH_TROUBLE, LEEWAY_S, TIMEOUT_S, Tokens, discovered, named_scopes

PURPOSE = "parley.sign_in.1"
STARTED_S = 600
"""Time that a user may take at the provider."""
KEEP_METADATA_S = 3600.0
MAX_PARAMETER = 4096
_FORM = {"content-type": "application/x-www-form-urlencoded", "accept": "application/json"}
_ERROR_CODE = re.compile(r"[a-z_]{1,64}")


class ProviderMetadata(Struct, frozen=True):
    """The members of a discovery document that sign-in needs."""

    authorization_endpoint: str
    token_endpoint: str
    userinfo_endpoint: str = ""
    end_session_endpoint: str = ""
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)
    authorization_response_iss_parameter_supported: bool = False


class ProviderClient(Struct, frozen=True):
    """This server as a client of the provider."""

    id: str
    secret: str = ""
    scopes: tuple[str, ...] = ("openid", "profile", "email")
    cli_id: str = ""
    """Client of `parley login`; the same one if empty."""


class StartedSignIn(Struct, frozen=True, array_like=True):
    """A sign-in that has begun, as the browser's cookie keeps it."""

    state: str
    nonce: str
    verifier: str
    place: str
    """Page of the console to continue at."""


class SignedIn(Struct, frozen=True):
    principal: Principal
    scopes: frozenset[Scope]
    """Scopes that the issuer named."""
    id_token: str
    place: str


class _Granted(Struct, frozen=True):
    """Answer of the token endpoint."""

    id_token: str
    access_token: str = ""


class _Refusal(Struct, frozen=True):
    error: str = ""


class SignIn:
    """Signs users in at one provider. Nothing is stored before a sign-in is complete: the browser keeps its state in a
    sealed cookie, so that any replica can complete what another one began."""

    def __init__(
        self,
        tokens: Tokens,
        client: ProviderClient,
        secrets_: Secrets,
        redirect_uri: str,
        signed_out_uri: str,
        name: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.issuer = tokens.issuer
        self.tokens = tokens
        self.client = client
        self.name = name or httpx2.URL(tokens.issuer).host
        self.redirect_uri = redirect_uri
        self._signed_out_uri = signed_out_uri
        self._seal = CookieSeal(secrets_, PURPOSE)
        self._secrets = secrets_
        self._clock = clock
        self._metadata: ProviderMetadata | None = None
        self._fresh_until = 0.0
        self._id_tokens = JWTClaimsRegistry(
            leeway=LEEWAY_S,
            iss={"essential": True, "value": self.issuer},
            aud={"essential": True, "value": client.id},
            sub={"essential": True},
            exp={"essential": True},
            iat={"essential": True},
            nonce={"essential": True},
        )

    async def begin(self, place: str) -> tuple[str, str]:
        """Return the provider's address to send the browser to, and the cookie to come back with."""
        metadata = await self._provider()
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        started = StartedSignIn(state, nonce, verifier, place)
        query = {
            "response_type": "code",
            "client_id": self.client.id,
            "redirect_uri": self.redirect_uri,
            "scope": " ".join(self.client.scopes),
            "state": started.state,
            "nonce": started.nonce,
            "code_challenge": _base64url(hashlib.sha256(started.verifier.encode()).digest()),
            "code_challenge_method": "S256",
        }
        return _with_query(metadata.authorization_endpoint, query), self._seal.sealed(started)

    async def complete(self, answer: Mapping[str, str], cookie: str) -> SignedIn:
        """Return the user that the provider has sent back; raise SignInRefused if its answer is wrong."""
        started = self._seal.opened(cookie, StartedSignIn, STARTED_S)
        if started is None:
            raise SignInExpired("This sign-in has expired, or was started in another browser. Start again.")
        if not hmac.compare_digest(answer.get("state", "").encode(), started.state.encode()):
            raise _refused("its answer belongs to another sign-in")
        metadata = await self._provider()
        issuer = answer.get("iss")
        if issuer != self.issuer and (issuer or metadata.authorization_response_iss_parameter_supported):
            raise _refused("its answer comes from another issuer")
        if error := answer.get("error"):
            raise _refused(_named(error))
        code = answer.get("code", "")
        if not 0 < len(code) <= MAX_PARAMETER:
            raise _refused("its answer has no code")
        granted = await self._redeem(metadata, code, started.verifier)
        id_token = await self.checked(granted.id_token, started.nonce, granted.access_token)
        return await self._signed_in(metadata, id_token, granted, started.place)

    async def checked(self, token: str, nonce: str, access_token: str = "") -> Token:
        """Check an ID token: signature, issuer, audience, times, nonce and the hash of its access token."""
        try:
            found = await self.tokens.checked(token, self._id_tokens)
        except Unauthenticated as error:
            raise _refused(f"its ID token does not hold: {error.message}") from None
        claims = found.claims
        if not hmac.compare_digest(str(claims["nonce"]).encode(), nonce.encode()):
            raise _refused("its ID token belongs to another sign-in")
        if claims.get("azp", self.client.id) != self.client.id:
            raise _refused("its ID token was issued to another client")
        expected = claims.get("at_hash")
        if expected is not None and expected != access_token_hash(access_token, str(found.header["alg"])):
            raise _refused("its access token does not belong to its ID token")
        return found

    async def _signed_in(self, metadata: ProviderMetadata, id_token: Token, granted: _Granted, place: str) -> SignedIn:
        claims = id_token.claims
        if not claimed_groups(claims, self.tokens.groups) and metadata.userinfo_endpoint and granted.access_token:
            # Many providers name groups only here, to keep their tokens small.
            claims = {**await self._userinfo(metadata, granted.access_token, str(claims["sub"])), **claims}
        principal, named = self.tokens.principal_of(claims), named_scopes(claims)
        if not principal.scopes:
            raise NoRole("You have signed in, but your account has no role here. Ask an administrator for one.")
        await self.tokens.note(principal)
        return SignedIn(principal, named, granted.id_token, place)

    def principal_of(self, subject: str, scopes: frozenset[Scope], groups: frozenset[str]) -> Principal:
        """Return the user of a stored session, with the role that its groups have now."""
        return self.tokens.user(subject, scopes, groups)

    def hint(self, id_token: str) -> bytes:
        """Return an ID token as it is stored until sign-out."""
        return self._secrets.encrypt(id_token.encode())

    async def sign_out_address(self, hint: bytes) -> str | None:
        """Return the provider's address that ends the user's session there; None if the provider has none, or cannot be
        reached: the user is signed out here in any case."""
        try:
            metadata = await self._provider()
        except IssuerUnavailable:
            return None
        if not metadata.end_session_endpoint:
            return None
        query = {"client_id": self.client.id, "post_logout_redirect_uri": self._signed_out_uri}
        if hint:
            query["id_token_hint"] = self._secrets.decrypt(hint).decode()
        return _with_query(metadata.end_session_endpoint, query)

    async def _redeem(self, metadata: ProviderMetadata, code: str, verifier: str) -> _Granted:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.redirect_uri,
            "code_verifier": verifier,
        }
        headers = dict(_FORM)
        if not self.client.secret:
            form["client_id"] = self.client.id
        elif "client_secret_basic" in metadata.token_endpoint_auth_methods_supported:
            pair = f"{quote(self.client.id, safe='')}:{quote(self.client.secret, safe='')}"
            headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        else:
            form |= {"client_id": self.client.id, "client_secret": self.client.secret}
        reply = await self._asked("POST", metadata.token_endpoint, headers, urlencode(form).encode())
        try:
            if reply.status != 200:
                raise _refused(_named(msgspec.json.decode(reply.body, type=_Refusal).error))
            return msgspec.json.decode(reply.body, type=_Granted)
        except msgspec.MsgspecError:
            raise _refused("it has answered without an ID token") from None

    async def _userinfo(self, metadata: ProviderMetadata, access_token: str, subject: str) -> dict[str, object]:
        headers = {"authorization": f"Bearer {access_token}", "accept": "application/json"}
        reply = await self._asked("GET", metadata.userinfo_endpoint, headers, None)
        try:
            claims = msgspec.json.decode(reply.body, type=dict[str, object]) if reply.status == 200 else {}
        except msgspec.MsgspecError:  # signed or encrypted claims
            claims = {}
        if claims and claims.get("sub") != subject:
            raise _refused("its claims belong to another user")
        return claims

    async def _asked(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> OutboundReply:
        try:
            return await self.tokens.outbound.send(method, url, headers=headers, content=body, timeout_s=TIMEOUT_S)
        except (OSError, httpx2.HTTPError, OutboundRefused):
            raise _unavailable() from None

    async def _provider(self) -> ProviderMetadata:
        """Return the provider's metadata: cached for an hour, or longer while it cannot be reached."""
        if self._metadata is None or self._clock() >= self._fresh_until:
            try:
                document = await discovered(self.issuer, self.tokens.fetch)
                self._metadata = _safe(msgspec.convert(document, ProviderMetadata), self.issuer)
                self._fresh_until = self._clock() + KEEP_METADATA_S
            except FETCH_TROUBLE:
                if self._metadata is None:
                    raise _unavailable() from None
        return self._metadata


def access_token_hash(token: str, algorithm: str) -> str:
    """Return `at_hash` of an access token: half of its hash, by the hash of the signature's algorithm."""
    if algorithm in ("EdDSA", "Ed25519"):
        digest = hashlib.sha512(token.encode()).digest()
    elif algorithm == "Ed448":
        digest = hashlib.shake_256(token.encode()).digest(114)
    else:
        digest = hashlib.new(f"sha{algorithm[-3:]}", token.encode()).digest()
    return _base64url(digest[: len(digest) // 2])


def _safe(metadata: ProviderMetadata, issuer: str) -> ProviderMetadata:
    """Refuse endpoints without TLS if the issuer has it."""
    used = metadata.authorization_endpoint, metadata.token_endpoint, metadata.userinfo_endpoint
    endpoints = [one for one in (*used, metadata.end_session_endpoint) if one]
    if any(not one.startswith(("https://", "http://")) for one in endpoints):
        raise ValueError("An endpoint is not a web address.")
    if issuer.startswith("https:") and any(not one.startswith("https:") for one in endpoints):
        raise ValueError("An endpoint does not use TLS.")
    return metadata


def _with_query(address: str, query: Mapping[str, str]) -> str:
    return f"{address}{'&' if '?' in address else '?'}{urlencode(query)}"


def _base64url(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def _named(code: str) -> str:
    """Return an error code for people; anything else that was sent is not repeated."""
    return code if _ERROR_CODE.fullmatch(code) else "unknown error"


def _refused(reason: str) -> SignInRefused:
    return SignInRefused(f"The identity provider did not sign you in: {reason}.")


def _unavailable() -> IssuerUnavailable:
    return IssuerUnavailable("The identity provider does not answer at the moment; try again later.")

"""Sign in from a terminal: the device flow of OAuth 2.0 (RFC 8628) at the server's identity provider."""

import json
import time
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct
from rich.console import Console

from parley.cli.addresses import member
from parley.cli.logins import Granted, Login, LoginFailed, bearer_of, call, changing, login_token, read
from parley.client import RemoteError, Unreachable
from parley.errors import Unauthenticated, Unsupported
from parley.faces.sign_in import SignInPlace

GRANT = "urn:ietf:params:oauth:grant-type:device_code"
INTERVAL_S = 5
SLOWER_S = 5
MAX_WAIT_S = 3600
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class _Provider(Struct, frozen=True):
    issuer: str
    token_endpoint: str
    device_authorization_endpoint: str = ""
    revocation_endpoint: str = ""
    scopes_supported: list[str] = []


class _Device(Struct, frozen=True):
    device_code: str
    user_code: str
    verification_uri: str
    verification_uri_complete: str = ""
    expires_in: int = 600
    interval: int = INTERVAL_S


def run_login(url: str, *, as_json: bool) -> None:
    server = url.rstrip("/")
    place = _sign_in_place(server)
    provider = _provider(place.issuer)
    device = _begun(place, provider)
    notes = Console(stderr=True, highlight=False)
    notes.print(
        f"Sign in at {urlsplit(place.issuer).netloc}: open", device.verification_uri_complete or "", soft_wrap=True
    )
    notes.print(f"or enter the code [bold]{device.user_code}[/bold] at {device.verification_uri}", soft_wrap=True)
    granted = _waited(place, provider, device)
    token, expires_at = bearer_of(granted, place.audiences)
    who = _whoami(server, token)
    login = Login(
        place.issuer,
        place.client_id,
        provider.token_endpoint,
        place.audiences,
        token,
        expires_at,
        granted.refresh_token,
        provider.revocation_endpoint,
    )
    with changing() as logins:
        logins[server] = login
    print(json.dumps(who) if as_json else f"signed in at {server} as {_described(who)}")


def run_logout(url: str, *, as_json: bool) -> None:
    """Forget the tokens of a server, and revoke the refresh token where the provider can."""
    server = url.rstrip("/")
    with changing() as logins:
        login = logins.pop(server, None)
    revoked = login is not None and _revoked(login)
    if as_json:
        print(json.dumps({"server": server, "signedOut": login is not None, "revoked": revoked}))
    else:
        print(f"signed out of {server}" if login is not None else f"not signed in at {server}")


def run_whoami(url: str, token: str | None, *, as_json: bool) -> None:
    server = url.rstrip("/")
    who = _whoami(server, token or login_token(server))
    if as_json:
        print(json.dumps(who))
        return
    by = "token" if token else "parley login" if server in read() else "no credential"
    print(f"{_described(who)} at {server}, by {by}")


def _sign_in_place(server: str) -> SignInPlace:
    status, body = call("GET", f"{server}/.well-known/parley-sign-in")
    try:
        place = msgspec.convert(body, SignInPlace) if status == 200 else None
    except msgspec.ValidationError:
        place = None
    if place is None:
        raise Unsupported(f"{server} has no sign-in at an identity provider. Use an API key: --token, or PARLEY_TOKEN.")
    return place


def _provider(issuer: str) -> _Provider:
    parts = urlsplit(issuer)
    if parts.scheme != "https" and parts.hostname not in _LOOPBACK:
        raise LoginFailed(f"The identity provider {issuer} does not use TLS.")
    status, body = call("GET", issuer.rstrip("/") + "/.well-known/openid-configuration")
    try:
        provider = msgspec.convert(body, _Provider) if status == 200 else None
    except msgspec.ValidationError:
        provider = None
    if provider is None or provider.issuer != issuer:
        raise LoginFailed(f"{issuer} is not an OpenID Connect provider.")
    if not provider.device_authorization_endpoint:
        raise LoginFailed(f"{issuer} does not offer the device flow. Use an API key: --token, or PARLEY_TOKEN.")
    return provider


def _begun(place: SignInPlace, provider: _Provider) -> _Device:
    scopes = list(place.scopes)
    if "offline_access" in provider.scopes_supported and "offline_access" not in scopes:
        scopes.append("offline_access")
    form = {"client_id": place.client_id, "scope": " ".join(scopes)}
    status, body = call("POST", provider.device_authorization_endpoint, form)
    if status != 200:
        raise LoginFailed(f"The identity provider refused to begin: {_reason(body)}.")
    try:
        return msgspec.convert(body, _Device)
    except msgspec.ValidationError:
        raise LoginFailed("The identity provider has answered without a device code.") from None


def _waited(place: SignInPlace, provider: _Provider, device: _Device) -> Granted:
    """Ask for the tokens until the user has signed in, refused, or let the code expire."""
    form = {"grant_type": GRANT, "device_code": device.device_code, "client_id": place.client_id}
    pause, end = max(1, device.interval), time.monotonic() + min(device.expires_in, MAX_WAIT_S)
    while time.monotonic() < end:
        time.sleep(pause)
        try:
            status, body = call("POST", provider.token_endpoint, form)
        except Unreachable:
            pause *= 2
            continue
        if status == 200:
            return msgspec.convert(body, Granted)
        error = body.get("error")
        if error == "slow_down":
            pause += SLOWER_S
        elif error != "authorization_pending" and status < 500:
            raise LoginFailed(f"The identity provider did not sign you in: {_reason(body)}.")
    raise LoginFailed("The code has expired. Run parley login again.")


def _revoked(login: Login) -> bool:
    if not (login.revocation_endpoint and login.refresh_token):
        return False
    form = {"token": login.refresh_token, "token_type_hint": "refresh_token", "client_id": login.client_id}
    try:
        return call("POST", login.revocation_endpoint, form)[0] == 200
    except Unreachable:
        return False


def _whoami(server: str, token: str | None) -> dict[str, Any]:
    status, body = call("GET", f"{server}/admin/whoami", token=token)
    if status == 401 and token is None:
        raise Unauthenticated(f"You are not signed in. Run: parley login --url {server}")
    if status != 200 or "principal" not in body:
        raise RemoteError(member(body.get("error")), status)
    return body


def _described(who: dict[str, Any]) -> str:
    groups = ", ".join(map(str, who.get("groups") or ()))
    return f"{who['principal']} ({who.get('role') or 'no role'}{f', in {groups}' if groups else ''})"


def _reason(body: dict[str, Any]) -> str:
    return str(body.get("error") or "unknown error")

"""Tokens of `parley login`: kept in a file of the user, one for each server, and refreshed when they expire."""

import base64
import fcntl
import os
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from parley.client.http import Unreachable, token_headers
from parley.errors import ParleyError, ReplyTooLarge
from parley.security.files import make_private_folder
from parley.security.outbound import PLAIN, certificates

FILE = "logins.json"
EARLY_S = 30
"""Time before the end of a token at which it is refreshed."""
TIMEOUT_S = 15.0
MAX_BYTES = 1024 * 1024


class LoginEnded(ParleyError):
    """The tokens of `parley login` have expired or were revoked."""

    code = "login_ended"


class LoginFailed(ParleyError):
    """`parley login` has got no token that the server accepts."""

    code = "login_failed"


class Login(Struct, frozen=True, rename="camel"):
    """Tokens for one server."""

    issuer: str
    client_id: str
    token_endpoint: str
    audiences: list[str]
    """Audiences that the server accepts; a token must name one of them."""
    token: str
    expires_at: int
    refresh_token: str = ""
    revocation_endpoint: str = ""


class Granted(Struct, frozen=True):
    """Tokens, as an identity provider returns them."""

    access_token: str = ""
    id_token: str = ""
    refresh_token: str = ""


class _Claims(Struct, frozen=True):
    exp: float
    aud: str | list[str] = ""


Logins = dict[str, Login]


def login_token(address: str) -> str | None:
    """Return the token for the server that an address is on, refreshed if it is about to expire; None without a
    login."""
    server = _server_of(address, read())
    if server is None:
        return None
    with changing() as logins:
        login = logins.get(server)
        if login is None or login.expires_at - time.time() > EARLY_S:
            return login.token if login else None
        if not login.refresh_token:
            del logins[server]
        else:
            granted = _refreshed(login)
            if granted is not None:
                logins[server] = login = renewed(login, granted)
                return login.token
            del logins[server]
    raise LoginEnded(f"Your sign-in at {server} has ended. Run: parley login --url {server}")


def renewed(login: Login, granted: Granted) -> Login:
    """Return a login with new tokens. A provider may keep the refresh token as it is."""
    token, expires_at = bearer_of(granted, login.audiences)
    refresh = granted.refresh_token or login.refresh_token
    return replace(login, token=token, expires_at=expires_at, refresh_token=refresh)


def bearer_of(granted: Granted, audiences: list[str]) -> tuple[str, int]:
    """Return the token that names an audience of the server, and when it expires. Access tokens come first; some
    providers make them for themselves alone, and then it is the ID token."""
    for token in (granted.access_token, granted.id_token):
        claims = _claims(token)
        named = [] if claims is None else [claims.aud] if isinstance(claims.aud, str) else claims.aud
        if claims is not None and set(named) & set(audiences):
            return token, int(claims.exp)
    raise LoginFailed(f"The identity provider has issued no token for this server ({', '.join(audiences)}).")


def _claims(token: str) -> _Claims | None:
    """Read claims without checking them: the server does that."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)), type=_Claims)
    except ValueError:
        return None


def _refreshed(login: Login) -> Granted | None:
    """Return new tokens; None if the provider refuses."""
    form = {"grant_type": "refresh_token", "refresh_token": login.refresh_token, "client_id": login.client_id}
    status, body = call("POST", login.token_endpoint, form)
    if status >= 500:
        raise Unreachable(f"{login.issuer} does not answer (status {status}).")
    return msgspec.convert(body, Granted) if status == 200 else None


def call(
    method: str, url: str, form: dict[str, str] | None = None, token: str | None = None
) -> tuple[int, dict[str, Any]]:
    """Send a request; return the status and the JSON object of the answer, empty if it is none."""
    headers = {**PLAIN, **token_headers(token)}
    try:
        with (
            httpx2.Client(verify=certificates(), timeout=TIMEOUT_S, headers=headers) as http,
            http.stream(method, url, data=form) as reply,
        ):
            content = b""
            for chunk in reply.iter_raw():
                content += chunk
                if len(content) > MAX_BYTES:
                    raise ReplyTooLarge(f"The answer is larger than {MAX_BYTES} bytes.", limit=MAX_BYTES)
            status = reply.status_code
    except (httpx2.TransportError, httpx2.InvalidURL) as error:
        raise Unreachable(f"{url} does not answer ({type(error).__name__}).") from error
    try:
        return status, msgspec.json.decode(content, type=dict[str, Any])
    except msgspec.MsgspecError:
        return status, {}


# The file: readable by its owner only, and changed by one command at a time.


def place() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME", "")
    return (Path(base) if base else Path.home() / ".config") / "parley" / FILE


def read() -> Logins:
    """Return all logins by the address of their server; none if the file is missing or cannot be read."""
    try:
        return msgspec.json.decode(place().read_bytes(), type=Logins)
    except (OSError, RuntimeError, msgspec.MsgspecError):
        return {}


@contextmanager
def changing() -> Generator[Logins, None, None]:
    """Yield the logins, and write them when the block ends, also by an error. Other commands wait meanwhile: a refresh
    token is often good for one use only."""
    path = place()
    make_private_folder(path.parent)
    lock = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        logins = read()
        before = dict(logins)
        try:
            yield logins
        finally:
            if logins != before:
                _write(path, logins)
    finally:
        os.close(lock)


def _write(path: Path, logins: Logins) -> None:
    new = path.with_suffix(".new")
    with suppress(FileNotFoundError):
        new.unlink()
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(logins)))
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def _server_of(address: str, logins: Logins) -> str | None:
    """Return the server that an address is on: the longest one, if servers are below each other."""
    found = [server for server in logins if f"{address}/".startswith(f"{server}/")]
    return max(found, key=len, default=None)

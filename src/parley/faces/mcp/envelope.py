"""What a request of the revision 2026-07-28 says of itself, in its headers and again in its body: both must agree."""

from base64 import b64decode

from starlette.types import Scope

from parley.errors import Invalid, VersionNotSupported
from parley.faces.http import header, headers_of
from parley.faces.mcp.faults import HeaderMismatch
from parley.faces.mcp.words import CAPABILITIES, HANDSHAKE, METHOD, MODERN, NAME, PROTOCOL, VERSION, Params

_NAMED = {"tools/call": "name", "resources/read": "uri"}
_ROUTING = (VERSION, METHOD, NAME)


def is_modern(scope: Scope) -> bool:
    """Whoever names no revision is older than that; whoever names an unknown one is told which there are."""
    version = header(scope, VERSION)
    return version is not None and version not in HANDSHAKE


def check_version(version: str) -> None:
    if version not in MODERN:
        raise VersionNotSupported("Unsupported protocol version.", supported=list(MODERN), requested=version)


def check(scope: Scope, method: str, params: Params) -> None:
    about = params.about
    if not isinstance(about.protocol, str) or not about.capabilities:
        raise Invalid(f"params._meta needs {PROTOCOL} and {CAPABILITIES}.", field="params._meta")
    names = [name for name, _ in scope["headers"]]
    twice = next((name for name in _ROUTING if names.count(name) > 1), None)
    if twice is not None:
        raise HeaderMismatch(f"The header {twice.decode()} appears more than once.")
    _agree(VERSION, header(scope, VERSION), about.protocol)
    _agree(METHOD, header(scope, METHOD), method)
    wanted = {"name": params.name, "uri": params.uri}.get(_NAMED.get(method, ""))
    if wanted is not None:
        _agree(NAME, _plain(headers_of(scope).get(NAME, b"")), wanted)
    check_version(about.protocol)


def _agree(name: bytes, told: str | None, said: str) -> None:
    if told != said:
        raise HeaderMismatch(f"The header {name.decode()} does not say what the request says.")


def _plain(value: bytes) -> str | None:
    """What cannot stand in a header comes as `=?base64?…?=`."""
    text = value.decode("latin-1").strip()
    if not (text.startswith("=?base64?") and text.endswith("?=")):
        return text
    try:
        return b64decode(text[9:-2], validate=True).decode()
    except ValueError:
        return None

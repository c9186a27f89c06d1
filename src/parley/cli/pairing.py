"""Pair an agent's runtime from the terminal: through the server, which knows its agents and its own address."""

import json
from urllib.parse import quote, urlsplit

import httpx2
import msgspec
from rich.console import Console

from parley.cli.wire import Json, member
from parley.client import RemoteError, Unreachable
from parley.errors import Unsupported
from parley.security.replies import PLAIN, check_encoding

_HERE = ("127.0.0.1", "::1", "localhost")


def run_pair(agent: str, url: str, token: str | None, *, as_json: bool) -> None:
    told = _asked("POST", url, agent, "pairing", token)
    if as_json:
        print(json.dumps(told))
        return
    notes = Console(stderr=True, highlight=False)
    notes.print(f"Give this to the AI assistant on the computer that is to work for [bold]{agent}[/bold]:\n")
    print(told["instruction"])
    if urlsplit(str(told["api_base"])).hostname in _HERE:
        notes.print(f"{told['api_base']} is this computer's own address; set public_url to one that others can reach.")


def run_unpair(agent: str, url: str, token: str | None, *, as_json: bool) -> None:
    told = _asked("DELETE", url, agent, "runtime", token)
    print(json.dumps(told) if as_json else f"revoked {told['runtime_id']}; its tasks wait for the next runtime")


def _asked(method: str, url: str, agent: str, what: str, token: str | None) -> Json:
    address = f"{url.rstrip('/')}/admin/agents/{quote(agent, safe='')}/{what}"
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with httpx2.Client(timeout=30.0, headers=PLAIN, event_hooks={"response": [check_encoding]}) as http:
            reply = http.request(method, address, headers=headers)
        told = msgspec.json.decode(reply.content, type=Json)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise Unreachable(f"{url} does not answer ({type(error).__name__}).") from None
    except msgspec.MsgspecError:
        raise Unsupported(f"{url} is no Parley server.") from None
    if not reply.is_success:
        raise RemoteError(member(told.get("error")))
    return told

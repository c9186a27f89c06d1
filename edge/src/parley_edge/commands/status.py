"""`a2a-runtime status`: the local state of a profile, and its state on the platform."""

import asyncio

from parley_edge.commands.start import explained
from parley_edge.errors import NotAccepted
from parley_edge.json_values import Json, as_object, read_object
from parley_edge.net.http import Http
from parley_edge.net.proxies import Proxies
from parley_edge.runtime.places import claim_of, ledger_of
from parley_edge.runtime.platform import Platform
from parley_edge.storage import profiles
from parley_edge.storage.profiles import Profile


def status(wanted: str | None, api_base: str | None) -> Json:
    """Local and remote state of a profile."""
    folder = profiles.home()
    name, profile = profiles.read(folder).resolved(wanted)
    entries = ledger_of(folder, name).entries()
    base = api_base or profile.api_base
    return {
        "profile": name,
        **profile.shown(),
        "api_base": base,
        "running_pid": claim_of(folder, name).holder(),
        "undelivered": sum(entry.result is not None for entry in entries),
        "remote": asyncio.run(_asked(profile, base)),
    }


async def _asked(profile: Profile, base: str) -> Json:
    http = Http(proxies=Proxies.from_environment())
    try:
        answer = await Platform(http, base, profile.runtime_token, profile.agent_id).status()
    except NotAccepted as refusal:
        raise explained(refusal, base) from None
    finally:
        http.close()
    return read_object(answer.body) or {}


def status_lines(said: Json) -> list[str]:
    remote = as_object(said["remote"]) or {}
    pid = said["running_pid"]
    rows = [
        ("profile", said["profile"]),
        ("agent", f"{remote.get('agent_name') or said['agent_name']} ({said['agent_id']})"),
        ("platform", said["api_base"]),
        ("endpoint", said["local_agent_endpoint"]),
        ("runtime", "not running" if pid is None else f"running (process {pid or 'unknown'})"),
        ("tasks", f"{remote.get('queued', '?')} queued, {remote.get('running', '?')} running"),
        ("last seen", remote.get("last_seen_at") or "never"),
    ]
    if said["undelivered"]:
        rows.append(("undelivered", f"{said['undelivered']} results; they are delivered when the runtime runs"))
    return [f"{name:<12}{value}" for name, value in rows]

"""`a2a-runtime status` and `profiles`: how things stand, without the token."""

import asyncio

from parley_edge import profiles
from parley_edge.errors import EdgeError, NotAccepted, WrongUse
from parley_edge.http import Http
from parley_edge.platform import Platform
from parley_edge.profiles import Profile
from parley_edge.proxies import Proxies
from parley_edge.shapes import Json, as_object, read_object
from parley_edge.start import claim_of, explained, ledger_of


def status(wanted: str | None, api_base: str | None) -> Json:
    """What this machine knows of a profile, and what the platform says."""
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
        ("here", "not running" if pid is None else f"running (process {pid or 'unknown'})"),
        ("there", f"{remote.get('queued', '?')} queued, {remote.get('running', '?')} running"),
        ("last seen", remote.get("last_seen_at") or "never"),
    ]
    if said["undelivered"]:
        rows.append(("undelivered", f"{said['undelivered']} results; they are delivered while it runs"))
    return [f"{name:<12}{value}" for name, value in rows]


def listed() -> list[Json]:
    folder = profiles.home()
    known = profiles.read(folder)
    return [_listed(known.active == name, name, known) for name in known.names]


def _listed(active: bool, name: str, known: profiles.Profiles) -> Json:
    """One that is broken is listed too, or nobody would find it."""
    try:
        return {"profile": name, "active": active, **known.get(name).shown()}
    except EdgeError as error:
        return {"profile": name, "active": active, "error": error.message}


def listed_lines(found: list[Json]) -> list[str]:
    if not found:
        return ["There is no profile on this machine. Pair first: a2a-runtime pair --code CODE"]
    rows = [("*" if one["active"] else " ", one["profile"], _what(one)) for one in found]
    width = max(len(name) for _, name, _ in rows)
    return [f"{mark} {name:<{width}}  {what}" for mark, name, what in rows]


def _what(one: Json) -> str:
    return str(one.get("error") or f"{one['agent_id']} at {one['api_base']}, asked at {one['local_agent_endpoint']}")


def use(name: str) -> None:
    folder = profiles.home()
    profiles.read(folder).resolved(name)
    profiles.change(folder, lambda known: known.with_active(name))


def remove(name: str) -> None:
    """The token and what was kept for it; the platform forgets it at the next pairing."""
    folder = profiles.home()
    if name not in profiles.read(folder).names:
        profiles.read(folder).resolved(name)
    if (pid := claim_of(folder, name).holder()) is not None:
        raise WrongUse(f"A runtime with the profile '{name}' is running (process {pid}).", "Stop it first.")
    profiles.change(folder, lambda known: known.without(name))
    ledger_of(folder, name).clear()
    (folder / f"{name}.running").unlink(missing_ok=True)

"""`a2a-runtime pair`: a one-time code becomes a profile."""

import asyncio
import os
import platform as machine
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from parley_edge import profiles
from parley_edge.errors import EdgeError, NotAccepted, Unreachable, WrongUse
from parley_edge.http import Http
from parley_edge.platform import Platform
from parley_edge.profiles import DEFAULT_API_BASE, DEFAULT_ENDPOINT, Profile, Profiles
from parley_edge.proxies import Proxies
from parley_edge.shapes import Json, as_object


@dataclass(frozen=True, slots=True)
class Order:
    code: str | None = None
    api_base: str | None = None
    name: str | None = None
    profile: str | None = None
    endpoint: str | None = None


@dataclass(frozen=True, slots=True)
class Paired:
    name: str
    profile: Profile
    replaced: bool


def base_of(given: str | None) -> tuple[str, str]:
    """Which platform, and where that comes from."""
    if given:
        return profiles.checked_url(given, "an API base"), "--api-base"
    if named := os.environ.get("A2A_API_BASE"):
        return profiles.checked_url(named, "an API base (A2A_API_BASE)"), "A2A_API_BASE"
    return DEFAULT_API_BASE, "the default; another one is named with --api-base or A2A_API_BASE"


def pair(order: Order, say: Callable[[str], None]) -> Paired:
    """Spend the code only when the profile can be written, because it works once."""
    folder = profiles.home()
    if order.profile is not None:
        profiles.checked_name(order.profile)
    profiles.read(folder)
    profiles.prepare(folder)
    api_base, source = base_of(order.api_base)
    say(f"Pairing with {api_base} ({source}).")
    code = _code(order.code)
    said = asyncio.run(_attached(api_base, code, order.name or machine.node() or "a2a-runtime"))
    try:
        return _kept(folder, _profile(said, api_base, order), order)
    except EdgeError as error:
        error.hint = f"{error.hint} The code is spent: ask for another one.".strip()
        raise


def _kept(folder: Path, profile: Profile, order: Order) -> Paired:
    """In the file, under a name that is decided while nobody else writes."""
    names: list[str] = []

    def added(known: Profiles) -> Profiles:
        name = order.profile or known.name_for(profile.api_base, profile.agent_id)
        names[:] = [name, *(one for one in known.names if one == name)]
        return known.with_profile(name, profile if order.endpoint else _as_before(known, name, profile))

    kept = profiles.change(folder, added)
    return Paired(names[0], kept.get(names[0]), replaced=len(names) > 1)


def _as_before(known: Profiles, name: str, profile: Profile) -> Profile:
    """Who pairs again and names no endpoint keeps the one there was."""
    endpoint = (as_object(known.raw["profiles"].get(name)) or {}).get("local_agent_endpoint")
    return replace(profile, local_agent_endpoint=endpoint) if isinstance(endpoint, str) else profile


def _code(given: str | None) -> str:
    if given == "-" or (given is None and not sys.stdin.isatty()):
        code = sys.stdin.readline()
    elif given is None:
        print("Pairing code: ", end="", file=sys.stderr, flush=True)
        code = sys.stdin.readline()
    else:
        code = given
    if not code.strip():
        raise WrongUse("There is no pairing code.", "Give it with --code CODE, or on standard input.")
    return code.strip()


async def _attached(api_base: str, code: str, name: str) -> Json:
    http = Http(proxies=Proxies.from_environment())
    try:
        return await Platform(http, api_base).attach(code, name)
    except NotAccepted as refusal:
        raise _not_here(refusal, api_base) from None
    except Unreachable as fault:
        fault.hint = "Is that the right address, and is the platform running? Another one: --api-base URL"
        raise
    finally:
        http.close()


def _not_here(refusal: NotAccepted, api_base: str) -> NotAccepted:
    """A code belongs to the platform that issued it; nine times in ten it was tried at another one."""
    hint = (
        f"It was tried at {api_base}. A code works once, for a short time, and only at the platform that issued it: "
        "if that is another one, name it with --api-base URL; else ask for a new code."
    )
    return NotAccepted(refusal.status, refusal.code, refusal.message, hint)


def _profile(said: Json, api_base: str, order: Order) -> Profile:
    missing = [name for name in ("runtime_token", "runtime_id", "agent_id") if not isinstance(said.get(name), str)]
    if missing:
        raise Unreachable(f"What answers at {api_base} is no platform that a2a-runtime knows.")
    origin = as_object(said.get("platform")) or {}
    return Profile(
        api_base=api_base,
        runtime_token=said["runtime_token"],
        agent_id=said["agent_id"],
        runtime_id=said["runtime_id"],
        local_agent_endpoint=order.endpoint or DEFAULT_ENDPOINT,
        platform={name: str(origin.get(name, "")) for name in ("name", "origin")},
        paired_at=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        agent_name=str(said.get("agent_name") or ""),
        runtime_name=order.name or "",
        heartbeat_interval_seconds=_seconds(said.get("heartbeat_interval_seconds"), 30.0),
        pull_interval_seconds=_seconds(said.get("pull_interval_seconds"), 1.0),
    )


def _seconds(value: object, usual: float) -> float:
    return float(value) if isinstance(value, int | float) and 0 < value <= 3600 else usual

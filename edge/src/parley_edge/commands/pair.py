"""`a2a-runtime pair`: exchanges a one-time code for a profile."""

import asyncio
import os
import platform as machine
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from parley_edge.errors import EdgeError, NotAccepted, Unreachable, WrongUse
from parley_edge.json_values import Json, as_object
from parley_edge.net.http import Http
from parley_edge.net.proxies import Proxies
from parley_edge.runtime.platform import Platform
from parley_edge.storage import profiles
from parley_edge.storage.profiles import DEFAULT_API_BASE, DEFAULT_ENDPOINT, Profile, Profiles


@dataclass(frozen=True, slots=True)
class PairOrder:
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
    """The platform's URL and its source."""
    if given:
        return profiles.checked_url(given, "an API base"), "--api-base"
    if named := os.environ.get("A2A_API_BASE"):
        return profiles.checked_url(named, "an API base (A2A_API_BASE)"), "A2A_API_BASE"
    return DEFAULT_API_BASE, "the default; set another with --api-base or A2A_API_BASE"


def pair(order: PairOrder, say: Callable[[str], None]) -> Paired:
    """Pair. The code works only once, so first check that the profile can be written."""
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
        error.hint = f"{error.hint} The code is used up: request a new one.".strip()
        raise


def _kept(folder: Path, profile: Profile, order: PairOrder) -> Paired:
    """Write the profile. Its name is chosen under the lock, so that no other process takes it."""
    names: list[str] = []

    def added(known: Profiles) -> Profiles:
        name = order.profile or known.name_for(profile.api_base, profile.agent_id)
        names[:] = [name, *(one for one in known.names if one == name)]
        return known.with_profile(name, profile if order.endpoint else _as_before(known, name, profile))

    kept = profiles.change(folder, added)
    return Paired(names[0], kept.get(names[0]), replaced=len(names) > 1)


def _as_before(known: Profiles, name: str, profile: Profile) -> Profile:
    """Keep the existing endpoint when an agent is paired again without one."""
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
        fault.hint = (
            "Check that the platform is running and that the address is right. Set another with --api-base URL."
        )
        raise
    finally:
        http.close()


def _not_here(refusal: NotAccepted, api_base: str) -> NotAccepted:
    """Add a hint to a refused code: usually it was issued by another platform."""
    hint = (
        f"It was tried at {api_base}. A code works once, for a short time, and only at the platform that issued it. "
        "If another platform issued it, set that with --api-base URL; otherwise request a new code."
    )
    return NotAccepted(refusal.status, refusal.code, refusal.message, hint)


def _profile(said: Json, api_base: str, order: PairOrder) -> Profile:
    missing = [name for name in ("runtime_token", "runtime_id", "agent_id") if not isinstance(said.get(name), str)]
    if missing:
        raise Unreachable(f"The server at {api_base} is not a platform that a2a-runtime supports.")
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

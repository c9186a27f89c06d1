"""`a2a-runtime doctor`: checks everything that a runtime needs, with hints how to fix it."""

import asyncio
import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from parley_edge.commands.start import explained, warnings
from parley_edge.errors import EdgeError, NotAccepted
from parley_edge.net.http import Answer, Http, port_of
from parley_edge.net.proxies import Proxies
from parley_edge.runtime.places import claim_of, ledger_of
from parley_edge.runtime.platform import Platform
from parley_edge.storage import profiles
from parley_edge.storage.profiles import FILE, Profile

CLOCK_S = 30.0
LOCAL_S = 5.0


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    state: Literal["ok", "warning", "failed"]
    what: str
    hint: str = ""


def examine(wanted: str | None, api_base: str | None, endpoint: str | None) -> tuple[list[Check], int]:
    """Run all checks. The exit code is 1 for a failed check; without a usable profile, that of the profile error."""
    folder = profiles.home()
    found = [_file(folder)]
    try:
        name, profile = profiles.read(folder).resolved(wanted)
    except EdgeError as error:
        return [*found, Check("profile", "failed", error.message, error.hint)], error.exit_code
    found.append(
        Check(
            "profile", "ok", f"'{name}', agent {profile.agent_id}, paired {profile.paired_at or 'at an unknown time'}"
        )
    )
    base, local = api_base or profile.api_base, endpoint or profile.local_agent_endpoint
    found += [Check("safety", "warning", warning) for warning in warnings(base, local)]
    found += asyncio.run(_reached(profile, base, local))
    found.append(_process(folder, name))
    return found, 1 if any(check.state == "failed" for check in found) else 0


def _file(folder: Path) -> Check:
    if not (folder / FILE).exists():
        return Check("profile file", "failed", f"{folder / FILE} does not exist.", "Pair first: a2a-runtime pair")
    wrong = profiles.complaints(folder)
    if wrong:
        return Check("profile file", "failed", "; ".join(wrong))
    return Check("profile file", "ok", f"{folder / FILE}, readable by its owner only")


async def _reached(profile: Profile, base: str, endpoint: str) -> list[Check]:
    there, here = await asyncio.gather(_platform(profile, base), _local(endpoint))
    return [*there, here]


async def _platform(profile: Profile, base: str) -> list[Check]:
    http = Http(proxies=Proxies.from_environment())
    try:
        answer = await Platform(http, base, profile.runtime_token, profile.agent_id).status()
    except NotAccepted as refusal:
        known = explained(refusal, base)
        return [Check("platform", "ok", base), Check("token", "failed", known.message, known.hint)]
    except EdgeError as error:
        return [
            Check(
                "platform",
                "failed",
                error.message,
                error.hint or "Check that the platform is running and that the address is right.",
            )
        ]
    finally:
        http.close()
    return [Check("platform", "ok", base), Check("token", "ok", f"runtime {profile.runtime_id}"), _clock(answer)]


def _clock(answer: Answer) -> Check:
    """Compare the clock with the date of the platform's answer, which is exact to a second."""
    try:
        theirs = parsedate_to_datetime(answer.head.headers["date"]).timestamp()
    except (KeyError, ValueError):
        return Check("clock", "warning", "The platform's answer has no date, so the clock cannot be checked.")
    off = time.time() - theirs
    if abs(off) > CLOCK_S:
        return Check(
            "clock",
            "warning",
            f"This machine's clock differs from the platform's by {off:+.0f} s.",
            "Synchronise it with NTP.",
        )
    return Check("clock", "ok", "same as the platform's")


async def _local(endpoint: str) -> Check:
    """Check that a program listens. Nothing is sent, because the agent would start to work on it."""
    parts = urlsplit(endpoint)
    try:
        async with asyncio.timeout(LOCAL_S):
            _, writer = await asyncio.open_connection(parts.hostname, port_of(parts), happy_eyeballs_delay=0.25)
        writer.transport.abort()
    except (OSError, TimeoutError):
        hint = "Start your agent, or serve a program with: a2a-runtime adapter"
        return Check("local agent", "failed", f"Nothing listens at {endpoint}.", hint)
    return Check("local agent", "ok", f"listening at {endpoint}")


def _process(folder: Path, name: str) -> Check:
    pid = claim_of(folder, name).holder()
    kept = len(ledger_of(folder, name).entries())
    if pid is not None:
        return Check("runtime", "ok", f"running (process {pid or 'unknown'}), {kept} tasks")
    if kept:
        return Check(
            "runtime",
            "warning",
            f"not running; {kept} tasks wait to be delivered or handed back",
            "Start it: a2a-runtime start",
        )
    return Check("runtime", "ok", "not running")

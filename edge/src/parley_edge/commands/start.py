"""`a2a-runtime start`: run a profile until stopped."""

import asyncio
import os
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from parley_edge import __version__
from parley_edge.commands.view import JsonLines, Lines, Live, View, foot
from parley_edge.errors import INTERRUPTED, OK, AlreadyRunning, NotAccepted
from parley_edge.net.http import Http
from parley_edge.net.proxies import Proxies, is_loopback
from parley_edge.runtime.local import LocalAgent
from parley_edge.runtime.places import claim_of, instance_of, ledger_of
from parley_edge.runtime.platform import Platform
from parley_edge.runtime.work import Pace, Runtime, Who
from parley_edge.storage import profiles
from parley_edge.storage.files import Claim
from parley_edge.storage.profiles import Profile
from parley_edge.system import STOP, heed_signals

if TYPE_CHECKING:
    from parley_edge.program import Wrapped

MAX_PULLED = 64 * 1024 * 1024
"""Large, because one answer of the platform may contain several tasks of many megabytes each."""
_PATIENCE = 3
"""Number of signals after which the process exits at once; its tasks are recovered at the next start."""


@dataclass(frozen=True, slots=True)
class StartOrder:
    """Options of the command line."""

    profile: str | None = None
    api_base: str | None = None
    endpoint: str | None = None
    concurrency: int = 1
    timeout_s: float = 600.0
    grace_s: float = 30.0
    as_json: bool = False
    program: "Wrapped | None" = None
    """Program that does the work, instead of an agent at the endpoint."""


def start(order: StartOrder) -> int:
    folder = profiles.home()
    name, profile = profiles.read(folder).resolved(order.profile)
    claim = _claimed(folder, name)
    try:
        return asyncio.run(_work(order, name, profile, folder))
    finally:
        claim.release()


def _claimed(folder: Path, name: str) -> Claim:
    """Take the profile's lock: only one runtime per profile, or two would deliver each other's results."""
    profiles.prepare(folder)
    claim = claim_of(folder, name)
    for _ in range(3):
        # A process that checks the lock holds it for a moment.
        if claim.take():
            return claim
        time.sleep(0.05)
    raise AlreadyRunning(
        f"A runtime with the profile '{name}' is already running (process {claim.holder() or 'unknown'}).",
        "Stop it first. To run several tasks at once, start it with --concurrency N.",
    )


async def _work(order: StartOrder, name: str, profile: Profile, folder: Path) -> int:
    async with _asked_at(order) as endpoint:
        return await _serve(order, name, _adjusted(profile, order.api_base, endpoint), folder)


async def _serve(order: StartOrder, name: str, profile: Profile, folder: Path) -> int:
    http = Http(proxies=Proxies.from_environment(), max_body=MAX_PULLED)
    ledger, instance = ledger_of(folder, name), instance_of(folder, name)
    ledger.open()
    began = time.monotonic()
    title = (
        f"{profile.agent_name or profile.agent_id} at {profile.api_base}, local agent at {profile.local_agent_endpoint}"
    )

    def tell(name: str, **fields: object) -> None:
        view(name, **fields)

    def standing() -> list[str]:
        hands = runtime.hands
        seconds = time.monotonic() - began
        return foot(title, hands.jobs.values(), hands.ended, up=runtime.link.up, seconds=seconds)

    runtime = Runtime(
        Who(profile.runtime_id, instance),
        Platform(http, profile.api_base, profile.runtime_token, profile.agent_id, instance),
        LocalAgent(Http(keep=False), profile.local_agent_endpoint, order.timeout_s),
        ledger,
        Pace(order.concurrency, order.grace_s, profile.heartbeat_interval_seconds, profile.pull_interval_seconds),
        tell,
    )
    view = _view(order.as_json, standing)
    _greet(view, name, profile, title)
    try:
        return await _until_stopped(runtime, view)
    except NotAccepted as refusal:
        raise explained(refusal, profile.api_base) from None
    finally:
        view.close()
        http.close()


@asynccontextmanager
async def _asked_at(order: StartOrder) -> AsyncGenerator[str | None, None]:
    """The endpoint of the local agent. A given program is served by an adapter in this process, on a free port."""
    if order.program is None:
        yield order.endpoint
        return
    from parley_edge.adapter import Adapter

    async with Adapter(order.program).listening(port=0) as url:
        yield url


def _adjusted(profile: Profile, api_base: str | None, endpoint: str | None) -> Profile:
    """The profile with the options of this start; the stored profile is not changed."""
    endpoint = endpoint or profile.local_agent_endpoint
    return replace(profile, api_base=api_base or profile.api_base, local_agent_endpoint=endpoint)


def _greet(view: View, name: str, profile: Profile, title: str) -> None:
    """Print the agent, platform and endpoint, and warn about unsafe ones."""
    base, endpoint = profile.api_base, profile.local_agent_endpoint
    what = f"a2a-runtime {__version__}, profile {name}: {title}"
    who = {"profile": name, "agent_id": profile.agent_id, "pid": os.getpid()}
    view("started", what=what, api_base=base, endpoint=endpoint, **who)
    for warning in (*profiles.complaints(profiles.home()), *warnings(base, endpoint)):
        view("warning", what=warning)


def _view(as_json: bool, standing: Callable[[], list[str]]) -> View:
    if as_json:
        return JsonLines(sys.stdout)
    live = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    return Live(sys.stdout, standing) if live else Lines(sys.stdout)


def warnings(api_base: str, endpoint: str) -> list[str]:
    """Warnings about unsafe addresses."""
    from urllib.parse import urlsplit

    base, local = urlsplit(api_base), urlsplit(endpoint)
    found: list[str] = []
    if base.scheme == "http" and not is_loopback(base.hostname or ""):
        found.append(f"the token and all tasks go to {api_base} unencrypted; use https")
    if not is_loopback(local.hostname or ""):
        found.append(f"{endpoint} is not on this machine: an adapter is not an authentication boundary")
    return found


def explained(refusal: NotAccepted, api_base: str) -> NotAccepted:
    """Add the platform and a hint to the refusal of a token."""
    message = f"{refusal.message} (at {api_base})"
    if refusal.code == "runtime_revoked":
        hint = "To work for the agent again, pair with a new code: a2a-runtime pair"
    else:
        hint = "The platform does not know this runtime's token. Pair again: a2a-runtime pair"
    return NotAccepted(refusal.status, refusal.code, message, hint)


async def _until_stopped(runtime: Runtime, view: View) -> int:
    _heed_signals(runtime)
    ticking = asyncio.create_task(_tick(view)) if isinstance(view, Live) else None
    try:
        await runtime.run()
    finally:
        if ticking is not None:
            ticking.cancel()
    view("stopped", **runtime.hands.ended)
    return OK


async def _tick(view: View) -> None:
    while True:
        view.refresh()
        await asyncio.sleep(1.0)


def _heed_signals(runtime: Runtime) -> None:
    seen = 0

    def heed() -> None:
        nonlocal seen
        seen += 1
        if seen >= _PATIENCE:
            os._exit(INTERRUPTED)
        runtime.stop()

    heed_signals(heed, (*STOP, "SIGHUP"))

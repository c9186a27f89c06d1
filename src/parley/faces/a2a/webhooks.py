"""Push notifications on the wire: their format, and the meaning of the receiver's response."""

import time
from collections.abc import Awaitable, Callable
from typing import Any

import httpx2

from parley.errors import OutboundRefused
from parley.faces.a2a.dialect import encode
from parley.faces.a2a.messages import UpdateShown
from parley.faces.a2a.streams import Showing
from parley.faces.a2a.v03 import V03
from parley.faces.a2a.v1 import V1
from parley.offload import off_loop
from parley.push.delivery import Verdict
from parley.push.hooks import Hook
from parley.runs.rules.events import Event
from parley.runs.rules.state import Run
from parley.runs.service import Exchange
from parley.security.netguard import Outbound
from parley.telemetry import span
from parley.telemetry.trace import current, entered, headers_for

TIMEOUT_S = 15.0
MAX_REPLY = 64 * 1024
GONE = 410
PASSING = frozenset((408, 425, 429))
"""Statuses below 500 after which a retry may succeed; any other means that the receiver rejects this update."""

Sign = Callable[[bytes, dict[str, Any]], Awaitable[tuple[str, str]]]
"""Makes a detached signature; returns its protected header and the signature."""


class Webhooks:
    """Posts updates: to clients of 1.0 the update itself, to clients of 0.3 the task in its present state."""

    def __init__(self, exchange: Exchange, outbound: Outbound, sign: Sign, base_url: str) -> None:
        self._exchange = exchange
        self._outbound = outbound
        self._sign = sign
        self._showing = Showing(exchange, base_url)
        self._new, self._old = V1(), V03()

    async def __call__(self, hook: Hook, run: Run, event: Event) -> Verdict:
        body = await self._body(hook, run, event)
        if body is None:
            return Verdict("silent")
        with (
            entered(run.trace),
            span("push.post", agent=run.agent, run=run.id, conversation=run.conversation) as posted,
        ):
            verdict = await self._posted(hook, run, event, body)
            posted.outcome = verdict.how
            return verdict

    async def _posted(self, hook: Hook, run: Run, event: Event, body: bytes) -> Verdict:
        headers = {
            **headers_for(current()),
            **_headers(hook, event),
            "x-a2a-signature": await self._signature(body, run, event),
        }
        try:
            reply = await self._outbound.send(
                "POST", hook.url, headers=headers, content=body, timeout_s=TIMEOUT_S, max_bytes=MAX_REPLY
            )
        except OutboundRefused as error:
            return Verdict("refused", error.code)
        except (httpx2.HTTPError, TimeoutError) as error:
            return Verdict("refused", type(error).__name__)
        return _verdict(reply.status, reply.headers.get("retry-after", ""))

    async def _body(self, hook: Hook, run: Run, event: Event) -> bytes | None:
        loaded = await self._showing.event(run, event)
        update = self._new.frame(UpdateShown(run, loaded), last=False)
        if update is None:
            return None
        if hook.version == "1.0":
            return encode(update)
        view = await self._exchange.view(run.id, upto=event.seq)
        shown = await self._showing.task(view, None)
        return await off_loop(shown.size, lambda: encode(self._old.task(shown)))

    async def _signature(self, body: bytes, run: Run, event: Event) -> str:
        """Sign exactly these bytes, with task, event and time in the header, so that the signature fits no other
        post."""
        protected, signature = await self._sign(body, {"iat": int(time.time()), "task": run.id, "event": event.seq})
        return f"{protected}..{signature}"


def _verdict(status: int, retry_after: str) -> Verdict:
    if 200 <= status < 300:
        return Verdict("delivered")
    if status == GONE:
        return Verdict("gone", f"HTTP {status}")
    if status < 500 and status not in PASSING:
        return Verdict("rejected", f"HTTP {status}")
    pause = float(retry_after) if retry_after.isascii() and retry_after.isdigit() and len(retry_after) < 9 else 0.0
    return Verdict("refused", f"HTTP {status}", pause)


def _headers(hook: Hook, event: Event) -> dict[str, str]:
    headers = {
        "content-type": "application/a2a+json" if hook.version == "1.0" else "application/json",
        "x-a2a-event-id": str(event.seq),
    }
    if hook.token:
        headers["x-a2a-notification-token"] = hook.token
    if hook.schemes and hook.credentials:
        headers["authorization"] = f"{hook.schemes[0]} {hook.credentials}"
    return headers

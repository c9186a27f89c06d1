"""Push notifications on the wire: their format, and the meaning of the receiver's response."""

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any

import httpx2

from parley.errors import OutboundRefused
from parley.faces.a2a.dialect import encode
from parley.faces.a2a.messages import UpdateShown, counted_update
from parley.faces.a2a.streams import Showing
from parley.faces.a2a.v03 import V03
from parley.faces.a2a.v1 import V1
from parley.faces.a2a.v11 import V11
from parley.ids import RunId
from parley.offload import off_loop
from parley.push.delivery import Verdict
from parley.push.hooks import Hook
from parley.runs.rules.events import ENDINGS, Event
from parley.runs.rules.state import Run, evolve
from parley.runs.service import Exchange
from parley.security.netguard import Outbound
from parley.telemetry import span
from parley.telemetry.trace import current, entered, headers_for

TIMEOUT_S = 15.0
MAX_REPLY = 64 * 1024
GONE = 410
MAX_KNOWN = 1000
PASSING = frozenset((408, 425, 429))
"""Statuses below 500 after which a retry may succeed; any other means that the receiver rejects this update."""

Sign = Callable[[bytes, dict[str, Any]], Awaitable[tuple[str, str]]]
"""Makes a detached signature; returns its protected header and the signature."""


class Webhooks:
    """Posts updates: to clients of 1.x the update itself, to clients of 0.3 the task in its present state."""

    def __init__(self, exchange: Exchange, outbound: Outbound, sign: Sign, base_url: str) -> None:
        self._exchange = exchange
        self._outbound = outbound
        self._sign = sign
        self._showing = Showing(exchange, base_url)
        self._newest, self._new, self._old = V11(), V1(), V03()
        self._after: OrderedDict[RunId, Run] = OrderedDict()
        """Runs with hooks of 1.1, after the last event that was posted."""

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
        if hook.generations:
            return await self._counted_body(run, loaded)
        update = self._new.frame(UpdateShown(run, loaded), last=False)
        if update is None:
            return None
        if hook.version == "1.0":
            return encode(update)
        view = await self._exchange.view(run.id, upto=event.seq)
        shown = await self._showing.task(view, None)
        return await off_loop(shown.size, lambda: encode(self._old.task(shown)))

    async def _counted_body(self, run: Run, event: Event) -> bytes | None:
        """Return the update with its generation. The run after the event follows from the one after the last event that
        was posted, if that is known here."""
        before = self._after.pop(run.id, None)
        if before is not None and before.version == event.seq - 1 and event.payload is not None:
            after = evolve(before, run.id, event.seq, event.at, event.payload)
        elif before is not None and before.version == event.seq:
            after = before
        else:
            after = (await self._exchange.view(run.id, upto=event.seq)).run
        if event.type not in ENDINGS:
            self._after[run.id] = after
            if len(self._after) > MAX_KNOWN:
                self._after.popitem(last=False)
        update = self._newest.frame(counted_update(after, event), last=False)
        return None if update is None else encode(update)

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

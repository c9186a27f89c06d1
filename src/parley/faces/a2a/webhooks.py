"""What a push notification looks like on the wire, and the client that posts it."""

import httpx2

from parley.core.events import Event
from parley.core.runs import Run
from parley.engine.exchange import Exchange
from parley.engine.push import Hook
from parley.faces.a2a.dialect import encode
from parley.faces.a2a.showing import Showing
from parley.faces.a2a.v03 import V03
from parley.faces.a2a.v1 import V1
from parley.faces.a2a.words import UpdateShown
from parley.telemetry import tell

TIMEOUT_S = 15.0


class Webhooks:
    """Posts updates: to clients of 1.0 the update itself, to those of 0.3 the task as it is."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._showing = Showing(exchange.attachments)
        self._new, self._old = V1(), V03()
        self._client = httpx2.AsyncClient(timeout=TIMEOUT_S, follow_redirects=False, trust_env=False)

    async def __call__(self, hook: Hook, run: Run, event: Event) -> bool:
        body = await self._body(hook, run, event)
        if body is None:
            return True
        try:
            reply = await self._client.post(hook.url, content=body, headers=_headers(hook))
        except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
            tell("push.unreachable", run=run.id, hook=hook.id, error=type(error).__name__)
            return False
        return reply.is_success

    async def close(self) -> None:
        await self._client.aclose()

    async def _body(self, hook: Hook, run: Run, event: Event) -> bytes | None:
        loaded = await self._exchange.attachments.loaded_event(event)
        update = self._new.frame(UpdateShown(run, loaded), last=False)
        if update is None:
            return None
        if hook.version == "1.0":
            return encode(update)
        view = await self._exchange.view(run.id, upto=event.seq)
        return encode(self._old.task(await self._showing.task(view, None)))


def _headers(hook: Hook) -> dict[str, str]:
    headers = {"content-type": "application/a2a+json" if hook.version == "1.0" else "application/json"}
    if hook.token:
        headers["x-a2a-notification-token"] = hook.token
    if hook.schemes and hook.credentials:
        headers["authorization"] = f"{hook.schemes[0]} {hook.credentials}"
    return headers

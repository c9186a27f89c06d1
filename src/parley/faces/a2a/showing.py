"""What a caller sees of a run: cut to what was asked for, with the bytes that are kept beside the log in place."""

from collections.abc import AsyncGenerator, Sequence
from functools import partial
from urllib.parse import quote

from msgspec.structs import replace

from parley.core.artifacts import Part, Parts, is_beside, merged, text_part
from parley.core.events import SPOKEN, ArtifactAdded, Event, with_content
from parley.core.runs import Run
from parley.core.views import Said, View
from parley.engine.exchange import Exchange
from parley.engine.offload import off_loop, paced
from parley.engine.queues import place_in_queue
from parley.faces.a2a.words import ReplyShown, TaskShown


class Showing:
    def __init__(self, exchange: Exchange, base_url: str) -> None:
        self._exchange = exchange
        self._base_url = base_url

    async def task(self, view: View, history_length: int | None, *, artifacts: bool = True) -> TaskShown:
        made = await off_loop(view.size, lambda: view.artifacts) if artifacts else ()
        shown = TaskShown(view.run, view.status, _latest(view.history, history_length), made, view.metadata)
        if not view.has_blobs:
            return shown
        return replace(
            shown,
            artifacts=[replace(one, parts=await self._made(view.run, one.id, one.parts)) for one in shown.artifacts],
            history=[said async for said in self._loaded(shown.history)],
            status=replace(shown.status, said=await self.said(shown.status.said))
            if shown.status.said
            else shown.status,
        )

    async def queued(self, shown: TaskShown) -> TaskShown:
        """With its place in the queue, if it waits in one: true at this moment only, so it is no part of the log."""
        place = None if shown.status.said else await place_in_queue(self._exchange, shown.run)
        if place is None:
            return shown
        words = text_part(f"Waiting for its turn: number {place} in the queue.")
        return replace(shown, status=replace(shown.status, said=Said("agent", f"{shown.run.id}.queue", (words,))))

    async def answer(self, view: View, history_length: int | None) -> TaskShown | ReplyShown:
        if view.reply is not None:
            return ReplyShown(view.run, await self.said(view.reply))
        return await self.queued(await self.task(view, history_length))

    async def said(self, said: Said) -> Said:
        return replace(said, parts=await self._exchange.attachments.loaded(said.parts))

    async def _loaded(self, history: Sequence[Said]) -> AsyncGenerator[Said, None]:
        async for some in paced(history):
            for said in some:
                yield await self.said(said)

    async def event(self, run: Run, event: Event) -> Event:
        payload = event.payload
        if not isinstance(payload, SPOKEN) or all(part.blob is None for part in payload.parts):
            return event
        load = self._exchange.attachments.loaded
        if isinstance(payload, ArtifactAdded) and not payload.append:
            # Which part of the whole a later piece becomes is not known here: that is shown as it is.
            load = partial(self._made, run, payload.artifact)
        return with_content(event, await load(payload.parts))

    async def _made(self, run: Run, artifact: str, parts: Parts) -> Parts:
        """What is larger than the agent wants to be shown in its tasks is fetched from an address of its own."""
        agent = self._exchange.agents.get(run.agent)
        limit = agent.inline_bytes if agent else None
        if limit is not None:
            task, made = quote(run.id, safe=""), quote(artifact, safe="")
            url = f"{self._base_url}/agents/{run.agent}/tasks/{task}/artifacts/{made}"
            parts = tuple(_addressed(part, limit, f"{url}?part={n}" if n else url) for n, part in enumerate(parts))
        return merged(await self._exchange.attachments.loaded(parts))


def _addressed(part: Part, limit: int, url: str) -> Part:
    if part.blob is None or part.blob.size <= limit or is_beside(part):
        return part
    return replace(part, blob=None, url=url)


def _latest(history: Sequence[Said], length: int | None) -> Sequence[Said]:
    if length is None:
        return history
    return history[-length:] if length else ()

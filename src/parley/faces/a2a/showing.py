"""What a caller sees of a run: cut to what was asked for, with the bytes that are kept beside the log in place."""

from collections.abc import Sequence

from msgspec.structs import replace

from parley.core.artifacts import text_part
from parley.core.views import Said, View
from parley.engine.exchange import Exchange
from parley.faces.a2a.words import ReplyShown, TaskShown


class Showing:
    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._attachments = exchange.attachments

    async def task(self, view: View, history_length: int | None, *, artifacts: bool = True) -> TaskShown:
        made = view.artifacts if artifacts else ()
        shown = TaskShown(view.run, view.status, _latest(view.history, history_length), made)
        if not view.has_blobs:
            return shown
        load = self._attachments.loaded
        return replace(
            shown,
            artifacts=[replace(artifact, parts=await load(artifact.parts)) for artifact in shown.artifacts],
            history=[await self.said(said) for said in shown.history],
        )

    async def queued(self, shown: TaskShown) -> TaskShown:
        """With its place in the queue, if it waits in one: true at this moment only, so it is no part of the log."""
        place = None if shown.status.said else await self._exchange.place_in_queue(shown.run)
        if place is None:
            return shown
        words = text_part(f"Waiting for its turn: number {place} in the queue.")
        return replace(shown, status=replace(shown.status, said=Said("agent", f"{shown.run.id}.queue", (words,))))

    async def answer(self, view: View, history_length: int | None) -> TaskShown | ReplyShown:
        if view.reply is not None:
            return ReplyShown(view.run, await self.said(view.reply))
        return await self.queued(await self.task(view, history_length))

    async def said(self, said: Said) -> Said:
        return replace(said, parts=await self._attachments.loaded(said.parts))


def _latest(history: Sequence[Said], length: int | None) -> Sequence[Said]:
    if length is None:
        return history
    return history[-length:] if length else ()

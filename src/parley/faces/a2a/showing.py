"""What a caller sees of a run: cut to what was asked for, with the bytes that are kept beside the log in place."""

from collections.abc import Sequence

from msgspec.structs import replace

from parley.core.views import Said, View
from parley.engine.attachments import Attachments
from parley.faces.a2a.words import ReplyShown, TaskShown


class Showing:
    def __init__(self, attachments: Attachments) -> None:
        self._attachments = attachments

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

    async def answer(self, view: View, history_length: int | None) -> TaskShown | ReplyShown:
        if view.reply is not None:
            return ReplyShown(view.run, await self.said(view.reply))
        return await self.task(view, history_length)

    async def said(self, said: Said) -> Said:
        return replace(said, parts=await self._attachments.loaded(said.parts))


def _latest(history: Sequence[Said], length: int | None) -> Sequence[Said]:
    if length is None:
        return history
    return history[-length:] if length else ()

"""Follow a run until a call is answered, and tell what happens meanwhile."""

from collections.abc import AsyncGenerator

from msgspec import Struct

from parley.core.artifacts import text_of
from parley.core.events import ArtifactAdded, ChildStarted, Event, Payload, Progress, Rescued, ToolCalled
from parley.core.views import View
from parley.engine.streams import Follower
from parley.faces.sse import KEEP_ALIVE_S

MOST_TOLD = 500
"""Characters of a growing text that are told: its end is what is new."""


class News(Struct, frozen=True):
    """What happened, in words, and the event that says so; `grown` for a text that the next one may replace."""

    seq: int
    text: str
    grown: bool = False


class Following:
    """One call and the run that it has led to. Close it whatever happens."""

    def __init__(self, view: View, follower: Follower, since: int = 0, made: set[str] | None = None) -> None:
        self.view = view
        self.since = since
        """The event after which the call began; 0 when the run began with it."""
        self.made = made
        """The artifacts that came of it; None for all that the run has."""
        self.answered = False
        self._follower = follower
        self._growing = ""
        self._text = ""

    @property
    def cursor(self) -> int:
        return self.view.run.version

    async def steps(self) -> AsyncGenerator[list[News], None]:
        """What happens at once; nothing stands for silence. Ends when the run has ended or waits for somebody."""
        while not self.view.run.settled:
            news: list[News] = []
            for event in await self._follower.next(KEEP_ALIVE_S):
                self._apply(event, news)
                if self.view.run.settled:
                    # What follows belongs to a later call.
                    break
            yield news

    def close(self) -> None:
        self._follower.close()

    def _apply(self, event: Event, news: list[News]) -> None:
        self.view.apply(event)
        if event.payload is None:
            return
        if isinstance(event.payload, ArtifactAdded) and self.made is not None:
            self.made.add(event.payload.artifact)
        told = self._told(event.seq, event.payload)
        if told is None:
            return
        if told.grown and news and news[-1].grown:
            news.pop()
        news.append(told)

    def _told(self, seq: int, payload: Payload) -> News | None:
        match payload:
            case Progress(parts):
                text = text_of(parts)
                return News(seq, text[:MOST_TOLD]) if text else None
            case ArtifactAdded():
                return self._grown(seq, payload)
            case ToolCalled(tool=tool):
                return News(seq, f"Uses {tool}.")
            case ChildStarted(agent=agent):
                return News(seq, f"Asks {agent}.")
            case Rescued():
                return News(seq, "Begins again: its process was lost.")
            case _:
                return None

    def _grown(self, seq: int, added: ArtifactAdded) -> News:
        text = text_of(part for part in added.parts if part.filename is None)
        if not text:
            return News(seq, f"Made {added.name or added.artifact}.")
        before = self._text if added.append and added.artifact == self._growing else ""
        self._growing, whole = added.artifact, before + text
        self._text = whole if len(whole) <= MOST_TOLD else f"…{whole[-MOST_TOLD:]}"
        return News(seq, self._text, grown=True)

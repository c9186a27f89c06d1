"""The organisation that is active in a folder, wherever its kernel runs: it is read again when its files change."""

import time

from parley.core.agents import Agent
from parley.orgkernel.card import described
from parley.orgkernel.definitions import Organisation
from parley.orgkernel.reading import Marks, Places, Reader, Reading, marks
from parley.telemetry import tell

LOOK_S = 1.0
"""How often somebody who asks only has the files looked at, at the most."""


class Organised:
    """A broken file counts as it was when last whole; the operator is told once."""

    def __init__(self, places: Places | None, slug: str) -> None:
        self._reader = Reader(places) if places else None
        self._slug = slug
        self._marks: Marks | None = None
        self._looked = -LOOK_S
        self.reading = Reading(None, ())
        """The organisation as it was read last, and what is wrong with it."""

    @property
    def active(self) -> Organisation | None:
        if time.monotonic() - self._looked >= LOOK_S:
            self._looked = time.monotonic()
            self.refresh()
        return self.reading.organisation

    def described(self, agent: Agent) -> Agent:
        return described(agent, self.active)

    def refresh(self) -> bool:
        """Look at the files; whether they were read anew."""
        seen = marks(self._reader.places) if self._reader else None
        if self._reader is None or seen == self._marks:
            return False
        told = self.reading.problems
        self._marks, self.reading = seen, self._reader.read()
        for problem in self.reading.problems:
            if problem not in told:
                tell("org.problem", agent=self._slug, message=problem.text)
        return True

"""The organisation that is active inside an Agent-Zero: the names of its workflows and roles, and its card."""

import time

from parley.core.agents import Agent
from parley.orgkernel.card import described
from parley.orgkernel.definitions import Organisation
from parley.orgkernel.reading import Marks, Places, Reader, marks
from parley.telemetry import tell

LOOK_S = 1.0
"""How often the files are looked at, at the most."""


class Organised:
    """Reads the folder again when something in it has changed; a broken file counts as it was when last whole."""

    def __init__(self, places: Places | None, slug: str) -> None:
        self._reader = Reader(places) if places else None
        self._slug = slug
        self._marks: Marks | None = None
        self._looked = -LOOK_S
        self._found: Organisation | None = None

    @property
    def active(self) -> Organisation | None:
        if self._reader is not None and time.monotonic() - self._looked >= LOOK_S:
            self._looked = time.monotonic()
            self._refresh(self._reader)
        return self._found

    def described(self, agent: Agent) -> Agent:
        return described(agent, self.active)

    def _refresh(self, reader: Reader) -> None:
        seen = marks(reader.places)
        if seen == self._marks:
            return
        self._marks, reading = seen, reader.read()
        self._found = reading.organisation
        for problem in reading.problems:
            tell("org.problem", agent=self._slug, problem=problem.text)

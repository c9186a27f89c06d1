"""Plans and logs for tests of orchestrations."""

from collections.abc import Sequence

import msgspec
from hypothesis import strategies as st
from msgspec import Raw

from parley.ids import ConversationId, RunId
from parley.orchestrations.rules.plan import Rules, Step, ancestors
from parley.orchestrations.rules.state import Orchestration, evolve
from parley.runs.rules.commands import Command, Start
from parley.runs.rules.commands import decide as decide_run
from parley.runs.rules.content import Message, text_part
from parley.runs.rules.events import GENESIS, Event, Stepped, sealed
from parley.runs.rules.state import Run
from parley.runs.rules.state import evolve as evolve_run

MESSAGE = Message("m", (text_part("go"),))


def step(id_: str, *depends_on: str, text: str | None = None, checkpoint: str = "") -> Step:
    given = {} if text is None else {"input": Raw(msgspec.json.encode(text))}
    return Step(id_, "worker", depends_on=depends_on, checkpoint=checkpoint, **given)


@st.composite
def plans(draw: st.DrawFn, most: int = 8) -> tuple[Step, ...]:
    """Any plan without circles: each step may depend on those before it, and the order is shuffled."""
    ids = [f"s{number}" for number in range(draw(st.integers(1, most)))]
    steps = [
        step(id_, *draw(st.lists(st.sampled_from(ids[:place]), unique=True, max_size=3) if place else st.just([])))
        for place, id_ in enumerate(ids)
    ]
    return tuple(draw(st.permutations(steps)))


class Book:
    """One run's log, written as the engine writes it, and what it folds to."""

    def __init__(self, id_: str = "run") -> None:
        self.id = RunId(id_)
        self.events: list[Event] = []
        self.run: Run | None = None
        self.state: Orchestration | None = None
        self.now = 1000

    @staticmethod
    def begun(rules: Rules) -> "Book":
        book = Book()
        book.do(Start("boss", ConversationId("c"), "local", MESSAGE, rules=rules))
        return book

    def do(self, *commands: Command) -> list[Event]:
        """All of them or none."""
        before = len(self.events), self.run, self.state
        try:
            for command in commands:
                for payload in decide_run(self.run, command):
                    seq = len(self.events) + 1
                    event = sealed(self.id, seq, self.now, payload, self.events[-1].hash if self.events else GENESIS)
                    self.run = evolve_run(self.run, self.id, seq, self.now, payload)
                    self.state = evolve(self.state, event)
                    self.events.append(event)
        except Exception:
            del self.events[before[0] :]
            self.run, self.state = before[1:]
            raise
        return self.events[before[0] :]


def fold(events: Sequence[Event]) -> Orchestration | None:
    state: Orchestration | None = None
    for event in events:
        state = evolve(state, event)
    return state


def check_order(events: Sequence[Event], steps: Sequence[Step], most: int) -> None:
    """Rules for every log of an orchestration: no step starts before all its dependencies are done, none again after it
    has succeeded, and no more steps run at once than the rules allow."""
    before, done, running = ancestors(steps), set[str](), set[str]()
    for event in events:
        if not isinstance(event.payload, Stepped):
            continue
        stepped = event.payload
        running.discard(stepped.step)
        if stepped.status == "running":
            assert stepped.step not in done
            assert done >= before[stepped.step]
            running.add(stepped.step)
            assert len(running) <= most
        elif stepped.status == "completed":
            done.add(stepped.step)


def check_end(state: Orchestration, events: Sequence[Event]) -> None:
    """It ends as its steps did. A cancel that is on record before the end is how it ends, also where every step was
    done by then."""
    statuses = {one.status for one in state.steps}
    canceled = any(event.type == "canceled" for event in events)
    assert (state.status == "completed") == (statuses == {"completed"} and not canceled)
    if state.status != "completed":
        assert state.status == ("cancelled" if canceled else "failed")
        assert canceled or "failed" in statuses

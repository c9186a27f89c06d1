"""Invariants of a simulated world: some are checked at every commit and at every message, the others at the end."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec import Struct, field

from parley.budgets.rules import NOTHING, TREE, tree_of
from parley.errors import BrokenChain, ParleyError
from parley.ids import RunId
from parley.paired.leases import KIND as LEASE
from parley.push.hooks import KIND as PUSH
from parley.runs.rules.content import text_of
from parley.runs.rules.events import (
    ENDINGS,
    GENESIS,
    ArtifactAdded,
    AuthRequired,
    Event,
    InputReceived,
    InputRequired,
    Planned,
    Progress,
    Rescued,
    Started,
    Stepped,
    Suspended,
    TurnEnded,
    verify,
)
from parley.runs.rules.state import WAITING, Run, State, is_update, lets_go
from parley.runs.rules.view import view_of
from parley.runs.store import Append, Head
from parley.testing.simulation.database import SimulatedDatabase, Tables
from parley.testing.simulation.loop import SimulatedProcess

MARK = "epoch:"
"""Prefix of a mark that names the epoch of the turn that made an output."""
AFTER_INPUT = 2
"""Number of the first input of a run: webhooks post the events after it."""
WAKE_S = 1.0
"""A process that was paused for longer than its lease has this long to find out. Its code runs meanwhile, but what it
writes is refused."""


class Violation(Struct, frozen=True):
    """A promise that did not hold: the rule, the run or client concerned, and what happened."""

    rule: str
    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.where}: {self.what}"


class SentInput(Struct):
    """A message with a unique id, and the run for which it was acknowledged, if it was."""

    id: str
    agent: str
    keyed: bool
    attempts: int = 0
    run: str = ""


class Followed(Struct):
    """Everything that one reader saw of a run, over all its connections."""

    run: str
    cursor: int = 0
    generation: int = 0
    """Generation of the task after the last event that it saw."""
    ended: bool = False
    given_up: bool = False


class WebhookPost(Struct):
    """A webhook post as it arrived, and whether the receiver took it."""

    run: str
    seq: int
    taken: bool


class History(Struct):
    """Everything that clients, readers and receivers have seen."""

    inputs: list[SentInput] = field(default_factory=list)
    followed: list[Followed] = field(default_factory=list)
    posts: Counter[str] = field(default_factory=Counter)
    """Number of posts by run."""
    taken: dict[str, set[int]] = field(default_factory=dict)
    """Numbers of the events that the receiver took, by run."""
    hooks: list[str] = field(default_factory=list)
    """Runs with a webhook that posts every event after the input."""
    canceled: list[str] = field(default_factory=list)
    """Runs that were shown as canceled."""
    errors: Counter[str] = field(default_factory=Counter)
    operations: Counter[str] = field(default_factory=Counter)


class WorldWatch:
    """Checks every commit, and everything else that the world reports, as it happens."""

    def __init__(self, database: SimulatedDatabase, *, told: bool = False) -> None:
        self._loop = database.loop
        self._tables = database.tables
        self._owners = database.owners
        database.committed.append(self.committed)
        self.violations: list[Violation] = []
        self.commits = 0
        self.events = 0
        self.story: list[str] | None = [] if told else None
        """A line for everything that happens; None if it is not to be told."""
        self._done: defaultdict[RunId, dict[str, str]] = defaultdict(dict)
        self._visits: defaultdict[str, dict[tuple[SimulatedProcess, RunId, int], None]] = defaultdict(dict)
        self._excused: dict[SimulatedProcess, float] = {}
        self._waits: defaultdict[str, dict[str, Counter[str]]] = defaultdict(dict)
        """By agent and waiting principal: the turns of others since it waits."""
        self.decided_before = 2
        """Turns that may be decided before a principal begins to wait, and begin afterwards: one for each slot."""

    def fail(self, rule: str, where: object, what: str) -> None:
        self.violations.append(Violation(rule, str(where), what))
        self.note(f"VIOLATION of {rule!r}: {where}: {what}")

    def note(self, words: str) -> None:
        if self.story is not None:
            self.story.append(f"{self._loop.time():8.4f} s  {words}")

    def committed(self, process: SimulatedProcess, append: Append, before: Head | None) -> None:
        """Check an append at the moment of its commit."""
        self.commits += 1
        self.events += len(append.events)
        if self.story is not None:
            self.note(f"{process.name} commits {append.run.id[-12:]} {_words(append.events)}")
        run = before.run if before else None
        if run is not None and run.ended:
            self.fail("one end", append.run.id, f"{_words(append.events)} came after the end")
        self._check_chain(append, before)
        self._check_generation(append, run)
        self._check_executor(process, append, run)
        self._check_turn(append, run)

    def _check_turn(self, append: Append, run: Run | None) -> None:
        """Check that principals are served in turn: while one waits for a slot of an agent, each other one gets one
        turn, apart from turns that were decided before."""
        agent, principal = append.run.agent, append.run.principal
        waiting = self._waits[agent]
        if append.served is not None:
            waiting.pop(principal, None)
            for name, turns in waiting.items():
                turns[principal] += 1
                if turns[principal] > 1 + self.decided_before:
                    self.fail("fair", append.run.id, f"{name} waits for turn {turns[principal]} of {principal}")
        if append.served is not None or append.run.ready or (run is not None and run.ready):
            self._note_waiting(agent)

    def _note_waiting(self, agent: str) -> None:
        """Note which principals wait for a slot of an agent."""
        ready = {run.principal for run in self._tables.live.values() if run.agent == agent and run.ready}
        waiting = self._waits[agent]
        for gone in waiting.keys() - ready:
            del waiting[gone]
        for name in ready:
            waiting.setdefault(name, Counter())

    def _check_chain(self, append: Append, before: Head | None) -> None:
        try:
            verify(append.events, append.expected, before.hash if before else GENESIS)
        except BrokenChain as broken:
            self.fail("gap-free", append.run.id, str(broken))
        at = before.run.updated_at if before else 0
        for event in append.events:
            if event.at < at:
                self.fail("gap-free", append.run.id, f"event {event.seq} is earlier than the one before")
            at = event.at
        ends = [event.seq for event in append.events if event.type in ENDINGS]
        if ends and ends != [append.events[-1].seq]:
            self.fail("one end", append.run.id, f"ends at {ends} of {append.events[-1].seq}")

    def _check_generation(self, append: Append, run: Run | None) -> None:
        """Check that each update of the task raises its generation by exactly one."""
        generation = grown(run.generation if run else 0, append.events, open=append.run.open)
        if append.run.generation != generation:
            self.fail("generation", append.run.id, f"{append.run.generation} is stored, the log counts {generation}")

    def _check_executor(self, process: SimulatedProcess, append: Append, run: Run | None) -> None:
        """Only the executor of the current epoch may report; a step that has completed is not started again."""
        epoch, owner = (run.epoch, run.owner) if run else (0, "")
        working = run is not None and run.state is State.WORKING
        for event in append.events:
            payload = event.payload
            if isinstance(payload, Started):
                if working:
                    self.fail("exclusive", append.run.id, f"epoch {payload.epoch} begins while {owner} works")
                working = True
                if payload.epoch != epoch + 1:
                    self.fail("epoch", append.run.id, f"epoch {payload.epoch} follows {epoch}")
                epoch, owner = payload.epoch, payload.replica
            elif isinstance(payload, Rescued):
                if payload.epoch != epoch + 1:
                    self.fail("epoch", append.run.id, f"the rescue in epoch {epoch} leads to {payload.epoch}")
                epoch, owner, working = payload.epoch, "", False
            elif isinstance(payload, Progress | ArtifactAdded):
                if payload.mark.startswith(MARK) and payload.mark != f"{MARK}{epoch}":
                    self.fail("fenced", append.run.id, f"event {event.seq} of {payload.mark} in epoch {epoch}")
                if (holder := self._owners.get(owner)) is not None and holder is not process:
                    self.fail("fenced", append.run.id, f"{process.name} reports for {holder.name}")
            elif isinstance(payload, TurnEnded | InputRequired | AuthRequired | Suspended):
                working = False
            elif isinstance(payload, Planned):
                self._done.pop(append.run.id, None)
            elif isinstance(payload, Stepped):
                self._check_step(append.run.id, payload)

    def _check_step(self, run: RunId, stepped: Stepped) -> None:
        known = self._done[run]
        if known.get(stepped.step) == "completed" and stepped.status != "completed":
            self.fail("step once", run, f"step {stepped.step} is {stepped.status} after it completed")
        known[stepped.step] = stepped.status

    def acknowledged(self, run: Run, client: str) -> None:
        """Check that something which a client was told is durable at that moment."""
        head = self._tables.heads.get(run.id)
        if head is None or head.run.version < run.version:
            self.fail("durable", run.id, f"{client} was told of version {run.version}: {head and head.run.version}")

    def seen(self, reader: Followed, event: Event, generation: int) -> None:
        """Check an event that a reader got: the next one of the log, as committed, with the generation after it."""
        if event.seq != reader.cursor + 1:
            self.fail("prefix", reader.run, f"event {reader.cursor + 1} was due, {event.seq} came")
        stored = self._tables.events(RunId(reader.run))
        if event.seq > len(stored) or stored[event.seq - 1].hash != event.hash:
            self.fail("prefix", reader.run, f"event {event.seq} was shown, and is not in the log")
        reader.cursor = event.seq
        reader.generation = grown(reader.generation, [event], open=self._tables.heads[RunId(reader.run)].run.open)
        if generation != reader.generation:
            self.fail("generation", reader.run, f"{generation} was shown with event {event.seq}: {reader.generation}")

    def shown(self, run: Run, known: Run, client: str) -> None:
        """Check the state of a run that a client was shown, on whichever replica, after another one: it is a state that
        the log has had, and no earlier one."""
        if run.version < known.version or run.generation < known.generation:
            before, now = f"{known.version} ({known.generation})", f"{run.version} ({run.generation})"
            self.fail("generation", run.id, f"{client} saw version {before} before {now}")
        events = self._tables.events(run.id)[: run.version]
        if run.version != len(events) or run.generation != grown(0, events, open=run.open):
            self.fail("generation", run.id, f"{client} saw version {run.version} with generation {run.generation}")

    def guarded(self, run: Run, message: str, generation: int) -> None:
        """Check an accepted message that was sent for one generation: the run had this one when it was applied."""
        generations = 0
        for event in self._tables.events(run.id):
            applied = isinstance(event.payload, InputReceived) and event.payload.message.id == message
            if applied and generations != generation:
                self.fail("generation", run.id, f"a message for generation {generation} was applied at {generations}")
            generations = grown(generations, [event], open=run.open)

    def posted(self, history: History, post: WebhookPost) -> None:
        """Check a webhook post: all earlier updates were taken before it."""
        taken = history.taken.setdefault(post.run, set())
        history.posts[post.run] += 1
        if missing := [seq for seq in range(AFTER_INPUT + 1, post.seq) if seq not in taken]:
            self.fail("webhook", post.run, f"event {post.seq} was posted before {missing[0]} was taken")
        if post.taken:
            taken.add(post.seq)

    def excuse(self, process: SimulatedProcess, until: float) -> None:
        """Do not count the visits of a process that is paused until then, nor for a moment afterwards."""
        self._excused[process] = max(until + WAKE_S, self._excused.get(process, 0.0))

    def enter(self, agent: str, limit: int, process: SimulatedProcess, run: RunId, epoch: int) -> None:
        """Check a limit when a turn of the agent begins."""
        visits = self._visits[agent]
        visits[process, run, epoch] = None
        now = self._loop.time()
        counted = [who for who, _, _ in visits if who.alive and not who.paused and self._excused.get(who, 0.0) < now]
        if len(counted) > limit and process in counted:
            self.fail("limit", run, f"{len(counted)} turns of {agent} run at once: {[who.name for who in counted]}")

    def leave(self, agent: str, process: SimulatedProcess, run: RunId, epoch: int) -> None:
        self._visits[agent].pop((process, run, epoch), None)

    def working(self, run: RunId, epoch: int, turn: int, step: str, after: str = "") -> None:
        """Check the work of a durable step when it begins: the holder of the run must not repeat a recorded step, and
        the step before must be recorded."""
        tables = self._tables
        head = tables.heads.get(run)
        if head is None or head.run.epoch != epoch or head.run.state is not State.WORKING:
            return
        payloads = [event.payload for event in tables.events(run)]
        records = [one.step for one in payloads if isinstance(one, Progress) and one.step is not None]
        done = {one.name for one in records if one.turn == turn and one.final and not one.code}
        if step in done:
            self.fail("step once", run, f"step {step} of turn {turn} is done again")
        if after and after not in done:
            self.fail("durable", run, f"step {step} of turn {turn} begins before {after} is recorded")

    def told(self, name: str, fields: dict[str, Any]) -> None:
        """Take telemetry: an unexpected exception in the engine is a violation."""
        error = fields.get("error")
        if isinstance(error, Exception) and not isinstance(error, ParleyError) and name != "agent.raised":
            self.fail("internal error", fields.get("run") or fields.get("loop") or name, f"{name}: {error!r}")
        if self.story is not None and name not in ("span.ended", "turn.ended"):
            shown = {
                key: str(value)[-12:]
                for key, value in fields.items()
                if key in ("run", "replica", "code", "agent", "loop")
            }
            self.note(f"{name} {shown}")


def grown(generation: int, events: Iterable[Event], *, open: bool) -> int:
    """Return the generation of a task after these events; it is 0 before the first."""
    for event in events:
        assert event.payload is not None
        generation += event.seq == 1 or is_update(event.payload, event.seq, open=open)
    return generation


def _words(events: Iterable[Event]) -> str:
    return ", ".join(f"{event.seq} {event.type}{_epoch(event)}" for event in events)


def _epoch(event: Event) -> str:
    return f" (epoch {event.payload.epoch})" if isinstance(event.payload, Started | Rescued) else ""


# Checks at the end, when nothing has been broken for a while.


def at_rest(database: SimulatedDatabase, history: History) -> bool:
    """Return whether nothing is left to do."""
    if any(run.state not in WAITING for run in database.tables.live.values()):
        return False
    left = (*_unfinished_hooks(database), *_open(history), *_left_over(database))
    return not left


def _open(history: History) -> Iterator[Followed]:
    return (one for one in history.followed if not one.ended)


def _unfinished_hooks(database: SimulatedDatabase) -> Iterator[str]:
    """Yield ended runs whose webhook has not ended. A run that waits for input may have lost its client."""
    for record in database.records_of(PUSH):
        if record.due is not None and database.tables.heads[RunId(record.scope)].run.ended:
            yield record.scope


def final(database: SimulatedDatabase, history: History) -> Iterator[Violation]:
    """Check the logs and what clients have seen."""
    tables = database.tables
    yield from _applied_once(history, tables)
    for id_, head in tables.heads.items():
        yield from _whole(id_, head, tables.events(id_))
        if head.run.state not in WAITING and not head.run.ended:
            yield Violation("liveness", id_, f"{head.run.agent} is still {head.run.state.value}")
        if head.run.state is State.COMPLETED and head.run.read < head.run.inputs:
            yield Violation("durable", id_, f"{head.run.read} of {head.run.inputs} inputs were read")
    yield from _asked_once(tables)
    yield from _let_go(tables)
    yield from _counted(tables)
    for id_ in history.canceled:
        state = tables.heads[RunId(id_)].run.state
        if state is not State.CANCELED:
            yield Violation("cancel", id_, f"it was shown as canceled, and is {state.value}")
    for one in _open(history):
        yield Violation("liveness", one.run, f"a reader waits after event {one.cursor}")
    for one in history.followed:
        run = tables.heads[RunId(one.run)].run
        if one.ended and one.cursor != run.version:
            yield Violation("prefix", one.run, f"a reader saw {one.cursor} of {run.version} events")
        if one.ended and one.generation != run.generation:
            yield Violation("generation", one.run, f"a reader counted {one.generation}, the row says {run.generation}")
    for hooked in _unfinished_hooks(database):
        yield Violation("liveness", hooked, "its webhook is not finished")
    yield from _posted_all(history, tables)
    yield from _left_over(database)


def _whole(id_: RunId, head: Head, events: list[Event]) -> Iterator[Violation]:
    try:
        seq, hash_ = verify(events)
    except BrokenChain as broken:
        yield Violation("gap-free", id_, str(broken))
        return
    if (seq, hash_) != (head.run.version, head.hash):
        yield Violation("gap-free", id_, f"its log ends at {seq}, its row says {head.run.version}")
    folded = view_of(events).run
    if msgspec.structs.replace(folded, fold=head.run.fold) != head.run:
        yield Violation("gap-free", id_, "its row is not the fold of its log")
    ends = [event.seq for event in events if event.type in ENDINGS]
    if len(ends) > 1 or (ends and ends[0] != seq) or bool(ends) != head.run.ended:
        yield Violation("one end", id_, f"terminal events at {ends} of {seq}")


def _applied_once(history: History, tables: Tables) -> Iterator[Violation]:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for id_, head in tables.heads.items():
        for event in tables.events(id_) if head.run.parent is None else ():
            if isinstance(event.payload, InputReceived):
                places[event.payload.message.id].append(id_)
    for one in history.inputs:
        found = places[one.id]
        if one.run and one.run not in found:
            yield Violation("durable", one.run, f"{one.id!r} was acknowledged, and stands in {found}")
        if len(found) > (1 if one.keyed else one.attempts):
            yield Violation("one run per key", one.id, f"it was applied {len(found)} times: {found}")


def _asked_once(tables: Tables) -> Iterator[Violation]:
    """A turn that is resumed must not ask the same question of another run again."""
    seen: Counter[tuple[RunId, str, str]] = Counter()
    for id_, head in tables.heads.items():
        parent = tables.heads.get(head.run.parent) if head.run.parent else None
        if parent is not None and parent.run.orchestration is None:
            given = next(event.payload for event in tables.events(id_) if isinstance(event.payload, InputReceived))
            seen[parent.run.id, head.run.agent, text_of(given.message.parts)] += 1
    for (parent_id, agent, text), count in seen.items():
        if count > 1:
            yield Violation("child once", parent_id, f"it asked {agent} {text!r} in {count} runs")


def _let_go(tables: Tables) -> Iterator[Violation]:
    """No run goes on, nor waits for an answer, whose parent was canceled or has failed."""
    for id_, head in tables.heads.items():
        parent = tables.heads.get(head.run.parent) if head.run.parent else None
        if parent is not None and parent.run.ended and lets_go(parent.run) and not head.run.ended:
            yield Violation("cancel", id_, f"it is {head.run.state.value}, its parent {parent.run.state.value}")


def _counted(tables: Tables) -> Iterator[Violation]:
    """The counter of each tree of runs is the sum of what the logs of its runs say."""
    sums: Counter[str] = Counter()
    for id_, head in tables.heads.items():
        for event in tables.events(id_):
            if isinstance(event.payload, Progress) and (used := event.payload.usage) is not None:
                sums[tree_of(head.run)] += used.input_tokens + used.output_tokens
    counters = tables.ledger.spent([(tree, TREE) for tree in sums])
    for tree, tokens in sums.items():
        counted = counters.get((tree, TREE), NOTHING).tokens
        if counted != tokens:
            yield Violation("spending", tree, f"its logs say {tokens} tokens, its counter says {counted}")


def over_budget(tables: Tables, allowed: int, at_once: int) -> Iterator[Violation]:
    """Yield the trees that have spent more than their budget allows, and than the calls that were under way."""
    counters = tables.ledger.spent([(tree_of(head.run), TREE) for head in tables.heads.values()])
    for (tree, _), spent in counters.items():
        if spent.tokens >= allowed + at_once:
            yield Violation("budget", tree, f"{spent.tokens} of {allowed} tokens are spent")


def _posted_all(history: History, tables: Tables) -> Iterator[Violation]:
    for run in history.hooks:
        taken = history.taken.get(run, ())
        version = tables.heads[RunId(run)].run.version
        if missing := [seq for seq in range(AFTER_INPUT + 1, version + 1) if seq not in taken]:
            yield Violation("webhook", run, f"events {missing} of {version} were never taken")


def _left_over(database: SimulatedDatabase) -> Iterator[Violation]:
    """Slots and leases must be free when no run needs them."""
    for agent, held in database.slots.items():
        if holders := [holder for holder in held.values() if holder is not None]:
            yield Violation("slots", agent, f"{len(holders)} slots are taken by {holders}, and no turn runs")
    for record in database.records_of(LEASE):
        yield Violation("leases", record.id, "a lease is left over")

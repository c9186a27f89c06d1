"""Checks of a history and of the resulting logs: pure functions that return violations."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

import msgspec
from msgspec import Struct

from dev.chaos.history import Cancel, Edit, History, Hook, Input, Json, Mark, Pause, Post, Refusal, Stream, Version
from parley.errors import BrokenChain
from parley.faces.a2a.dialect import encode
from parley.faces.a2a.messages import UpdateShown
from parley.faces.a2a.v1 import V1
from parley.runs.rules.events import ENDINGS, Event, InputReceived, verify
from parley.runs.rules.state import TERMINAL, WAITING, Run
from parley.runs.rules.view import view_of

REFUSALS = frozenset({
    (200, "store_unavailable"), (503, "store_unavailable"), (500, "database_error"),
    (503, "the database does not answer."), (503, "stopping"), (200, "stopping"),
    (502, "failed to reach workspace agent"), (502, "workspace agent closed the connection"),
    (504, "workspace agent did not answer"),
    (503, "workspace not available"), (409, "invalid_state"), (200, "task_not_cancelable"),
    (200, "unsupported_operation"),
})  # fmt: skip
"""Error codes that clients may get: it cannot be done now, or something else came first (the last one: that a
task to be watched from now on has ended in this moment). A client of JSON-RPC that was kept waiting has got status 200
already when its server stops."""
WAKE_S = 1.0
"""A process that was stopped for longer than its lease has this long to find out that others have its slots. What it
writes in that time is refused; but its code runs."""


class Violation(Struct, frozen=True):
    rule: str
    where: str
    what: str


class Log(Struct, frozen=True):
    """A run as its row says it is, the hash that its row ends with, and its events."""

    run: Run
    hash: bytes
    events: Sequence[Event]


Logs = Mapping[str, Log]
Found = Iterator[Violation]


def check(history: History, logs: Logs, limit: int) -> list[Violation]:
    return [
        *applied_once(history.inputs, logs),
        *gap_free(logs),
        *ended_once(logs),
        *none_left(logs),
        *prefixes(history.streams, logs),
        *within_limit(history.marks, history.pauses, limit),
        *told_in_order(history.hooks, history.posts, logs),
        *edits_kept(history.edits, history.versions),
        *cancels_held(history.cancels, logs),
        *refused_cleanly(history.refusals),
    ]


def applied_once(inputs: Iterable[Input], logs: Logs) -> Found:
    """Each acknowledged input stands once in the log of its task; one that was not acknowledged, at most once."""
    places = defaultdict[str, list[str]](list)
    for id_, log in logs.items():
        for event in log.events:
            if isinstance(event.payload, InputReceived):
                places[words(event.payload)].append(id_)
    for input_ in inputs:
        found = places[input_.text]
        if len(found) > 1:
            yield Violation("applied once", input_.key, f"{input_.text} stands in {', '.join(found)}")
        elif input_.task and found != [input_.task]:
            yield Violation("applied once", input_.key, f"{input_.text} was acknowledged for {input_.task}: {found}")


def words(payload: InputReceived) -> str:
    return "".join(part.text for part in payload.message.parts if part.text is not None)


def gap_free(logs: Logs) -> Found:
    for id_, log in logs.items():
        try:
            seq, hash_ = verify(log.events)
        except BrokenChain as broken:
            yield Violation("gap-free", id_, str(broken))
            continue
        if (seq, hash_) != (log.run.version, log.hash):
            yield Violation("gap-free", id_, f"its log ends at {seq}, its row says {log.run.version}")
        if log.events and view_of(log.events).run.state != log.run.state:
            yield Violation("gap-free", id_, f"its row says {log.run.state}, its log does not")


def ended_once(logs: Logs) -> Found:
    """One terminal event, and nothing after it."""
    for id_, log in logs.items():
        ends = [event.seq for event in log.events if event.type in ENDINGS]
        if len(ends) > 1 or (ends and ends[0] != log.events[-1].seq):
            yield Violation("one end", id_, f"terminal events at {ends} of {len(log.events)}")
        elif not ends and log.run.state in TERMINAL:
            yield Violation("one end", id_, f"{log.run.state} without a terminal event")


def none_left(logs: Logs) -> Found:
    for id_, log in logs.items():
        if log.run.state not in TERMINAL and log.run.state not in WAITING:
            yield Violation("none left", id_, f"{log.run.agent} is still {log.run.state}")


def prefixes(streams: Iterable[Stream], logs: Logs) -> Found:
    """Readers must see the log from where they started, without gaps and duplicates; all of it when
    the stream came to its end."""
    cache: dict[str, list[tuple[int, Json]]] = {}
    for stream in streams:
        if not stream.task:
            continue
        log = logs.get(stream.task)
        if log is None:
            yield Violation("prefix", stream.task, "it was streamed, and has no log")
            continue
        if stream.task not in cache:
            cache[stream.task] = shown(log)
        expected = [(seq, frame) for seq, frame in cache[stream.task] if seq > stream.start]
        if (wrong := _differs(stream, expected)) or (wrong := _begins_wrong(stream, log)):
            yield Violation("prefix", stream.task, wrong)


def _differs(stream: Stream, expected: list[tuple[int, Json]]) -> str:
    for place, frame in enumerate(stream.frames):
        if place == len(expected):
            return f"event {frame.seq} was shown, and is not in the log"
        seq, result = expected[place]
        if frame.seq != seq:
            return f"event {seq} was due, {frame.seq} came (after {stream.start}, at place {place})"
        if frame.result != result:
            return f"event {seq} was shown as {frame.result}, and is {result}"
    if stream.ended and len(stream.frames) < len(expected):
        return f"it ended after {stream.cursor}, and the log goes on to {expected[-1][0]}"
    if stream.given_up:
        return f"its reader waited in vain after {stream.cursor}"
    return ""


def _begins_wrong(stream: Stream, log: Log) -> str:
    if not stream.state:
        return ""
    state = V1.states[view_of(log.events[: stream.start]).run.state]
    return "" if state == stream.state else f"at {stream.start} it was shown as {stream.state}, and was {state}"


def shown(log: Log) -> list[tuple[int, Json]]:
    """The frames of a whole log."""
    frames = ((event.seq, V1().frame(UpdateShown(log.run, event), last=False)) for event in log.events)
    return [(seq, msgspec.json.decode(encode(frame))) for seq, frame in frames if frame is not None]


def within_limit(marks: Iterable[Mark], pauses: Sequence[Pause], limit: int) -> Found:
    """No more turns of the limited agent run than allowed, on all replicas; stopped or dead processes do not count."""
    changes: list[tuple[float, int, str]] = []
    for run, since, until in stays(marks, pauses):
        changes += [(since, 1, run), (until, -1, run)]
    inside = Counter[str]()
    for at, change, run in sorted(changes, key=lambda one: (one[0], one[1])):
        inside[run] += change
        if change > 0 and inside.total() > limit:
            yield Violation("limit", run, f"{inside.total()} were inside at {at:.3f}: {sorted((+inside).elements())}")


def stays(marks: Iterable[Mark], pauses: Sequence[Pause]) -> Iterator[tuple[str, float, float]]:
    """Start and end of each turn, without the times at which its process was stopped."""
    entered: dict[tuple[int, str], float] = {}
    for mark in sorted(marks, key=lambda one: one.at):
        if mark.what == "in":
            entered[mark.pid, mark.run] = mark.at
        else:
            yield from _awake(mark.run, entered.pop((mark.pid, mark.run)), mark.at, _of(mark.pid, pauses))
    for (pid, run), since in entered.items():
        yield from _awake(run, since, float("inf"), _of(pid, pauses))


def _of(pid: int, pauses: Iterable[Pause]) -> list[Pause]:
    return sorted((pause for pause in pauses if pause.pid == pid), key=lambda pause: pause.since)


def _awake(run: str, since: float, until: float, pauses: Iterable[Pause]) -> Iterator[tuple[str, float, float]]:
    for pause in pauses:
        if pause.since < until and pause.until > since:
            if since < pause.since:
                yield run, since, pause.since
            since = pause.until + WAKE_S
    if since < until:
        yield run, since, until


def told_in_order(hooks: Iterable[Hook], posts: Iterable[Post], logs: Logs) -> Found:
    """Every update after the input was taken at least once, none was posted before all earlier ones were taken, and
    each was what the log shows."""
    by_path = defaultdict[str, list[Post]](list)
    for post in posts:
        by_path[post.path].append(post)
    for hook in hooks:
        log = logs.get(hook.task)
        if log is None:
            yield Violation("webhook", f"{hook.path} {hook.task}", "its task has no log")
            continue
        first = next(event.seq for event in log.events if event.type == "input")
        expected = [(seq, frame) for seq, frame in shown(log) if seq > first]
        for what in _told_wrong(expected, by_path[hook.path]):
            yield Violation("webhook", f"{hook.path} {hook.task}", what)


def _told_wrong(expected: list[tuple[int, Json]], posts: Iterable[Post]) -> Iterator[str]:
    frames, order, taken = dict(expected), [seq for seq, _ in expected], set[int]()
    for post in posts:
        if post.seq not in frames:
            yield f"event {post.seq} was posted, and is not to be shown"
            continue
        if missing := [seq for seq in order if seq < post.seq and seq not in taken]:
            yield f"event {post.seq} was posted before {missing[0]} was taken"
        if post.body != frames[post.seq]:
            yield f"event {post.seq} was posted as {post.body}, and is {frames[post.seq]}"
        if post.taken:
            taken.add(post.seq)
    if missing := [seq for seq in order if seq not in taken]:
        yield f"events {missing} of {len(order)} were never taken"


def edits_kept(edits: Iterable[Edit], versions: Iterable[Version]) -> Found:
    """Each acknowledged edit is a version with its text; no text is two versions; numbers have no gaps, and
    one version of each plan is current."""
    plans = defaultdict[str, list[Version]](list)
    for version in versions:
        plans[version.conversation].append(version)
    for edit in edits:
        found = [one for one in plans[edit.conversation] if one.content == edit.text]
        if len(found) > 1:
            yield Violation("edit", edit.conversation, f"{edit.text} is {len(found)} versions")
        elif edit.version and [one.id for one in found] != [edit.version]:
            yield Violation("edit", edit.conversation, f"{edit.text} was acknowledged as {edit.version}")
    for conversation, kept in plans.items():
        numbers = sorted(one.number for one in kept)
        if any(after - before != 1 for before, after in pairwise([0, *numbers])):
            yield Violation("edit", conversation, f"versions are numbered {numbers}")
        if sum(one.current for one in kept) != 1:
            yield Violation("edit", conversation, f"{sum(one.current for one in kept)} versions are current")


def cancels_held(cancels: Iterable[Cancel], logs: Logs) -> Found:
    """A task that was shown as canceled is, for good."""
    for cancel in cancels:
        log = logs.get(cancel.task)
        if cancel.state == "TASK_STATE_CANCELED" and (log is None or log.events[-1].type != "canceled"):
            yield Violation("cancel", cancel.task, f"it is {log.run.state if log else 'gone'} all the same")


def refused_cleanly(refusals: Iterable[Refusal]) -> Found:
    """Every refused client gets a fitting error code, never an internal error."""
    for refusal in refusals:
        if (refusal.status, refusal.code) not in REFUSALS:
            yield Violation("refusal", refusal.what, f"{refusal.status} {refusal.code or 'without a code'}")

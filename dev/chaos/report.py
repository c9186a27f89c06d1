"""The figures of a run, for people and for programs."""

from collections import Counter

from rich.console import Console
from rich.table import Table

from dev.chaos.checking import Log
from dev.chaos.history import Json
from dev.chaos.outcome import Outcome
from parley.runs.rules.events import Failed
from parley.runs.rules.state import State

SHOWN = 40


def figures(outcome: Outcome) -> Json:
    history, logs = outcome.history, outcome.logs
    types = Counter(event.type for log in logs.values() for event in log.events)
    return {
        "seed": outcome.seed,
        "seconds": outcome.seconds,
        "rest_s": round(outcome.rest_s, 1),
        "operations": dict(history.operations),
        "faults": dict(history.faults),
        "inputs": len(history.inputs),
        "acknowledged": sum(bool(one.task) for one in history.inputs),
        "runs": len(logs),
        "events": sum(len(log.events) for log in logs.values()),
        "rescues": types["rescued"],
        "ends": dict(Counter(log.run.state.value for log in logs.values())),
        "failures": dict(Counter(why(log) for log in logs.values() if log.run.state is State.FAILED)),
        "streams": len(history.streams),
        "resumes": sum(max(0, stream.connections - 1) for stream in history.streams),
        "frames": sum(len(stream.frames) for stream in history.streams),
        "webhooks": len(history.hooks),
        "posts": len(history.posts),
        "posts_taken": sum(post.taken for post in history.posts),
        "edits": len(history.edits),
        "versions": len(history.versions),
        "visits": sum(mark.what == "in" for mark in history.marks),
        "refusals": dict(Counter(f"{one.status} {one.code}" for one in history.refusals)),
        "violations": [{"rule": one.rule, "where": one.where, "what": one.what} for one in outcome.violations],
    }


def why(log: Log) -> str:
    """The failed agent and the error code; empty if the run did not fail."""
    ended = log.events[-1].payload
    return f"{log.run.agent.partition(':')[0]} {ended.code}" if isinstance(ended, Failed) else ""


def show(title: str, found: Json, console: Console) -> None:
    table = Table(title=f"{title}, {found['seconds']:g} s, seed {found['seed']}", show_header=False)
    for name, value in found.items():
        if name == "violations":
            continue
        for row, (inner, count) in enumerate(value.items() if isinstance(value, dict) else [("", value)]):
            table.add_row(
                name.replace("_", " ") if row == 0 else "", inner, f"{count:,}" if name != "seed" else str(count)
            )
    console.print(table)
    wrong = found["violations"]
    for one in wrong[:SHOWN]:
        console.print(f"[{one['rule']}] {one['where']}: {one['what'][:400]}", markup=False, highlight=False)
    console.print(f"{len(wrong)} violations" if wrong else "no violations")

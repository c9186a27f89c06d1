"""Orchestrations as the contract shows them."""

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from parley.clock import iso
from parley.core.artifacts import Part, Parts
from parley.core.orchestrations import Orchestration, words_of
from parley.core.results import OrchestrationShown, OrchestrationSummary, PlanMaker, StepShown, StepsShown
from parley.core.steps import estimated_end
from parley.engine.exchange import Exchange


def begun(one: Orchestration, now: int) -> OrchestrationShown:
    """As its creation shows it."""
    steps = [
        StepShown(
            each.step.id, each.step.agent, each.step.mode or "converse", each.step.action or "message",
            list(each.step.depends_on), each.status,
        )
        for each in one.steps
    ]  # fmt: skip
    end = estimated_end(one, now)
    maker = PlanMaker(one.model, one.tokens) if one.model else None
    return OrchestrationShown(
        one.id, one.conversation, one.status, StepsShown(steps, maker), one.current, one.total,
        iso(one.started_at or one.created_at), estimated_completion_at=None if end is None else iso(end),
    )  # fmt: skip


async def shown(exchange: Exchange, one: Orchestration, now: int) -> OrchestrationShown:
    """With what has become of its steps."""
    results = {
        each.step.id: await _brought(exchange, each.output) for each in one.steps if each.status == "completed"
    }  # fmt: skip
    error = Raw(msgspec.json.encode({"code": one.code, "message": one.reason})) if one.status == "failed" else None
    return replace(
        begun(one, now), completed_steps=one.count("completed"), failed_steps=one.count("failed"), results=results,
        completed_at=iso(one.ended_at) if one.ended else None, error=error,
    )  # fmt: skip


def summary(one: Orchestration) -> OrchestrationSummary:
    return OrchestrationSummary(
        one.id, one.status, one.total, one.count("completed"), iso(one.started_at or one.created_at),
        iso(one.ended_at) if one.ended else None,
    )  # fmt: skip


async def _brought(exchange: Exchange, parts: Parts) -> Raw:
    """A tool's output as it is; whatever else, as text."""
    if len(parts) == 1 and parts[0].data is not UNSET:
        return parts[0].data
    loaded: list[Part] = []
    for part in parts:
        is_text = part.blob is not None and part.blob.text
        loaded += await exchange.attachments.loaded((part,)) if is_text else (part,)
    return Raw(msgspec.json.encode(words_of(tuple(loaded))))

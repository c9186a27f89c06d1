"""A language model is asked for a plan."""

from collections.abc import Sequence
from contextlib import aclosing

from msgspec.structs import replace

from parley.core.artifacts import text_part
from parley.core.planning import Candidate, instructions_for, plan_in, refusal_among, repair
from parley.core.plans import Steps, check_plan
from parley.drivers.answers import Answer
from parley.engine.planning import ModelPlan
from parley.engine.ports import Llm, Sampling, Speech
from parley.errors import ModelInterrupted, PlanInvalid
from parley.telemetry import tell


async def planned(
    llm: Llm, sampling: Sampling, messages: Sequence[Speech], agents: Sequence[Candidate], model: str = ""
) -> ModelPlan:
    """Its plan for these agents; one that cannot be used it may correct once."""
    sampling = replace(sampling, instructions=instructions_for(agents, sampling.instructions))
    heard = Answer(model)
    answer = await _answer(llm, messages, sampling, heard)
    try:
        return ModelPlan(_usable(answer, agents), heard.model, heard.tokens)
    except PlanInvalid as error:
        tell("plan.repaired", reason=error.message)
        said = Speech("agent", (text_part(answer or "…"),)), Speech("user", (text_part(repair(error)),))
        steps = _usable(await _answer(llm, [*messages, *said], sampling, heard), agents)
        return ModelPlan(steps, heard.model, heard.tokens)


async def _answer(llm: Llm, messages: Sequence[Speech], sampling: Sampling, heard: Answer) -> str:
    """Nobody reads along, so an answer that breaks off is simply asked for once more."""
    try:
        return await _heard(llm, messages, sampling, heard)
    except ModelInterrupted:
        return await _heard(llm, messages, sampling, heard)


async def _heard(llm: Llm, messages: Sequence[Speech], sampling: Sampling, heard: Answer) -> str:
    heard.begin_round()
    async with aclosing(llm.stream(messages, sampling)) as outputs:
        async for output in outputs:
            for _ in heard.heard(output):
                pass
    return heard.text_of_round


def _usable(answer: str, agents: Sequence[Candidate]) -> Steps:
    steps = plan_in(answer)
    check_plan(steps, refusal_among(agents))
    return steps

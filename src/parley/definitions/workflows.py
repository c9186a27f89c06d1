"""The driver `workflow` in a definition: the steps, and by which rules they are carried out."""

import msgspec
from msgspec import UNSET, Raw, Struct

from parley.core.agents import Agent
from parley.core.plans import Rules, Shown, Step, Steps, check_plan, check_rules
from parley.definitions.kind import Site
from parley.drivers.workflow import WorkflowDriver
from parley.errors import Invalid, PlanInvalid


class StepOptions(Struct, frozen=True):
    id: str
    agent: str
    name: str = ""
    mode: str = ""
    action: str = ""
    depends_on: tuple[str, ...] = ()
    input: str | dict[str, object] | None = None
    """What the agent is told, with `{{message}}` and `{{steps.ID.output}}` filled in."""
    checkpoint: str = ""
    """A question; nothing goes on after the step until it is answered."""
    artifact: Shown | None = None
    """What of it is an artifact of the task, also where other steps wait for it."""


class WorkflowOptions(Struct, frozen=True):
    steps: tuple[StepOptions, ...]
    max_parallel: int = Rules().max_parallel
    step_timeout_s: float | None = 300.0
    retries: int = 0
    """How often a step that fails is tried again."""
    retry_delay_s: float = 2.0


def build_workflow(agent: Agent, options: WorkflowOptions, site: Site) -> WorkflowDriver:
    steps, rules = _steps(options), _rules(options)
    try:
        check_plan(steps, lambda step: "it cannot be a step of itself." if step.agent == agent.slug else None)
        check_rules(rules)
    except PlanInvalid as error:
        raise Invalid(error.message, field="steps") from None
    return WorkflowDriver(agent, steps, rules)


def _steps(options: WorkflowOptions) -> Steps:
    return tuple(
        Step(
            one.id, one.agent, one.name, one.mode, one.action, one.depends_on,
            UNSET if one.input is None else Raw(msgspec.json.encode(one.input)), one.checkpoint,
            one.artifact,
        )
        for one in options.steps
    )  # fmt: skip


def _rules(options: WorkflowOptions) -> Rules:
    timeout = options.step_timeout_s
    return Rules(
        options.max_parallel, None if timeout is None else round(timeout * 1000), options.retries > 0, options.retries,
        round(options.retry_delay_s * 1000),
    )  # fmt: skip

"""A workflow as an agent: each run does the same steps, and each step is done by another agent."""

from collections.abc import AsyncGenerator, Sequence

import msgspec
from msgspec import UNSET, Raw, Struct

from parley.drivers.kind import Site
from parley.errors import Invalid, PlanInvalid
from parley.execution.rules import Output
from parley.execution.turn import Turn
from parley.orchestrations.rules.plan import Rules, Shown, Step, Steps, check_plan, check_rules
from parley.orchestrations.rules.prompts import Candidate
from parley.runs.rules.agents import Agent


class WorkflowDriver(Struct, frozen=True):
    agent: Agent
    steps: Steps
    rules: Rules = Rules()

    async def plan(self, turn: Turn, agents: Sequence[Candidate]) -> Steps:
        return self.steps

    def run(self, turn: Turn) -> AsyncGenerator[Output, None]:
        raise NotImplementedError("A workflow has no turns of its own: its steps run as an orchestration.")


# The driver `workflow` in a definition: the steps, and the rules for running them.


class StepOptions(Struct, frozen=True):
    id: str
    agent: str
    name: str = ""
    mode: str = ""
    action: str = ""
    depends_on: tuple[str, ...] = ()
    input: str | dict[str, object] | None = None
    """Input for the agent. `{{message}}` and `{{steps.ID.output}}` in it are replaced."""
    checkpoint: str = ""
    """A question to ask after the step. No later step starts until it is answered."""
    artifact: Shown | None = None
    """The part of the step's output that becomes an artifact of the task, even if other steps depend on the step."""


class WorkflowOptions(Struct, frozen=True):
    steps: tuple[StepOptions, ...]
    max_parallel: int = Rules().max_parallel
    step_timeout_s: float | None = 300.0
    retries: int = 0
    """Number of retries for a step that fails."""
    retry_delay_s: float = 2.0


def short_workflow(agents: list[str]) -> dict[str, object]:
    """Read a list of agents, which work one after another."""
    steps: list[dict[str, object]] = []
    for agent in agents:
        again = agents[: len(steps)].count(agent)
        before = {"depends_on": [steps[-1]["id"]]} if steps else {}
        steps.append({"id": f"{agent}-{again + 1}" if again else agent, "agent": agent, **before})
    return {"steps": steps}


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
            one.id,
            one.agent,
            one.name,
            one.mode,
            one.action,
            one.depends_on,
            UNSET if one.input is None else Raw(msgspec.json.encode(one.input)),
            one.checkpoint,
            one.artifact,
        )
        for one in options.steps
    )


def _rules(options: WorkflowOptions) -> Rules:
    timeout = options.step_timeout_s
    return Rules(
        options.max_parallel,
        None if timeout is None else round(timeout * 1000),
        options.retries > 0,
        options.retries,
        round(options.retry_delay_s * 1000),
    )

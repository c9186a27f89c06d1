"""The plan of an orchestration: its steps, their dependencies and their inputs."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import cast

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from parley.errors import PlanInvalid
from parley.json_values import Json

MAX_STEPS = 200
MAX_PARALLEL = 50
MAX_RETRY_DELAY_MS = 60_000

STEP_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")
_REFERENCE = re.compile(r"\{\{(\s*+(?:[^{}\n]|\{(?!\{)|\}(?!\}))*+\s*+)\}\}")
"""Takes time in proportion to the text, whatever it contains. The matched reference must still be stripped."""
_OF_STEP = re.compile(r"steps\.([A-Za-z0-9_-]+)\.(?:answer|output((?:\.[A-Za-z0-9_-]+)*))")
MESSAGE = "message"


class Rules(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Rules for carrying out steps. Without `auto_retry` a failed step is not retried."""

    max_parallel: int = 5
    step_timeout_ms: int | None = 300_000
    auto_retry: bool = False
    max_retries: int = 2
    retry_delay_ms: int = 2000
    """Delay before the first retry; each further retry waits twice as long, up to a minute."""


class Shown(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A step's output as an artifact: a file of this name, with the whole output or one member of a JSON output."""

    name: str
    member: str = ""


class Step(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """One piece of work for one agent. `mode` and `action` say how the agent is called; without them it is sent a
    message."""

    id: str
    agent: str
    name: str = ""
    mode: str = ""
    action: str = ""
    depends_on: tuple[str, ...] = ()
    input: Raw | UnsetType = UNSET
    """Text or an object, in which `{{message}}` and `{{steps.ID.output}}` are replaced."""
    checkpoint: str = ""
    """Question that is asked after the step; no step starts until it is answered."""
    artifact: Shown | None = None
    """The output that becomes an artifact of the orchestration, also if other steps depend on this one."""

    @property
    def title(self) -> str:
        return self.name or self.id


Steps = tuple[Step, ...]
Refusal = Callable[[Step], str | None]
"""Returns the reason why a step cannot be carried out here; None if it can."""


def rules_with(
    rules: Rules,
    max_parallel: int | None = None,
    step_timeout_ms: int | None = None,
    auto_retry: bool | None = None,
    max_retries: int | None = None,
) -> Rules:
    """Return the rules of an agent's definition, with the values that a request overrides."""
    if auto_retry and max_retries is None and not rules.max_retries:
        # A definition without retries must not cancel the retries that the request asks for.
        max_retries = Rules().max_retries
    given = {
        "max_parallel": max_parallel,
        "step_timeout_ms": step_timeout_ms,
        "auto_retry": auto_retry,
        "max_retries": max_retries,
    }
    return replace(rules, **{name: value for name, value in given.items() if value is not None})


def check_rules(rules: Rules) -> None:
    for name, least, most in (
        ("max_parallel", 1, MAX_PARALLEL),
        ("step_timeout_ms", 1, 7 * 24 * 3600 * 1000),
        ("max_retries", 0, 20),
        ("retry_delay_ms", 0, MAX_RETRY_DELAY_MS),
    ):
        value = getattr(rules, name)
        if value is not None and not least <= value <= most:
            raise PlanInvalid(f"{name} must be between {least} and {most:,}.", field=name)


def check_plan(steps: Sequence[Step], refusal: Refusal = lambda step: None) -> None:
    """Raise PlanInvalid for a plan that could not be carried out completely."""
    if not 1 <= len(steps) <= MAX_STEPS:
        raise PlanInvalid(f"A plan must have 1 to {MAX_STEPS} steps; this one has {len(steps)}.", field="steps")
    ids = [step.id for step in steps]
    for step in steps:
        if STEP_ID.fullmatch(step.id) is None:
            raise PlanInvalid(f"The step id {step.id!r} must contain only letters, digits, - and _.")
        if ids.count(step.id) > 1:
            raise PlanInvalid(f"Two steps have the id {step.id}.", step=step.id)
        if step.artifact is not None and not step.artifact.name:
            raise PlanInvalid(f"The artifact of step {step.id} has no name.", step=step.id)
        for other in step.depends_on:
            if other not in ids:
                raise PlanInvalid(f"Step {step.id} depends on {other}, which is not a step of the plan.", step=step.id)
        if reason := refusal(step):
            raise PlanInvalid(f"Step {step.id}: {reason}", step=step.id)
    before = ancestors(steps)
    for step in steps:
        _check_references(step, before[step.id])


def ancestors(steps: Sequence[Step]) -> dict[str, frozenset[str]]:
    """Return for each step all steps that must be done before it; raise PlanInvalid if steps depend on each other."""
    needs = {step.id: step.depends_on for step in steps}
    found: dict[str, frozenset[str]] = {}
    try:
        for id_ in TopologicalSorter(needs).static_order():
            found[id_] = frozenset(needs[id_]).union(*(found[other] for other in needs[id_]))
    except CycleError as error:
        circle = " -> ".join(cast(list[str], error.args[1]))
        raise PlanInvalid(f"The steps depend on each other: {circle}.") from None
    return found


def dependants(steps: Sequence[Step], id_: str) -> frozenset[str]:
    """Return all steps that depend on a step, directly or not."""
    return frozenset(one for one, before in ancestors(steps).items() if id_ in before)


def _check_references(step: Step, before: frozenset[str]) -> None:
    for reference in _references(_given(step)):
        if reference == MESSAGE:
            continue
        of_step = _OF_STEP.fullmatch(reference)
        if of_step is None:
            known = "{{message}}, {{steps.ID.output}}, {{steps.ID.output.NAME}} and {{steps.ID.answer}}"
            raise PlanInvalid(
                f"Step {step.id}: {{{{{reference}}}}} is not a known reference; the known ones are {known}.",
                step=step.id,
            )
        if of_step[1] not in before:
            raise PlanInvalid(f"Step {step.id} refers to step {of_step[1]}, so it must depend on it.", step=step.id)


def _references(value: Json) -> Iterator[str]:
    match value:
        case str():
            yield from (found.strip() for found in _REFERENCE.findall(value))
        case list():
            for one in value:
                yield from _references(one)
        case dict():
            for one in value.values():
                yield from _references(one)
        case _:
            return


def rendered(step: Step, message: str, said: Mapping[str, str]) -> Json:
    """Return the input of a step with all references replaced. `said` has `steps.ID.output` and `steps.ID.answer`.

    A step without an input of its own gets the message, and the output of the steps it depends on.
    """
    if step.input is UNSET:
        outputs = [f"{other}:\n{said.get(f'steps.{other}.output', '')}" for other in step.depends_on]
        return "\n\n".join([message, *outputs])
    return _filled(_given(step), {MESSAGE: message, **said})


def _given(step: Step) -> Json:
    if step.input is UNSET:
        return None
    try:
        return cast(Json, msgspec.json.decode(step.input))
    except msgspec.MsgspecError:
        raise PlanInvalid(f"The input of step {step.id} is not JSON.", step=step.id) from None


def _filled(value: Json, words: Mapping[str, str]) -> Json:
    """Replace references in a value. Replaced text is not searched again, so an output that contains braces stays as it
    is."""
    match value:
        case str():
            if member := _member(value):
                return _said(member, words)
            return _REFERENCE.sub(lambda found: text_of(_said(found[1].strip(), words)), value)
        case list():
            return [_filled(one, words) for one in value]
        case dict():
            return {name: _filled(one, words) for name, one in value.items()}
        case _:
            return value


def _member(text: str) -> str | None:
    """Return the reference if a text is only a reference to a member of an output, so that rows stay rows and do not
    become text."""
    found = _REFERENCE.fullmatch(text)
    of_step = _OF_STEP.fullmatch(found[1].strip()) if found else None
    return of_step[0] if of_step is not None and of_step[2] else None


def _said(reference: str, words: Mapping[str, str]) -> Json:
    of_step = _OF_STEP.fullmatch(reference)
    if of_step is None or not of_step[2]:
        return words.get(reference, "")
    return member_of(words.get(f"steps.{of_step[1]}.output", ""), of_step[2][1:])


def member_of(words: str, path: str) -> Json:
    """Return a member of a JSON output, such as `rows.0.date`; None if there is none."""
    try:
        found: Json = msgspec.json.decode(words)
    except msgspec.MsgspecError:
        return None
    for name in path.split("."):
        if isinstance(found, list):
            found = found[int(name)] if name.isdecimal() and int(name) < len(found) else None
        else:
            found = found.get(name) if isinstance(found, dict) else None
    return found


def text_of(value: Json) -> str:
    return value if isinstance(value, str) else "" if value is None else msgspec.json.encode(value).decode()


def retry_delay_ms(rules: Rules, retry: int) -> int:
    """Return the delay before retry number `retry` of a step."""
    return min(rules.retry_delay_ms * 2 ** (retry - 1), MAX_RETRY_DELAY_MS)

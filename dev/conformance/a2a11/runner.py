"""Carries out the cases of `cases.yaml` on one wire."""

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import yaml
from msgspec import Struct, convert

from dev.conformance.a2a11.wires import Refused, Wire, state_of, update_in

Json = dict[str, Any]
CASES = Path(__file__).with_name("cases.yaml")
LIMIT_S = 60.0


class Case(Struct, frozen=True):
    id: str
    level: str
    title: str
    steps: list[Json]


class Done(Struct):
    """The result of a step: the frames of a stream, or one task; or the refusal."""

    frames: list[Json] = []
    refused: Refused | None = None
    took_s: float = 0.0
    winners: int = 0

    @property
    def task(self) -> Json:
        """The task as the step left it: its last generation and state."""
        ids = [update_in(frame).get("id") or update_in(frame).get("taskId") for frame in self.frames]
        last = update_in(self.frames[-1]) if self.frames else {}
        return {**last, "id": next((id_ for id_ in ids if id_), "")}


def cases(file: Path = CASES) -> list[Case]:
    return convert(yaml.safe_load(file.read_text("utf-8"))["cases"], list[Case])


async def run(case: Case, wire: Wire) -> list[str]:
    """Carry out a case. Return what does not hold; nothing if it passes."""
    saved: dict[str, Json] = {}
    try:
        async with asyncio.timeout(LIMIT_S):
            for number, step in enumerate(case.steps, 1):
                done = await _step(step, wire, saved)
                if "save" in step:
                    saved[step["save"]] = done.task
                wrong = _wrong(step.get("expect", {}), done, saved)
                if wrong:
                    return [f"step {number}: {one}" for one in wrong]
    except TimeoutError:
        return [f"did not end within {LIMIT_S:.0f} s"]
    except Refused as refused:
        return [f"refused: {refused}"]
    return []


async def _step(step: Json, wire: Wire, saved: Mapping[str, Json]) -> Done:
    kind = next(name for name in step if name not in ("save", "expect"))
    given: Json = _filled(step[kind], saved)
    beside = given.pop("while", None)
    began = time.monotonic()
    if kind == "race":
        done = await _raced(given, wire)
    elif beside is not None:
        done, _ = await asyncio.gather(_performed(kind, given, wire), _later(beside, wire))
    else:
        done = await _performed(kind, given, wire)
    if done.refused is not None and "error" not in step.get("expect", {}):
        raise done.refused
    done.took_s = time.monotonic() - began
    return done


async def _later(beside: Json, wire: Wire) -> None:
    await asyncio.sleep(beside.get("after_s", 0.3))
    await _performed("send", beside["send"], wire)


async def _raced(given: Json, wire: Wire) -> Done:
    sends = [_performed("send", {**given["send"]}, wire) for _ in range(given["times"])]
    results = await asyncio.gather(*sends)
    lost = [one.refused for one in results if one.refused is not None]
    return Done(refused=lost[0] if lost else None, winners=len(results) - len(lost))


async def _performed(kind: str, given: Json, wire: Wire) -> Done:
    try:
        return Done(await _frames(kind, given, wire))
    except Refused as refused:
        return Done(refused=refused)


async def _frames(kind: str, given: Json, wire: Wire) -> list[Json]:
    task = given.get("task", "")
    match kind:
        case "send":
            return [await wire.send(_message(given), _configuration(given))]
        case "stream":
            return [frame async for frame in wire.stream(_message(given), _configuration(given))]
        case "subscribe":
            return [frame async for frame in wire.subscribe(task)]
        case "list":
            return [{"task": one} for one in (await wire.list())["tasks"] if one["id"] == task]
        case "cancel":
            return [{"task": await wire.cancel(task)}]
        case _:
            params = {name: value for name, value in given.items() if name != "task"}
            return [{"task": await wire.get(task, **params)}]


def _message(given: Json) -> Json:
    task = {"taskId": given["task"]} if "task" in given else {}
    return {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": [{"text": given["text"]}], **task}


def _configuration(given: Json) -> Json | None:
    return {"ifGenerationMatch": given["ifGenerationMatch"]} if "ifGenerationMatch" in given else None


def _filled(value: Any, saved: Mapping[str, Json]) -> Any:
    """Put saved tasks in place of their names."""
    if isinstance(value, dict):
        return {name: _filled(one, saved) for name, one in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if not isinstance(value, str) or not value.startswith("$"):
        return value
    name, _, member = value[1:].partition(".")
    return saved[name].get(member, 0) if member else saved[name]["id"]


def _wrong(expected: Json, done: Done, saved: Mapping[str, Json]) -> list[str]:
    checks = {
        "state": lambda state: state_of({"task": done.task}) == state,
        "generation": lambda rule: _holds(str(rule), int(done.task.get("generation", 0)), saved),
        "numbered": lambda _: _numbered(done.frames),
        "first": lambda rule: _holds(str(rule), int(update_in(done.frames[0]).get("generation", 0)), saved),
        "history": lambda most: len(done.task.get("history", [])) <= most,
        "error": lambda reason: done.refused is not None and done.refused.reason == reason,
        "metadata": lambda names: done.refused is not None and set(names) <= set(done.refused.metadata),
        "winners": lambda number: done.winners == number,
        "at_least_s": lambda limit: done.took_s >= limit,
        "at_most_s": lambda limit: done.took_s <= limit,
    }
    shown = {"generation": done.task.get("generation"), "error": done.refused, "took_s": round(done.took_s, 2)}
    return [f"{name} must be {rule}, but: {shown}" for name, rule in expected.items() if not checks[name](rule)]


def _holds(rule: str, generation: int, saved: Mapping[str, Json]) -> bool:
    text = rule.lstrip("=>")
    other = int(saved[text[1:]].get("generation", 0)) if text.startswith("$") else int(text)
    return generation > other if rule.startswith(">") else generation == other


def _numbered(frames: list[Json]) -> bool:
    numbers = [int(update_in(frame).get("generation", 0)) for frame in frames]
    return len(numbers) > 1 and numbers == list(range(numbers[0], numbers[0] + len(numbers))) and numbers[0] > 0

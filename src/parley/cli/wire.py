"""Reading JSON that somebody else wrote: what is not there, or not of the kind, is empty."""

from typing import Any, cast

Json = dict[str, Any]


def member(value: object) -> Json:
    return cast(Json, value) if isinstance(value, dict) else {}


def members(value: object) -> list[Json]:
    found = cast(list[object], value) if isinstance(value, list) else []
    return [cast(Json, one) for one in found if isinstance(one, dict)]


def said_in(task: Json) -> list[Json]:
    """Every message of a task, the one of its status last."""
    message = member(member(task.get("status")).get("message"))
    return [*members(task.get("history")), *([message] if message else [])]


def state_of(task: Json) -> str:
    return str(member(task.get("status")).get("state", "")).removeprefix("TASK_STATE_").lower()

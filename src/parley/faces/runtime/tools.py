"""`tools/execute`: what is asked of a tool pack, and what came of it."""

from typing import Any, Literal, get_args

from msgspec import Struct

from parley.core.access import Principal
from parley.engine.tools import ToolAsk, Tools
from parley.errors import Invalid
from parley.faces.runtime.requests import Reply, Request
from parley.faces.runtime.words import Name, Object

Mode = Literal["execute", "replay"]


class ToolsAsk(Struct, frozen=True):
    tool_pack: Name
    manifest: Object
    request: Object
    mode: Mode = "execute"
    policy: Object | None = None
    run_id: Name | None = None
    thread_id: Name | None = None
    user_id: int | str | None = None


class ToolsAnswer(Struct, frozen=True):
    """`data` is the outcome with its receipt; of a replay, the decision with its hashes."""

    data: Object


class Tooling:
    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    async def execute(self, request: Request) -> Reply:
        fields = request.fields or {}
        if problems := _problems(fields):
            raise _refused(problems)
        ask = ToolAsk(
            _user(request), fields["tool_pack"], fields["manifest"], fields["request"], fields.get("policy") or {},
            fields.get("run_id"), fields.get("thread_id"), fields.get("mode") or "execute", fields.get("user_id"),
        )  # fmt: skip
        outcome = await self._tools.execute(ask)
        return Reply(200, ToolsAnswer(outcome.data))


def _problems(fields: dict[str, Any]) -> list[str]:
    """Everything that is wrong with the shape, not only the first thing."""
    problems: list[str] = []
    if not isinstance(fields.get("tool_pack"), str) or not fields["tool_pack"]:
        problems.append("tool_pack is required")
    if fields.get("mode") not in (None, *get_args(Mode)):
        problems.append("mode must be execute or replay")
    problems += [f"{name} must be an object" for name in ("manifest", "request") if not _is_object(fields.get(name))]
    if fields.get("policy") is not None and not _is_object(fields["policy"]):
        problems.append("policy must be an object when provided")
    for name in ("run_id", "thread_id"):
        if not isinstance(fields.get(name), str | None):
            problems.append(f"{name} must be a string when provided")
    return problems


def _is_object(value: object) -> bool:
    return isinstance(value, dict)


def _user(request: Request) -> Principal:
    caller = request.principal
    if caller is None or caller.kind != "user" or int(caller.name) <= 0:
        raise _refused(["x-oa-user-id header is required"])
    return caller


def _refused(problems: list[str]) -> Invalid:
    return Invalid("invalid tool invocation request", problems=problems)

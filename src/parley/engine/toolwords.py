"""A tool call as it is asked for and as it is told of, and whoever carries it out."""

import uuid
from typing import Literal, Protocol

from msgspec import Struct

from parley.core.access import Principal
from parley.core.agents import Agent
from parley.core.approvals import Approval
from parley.core.canonical import Fields, Json
from parley.core.mcp import Offer, Progressed
from parley.core.runs import Run
from parley.ids import RunId, new_id


class ToolCall(Struct, frozen=True):
    principal: Principal
    conversation: str
    agent: str
    tool: str
    """`server/tool`, or the tool's name alone where that is unique for the agent."""
    input: Fields
    timeout_ms: int | None = None
    key: str | None = None
    """The same key means the same call, in the run or else in the conversation and for the agent."""
    run: RunId | None = None
    approved: Approval | None = None
    """A person's approval, for tools that need one."""


def execution_id(call: ToolCall) -> str:
    """That of a call with a key follows from it."""
    if call.key is None:
        return new_id()
    whose = call.run or f"{call.conversation}\n{call.agent}"
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{call.principal}\n{whose}\n{call.key}"))


class Execution(Struct, frozen=True):
    id: str
    run: RunId
    tool: str
    server: str
    input: Json
    output: Json
    status: Literal["completed", "failed"]
    code: str
    message: str
    executed_at: int
    execution_time_ms: int
    metadata: Fields
    receipt: Fields


class Tooling(Protocol):
    """Who carries out tool calls: `engine.toolcalls.ToolCalls`."""

    async def offers(self, agent: Agent) -> "list[Offer]": ...

    async def execute(self, call: ToolCall, progressed: Progressed | None = None) -> Execution: ...

    async def read(self, principal: Principal, conversation: str, execution_id: str) -> Execution | None: ...

    async def list(
        self, principal: Principal, conversation: str, tool: str | None = None, limit: int = 50, offset: int = 0
    ) -> "tuple[list[Execution], int]": ...

    async def forget(self, principal: Principal, conversation: str) -> int: ...

    async def forget_steps(self, run: Run) -> None: ...

"""Table of the 33 actions (002: plans, deliverables, conversations, tools, orchestrations), and calls of them.
Validation, routing, the check of capabilities, the OpenAPI document and the TypeScript types are derived from it."""

from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeVar, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from parley.documents.rules import Kind
from parley.documents.service import DocumentRequest
from parley.faces.actions import params as asked
from parley.faces.actions import results as answered
from parley.runs.log import Outcome
from parley.runs.rules.access import Principal
from parley.runs.rules.state import Run

Mode = Literal["converse", "plan", "build", "tool", "orchestrate"]
MODES: tuple[Mode, ...] = get_args(Mode)

Code = Literal[
    "INVALID_MODE", "INVALID_ACTION", "MISSING_REQUIRED_PARAM", "CAPABILITY_NOT_FOUND", "PLAN_NOT_FOUND",
    "DELIVERABLE_NOT_FOUND", "VERSION_NOT_FOUND", "CONVERSATION_NOT_FOUND", "LLM_EXECUTION_FAILED",
    "TOOL_EXECUTION_FAILED", "DATABASE_ERROR", "AGENT_NOT_FOUND", "TOOL_NOT_FOUND", "EXECUTION_NOT_FOUND",
    "ORCHESTRATION_NOT_FOUND", "STEP_NOT_FOUND", "UNAUTHORIZED", "INVALID_STATE", "INVALID_REQUEST", "FORBIDDEN",
    "NOT_FOUND", "TASK_NOT_FOUND", "METHOD_NOT_ALLOWED", "STALE_CURSOR", "PAYLOAD_TOO_LARGE", "UNSUPPORTED_MEDIA_TYPE",
    "TASK_CANCELED", "TASK_REJECTED", "INTERNAL_ERROR", "RATE_LIMITED", "UNAVAILABLE", "STALE_VERSION",
]  # fmt: skip
STATUSES: dict[Code, int] = {
    "INVALID_MODE": 400,
    "INVALID_ACTION": 400,
    "MISSING_REQUIRED_PARAM": 400,
    "INVALID_REQUEST": 400,
    "UNAUTHORIZED": 401,
    "CAPABILITY_NOT_FOUND": 403,
    "FORBIDDEN": 403,
    "PLAN_NOT_FOUND": 404,
    "DELIVERABLE_NOT_FOUND": 404,
    "VERSION_NOT_FOUND": 404,
    "CONVERSATION_NOT_FOUND": 404,
    "AGENT_NOT_FOUND": 404,
    "TOOL_NOT_FOUND": 404,
    "EXECUTION_NOT_FOUND": 404,
    "ORCHESTRATION_NOT_FOUND": 404,
    "STEP_NOT_FOUND": 404,
    "TASK_NOT_FOUND": 404,
    "NOT_FOUND": 404,
    "METHOD_NOT_ALLOWED": 405,
    "INVALID_STATE": 409,
    "TASK_CANCELED": 409,
    "TASK_REJECTED": 409,
    "STALE_VERSION": 409,
    "STALE_CURSOR": 410,
    "PAYLOAD_TOO_LARGE": 413,
    "UNSUPPORTED_MEDIA_TYPE": 415,
    "RATE_LIMITED": 429,
    "LLM_EXECUTION_FAILED": 500,
    "TOOL_EXECUTION_FAILED": 500,
    "DATABASE_ERROR": 500,
    "INTERNAL_ERROR": 500,
    "UNAVAILABLE": 503,
}
"""HTTP status of each code: the codes of the contract, and codes that it needs and does not name."""

COMMON: tuple[Code, ...] = (
    "INVALID_REQUEST", "INVALID_MODE", "INVALID_ACTION", "MISSING_REQUIRED_PARAM", "UNAUTHORIZED", "FORBIDDEN",
    "CONVERSATION_NOT_FOUND", "AGENT_NOT_FOUND", "CAPABILITY_NOT_FOUND", "INVALID_STATE", "PAYLOAD_TOO_LARGE",
    "UNSUPPORTED_MEDIA_TYPE", "RATE_LIMITED", "DATABASE_ERROR", "INTERNAL_ERROR", "UNAVAILABLE",
)  # fmt: skip
"""Errors that any action can have; INVALID_STATE when an idempotency key was used with another request."""

_MODEL: tuple[Code, ...] = ("LLM_EXECUTION_FAILED", "TASK_CANCELED", "TASK_REJECTED")


class Action(Struct, frozen=True):
    """One row of the table. A request with `params` is answered with `result`, or with one of `errors` or COMMON."""

    mode: Mode
    name: str
    capability: str
    params: type[asked.Params]
    result: type[Struct]
    errors: tuple[Code, ...] = ()
    model: bool = False
    """True if the agent does the work; else the exchange does it by itself."""
    changes: bool = True
    """True if it changes something and needs the permission to send; else the permission to read is enough."""
    absent: bool = False
    """True if the result can be null."""
    begins: bool = False
    """True if it creates the conversation when there is none; else the conversation must exist."""

    @property
    def kind(self) -> Kind:
        """Kind of document of the mode; meaningful only for `plan` and `build`."""
        return "plan" if self.mode == "plan" else "deliverable"


def _documents(mode: Literal["plan", "build"]) -> tuple[Action, ...]:
    """Return the nine actions that plans and deliverables share."""
    plan = mode == "plan"
    noun = "plan" if plan else "deliverable"
    gone: Code = "PLAN_NOT_FOUND" if plan else "DELIVERABLE_NOT_FOUND"
    no_version: tuple[Code, ...] = (gone, "VERSION_NOT_FOUND")
    create, created = (
        (asked.CreatePlan, answered.PlanCreated) if plan else (asked.CreateDeliverable, answered.DeliverableCreated)
    )
    return (
        Action(
            mode, "create", f"create_{noun}", create, created,
            (
                *_MODEL, "STALE_VERSION", "TASK_NOT_FOUND",
                *(() if plan else ("PLAN_NOT_FOUND", "VERSION_NOT_FOUND")),
            ), model=True, begins=True,
        ),
        Action(
            mode, "read", f"read_{noun}", asked.ReadDocument,
            answered.PlanRead if plan else answered.DeliverableRead, ("VERSION_NOT_FOUND",), changes=False, absent=True,
        ),
        Action(
            mode, "list", f"list_{noun}_versions", asked.ListVersions,
            answered.PlanVersions if plan else answered.DeliverableVersions, (gone,), changes=False,
        ),
        Action(mode, "edit", f"edit_{noun}", asked.EditDocument, answered.VersionMade, (gone, "STALE_VERSION")),
        Action(
            mode, "set_current", f"set_current_{noun}_version", asked.SetCurrent,
            answered.PlanPointed if plan else answered.DeliverablePointed, no_version,
        ),
        Action(
            mode, "delete_version", f"delete_{noun}_version", asked.DeleteVersion, answered.VersionDeleted, no_version
        ),
        Action(
            mode, "merge_versions", f"merge_{noun}_versions", asked.MergeVersions, answered.VersionMade,
            (*no_version, *_MODEL), model=True,
        ),
        Action(mode, "copy_version", f"copy_{noun}_version", asked.CopyVersion, answered.VersionMade, no_version),
        Action(
            mode, "delete", f"delete_{noun}", asked.DeleteAll,
            answered.PlanDeleted if plan else answered.DeliverableDeleted, (gone,),
        ),
    )  # fmt: skip


_NO_EXECUTION: tuple[Code, ...] = ("EXECUTION_NOT_FOUND",)
_NO_ORCHESTRATION: tuple[Code, ...] = ("ORCHESTRATION_NOT_FOUND",)

_RERUN = Action(
    "build", "rerun", "rerun_deliverable", asked.RerunDeliverable, answered.VersionMade,
    ("DELIVERABLE_NOT_FOUND", "VERSION_NOT_FOUND", *_MODEL), model=True,
)  # fmt: skip

ACTIONS: tuple[Action, ...] = (
    *_documents("plan"),
    *_documents("build"),
    _RERUN,
    Action(
        "converse", "read_conversation", "read_conversation", asked.ReadConversation, answered.ConversationRead,
        changes=False,
    ),
    Action(
        "converse", "delete_conversation", "delete_conversation", asked.DeleteConversation, answered.ConversationDeleted
    ),
    Action(
        "converse", "export_conversation", "export_conversation", asked.ExportConversation,
        answered.ConversationExported, changes=False,
    ),
    Action(
        "tool", "execute", "execute_tool", asked.ExecuteTool, answered.ToolExecuted,
        ("TOOL_NOT_FOUND", "TOOL_EXECUTION_FAILED", "TASK_CANCELED"), absent=True, begins=True,
    ),
    Action(
        "tool", "read", "read_tool_result", asked.ReadExecution, answered.ExecutionRead, _NO_EXECUTION, changes=False
    ),
    Action("tool", "list", "list_tool_executions", asked.ListExecutions, answered.Executions, changes=False),
    Action(
        "orchestrate", "create", "create_orchestration", asked.CreateOrchestration, answered.OrchestrationRead, _MODEL,
        model=True, begins=True,
    ),
    Action(
        "orchestrate", "read", "read_orchestration", asked.OneOrchestration, answered.OrchestrationRead,
        _NO_ORCHESTRATION, changes=False,
    ),
    Action(
        "orchestrate", "list", "list_orchestration_runs", asked.ListOrchestrations, answered.Orchestrations,
        changes=False,
    ),
    Action(
        "orchestrate", "pause", "pause_orchestration", asked.OneOrchestration, answered.OrchestrationPaused,
        _NO_ORCHESTRATION,
    ),
    Action(
        "orchestrate", "resume", "resume_orchestration", asked.ResumeOrchestration, answered.OrchestrationResumed,
        (*_NO_ORCHESTRATION, "STEP_NOT_FOUND"),
    ),
    Action(
        "orchestrate", "cancel", "cancel_orchestration", asked.CancelOrchestration, answered.OrchestrationCancelled,
        _NO_ORCHESTRATION,
    ),
    Action(
        "orchestrate", "retry_step", "retry_orchestration_step", asked.RetryStep, answered.RetryStarted,
        (*_NO_ORCHESTRATION, "STEP_NOT_FOUND"),
    ),
    Action(
        "orchestrate", "delete", "delete_orchestration", asked.DeleteOrchestration, answered.OrchestrationDeleted,
        _NO_ORCHESTRATION,
    ),
)  # fmt: skip

BY_NAME: dict[tuple[str, str], Action] = {(action.mode, action.name): action for action in ACTIONS}


# One call of an action, and the handlers that each mode provides for its actions.

P = TypeVar("P", bound=asked.Params)

Row = tuple[str, str]
"""A mode and an action: a row of the table."""


class ActionCall(Struct, frozen=True):
    """A valid request for an action."""

    principal: Principal
    conversation: str
    action: Action
    params: asked.Params
    key: str | None = None
    at: int = 0
    """Time at which the request arrived (Unix milliseconds)."""

    @property
    def request(self) -> DocumentRequest:
        """The request in the form that services take. An idempotency key covers all parameters except the client's
        metadata."""
        body = msgspec.json.encode(replace(self.params, metadata=None)) if self.key is not None else b""
        action = self.action
        return DocumentRequest(
            self.principal,
            self.conversation,
            self.params.agent_slug,
            action.mode,
            action.name,
            self.key,
            body,
            at=self.at,
        )

    def read(self, type_: type[P]) -> P:
        """Return the parameters; the row of the action guarantees their type."""
        assert isinstance(self.params, type_)
        return self.params


class ActionResult(Struct, frozen=True):
    """The result of an action that made no run."""

    result: object


class ActionHandlers(Struct, frozen=True):
    """Handlers of one action. An action that makes no runs needs only the first."""

    perform: Callable[[ActionCall], Awaitable[ActionResult | Outcome]]
    result: Callable[[Run, bytes], Awaitable[object]] | None = None
    """Returns the result of a completed run from the data that it recorded (empty if none)."""
    fault: Callable[[Run], Awaitable[dict[str, Any]]] | None = None
    """Returns details of a failed run beyond those in its log."""

"""The 33 actions of contract 002 as one table. Validation, routing, the check of capabilities, the OpenAPI document and
the TypeScript types come from it."""

from typing import Literal, get_args

from msgspec import Struct

from parley.core import params as asked
from parley.core import results as answered
from parley.core.agents import Agent
from parley.core.documents import Kind

Mode = Literal["converse", "plan", "build", "tool", "orchestrate"]
MODES: tuple[Mode, ...] = get_args(Mode)

Code = Literal[
    "INVALID_MODE", "INVALID_ACTION", "MISSING_REQUIRED_PARAM", "CAPABILITY_NOT_FOUND", "PLAN_NOT_FOUND",
    "DELIVERABLE_NOT_FOUND", "VERSION_NOT_FOUND", "CONVERSATION_NOT_FOUND", "LLM_EXECUTION_FAILED",
    "TOOL_EXECUTION_FAILED", "DATABASE_ERROR", "AGENT_NOT_FOUND", "TOOL_NOT_FOUND", "EXECUTION_NOT_FOUND",
    "ORCHESTRATION_NOT_FOUND", "STEP_NOT_FOUND", "UNAUTHORIZED", "INVALID_STATE", "INVALID_REQUEST", "FORBIDDEN",
    "NOT_FOUND", "TASK_NOT_FOUND", "METHOD_NOT_ALLOWED", "STALE_CURSOR", "PAYLOAD_TOO_LARGE", "UNSUPPORTED_MEDIA_TYPE",
    "TASK_CANCELED", "TASK_REJECTED", "INTERNAL_ERROR", "RATE_LIMITED", "UNAVAILABLE",
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
"""The HTTP status of each code; those of the contract, and those that it needs and does not name."""

COMMON: tuple[Code, ...] = (
    "INVALID_REQUEST", "INVALID_MODE", "INVALID_ACTION", "MISSING_REQUIRED_PARAM", "UNAUTHORIZED", "FORBIDDEN",
    "CONVERSATION_NOT_FOUND", "AGENT_NOT_FOUND", "CAPABILITY_NOT_FOUND", "INVALID_STATE", "PAYLOAD_TOO_LARGE",
    "UNSUPPORTED_MEDIA_TYPE", "RATE_LIMITED", "DATABASE_ERROR", "INTERNAL_ERROR", "UNAVAILABLE",
)  # fmt: skip
"""What can become of any action: INVALID_STATE when an idempotency key was used with another request."""

_MODEL: tuple[Code, ...] = ("LLM_EXECUTION_FAILED", "TASK_CANCELED", "TASK_REJECTED")


class Action(Struct, frozen=True):
    """One row: what is asked with `params` is answered with `result`, or with one of `errors` or COMMON."""

    mode: Mode
    name: str
    capability: str
    params: type[asked.Params]
    result: type[Struct]
    errors: tuple[Code, ...] = ()
    model: bool = False
    """Whether the agent works on it; else the exchange does it by itself."""
    changes: bool = True
    """Whether it changes something, so that it needs the right to send; else that to read is enough."""
    absent: bool = False
    """Whether the result can be null."""
    begins: bool = False
    """Whether it begins a conversation that nobody has begun yet; else there must be one."""

    @property
    def kind(self) -> Kind:
        """What the mode is about; meaningful for `plan` and `build`."""
        return "plan" if self.mode == "plan" else "deliverable"


def _documents(mode: Literal["plan", "build"]) -> tuple[Action, ...]:
    """The nine actions that a plan and a deliverable share."""
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
            _MODEL if plan else (*_MODEL, "PLAN_NOT_FOUND", "VERSION_NOT_FOUND"), model=True, begins=True,
        ),
        Action(
            mode, "read", f"read_{noun}", asked.ReadDocument,
            answered.PlanRead if plan else answered.DeliverableRead, ("VERSION_NOT_FOUND",), changes=False, absent=True,
        ),
        Action(
            mode, "list", f"list_{noun}_versions", asked.ListVersions,
            answered.PlanVersions if plan else answered.DeliverableVersions, (gone,), changes=False,
        ),
        Action(mode, "edit", f"edit_{noun}", asked.EditDocument, answered.VersionMade, (gone,)),
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
        "orchestrate", "resume", "resume_orchestration", asked.OneOrchestration, answered.OrchestrationResumed,
        _NO_ORCHESTRATION,
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


def capable(agent: Agent, action: Action) -> bool:
    """An agent that lists no capabilities can do everything; `plan.create`, `plan.*` and `*` are understood too."""
    listed = agent.capabilities
    return not listed or not _names(action).isdisjoint(listed)


def _names(action: Action) -> frozenset[str]:
    return frozenset((action.capability, f"{action.mode}.{action.name}", f"{action.mode}.*", "*"))

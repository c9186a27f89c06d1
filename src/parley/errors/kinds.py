"""The root of the tree, and what a server refuses."""


class ParleyError(Exception):
    """Base of everything Parley refuses on purpose."""

    code = "internal"

    def __init__(self, message: str, **details: object) -> None:
        super().__init__(message)
        self.message = message
        self.details = details


class Invalid(ParleyError):
    """The request cannot be understood as it is."""

    code = "invalid_input"


class InvalidJson(Invalid):
    code = "invalid_json"


class InvalidCursor(Invalid):
    """A cursor that is not a whole number of zero or more."""

    code = "invalid_cursor"


class CursorBeyondEnd(Invalid):
    """A cursor after the last event: it belongs to another run or another log."""

    code = "cursor_beyond_end"


class StaleCursor(ParleyError):
    """The events after this cursor are no longer kept; `details['floor']` says from where they are."""

    code = "stale_cursor"


class PayloadTooLarge(Invalid):
    code = "payload_too_large"


class NestedTooDeep(Invalid):
    """JSON is nested deeper than any place that reads it again could follow."""

    code = "nested_too_deep"


class InvalidArtifact(Invalid):
    """An artifact that a runtime wants to write has a name that is none, or lacks something."""

    code = "invalid_artifact"


class DefinitionInvalid(Invalid):
    """The definition of an agent cannot be served as it is."""

    code = "definition_invalid"


class PlanInvalid(Invalid):
    """The steps of an orchestration cannot be carried out as they are planned."""

    code = "plan_invalid"


class NotFound(ParleyError):
    code = "not_found"


class RunNotFound(NotFound):
    code = "run_not_found"


class ConversationNotFound(NotFound):
    """Nobody has begun this conversation, or it was deleted, or it is somebody else's."""

    code = "conversation_not_found"


class ExportNotFound(NotFound):
    """An export that is not there, or no longer: it expired, or its conversation was deleted."""

    code = "export_not_found"


class DocumentNotFound(NotFound):
    """The conversation has no plan, or no deliverable."""

    code = "document_not_found"


class DocumentVersionNotFound(NotFound):
    """The document has no such version."""

    code = "document_version_not_found"


class AgentNotFound(NotFound):
    code = "agent_not_found"


class OrchestrationNotFound(NotFound):
    code = "orchestration_not_found"


class StepNotFound(NotFound):
    code = "step_not_found"


class Unauthenticated(ParleyError):
    """Who asks is not known: no credential, or one that does not hold. The message never repeats it."""

    code = "unauthenticated"


class CredentialTooLong(Invalid):
    """A credential is too long for the cookie of a browser's session."""

    code = "credential_too_long"


class CookieTooLarge(Invalid):
    """The Cookie header of a request to the console is over its limit."""

    code = "cookie_too_large"


class Forbidden(ParleyError):
    """Who asks is known, and may not do this."""

    code = "permission_denied"


class ApprovalRequired(Forbidden):
    """A person has to approve this tool call first, or approved another one than this."""

    code = "approval_required"


class ModelNotAllowed(Forbidden):
    """The agent's definition does not let callers choose this model."""

    code = "model_not_allowed"


class TokenLimitExceeded(Forbidden):
    """More tokens are asked for than the agent's definition allows; `details['limit']` says how many it does."""

    code = "token_limit_exceeded"


class ForgedRequest(Forbidden):
    """A form did not come from a page of the console that this browser was given."""

    code = "forged_request"


class DefinitionForbidden(Forbidden):
    """What a definition names belongs to this machine, and its author is somewhere else."""

    code = "definition_forbidden"


class LinkRefused(Forbidden):
    """A link that this server has not signed, or not like this."""

    code = "link_refused"


class LinkExpired(Forbidden):
    """The link was good once."""

    code = "link_expired"


class RuntimeRevoked(Unauthenticated):
    """The runtime was known, and another one has taken its place, or the operator has revoked it."""

    code = "runtime_revoked"


class InvalidPairingToken(Unauthenticated):
    """Unknown, expired, used, or issued by another server: which one is nobody's business."""

    code = "invalid_pairing_token"


class RateLimited(ParleyError):
    """Too much was asked for, or too often; `details['retry_after']` says how many seconds to wait."""

    code = "rate_limited"


class TooManyUnfinished(RateLimited):
    """The principal has as many unfinished runs as it may have."""

    code = "too_many_unfinished"


class Stopping(ParleyError):
    """This process is about to end and takes nothing more; another one will, or the next. `details['retry_after']`."""

    code = "stopping"


class SignatureRefused(Unauthenticated):
    """A signed request whose token does not hold; in the words of contract 003."""

    code = "signature_refused"


class ClaimMismatch(Forbidden):
    """A signed request that carries what its token does not claim."""

    code = "claim_mismatch"


class ContextMismatch(Forbidden):
    """A request speaks for somebody else than who asks, or of a run or a conversation that is not theirs."""

    code = "context_mismatch"


class IssuerUnavailable(ParleyError):
    """The issuer's keys cannot be fetched, so its tokens can be neither trusted nor refused."""

    code = "issuer_unavailable"


class Conflict(ParleyError):
    """It does not fit to how things stand."""

    code = "conflict"


class ConversationBusy(Conflict):
    """A task of the conversation was told to stop and has not stopped yet; try again."""

    code = "conversation_busy"


class InvalidState(Conflict):
    """What is asked for cannot be done as things stand; `details['state']` says how."""

    code = "invalid_state"


class NameTaken(Conflict):
    """Names of live API keys are unique: they own what was done with them."""

    code = "name_taken"


class NotAnEdgeAgent(Conflict):
    """Only an agent whose work is done by a paired runtime can be paired with one."""

    code = "not_an_edge_agent"


class RuntimePackageMissing(NotFound):
    """The package `parley-edge` is not installed beside the server, so the server cannot hand it out."""

    code = "runtime_package_missing"


class TaskRunEnded(Conflict):
    """A runtime reports an end, and the turn has ended otherwise."""

    code = "task_run_ended"


class VersionConflict(Conflict):
    """Somebody else appended first: reload, decide again."""

    code = "version_conflict"


class KeyTaken(Conflict):
    """The idempotency key was stored by a rival append in the meantime."""

    code = "idempotency_key_taken"


class Outdated(Conflict):
    """A document has changed since it was read: read it again, decide again."""

    code = "outdated"


class CurrentVersion(Conflict):
    """The version that holds cannot be deleted."""

    code = "current_version"


class KeyReused(Conflict):
    """Same idempotency key, other payload."""

    code = "idempotency_key_reused"


class ConversationMismatch(Invalid):
    code = "conversation_mismatch"


class Unsupported(ParleyError):
    """Understood, but not possible here or now."""

    code = "unsupported"


class CannotPlan(Unsupported):
    """The agent has neither a workflow nor a model that could make a plan."""

    code = "cannot_plan"


class PushNotSupported(Unsupported):
    code = "push_not_supported"


class NoExtendedCard(Unsupported):
    """The agent says nothing more to callers with credentials than to others."""

    code = "no_extended_card"


class ExtensionRequired(Invalid):
    """The agent can only be spoken to by clients that know one of its extensions."""

    code = "extension_required"


class ContentNotSupported(Invalid):
    """A part's media type is none that the agent reads."""

    code = "content_not_supported"


class MediaTypeNotSupported(Invalid):
    """The request itself is not JSON."""

    code = "media_type_not_supported"


class MethodNotAllowed(Invalid):
    code = "method_not_allowed"


class HookNotFound(NotFound):
    """The task has no push notification configuration of this id."""

    code = "push_config_not_found"


class OutboundRefused(Invalid):
    """An address that this server does not connect to: not a public one, and not on the operator's list.

    `details['why']` is `private_address`, `metadata_endpoint` or `invalid_url`, where it is about an address.
    """

    code = "outbound_refused"


class ReplyTooLarge(ParleyError):
    """What a remote agent answers is larger than we take."""

    code = "remote_too_large"


class ReplyCompressed(ReplyTooLarge):
    """A compressed answer, which may be of any size once it is unpacked; none was asked for."""

    code = "remote_compressed"


class UnknownToolPack(Invalid):
    """No tool pack of this name is served here."""

    code = "unknown_tool_pack"


class ManifestInvalid(Invalid):
    """A tool's manifest breaks its schema; `details['problems']` says where and how, each with its reason code."""

    code = "manifest_invalid"


class PlanningFailed(ParleyError):
    """An agent was asked for a plan, and there is none; `details['reason']` is the code of why."""

    code = "planning_failed"


class ToolRequestInvalid(Invalid):
    """A request to a tool cannot be carried out as it is; `details['problems']` says what is wrong, in sentences."""

    code = "tool_request_invalid"


class ToolNotFound(NotFound):
    """The agent may use no tool of this name, or there is none."""

    code = "tool_not_found"


class ExecutionNotFound(NotFound):
    """No tool call of this id has ended in the conversation."""

    code = "execution_not_found"


class ToolAmbiguous(Invalid):
    """Several servers have a tool of this name; `details['tools']` says how each can be named."""

    code = "tool_ambiguous"


class UnknownMethod(Invalid):
    code = "unknown_method"


class UnknownMode(Invalid):
    """Contract 002 has no such mode."""

    code = "unknown_mode"


class UnknownAction(Invalid):
    """The mode has no such action, or it is not offered here."""

    code = "unknown_action"


class ParamInvalid(Invalid):
    """A parameter of an action is missing or is not what it must be; `details['field']` says which."""

    code = "param_invalid"


class NotCapable(Forbidden):
    """The agent lists what it can do, and this is not among it."""

    code = "not_capable"


class VersionNotSupported(Invalid):
    code = "version_not_supported"


class RunEnded(Conflict):
    """A terminal run takes no input."""

    code = "run_ended"


class NotCancelable(RunEnded):
    code = "run_not_cancelable"


class LateResult(Conflict):
    """An executor reports to a run that has ended; the result is dropped and counted."""

    code = "late_result"


class LeaseLost(Conflict):
    """The executor's epoch is not the run's: another one has taken over."""

    code = "lease_lost"


class NotReady(Conflict):
    """There is nothing to begin: no unread input, or a turn is under way."""

    code = "not_ready"


class BrokenChain(ParleyError):
    """A stored event does not match the hash that was recorded for it."""

    code = "broken_chain"


class StoreUnavailable(ParleyError):
    """The store refused the write (closed, full, read-only); nothing of it was kept."""

    code = "store_unavailable"


class ExportFailed(Invalid):
    """A conversation could not be made into a file of this format."""

    code = "export_failed"


class ConfigurationError(ParleyError):
    """A setting, a definition or an option cannot be used; the message names it."""

    code = "configuration"

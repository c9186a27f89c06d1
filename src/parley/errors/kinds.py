"""The root of the tree, and the errors with which a server refuses requests."""


class ParleyError(Exception):
    """Base class of every error that Parley raises on purpose."""

    code = "internal"

    def __init__(self, message: str, **details: object) -> None:
        super().__init__(message)
        self.message = message
        self.details = details


class Invalid(ParleyError):
    """The request is not valid."""

    code = "invalid_input"


class InvalidJson(Invalid):
    code = "invalid_json"


class InvalidCursor(Invalid):
    """A cursor is not an integer of zero or more."""

    code = "invalid_cursor"


class CursorBeyondEnd(Invalid):
    """A cursor is after the last event: it belongs to another run or another log."""

    code = "cursor_beyond_end"


class StaleCursor(ParleyError):
    """The events after this cursor have been deleted; `details['floor']` is the cursor from which events are kept."""

    code = "stale_cursor"


class PayloadTooLarge(Invalid):
    code = "payload_too_large"


class TooManyParts(Invalid):
    """A message has more parts than a request may contain."""

    code = "too_many_parts"


class NestedTooDeep(Invalid):
    """JSON is nested so deeply that other parts of the server could not parse it again."""

    code = "nested_too_deep"


class AnswerInvalid(Invalid):
    """The answer to a question is not one of its choices, or does not match its schema; `details['at']` is the place of
    the mismatch in the answer, as a JSON pointer."""

    code = "answer_invalid"


class InvalidArtifact(Invalid):
    """An artifact that a runtime writes has an invalid name, or lacks a field."""

    code = "invalid_artifact"


class DefinitionInvalid(Invalid):
    """The definition of an agent is not valid."""

    code = "definition_invalid"


class PlanInvalid(Invalid):
    """The steps of an orchestration cannot be carried out as planned."""

    code = "plan_invalid"


class NotFound(ParleyError):
    code = "not_found"


class RunNotFound(NotFound):
    code = "run_not_found"


class ConversationNotFound(NotFound):
    """The conversation does not exist, was deleted, or belongs to another user."""

    code = "conversation_not_found"


class ExportNotFound(NotFound):
    """The export does not exist, has expired, or its conversation was deleted."""

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
    """The caller is not authenticated: the credential is missing or not valid. The message never repeats it."""

    code = "unauthenticated"


class SessionEnded(Unauthenticated):
    """A session of the console has ended: it expired, was not used for too long, or was revoked."""

    code = "session_ended"


class SignInExpired(Unauthenticated):
    """A sign-in took too long, was started in another browser, or was completed before."""

    code = "sign_in_expired"


class SignInRefused(Unauthenticated):
    """The identity provider refused a sign-in, or its answer is not valid."""

    code = "sign_in_refused"


class CredentialTooLong(Invalid):
    """A credential is too long for the cookie of a browser session."""

    code = "credential_too_long"


class CookieTooLarge(Invalid):
    """The Cookie header of a request to the console exceeds its limit."""

    code = "cookie_too_large"


class Forbidden(ParleyError):
    """The caller is authenticated, but may not do this."""

    code = "permission_denied"


class WorkStopped(Forbidden):
    """The work of the principal, of one of its groups, or of the agent was stopped; `details['limit']` says which."""

    code = "work_stopped"


class ApprovalRequired(Forbidden):
    """A person must approve this tool call first, or approved a different call."""

    code = "approval_required"


class ModelNotAllowed(Forbidden):
    """The agent's definition does not allow callers to choose this model."""

    code = "model_not_allowed"


class TokenLimitExceeded(Forbidden):
    """The request asks for more tokens than the agent's definition allows; `details['limit']` is the limit."""

    code = "token_limit_exceeded"


class NoRole(Forbidden):
    """A user has signed in, but has no role on this server."""

    code = "no_role"


class ForgedRequest(Forbidden):
    """A form was not sent from a page of the console that this browser received."""

    code = "forged_request"


class DefinitionForbidden(Forbidden):
    """A definition names programs, files or secrets of this machine, but its author is not on this machine."""

    code = "definition_forbidden"


class LinkRefused(Forbidden):
    """The server did not sign this link, or the link was changed."""

    code = "link_refused"


class LinkExpired(Forbidden):
    """The link has expired."""

    code = "link_expired"


class RuntimeRevoked(Unauthenticated):
    """The runtime was replaced by a newer pairing, or revoked by the operator."""

    code = "runtime_revoked"


class InvalidPairingToken(Unauthenticated):
    """The pairing code is unknown, expired, used, or issued by another server. Callers do not learn which."""

    code = "invalid_pairing_token"


class RateLimited(ParleyError):
    """The caller sent too many requests, or asked for too much; `details['retry_after']` is the seconds to wait."""

    code = "rate_limited"


class TooManyUnfinished(RateLimited):
    """The principal has reached its limit of unfinished runs."""

    code = "too_many_unfinished"


class BudgetExceeded(RateLimited):
    """A budget is used up; the details are `limit`, `subject`, `spent`, `allowed`, and for a budget of a day or a month
    `resets_at`. Costs are in USD."""

    code = "budget_exceeded"


class TreeTooLarge(Forbidden):
    """A run may not start another one, because its tree of runs would be too deep or too large; the details are
    `limit`, `subject` and `allowed`."""

    code = "tree_too_large"


class Stopping(ParleyError):
    """This process is about to stop and accepts no more work. Retry after `details['retry_after']` seconds: another
    process answers then."""

    code = "stopping"


class SignatureRefused(Unauthenticated):
    """The token of a signed request is not valid; the runtime control plane (003) defines the message texts."""

    code = "signature_refused"


class ClaimMismatch(Forbidden):
    """A signed request contains a value that its token does not claim."""

    code = "claim_mismatch"


class ContextMismatch(Forbidden):
    """A request names another user than its caller, or a run or conversation that is not the caller's."""

    code = "context_mismatch"


class IssuerUnavailable(ParleyError):
    """The issuer's keys cannot be fetched, so its tokens can be neither accepted nor rejected."""

    code = "issuer_unavailable"


class Conflict(ParleyError):
    """The request conflicts with the current state."""

    code = "conflict"


class ConversationBusy(Conflict):
    """A task of the conversation was asked to stop and has not stopped yet; retry."""

    code = "conversation_busy"


class InvalidState(Conflict):
    """The operation is not possible in the current state; `details['state']` is that state."""

    code = "invalid_state"


class NameTaken(Conflict):
    """Another active API key has this name. Names must be unique, because runs belong to the name of their key."""

    code = "name_taken"


class NotAnEdgeAgent(Conflict):
    """The agent cannot be paired: only agents whose work is done by a paired runtime can."""

    code = "not_an_edge_agent"


class RuntimePackageMissing(NotFound):
    """The package `parley-edge` is not installed on the server, so the server cannot offer it for download."""

    code = "runtime_package_missing"


class TaskRunEnded(Conflict):
    """A runtime reports the end of a turn that has already ended differently."""

    code = "task_run_ended"


class VersionConflict(Conflict):
    """Another writer appended first: reload and decide again."""

    code = "version_conflict"


class KeyTaken(Conflict):
    """A concurrent append stored the same idempotency key first."""

    code = "idempotency_key_taken"


class Outdated(Conflict):
    """A document has changed since it was read: read it again and decide again."""

    code = "outdated"


class StaleVersion(Conflict):
    """The version that the writer expects to be current is not the current one: read the document and decide again."""

    code = "stale_version"


class CurrentVersion(Conflict):
    """The current version of a document cannot be deleted."""

    code = "current_version"


class KeyReused(Conflict):
    """The idempotency key was used before with a different payload."""

    code = "idempotency_key_reused"


class GenerationMismatch(Conflict):
    """The task does not have the generation that the sender expects: read the task again and decide anew."""

    code = "generation_mismatch"


class ConversationMismatch(Invalid):
    code = "conversation_mismatch"


class Unsupported(ParleyError):
    """The request is valid, but not possible here or now."""

    code = "unsupported"


class CannotPlan(Unsupported):
    """The agent has neither a workflow nor a model that could create a plan."""

    code = "cannot_plan"


class PushNotSupported(Unsupported):
    code = "push_not_supported"


class NoExtendedCard(Unsupported):
    """The agent's extended card contains nothing more than its public card."""

    code = "no_extended_card"


class ExtensionRequired(Invalid):
    """The agent requires an extension that the client did not name."""

    code = "extension_required"


class ContentNotSupported(Invalid):
    """The agent does not read the media type of a part."""

    code = "content_not_supported"


class MediaTypeNotSupported(Invalid):
    """The body of the request is not JSON."""

    code = "media_type_not_supported"


class MethodNotAllowed(Invalid):
    code = "method_not_allowed"


class HookNotFound(NotFound):
    """The task has no push notification configuration with this id."""

    code = "push_config_not_found"


class OutboundRefused(Invalid):
    """The server does not connect to this address: it is not public, and not in the operator's list.

    `details['why']` is `private_address`, `metadata_endpoint` or `invalid_url`, if the error is about an address.
    """

    code = "outbound_refused"


class ReplyTooLarge(ParleyError):
    """The response of a remote agent is larger than the limit."""

    code = "remote_too_large"


class ReplyCompressed(ReplyTooLarge):
    """The response is compressed although the request did not allow it; unpacked, it could have any size."""

    code = "remote_compressed"


class UnknownToolPack(Invalid):
    """This server has no tool pack with this name."""

    code = "unknown_tool_pack"


class ManifestInvalid(Invalid):
    """A tool's manifest does not match its schema; `details['problems']` lists each place with a reason code."""

    code = "manifest_invalid"


class PlanningFailed(ParleyError):
    """An agent was asked for a plan and did not create one; `details['reason']` is the code of the reason."""

    code = "planning_failed"


class ToolRequestInvalid(Invalid):
    """A request to a tool cannot be carried out; `details['problems']` lists the reasons as sentences."""

    code = "tool_request_invalid"


class ToolNotFound(NotFound):
    """The tool does not exist, or the agent may not use it."""

    code = "tool_not_found"


class ExecutionNotFound(NotFound):
    """The conversation has no finished tool call with this id."""

    code = "execution_not_found"


class ToolAmbiguous(Invalid):
    """Several servers have a tool with this name; `details['tools']` lists the full name of each."""

    code = "tool_ambiguous"


class UnknownMethod(Invalid):
    code = "unknown_method"


class UnknownMode(Invalid):
    """The actions contract (002) has no such mode."""

    code = "unknown_mode"


class UnknownAction(Invalid):
    """The mode has no such action, or this server does not offer it."""

    code = "unknown_action"


class ParamInvalid(Invalid):
    """A parameter of an action is missing or not valid; `details['field']` is its name."""

    code = "param_invalid"


class NotCapable(Forbidden):
    """The agent lists its capabilities, and this is not one of them."""

    code = "not_capable"


class VersionNotSupported(Invalid):
    code = "version_not_supported"


class RunEnded(Conflict):
    """The run has ended and accepts no input."""

    code = "run_ended"


class NotCancelable(RunEnded):
    code = "run_not_cancelable"


class LateResult(Conflict):
    """An executor reports to a run that has ended; the result is dropped and counted."""

    code = "late_result"


class LeaseLost(Conflict):
    """The executor's epoch is not the current epoch of the run: another executor has taken over."""

    code = "lease_lost"


class NotReady(Conflict):
    """No turn can begin: there is no unread input, or a turn is already running."""

    code = "not_ready"


class BrokenChain(ParleyError):
    """A stored event does not match the hash that was recorded for it."""

    code = "broken_chain"


class StoreUnavailable(ParleyError):
    """The store refused the write (closed, full, read-only); nothing of it was stored."""

    code = "store_unavailable"


class ExportFailed(Invalid):
    """A conversation could not be exported in this format."""

    code = "export_failed"


class ConfigurationError(ParleyError):
    """A setting, a definition or an option is not valid; the message names it."""

    code = "configuration"


class WorkersNeedPostgres(ConfigurationError):
    """Several workers were asked for on a store that only one process can use."""

    code = "workers_need_postgres"

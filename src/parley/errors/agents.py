"""Errors of agents and nodes: a turn that failed, or a node that cannot be called."""

from parley.errors.kinds import Conflict, Forbidden, Invalid, NotFound, ParleyError


class AgentError(ParleyError):
    """Raised by an agent's author; the message is shown to the caller."""

    code = "agent_error"


class StepFailed(AgentError):
    """A durable step failed, also after its retries."""

    code = "step_failed"


class RecordedFailure(AgentError):
    """A durable step failed with an error of the agent's author, whose code it keeps."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class StepNotStorable(AgentError):
    """The result of a durable step cannot be stored as JSON."""

    code = "step_not_storable"


class StepOrderChanged(AgentError):
    """A resumed turn runs other steps than before it was interrupted."""

    code = "step_order_changed"


class StepOutsideTurn(AgentError):
    """A durable step was started when no turn was running."""

    code = "step_outside_turn"


class OutputInvalid(AgentError):
    """The agent gave a value that does not fit the output it declares, or ended without one."""

    code = "output_invalid"


class ModelError(AgentError):
    """A language model refused, or returned something that is not an answer. The vendor's message is only logged."""

    code = "model_error"


class ModelNotSetUp(ModelError):
    """The vendor rejects the key, or no key is set, or the vendor has no such model; the operator must fix this."""

    code = "model_not_set_up"


class ModelUnavailable(ModelError):
    """The vendor has rate limits, overload or faults, or cannot be reached, also after several retries."""

    code = "model_unavailable"


class ModelInterrupted(ModelError):
    """The connection broke in the middle of an answer; the part that had arrived is kept."""

    code = "model_interrupted"


class TooManyRounds(AgentError):
    """A model requests tool calls again and again without giving an answer."""

    code = "too_many_rounds"


class CommandFailed(AgentError):
    """The program ended with an exit code other than 0, or could not be started."""

    code = "command_failed"


class CommandOutput(AgentError):
    """The program wrote more than the limit allows, or something that is not an output of a turn."""

    code = "command_output"


class CommandRefused(AgentError):
    """A workflow's command must not run: it is a shell, contains code from a message, or its program does not exist."""

    code = "command_refused"


class OutsideRoots(AgentError):
    """A path is outside the folders that an organisation may use, or a link leads outside them."""

    code = "outside_roots"


# Errors between a caller and a node.


class NodeNotFound(NotFound):
    code = "node_not_found"


class NodeRemoved(ParleyError):
    """The node was removed and has no successor; `details['last_event']` is its last event."""

    code = "node_removed"


class NodeUnavailable(ParleyError):
    """The node exists but cannot be called; `details['status']` is its status."""

    code = "node_unavailable"


class AccessDenied(Forbidden):
    """The hierarchy does not allow one node to call another."""

    code = "access_denied"


class NodeHasChildren(Conflict):
    """A node that has children can only be removed together with them."""

    code = "node_has_children"


class InvalidCaller(Forbidden):
    """The caller uses a name that only this server itself may use."""

    code = "invalid_caller"


class NodeOverBudget(ParleyError):
    """The node has spent its budget for this month."""

    code = "node_over_budget"


class NodeNotRoutable(ParleyError):
    """The server does not connect to the address of the node."""

    code = "node_not_routable"


class NodeUnreachable(ParleyError):
    """The address of the node does not answer, or answers with something unusable; `details['task_id']` is the run with
    more information."""

    code = "node_unreachable"


class NodeTimedOut(ParleyError):
    """The node accepted the request but did not answer in time; `details['task_id']` is the run with more details."""

    code = "node_timed_out"


class CallQueued(ParleyError):
    """The node has no free capacity: the call is queued and runs later; `details` describe its place in the queue."""

    code = "call_queued"


class SelfDelegation(Invalid):
    """A node delegates to itself."""

    code = "self_delegation"

"""What stands between a caller and a node."""

from parley.errors.kinds import Conflict, Forbidden, Invalid, NotFound, ParleyError


class NodeNotFound(NotFound):
    code = "node_not_found"


class NodeRemoved(ParleyError):
    """The node was there, and has no successor; `details['last_event']` says what happened to it last."""

    code = "node_removed"


class NodeUnavailable(ParleyError):
    """The node exists and cannot be called; `details['status']` says how it stands."""

    code = "node_unavailable"


class AccessDenied(Forbidden):
    """The hierarchy does not let one node talk to another."""

    code = "access_denied"


class NodeHasChildren(Conflict):
    """A node that others belong to is removed only with them."""

    code = "node_has_children"


class InvalidCaller(Forbidden):
    """Who calls a node names itself as only this server itself may."""

    code = "invalid_caller"


class NodeOverBudget(ParleyError):
    """The node has spent what it may spend this month."""

    code = "node_over_budget"


class NodeNotRoutable(ParleyError):
    """The address of the node is none that this server connects to."""

    code = "node_not_routable"


class NodeUnreachable(ParleyError):
    """Nobody answers at the address of the node, or what answers is of no use; `details['task_id']` is the run that
    says more."""

    code = "node_unreachable"


class NodeTimedOut(ParleyError):
    """The node took the request and said nothing in time; `details['task_id']` is the run that says more."""

    code = "node_timed_out"


class CallQueued(ParleyError):
    """The node has no room at the moment: the call waits, and is carried out later; `details` say where it stands."""

    code = "call_queued"


class SelfDelegation(Invalid):
    """A node hands something to itself."""

    code = "self_delegation"

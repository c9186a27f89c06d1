"""What becomes of a turn that an agent, its model or its program did not survive."""

from parley.errors.kinds import ParleyError


class AgentError(ParleyError):
    """Raised by an agent's author: the message is meant for the one who asked."""

    code = "agent_error"


class ModelError(AgentError):
    """A language model refused, or said something that is no answer. What its vendor said is in the log only."""

    code = "model_error"


class ModelNotSetUp(ModelError):
    """The vendor does not take the key, or there is none, or it has no such model: for the operator to mend."""

    code = "model_not_set_up"


class ModelUnavailable(ModelError):
    """Rate limits, overload, faults of the vendor, nobody there; asked several times."""

    code = "model_unavailable"


class ModelInterrupted(ModelError):
    """The connection broke in the middle of an answer; what had come is kept."""

    code = "model_interrupted"


class TooManyRounds(AgentError):
    """A model wants tools called again and again, and comes to no answer."""

    code = "too_many_rounds"


class CommandFailed(AgentError):
    """The program ended with an exit code other than 0, or could not be started."""

    code = "command_failed"


class CommandOutput(AgentError):
    """The program wrote more than it may, or what is not in the vocabulary of a turn."""

    code = "command_output"


class CommandRefused(AgentError):
    """A workflow's command that is not run: a shell, code out of a message, a program that is not there."""

    code = "command_refused"


class OutsideRoots(AgentError):
    """A path outside the folders that an organisation may touch, or one that a link leads out of them."""

    code = "outside_roots"

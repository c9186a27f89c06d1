"""Errors of `a2a-runtime`, each with a message, a hint what to do, and an exit code."""

OK, ERROR, USAGE, UNREACHABLE, NOT_ACCEPTED, PROFILE = 0, 1, 2, 3, 4, 5
INTERRUPTED = 130


class EdgeError(Exception):
    """Base of all errors; `hint` tells the user what to do."""

    exit_code = ERROR
    code = "error"

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class WrongUse(EdgeError):
    exit_code = USAGE
    code = "wrong_use"


class BrokenProfiles(EdgeError):
    """The profile file cannot be read or written. It is not changed."""

    exit_code = PROFILE
    code = "broken_profiles"


class AlreadyRunning(EdgeError):
    code = "already_running"


class Unreachable(EdgeError):
    """The platform gave no answer, or not a valid one. Retrying may help."""

    exit_code = UNREACHABLE
    code = "unreachable"

    def __init__(self, message: str, hint: str = "", *, status: int = 0, retry_after_s: float = 0.0) -> None:
        super().__init__(message, hint)
        self.status = status
        self.retry_after_s = retry_after_s


class Refused(EdgeError):
    """The platform refused the request. Retrying does not help."""

    def __init__(self, status: int, code: str, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.status = status
        self.code = code


class NotAccepted(Refused):
    """The platform does not accept the pairing code or the token (any more)."""

    exit_code = NOT_ACCEPTED

"""What can go wrong, each with a sentence, what to do about it, and the exit code of the program."""

OK, ERROR, USAGE, UNREACHABLE, NOT_ACCEPTED, PROFILE = 0, 1, 2, 3, 4, 5
INTERRUPTED = 130


class EdgeError(Exception):
    """`hint` says what to do."""

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
    """The profile file cannot be read, or not be written; it is left as it is."""

    exit_code = PROFILE
    code = "broken_profiles"


class AlreadyRunning(EdgeError):
    code = "already_running"


class Unreachable(EdgeError):
    """The platform gave no answer, or none that means anything; worth trying again."""

    exit_code = UNREACHABLE
    code = "unreachable"

    def __init__(self, message: str, hint: str = "", *, status: int = 0, retry_after_s: float = 0.0) -> None:
        super().__init__(message, hint)
        self.status = status
        self.retry_after_s = retry_after_s


class Refused(EdgeError):
    """The platform understood and said no; asking again would not help."""

    def __init__(self, status: int, code: str, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.status = status
        self.code = code


class NotAccepted(Refused):
    """The code or the token does not hold, or not any more."""

    exit_code = NOT_ACCEPTED

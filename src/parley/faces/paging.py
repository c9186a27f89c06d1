"""Where a page of runs goes on: after a run, as it stood when the page was given out."""

from base64 import urlsafe_b64decode, urlsafe_b64encode

from parley.core.runs import Run
from parley.errors import Invalid
from parley.ids import is_id


def page_token(runs: list[Run], size: int) -> str:
    """The token of the page after these; empty when there is none."""
    if len(runs) < size or not runs:
        return ""
    last = runs[-1]
    return urlsafe_b64encode(f"{last.status_at}:{last.id}".encode()).decode().rstrip("=")


def page_cursor(token: str) -> tuple[int, str] | None:
    if not token:
        return None
    try:
        at, _, run = urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode().partition(":")
        if not 0 <= int(at) < 2**63 or not is_id(run):
            raise ValueError
        return int(at), run
    except ValueError:
        raise Invalid("pageToken is not one that this server gave out.", field="pageToken") from None

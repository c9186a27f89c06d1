"""Where a page of runs goes on: after a run, as it stood when the page was given out."""

from base64 import urlsafe_b64decode, urlsafe_b64encode

from parley.core.runs import Run
from parley.errors import Invalid
from parley.ids import is_id


def page_token(runs: list[Run], size: int) -> str:
    """The token of the page after these; empty when there is none."""
    if len(runs) < size or not runs:
        return ""
    return place_token((runs[-1].status_at, runs[-1].id))


def place_token(place: tuple[int, str] | None) -> str:
    """What `page_cursor` reads again; empty for no place."""
    return urlsafe_b64encode(f"{place[0]}:{place[1]}".encode()).decode().rstrip("=") if place else ""


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

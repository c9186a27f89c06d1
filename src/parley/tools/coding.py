"""The tool pack `coding.v1`: issues and pull requests on GitHub, by its REST API (003.7)."""

import time

import msgspec

from parley.core.canonical import Fields, Json, fields_of, text_of
from parley.core.coding import CODING, number_of
from parley.core.policy import DENY, EXHAUSTED, ReasonCode
from parley.core.tools import Manifest, Pack
from parley.engine.ports import ToolResult
from parley.security.netguard import Reply
from parley.tools.github import Asked, GitHub, Unanswered

MAX_WORDS = 300
"""How much of what GitHub says about a refusal is passed on."""
_INVALID: ReasonCode = "manifest_validation.invalid_schema"
_CODES: dict[int, ReasonCode] = {400: _INVALID, 401: DENY, 403: DENY, 422: _INVALID, 429: EXHAUSTED}


class Coding:
    def __init__(self, github: GitHub) -> None:
        self._github = github

    @property
    def rules(self) -> Pack:
        return CODING

    def host(self, manifest: Manifest) -> str:
        return self._github.host

    async def call(self, operation: str, request: Fields, manifest: Manifest) -> ToolResult:
        if CODING.operations[operation].writes and not self._github.has_token:
            return ToolResult("failed", {}, DENY, "No token for writing is set up here.", effect="none")
        try:
            reply = await self._github.send(_asked(operation, request))
        except Unanswered as error:
            return _unanswered(error)
        return _done(operation, reply) if 200 <= reply.status < 300 else _refused(reply)


def _asked(operation: str, request: Fields) -> Asked:
    owner, _, name = text_of(request["repository"]).partition("/")
    issue = ("repos", owner, name, "issues", str(number_of(request.get("issue_number"))))
    match operation:
        case "get_issue":
            return Asked("GET", issue)
        case "get_pull_request":
            return Asked("GET", ("repos", owner, name, "pulls", str(number_of(request.get("pull_number")))))
        case "add_issue_comment":
            return Asked("POST", (*issue, "comments"), {"body": str(request["body"])})
        case _:
            raise AssertionError(f"{operation} is not of this pack")


def _done(operation: str, reply: Reply) -> ToolResult:
    said, status = _json(reply), reply.status
    if said is None:
        message = "The provider's answer is too long, or is not JSON."
        return ToolResult("failed", {"provider_status": status}, message=message)
    data: Fields = {"provider_status": status, "data": said}
    if operation == "add_issue_comment":
        comment = fields_of(said)
        data |= {"comment_id": comment.get("id"), "comment_url": comment.get("html_url")}
    return ToolResult("succeeded", data)


def _refused(reply: Reply) -> ToolResult:
    """Servers that failed may have done it all the same; what they refused they did not do."""
    limited = _is_rate_limit(reply)
    code = EXHAUSTED if limited else _CODES.get(reply.status, CODING.failed)
    data: Fields = {"provider_status": reply.status}
    if limited and (wait := _wait_s(reply)) is not None:
        data["retry_after_s"] = wait
    ill = reply.status >= 500
    message = text_of(fields_of(_json(reply)).get("message"))[:MAX_WORDS] or f"The provider answered {reply.status}."
    return ToolResult("failed", data, code, message, effect="unknown" if ill else "none", well=not ill)


def _unanswered(error: Unanswered) -> ToolResult:
    """What we refuse ourselves is no sign that the provider is ill; that nobody is there is one."""
    data: Fields = {} if error.reason_code is None else {"ssrf_block_reason": error.reason_code}
    well = error.reason_code not in (None, "ssrf_block.dns_resolution_failed")
    return ToolResult("failed", data, error.reason_code, error.message, effect=error.effect, well=well)


def _is_rate_limit(reply: Reply) -> bool:
    """GitHub says 403 as often as 429, and means a limit where a header says so."""
    told = reply.headers.get("x-ratelimit-remaining") == "0" or "retry-after" in reply.headers
    return reply.status == 429 or (reply.status == 403 and told)


def _wait_s(reply: Reply) -> int | None:
    after, reset = reply.headers.get("retry-after", ""), reply.headers.get("x-ratelimit-reset", "")
    if after.isdecimal() and len(after) < 10:
        return int(after)
    return max(0, int(reset) - int(time.time())) if reset.isdecimal() and len(reset) < 12 else None


def _json(reply: Reply) -> Json:
    if not reply.complete:
        return None
    try:
        return msgspec.json.decode(reply.body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None

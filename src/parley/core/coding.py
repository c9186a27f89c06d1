"""The rules of the tool pack `coding.v1`: repositories, their issues and pull requests (003.7)."""

import re

from parley.core.canonical import Fields, Json, text_of, whole
from parley.core.tools import Manifest, Operation, Pack, Problem

MAX_BODY = 65_536
"""The longest comment that GitHub takes, in characters."""
MAX_NUMBER = 2**53 - 1
_REPOSITORY = re.compile(r"[A-Za-z0-9_.-]{1,100}/[A-Za-z0-9_.-]{1,100}")
_NUMBER = re.compile(r"[0-9]{1,16}", re.ASCII)


def is_repository(text: str) -> bool:
    """`owner/name`. Names of dots alone are none: in a path they lead elsewhere."""
    return _REPOSITORY.fullmatch(text) is not None and not any(part.strip(".") == "" for part in text.split("/"))


def number_of(value: Json) -> int | None:
    """A number of 1 or more, also as the digits of one."""
    number = int(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else whole(value)
    return number if number is not None and 1 <= number <= MAX_NUMBER else None


def _numbered(name: str) -> list[str]:
    return [f"{name} must be a positive integer"]


def _repository_problems(request: Fields) -> list[str]:
    known = is_repository(text_of(request.get("repository")))
    return [] if known else ["repository is required and must be in 'owner/repo' format"]


def _issue(request: Fields) -> list[str]:
    known = number_of(request.get("issue_number")) is not None
    return [*_repository_problems(request), *([] if known else _numbered("issue_number"))]


def _pull(request: Fields) -> list[str]:
    known = number_of(request.get("pull_number")) is not None
    return [*_repository_problems(request), *([] if known else _numbered("pull_number"))]


def _comment(request: Fields) -> list[str]:
    body = request.get("body")
    problems = _issue(request)
    if not text_of(body):
        problems.append("body is required for add_issue_comment")
    elif isinstance(body, str) and len(body) > MAX_BODY:
        problems.append(f"body must have at most {MAX_BODY} characters")
    return problems


def _policy_check(policy: Fields) -> list[Problem]:
    default = policy.get("default_repository")
    if default is None or (isinstance(default, str) and is_repository(default)):
        return []
    return [Problem("policy.default_repository", "policy.default_repository must be in 'owner/repo' format")]


def _completed(manifest: Manifest, request: Fields) -> Fields:
    default = manifest.policy.get("default_repository")
    if default is None or request.get("repository") is not None:
        return request
    return {**request, "repository": default}


CODING = Pack(
    name="coding.v1",
    prefix="coding",
    manifest_version="coding.integration.v1",
    providers=("github",),
    operations={
        "get_issue": Operation(_issue),
        "get_pull_request": Operation(_pull),
        "add_issue_comment": Operation(_comment, writes=True),
    },
    required=("get_issue", "get_pull_request"),
    failed="coding_failed.provider_error",
    circuit_open="coding_failed.provider_circuit_open",
    policy_check=_policy_check,
    completed=_completed,
)

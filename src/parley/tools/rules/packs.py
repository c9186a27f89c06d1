"""Rules of tool packs: their operations, what a manifest allows, and the checks of a request.

A manifest (the runtime control plane, 003) is registered by an integrator: it names the integration, the operations of
the pack that may be used, and how. Nothing here depends on a provider.
"""

import re
from collections.abc import Callable, Sequence
from typing import Literal, cast

from msgspec import Struct

from parley.errors import ManifestInvalid, ToolRequestInvalid
from parley.json_values import Fields, Json, fields_of, stable_hash, text_of, whole
from parley.tools.rules.policy import REASON_CODES_VERSION, Evaluation, ReasonCode
from parley.tools.rules.redaction import sanitised

Mode = Literal["execute", "replay"]
MODES: tuple[Mode, ...] = ("execute", "replay")
STATUSES = ("active", "inactive", "error")
WRITE_MODES = ("enforce", "audit_only")
MAX_PER_MINUTE = 10_000
MAX_CALL_ID = 256
_INTEGRATION = re.compile(r"[a-zA-Z0-9._:-]{3,128}")
_REFUSED = "tool invocation validation failed"

Checks = Callable[[Fields], list[str]]


class RequestProblem(Struct, frozen=True):
    """A problem of a manifest, and its place."""

    path: str
    message: str

    def shown(self) -> Fields:
        return {"reason_code": "manifest_validation.invalid_schema", "path": self.path, "message": self.message}


class PackOperation(Struct, frozen=True):
    """One operation of a pack. `check` returns the problems of a request for it."""

    check: Checks
    writes: bool = False


class Manifest(Struct, frozen=True):
    """A manifest that passed all checks."""

    integration: str
    provider: str
    status: str
    capabilities: tuple[str, ...]
    policy: Fields

    @property
    def active(self) -> bool:
        return self.status == "active"

    @property
    def enforces_writes(self) -> bool:
        return self.policy.get("write_operations_mode") != "audit_only"

    @property
    def per_minute(self) -> int | None:
        return whole(self.policy.get("max_requests_per_minute"))


class Pack(Struct, frozen=True):
    """Rules of a tool pack: everything in which packs differ for decisions about calls."""

    name: str
    prefix: str
    """Its prefix in receipts and policy ids: `coding` in `coding_…` and `coding.execute.v1`."""
    manifest_version: str
    providers: tuple[str, ...]
    operations: dict[str, PackOperation]
    required: tuple[str, ...]
    """Capabilities that a manifest must have."""
    failed: ReasonCode
    circuit_open: ReasonCode
    policy_check: Callable[[Fields], list[RequestProblem]]
    """Returns the problems of those members of a manifest's policy that only this pack knows."""
    completed: Callable[[Manifest, Fields], Fields]
    """Returns a request with the defaults of the manifest added."""
    given: str = ""
    """Name of the request's member that is the tool's input; empty for the whole request."""
    personal: bool = True
    """True if addresses and telephone numbers of people are removed from what is shown."""
    budgeted: bool = True
    """True if the cost of its calls is counted."""

    @property
    def policy_id(self) -> str:
        return f"{self.prefix}.execute.v1"


def manifest_of(pack: Pack, given: Fields) -> Manifest:
    """Parse a manifest. Raise ManifestInvalid with all problems in `details["problems"]`."""
    problems = manifest_problems(pack, given)
    if problems:
        raise ManifestInvalid(_REFUSED, problems=[problem.shown() for problem in problems])
    capabilities = cast("list[str]", given["capabilities"])
    return Manifest(
        str(given["integration_id"]),
        str(given["provider"]),
        str(given["status"]),
        tuple(capabilities),
        fields_of(given.get("policy")),
    )


def manifest_problems(pack: Pack, given: Fields) -> list[RequestProblem]:
    integration = given.get("integration_id")
    named = isinstance(integration, str) and _INTEGRATION.fullmatch(integration) is not None
    return [
        *_must(given.get("manifest_version") == pack.manifest_version, "manifest_version", pack.manifest_version),
        *_must(named, "integration_id", "3 to 128 letters, digits or ._:-"),
        *_one_of(given, "provider", pack.providers),
        *_one_of(given, "status", STATUSES),
        *_must(given.get("tool_pack") == pack.name, "tool_pack", pack.name),
        *_capability_problems(pack, given.get("capabilities")),
        *_secrets_problems(given.get("secrets_ref")),
        *_policy_problems(pack, given.get("policy")),
    ]


def request_of(pack: Pack, manifest: Manifest, given: Fields) -> Fields:
    """Return the request with defaults. Raise ToolRequestInvalid with all problems in `details["problems"]`."""
    request = pack.completed(manifest, given)
    if problems := request_problems(pack, manifest, request):
        raise refused(*problems)
    return request


def request_problems(pack: Pack, manifest: Manifest, request: Fields) -> list[str]:
    name = request.get("operation")
    operation = pack.operations.get(name) if isinstance(name, str) else None
    problems = _integration_problems(manifest, request.get("integration_id"))
    if operation is None:
        problems.append("operation is not supported" if name else "operation is required")
    if name and name not in manifest.capabilities:
        problems.append("operation is not enabled by manifest capabilities")
    if not isinstance(request.get("write_approved"), bool | None):
        problems.append("write_approved must be true or false")
    if not _is_call_id(request.get("tool_call_id")):
        problems.append(f"tool_call_id must be a string of 1 to {MAX_CALL_ID} printable characters")
    return problems + (operation.check(request) if operation is not None else [])


def refused(*problems: str, message: str = _REFUSED) -> ToolRequestInvalid:
    return ToolRequestInvalid(message, problems=list(problems))


def _integration_problems(manifest: Manifest, integration: Json) -> list[str]:
    if not integration:
        return ["integration_id is required"]
    return [] if integration == manifest.integration else ["integration_id does not match the manifest"]


def _is_call_id(value: Json) -> bool:
    return value is None or (isinstance(value, str) and 1 <= len(value) <= MAX_CALL_ID and value.isprintable())


def _must(holds: bool, path: str, what: str) -> list[RequestProblem]:
    return [] if holds else [RequestProblem(path, f"{path} must be {what}")]


def _one_of(given: Fields, path: str, words: Sequence[str]) -> list[RequestProblem]:
    return _must(given.get(path) in words, path, " or ".join(words))


def _capability_problems(pack: Pack, given: Json) -> list[RequestProblem]:
    if not isinstance(given, list):
        return [RequestProblem("capabilities", "capabilities must be an array")]
    problems: list[RequestProblem] = []
    for index, one in enumerate(given):
        if not isinstance(one, str) or one not in pack.operations:
            problems.append(
                RequestProblem(f"capabilities[{index}]", f"capability must be one of {', '.join(pack.operations)}")
            )
        elif one in given[:index]:
            problems.append(RequestProblem(f"capabilities[{index}]", "capabilities must be unique"))
    missing = [name for name in pack.required if name not in given]
    return problems + _must(not missing, "capabilities", f"at least {' and '.join(pack.required)}")


def _secrets_problems(given: Json) -> list[RequestProblem]:
    """Check `secrets_ref`. It is optional: the contract's own example has none."""
    if given is None:
        return []
    if not isinstance(given, dict):
        return [RequestProblem("secrets_ref", "secrets_ref must be an object")]
    key = given.get("key_id")
    named = isinstance(key, str) and len(key.strip()) >= 3 and len(key) <= 256
    return [
        *_must(given.get("provider") == "laravel", "secrets_ref.provider", "laravel"),
        *_must(named, "secrets_ref.key_id", "a string of 3 to 256 characters"),
    ]


def _policy_problems(pack: Pack, given: Json) -> list[RequestProblem]:
    if not isinstance(given, dict):
        return [RequestProblem("policy", "policy must be an object")]
    most = given.get("max_requests_per_minute")
    number = whole(most)
    limited = most is None or (number is not None and 1 <= number <= MAX_PER_MINUTE)
    writes = given.get("write_operations_mode")
    return [
        *_must(writes in WRITE_MODES, "policy.write_operations_mode", " or ".join(WRITE_MODES)),
        *_must(limited, "policy.max_requests_per_minute", f"an integer from 1 to {MAX_PER_MINUTE}"),
        *pack.policy_check(given),
    ]


# The outcome of a tool call, its receipt, and the replay of a decision without carrying it out (the runtime control
# plane, 003).
#
# A reader can verify every hash of a receipt: `result_hash` is the hash of `provider_result` as it is shown.

OutcomeState = Literal["succeeded", "failed", "blocked"]

ID_DIGITS = 24


def outcome_data(
    pack: Pack, manifest: Manifest, request: Fields, state: OutcomeState, evaluation: Evaluation, result: Fields
) -> Fields:
    """Return the data for the caller; `result` must not contain secrets any more."""
    about: Fields = {
        "integration_id": manifest.integration,
        "provider": manifest.provider,
        "operation": request["operation"],
        "state": state,
        "decision": evaluation.decision,
        "reason_code": evaluation.reason_code,
    }
    return {
        **about,
        "tool_call_id": request.get("tool_call_id"),
        "policy": evaluation.shown(),
        "provider_result": result,
        "receipt": receipt(pack, about, evaluation, result),
    }


def receipt(pack: Pack, about: Fields, evaluation: Evaluation, result: Fields) -> Fields:
    """Return a receipt. Its id is the beginning of its hash, so that equal receipts have the same id."""
    payload: Fields = {
        **about,
        "evaluation_hash": evaluation.hash,
        "reason_codes_version": REASON_CODES_VERSION,
        "result_hash": stable_hash(result),
    }
    hash_ = stable_hash(payload)
    return {"receipt_id": f"{pack.prefix}_{hash_[:ID_DIGITS]}", **payload, "replay_hash": hash_}


def replay_data(manifest: Manifest, request: Fields, evaluation: Evaluation) -> Fields:
    """Return the policy's decision on a request, with its proof, without carrying out the request."""
    decided: Fields = {
        "decision": evaluation.decision,
        "reason_code": evaluation.reason_code,
        "evaluation_hash": evaluation.hash,
    }
    hash_ = stable_hash({"manifest_id": manifest.integration, "request": sanitised(request), **decided})
    return {**decided, "replay_hash": hash_}


# Rules of the tool pack `coding.v1`: repositories, their issues and pull requests (the runtime control plane, 003).

MAX_BODY = 65_536
"""Longest comment that GitHub accepts, in characters."""
MAX_NUMBER = 2**53 - 1
_REPOSITORY = re.compile(r"[A-Za-z0-9_.-]{1,100}/[A-Za-z0-9_.-]{1,100}")
_NUMBER = re.compile(r"[0-9]{1,16}", re.ASCII)


def is_repository(text: str) -> bool:
    """Return whether a text is `owner/name`. Names of dots alone are refused: in a path they lead elsewhere."""
    return _REPOSITORY.fullmatch(text) is not None and not any(part.strip(".") == "" for part in text.split("/"))


def number_of(value: Json) -> int | None:
    """Return a number of 1 or more, also if it is written as a string of digits; else None."""
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


def _policy_check(policy: Fields) -> list[RequestProblem]:
    default = policy.get("default_repository")
    if default is None or (isinstance(default, str) and is_repository(default)):
        return []
    return [RequestProblem("policy.default_repository", "policy.default_repository must be in 'owner/repo' format")]


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
        "get_issue": PackOperation(_issue),
        "get_pull_request": PackOperation(_pull),
        "add_issue_comment": PackOperation(_comment, writes=True),
    },
    required=("get_issue", "get_pull_request"),
    failed="coding_failed.provider_error",
    circuit_open="coding_failed.provider_circuit_open",
    policy_check=_policy_check,
    completed=_completed,
)

"""What a tool pack offers, what a manifest allows of it, and whether a request is one that can be carried out.

A manifest (003.7) is what an integrator registered: which integration it is, which of the pack's operations may be
used, and how. Nothing here knows a provider.
"""

import re
from collections.abc import Callable, Sequence
from typing import Literal, cast

from msgspec import Struct

from parley.core.canonical import Fields, Json, fields_of, whole
from parley.core.policy import ReasonCode
from parley.errors import ManifestInvalid, ToolRequestInvalid

Mode = Literal["execute", "replay"]
MODES: tuple[Mode, ...] = ("execute", "replay")
STATUSES = ("active", "inactive", "error")
WRITE_MODES = ("enforce", "audit_only")
MAX_PER_MINUTE = 10_000
MAX_CALL_ID = 256
_INTEGRATION = re.compile(r"[a-zA-Z0-9._:-]{3,128}")
_REFUSED = "tool invocation validation failed"

Checks = Callable[[Fields], list[str]]


class Problem(Struct, frozen=True):
    """Something that is wrong with a manifest, and where."""

    path: str
    message: str

    def shown(self) -> Fields:
        return {"reason_code": "manifest_validation.invalid_schema", "path": self.path, "message": self.message}


class Operation(Struct, frozen=True):
    """One thing a pack can do. `check` says what is wrong with a request for it."""

    check: Checks
    writes: bool = False


class Manifest(Struct, frozen=True):
    """A manifest in which nothing is wrong."""

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
    """The rules of a tool pack: what distinguishes one from another for whoever decides about calls."""

    name: str
    prefix: str
    """Its word in receipts and policy ids: `coding` in `coding_…` and `coding.execute.v1`."""
    manifest_version: str
    providers: tuple[str, ...]
    operations: dict[str, Operation]
    required: tuple[str, ...]
    """What a manifest must not leave out."""
    failed: ReasonCode
    circuit_open: ReasonCode
    policy_check: Callable[[Fields], list[Problem]]
    """What is wrong with those members of a manifest's policy that only this pack knows."""
    completed: Callable[[Manifest, Fields], Fields]
    """A request with what the manifest says by default."""
    given: str = ""
    """The member of a request that its tool is given; all of it is, if empty."""
    personal: bool = True
    """Whether addresses and numbers of people are taken out of what is shown."""
    budgeted: bool = True
    """Whether what its calls cost is counted."""

    @property
    def policy_id(self) -> str:
        return f"{self.prefix}.execute.v1"


def manifest_of(pack: Pack, given: Fields) -> Manifest:
    """ManifestInvalid with everything that is wrong in `details["problems"]`."""
    problems = manifest_problems(pack, given)
    if problems:
        raise ManifestInvalid(_REFUSED, problems=[problem.shown() for problem in problems])
    capabilities = cast("list[str]", given["capabilities"])
    return Manifest(
        str(given["integration_id"]), str(given["provider"]), str(given["status"]), tuple(capabilities),
        fields_of(given.get("policy")),
    )  # fmt: skip


def manifest_problems(pack: Pack, given: Fields) -> list[Problem]:
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
    """The request, completed; ToolRequestInvalid with everything that is wrong in `details["problems"]`."""
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


def _must(holds: bool, path: str, what: str) -> list[Problem]:
    return [] if holds else [Problem(path, f"{path} must be {what}")]


def _one_of(given: Fields, path: str, words: Sequence[str]) -> list[Problem]:
    return _must(given.get(path) in words, path, " or ".join(words))


def _capability_problems(pack: Pack, given: Json) -> list[Problem]:
    if not isinstance(given, list):
        return [Problem("capabilities", "capabilities must be an array")]
    problems: list[Problem] = []
    for index, one in enumerate(given):
        if not isinstance(one, str) or one not in pack.operations:
            problems.append(
                Problem(f"capabilities[{index}]", f"capability must be one of {', '.join(pack.operations)}")
            )
        elif one in given[:index]:
            problems.append(Problem(f"capabilities[{index}]", "capabilities must be unique"))
    missing = [name for name in pack.required if name not in given]
    return problems + _must(not missing, "capabilities", f"at least {' and '.join(pack.required)}")


def _secrets_problems(given: Json) -> list[Problem]:
    """Optional: the contract's own example has none."""
    if given is None:
        return []
    if not isinstance(given, dict):
        return [Problem("secrets_ref", "secrets_ref must be an object")]
    key = given.get("key_id")
    named = isinstance(key, str) and len(key.strip()) >= 3 and len(key) <= 256
    return [
        *_must(given.get("provider") == "laravel", "secrets_ref.provider", "laravel"),
        *_must(named, "secrets_ref.key_id", "a string of 3 to 256 characters"),
    ]


def _policy_problems(pack: Pack, given: Json) -> list[Problem]:
    if not isinstance(given, dict):
        return [Problem("policy", "policy must be an object")]
    most = given.get("max_requests_per_minute")
    number = whole(most)
    limited = most is None or (number is not None and 1 <= number <= MAX_PER_MINUTE)
    writes = given.get("write_operations_mode")
    return [
        *_must(writes in WRITE_MODES, "policy.write_operations_mode", " or ".join(WRITE_MODES)),
        *_must(limited, "policy.max_requests_per_minute", f"an integer from 1 to {MAX_PER_MINUTE}"),
        *pack.policy_check(given),
    ]

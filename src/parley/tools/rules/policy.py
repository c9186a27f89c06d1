"""Policy of tool calls: decides whether a call is allowed, in the order of the runtime control plane (003)."""

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Literal, cast, get_args

import msgspec
from msgspec import Struct

from parley.errors import ApprovalRequired
from parley.json_values import Fields, Json, fields_of, stable_hash, text_of, whole

ReasonCode = Literal[
    "policy_allowed.default",
    "policy_denied.explicit_deny",
    "policy_denied.consent_required",
    "policy_denied.suppressed_recipient",
    "policy_denied.authorization_missing",
    "policy_denied.authorization_expired",
    "policy_denied.authorization_revoked",
    "policy_denied.invalid_authorization_mode",
    "policy_denied.budget_exhausted",
    "loop_detected.no_progress",
    "ssrf_block.private_address",
    "ssrf_block.metadata_endpoint",
    "ssrf_block.host_not_allowed",
    "ssrf_block.invalid_url",
    "ssrf_block.dns_resolution_failed",
    "ssrf_block.dns_pin_mismatch",
    "ssrf_block.redirect_limit_exceeded",
    "ssrf_block.redirect_missing_location",
    "ssrf_block.redirect_invalid_location",
    "manifest_validation.invalid_schema",
    "comms_failed.provider_error",
    "comms_failed.provider_circuit_open",
    "comms_failed.fallback_exhausted",
    "coding_failed.provider_error",
    "coding_failed.provider_circuit_open",
]
REASON_CODES: tuple[ReasonCode, ...] = get_args(ReasonCode)
REASON_CODES_VERSION = "runtime-policy-reasons.v1"

Decision = Literal["allowed", "denied"]
DENY: ReasonCode = "policy_denied.explicit_deny"
EXHAUSTED: ReasonCode = "policy_denied.budget_exhausted"

MODES = ("delegated_budget", "delegated_budget_with_threshold", "interactive", "deny", "system")
_CONTEXT_FAMILIES = ("manifest_validation.", "loop_detected.", "ssrf_block.")
_STATUSES = ("active", "expired", "revoked")
_SATS = ("max_total_sats", "max_per_call_sats", "threshold_sats", "remaining_sats", "cost_sats")
MAX_ID = 256
MAX_SATS = 2**53 - 1


class Figures(Struct, frozen=True):
    """Amounts counted for one authorization before this call."""

    spent: int = 0
    reserved: int = 0


class Evaluation(Struct, frozen=True):
    """The policy's decision on one call, and the figures it is based on."""

    decision: Decision
    reason_code: ReasonCode
    hash: str
    figures: Figures
    cost: int

    @property
    def allowed(self) -> bool:
        return self.decision == "allowed"

    def shown(self) -> Fields:
        return {
            "decision": self.decision,
            "reason_code": self.reason_code,
            "reason_codes_version": REASON_CODES_VERSION,
            "evaluation_hash": self.hash,
        }


class Policy(Struct, frozen=True):
    """A caller's policy; `policy_problems` found no problems in it."""

    given: Fields
    policy_id: str

    @property
    def authorization(self) -> str:
        return text_of(self.given.get("authorization_id"))

    @property
    def mode(self) -> str:
        return text_of(self.given.get("authorization_mode"))

    @property
    def context(self) -> Fields:
        return fields_of(self.given.get("context"))

    @property
    def cost(self) -> int:
        return 1 if (cost := self.sats("cost_sats")) is None else cost

    @property
    def write_approved(self) -> bool:
        return self.given.get("write_approved") is True

    @property
    def consented(self) -> bool:
        """True if the caller approved the cost. A caller that sets no threshold has approved nothing in advance."""
        return self.given.get("approved") is True or self.cost <= (self.sats("threshold_sats") or 0)

    def sats(self, name: str) -> int | None:
        return whole(fields_of(self.given.get("budget")).get(name))

    def remaining(self, figures: Figures) -> int | None:
        """Return the budget left before the call; None if there is no limit. The caller's own count can only lower
        ours."""
        total, given = self.sats("max_total_sats"), self.sats("remaining_sats")
        ours = None if total is None else total - figures.spent - figures.reserved
        found = [one for one in (ours, given) if one is not None]
        return min(found) if found else None


def policy_problems(given: Fields) -> list[str]:
    """Return the parts of a policy that cannot be understood. A limit that is not understood must not count as no
    limit."""
    return [*_authorization_problems(given), *_budget_problems(given.get("budget")), *_context_problems(given)]


def evaluate(policy: Policy, figures: Figures, now: int, *, denied: bool = False) -> Evaluation:
    """Decide about a call; deterministic. `denied`: it is denied for a reason outside the policy, such as a write
    without approval."""
    reason = _reason(policy, figures, now, denied=denied)
    return concluded(policy, figures, reason)


def concluded(policy: Policy, figures: Figures, reason: ReasonCode) -> Evaluation:
    """Return the evaluation for a reason: the policy's own, or the one that a provider's failure leads to."""
    decision: Decision = "allowed" if reason == "policy_allowed.default" else "denied"
    return Evaluation(decision, reason, _hash(policy, figures, decision, reason), figures, policy.cost)


def _hash(policy: Policy, figures: Figures, decision: Decision, reason: ReasonCode) -> str:
    said: Fields = {
        "authorization_id": policy.authorization or None,
        "authorization_mode": policy.mode or None,
        "decision": decision,
        "reason_code": reason,
        "policy_id": policy.policy_id,
    }
    budget: Fields = {
        "spent_sats": figures.spent,
        "reserved_sats": figures.reserved,
        "remaining_sats": policy.remaining(figures),
    }
    context: Fields = {"reason_code": code} if (code := policy.context.get("reason_code")) is not None else {}
    return stable_hash(
        {"decision": decision, "reason_code": reason, "policy": said, "budget": budget, "context": context}
    )


def _reason(policy: Policy, figures: Figures, now: int, *, denied: bool) -> ReasonCode:
    if reason := text_of(policy.context.get("reason_code")):
        return cast(ReasonCode, reason)
    if reason := _denial(policy, denied=denied) or _authorization(policy, now):
        return reason
    return _budget(policy, figures) or "policy_allowed.default"


# Why: docs/decisions/tools.md#enforce-policies-more-strictly-than-the-original-implementation
def _denial(policy: Policy, *, denied: bool) -> ReasonCode | None:
    if policy.given.get("denied") is True or policy.given.get("decision") == "denied":
        code = policy.given.get("reason_code")
        return code if code in REASON_CODES and code.startswith("policy_denied.") else DENY
    return DENY if denied or policy.mode == "deny" else None


def _authorization(policy: Policy, now: int) -> ReasonCode | None:
    if not policy.authorization:
        return "policy_denied.authorization_missing"
    status, expires = policy.given.get("authorization_status"), policy.given.get("authorization_expires_at")
    if status == "expired" or (isinstance(expires, str) and _time_ms(expires) <= now):
        return "policy_denied.authorization_expired"
    if status == "revoked":
        return "policy_denied.authorization_revoked"
    return None if policy.mode in MODES else "policy_denied.invalid_authorization_mode"


def _budget(policy: Policy, figures: Figures) -> ReasonCode | None:
    most, remaining = policy.sats("max_per_call_sats"), policy.remaining(figures)
    if most is not None and policy.cost > most:
        return EXHAUSTED
    if policy.mode == "delegated_budget_with_threshold" and not policy.consented:
        return "policy_denied.consent_required"
    if remaining is not None and (remaining <= 0 or remaining < policy.cost):
        return EXHAUSTED
    return None


def _authorization_problems(given: Fields) -> list[str]:
    problems: list[str] = []
    id_ = given.get("authorization_id")
    if id_ is not None and not (isinstance(id_, str) and len(id_) <= MAX_ID and (id_.isprintable() or not id_.strip())):
        problems.append(f"policy.authorization_id must be a string of at most {MAX_ID} printable characters")
    if not isinstance(given.get("authorization_mode"), str | None):
        problems.append("policy.authorization_mode must be a string")
    if given.get("authorization_status") not in (None, *_STATUSES):
        problems.append(f"policy.authorization_status must be one of {', '.join(_STATUSES)}")
    expires = given.get("authorization_expires_at")
    if expires is not None and not (isinstance(expires, str) and _is_time(expires)):
        problems.append("policy.authorization_expires_at must be an ISO 8601 time")
    flags = [name for name in ("denied", "approved", "write_approved") if not isinstance(given.get(name), bool | None)]
    return problems + [f"policy.{name} must be true or false" for name in flags]


def _budget_problems(budget: Json) -> list[str]:
    if not isinstance(budget, dict | None):
        return ["policy.budget must be an object"]
    wrong = [name for name in _SATS if not _is_sats(name, fields_of(budget).get(name))]
    return [f"policy.budget.{name} must be an integer from 0 to {MAX_SATS}" for name in wrong]


def _is_sats(name: str, value: Json) -> bool:
    """Return whether a value is a valid amount. Only the caller's own count of what remains may be negative."""
    number = whole(value)
    least = -MAX_SATS if name == "remaining_sats" else 0
    return value is None or (number is not None and least <= number <= MAX_SATS)


def _context_problems(given: Fields) -> list[str]:
    context = given.get("context")
    if not isinstance(context, dict | None):
        return ["policy.context must be an object"]
    code = fields_of(context).get("reason_code")
    if code is None or (code in REASON_CODES and str(code).startswith(_CONTEXT_FAMILIES)):
        return []
    return ["policy.context.reason_code must be a code of manifest_validation, loop_detected or ssrf_block"]


def _time_ms(text: str) -> int:
    at = datetime.fromisoformat(text)
    return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def _is_time(text: str) -> bool:
    try:
        _time_ms(text)
    except (ValueError, OverflowError):
        return False
    return True


# Tool calls that need a person's approval: which calls, what the person is shown, and what the approval covers.


class Approval(Struct, frozen=True):
    """A person's approval of one call. It covers only the tool and the input that have this digest.

    `salt` is kept in memory only. It is used if the input contains a secret, which could otherwise be guessed from the
    digest.
    """

    digest: str
    salt: str = ""


def needs_approval(patterns: Sequence[str], tool: str) -> bool:
    """Return whether a pattern names a tool (`server/tool`): as `server/tool`, `server` or `tool`, or with `*`."""
    return any(fnmatchcase(tool, one) or one in tool.split("/", 1) for one in patterns)


def approval_digest(tool: str, given: Json, salt: str = "") -> str:
    """Return a digest that identifies a call by its tool and its exact input."""
    return hashlib.sha256(msgspec.json.encode([salt, tool, given], order="deterministic")).hexdigest()


def check_approval(approval: Approval | None, tool: str, given: Fields) -> None:
    """Raise ApprovalRequired for a call without an approval, or with the approval of another call."""
    if approval is None or not approval.digest:
        raise ApprovalRequired(
            f"A person must approve each call of {tool}: send the request to its agent, and answer its question.",
            tool=tool,
        )
    if approval_digest(tool, given, approval.salt) != approval.digest:
        raise ApprovalRequired(f"The call of {tool} is not the one that was approved; ask for it again.", tool=tool)


def masked(given: Json, shown: Json, at: str = "") -> list[str]:
    """Return the paths in an input whose values are not shown as they are."""
    if isinstance(given, dict) and isinstance(shown, dict) and given.keys() == shown.keys():
        return [place for name in given for place in masked(given[name], shown[name], f"{at}.{name}" if at else name)]
    if isinstance(given, list) and isinstance(shown, list) and len(given) == len(shown):
        return [place for number, one in enumerate(given) for place in masked(one, shown[number], f"{at}[{number}]")]
    return [] if given == shown else [at or "input"]

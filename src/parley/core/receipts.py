"""The outcome of a tool call, its receipt, and how a decision is shown again without carrying it out (003.7).

A receipt holds nothing that its reader could not hash again: `result_hash` is that of `provider_result` as it is shown.
"""

from typing import Literal

from parley.core.canonical import Fields, stable_hash
from parley.core.policy import REASON_CODES_VERSION, Evaluation
from parley.core.sanitising import sanitised
from parley.core.tools import Manifest, Pack

OutcomeState = Literal["succeeded", "failed", "blocked"]

ID_DIGITS = 24


def outcome_data(
    pack: Pack, manifest: Manifest, request: Fields, state: OutcomeState, evaluation: Evaluation, result: Fields
) -> Fields:
    """What the caller is told; `result` holds no secrets any more."""
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
    """Its id is the beginning of its hash, so that equal receipts are one receipt."""
    payload: Fields = {
        **about,
        "evaluation_hash": evaluation.hash,
        "reason_codes_version": REASON_CODES_VERSION,
        "result_hash": stable_hash(result),
    }
    hash_ = stable_hash(payload)
    return {"receipt_id": f"{pack.prefix}_{hash_[:ID_DIGITS]}", **payload, "replay_hash": hash_}


def replay_data(manifest: Manifest, request: Fields, evaluation: Evaluation) -> Fields:
    """What the policy says to a request, provable and without carrying it out."""
    decided: Fields = {
        "decision": evaluation.decision,
        "reason_code": evaluation.reason_code,
        "evaluation_hash": evaluation.hash,
    }
    hash_ = stable_hash({"manifest_id": manifest.integration, "request": sanitised(request), **decided})
    return {**decided, "replay_hash": hash_}

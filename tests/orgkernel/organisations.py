"""An organisation folder to change at will, in the shape in which such files ship."""

import json
from pathlib import Path
from typing import Any

Json = dict[str, Any]

ACTIVE: Json = {
    "_schema": "orgkernel:organization",
    "_version": "1.4",
    "org_id": "small",
    "org_name": "Small Organization",
    "description": "Mends what is broken",
    "mission": {"objective": "Leave nothing broken."},
    "hierarchy": {"co": {"role_name": "Commander", "subordinates": ["bugfix_specialist"]}, "bugfix_specialist": {}},
    "domain_routing": {"bugfix": ["bugfix_specialist", "co"]},
    "defaults": {"max_turns_without_progress": 12, "autonomous_retry_limit": 2},
}
PACE: Json = {
    "primary": {"description": "Work", "action": "normal_execution"},
    "alternate": {"description": "Try otherwise", "action": "fallback_chain", "trigger": "failures>=3"},
    "contingent": {
        "description": "Say which file is meant",
        "action": "escalate",
        "trigger": "failures>=5 OR context_fill>0.85",
        "escalate_to": "co",
    },
    "emergency": {
        "description": "Let another have a look",
        "action": "abort_and_report",
        "trigger": "critical_failure OR context_exhausted",
        "escalate_to": "co",
    },
}


def role(id_: str, kind: str, domains: list[str], plans: list[str] | None = None, **more: Any) -> Json:
    return {
        "role_id": id_,
        "role_name": id_.replace("_", " ").title(),
        "role_type": kind,
        "chain_of_command": {"reports_to": "co" if id_ != "co" else "user"},
        "capabilities": {"bst_domains": domains, "htn_plans": plans or [], "tools_primary": ["response"]},
        "pace_plan": PACE,
        "doctrine": {"salute_interval_turns": 5},
        **more,
    }


def task(name: str, **more: Any) -> Json:
    return {"type": "task", "name": name, "tool": "code_execution_tool", **more}


BUGFIX: Json = {
    "name": "Bug Fix Workflow",
    "domains": ["bugfix"],
    "triggers": ["fix bug", "fix the bug", "debug"],
    "trigger_threshold": 1,
    "graph": {
        "start": "start",
        "nodes": {
            "start": {"type": "start", "name": "Begin bug fix"},
            "reproduce": task("Reproduce the bug", max_retries=1),
            "isolate": task("Isolate the cause"),
            "fix": task("Implement the fix", max_retries=2),
            "test": task("Run the tests", verify={"type": "output_not_contains", "value": "error"}),
            "review": {"type": "checkpoint", "name": "Review the change"},
            "stuck": {"type": "escalate", "reason": "Fix attempts exhausted", "pace_level": "contingent"},
            "done": {"type": "exit", "name": "Bug fix complete"},
        },
        "edges": [
            {"from": "start", "to": "reproduce", "condition": "always"},
            {"from": "reproduce", "to": "isolate", "condition": "on_success"},
            {"from": "reproduce", "to": "stuck", "condition": "on_exhaust"},
            {"from": "isolate", "to": "fix", "condition": "always"},
            {"from": "fix", "to": "test", "condition": "on_success"},
            {"from": "fix", "to": "stuck", "condition": "on_exhaust"},
            {"from": "test", "to": "review", "condition": "on_success"},
            {"from": "test", "to": "fix", "condition": "on_fail"},
            {"from": "review", "to": "done", "condition": "always"},
        ],
    },
}


def write(folder: Path, name: str, value: Any) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


def small(folder: Path, **plans: Json) -> Path:
    """A commander and a specialist, and one workflow unless others are given."""
    write(folder, "active.json", ACTIVE)
    write(folder, "roles/co.json", role("co", "commander", ["bugfix", "analysis"]))
    write(
        folder,
        "roles/bugfix_specialist.json",
        role("bugfix_specialist", "specialist", ["bugfix"], [*(plans or ["bugfix_workflow"])]),
    )
    write(folder, "workflows.json", {"_meta": {"version": "2.0"}, "plans": plans or {"bugfix_workflow": BUGFIX}})
    return folder

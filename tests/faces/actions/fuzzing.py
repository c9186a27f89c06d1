"""Hooks of schemathesis for the actions (002): existing conversations, versions and tasks."""

import os
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import schemathesis

REACHED = "PARLEY_TEST_REACHED"
"""In the environment: a file for a line with each answer."""
KNOWN = "PARLEY_TEST_KNOWN"
"""In the environment: what there is, as JSON: conversations, versions, tasks, executions, orchestrations."""

_calls = count()


@schemathesis.hook
def before_call(context: schemathesis.HookContext, case: schemathesis.Case, kwargs: dict[str, Any]) -> None:
    """Two of three requests are about something that exists, and do not wait for long."""
    number, known = next(_calls), msgspec.json.decode(os.environ[KNOWN])
    if number % 3 == 0:
        return
    for name, choices in (("conversationId", known["conversations"]), ("taskId", known["tasks"])):
        if name in (case.path_parameters or {}):
            case.path_parameters[name] = choices[number % len(choices)]
    if "conversationId" in (case.path_parameters or {}) and number % 5 == 0:
        case.headers["Prefer"] = "respond-async"
    if isinstance(case.body, dict):
        about(case.body, number, known["versions"])
        of_tools(case.body, number, known["executions"])
        if isinstance(case.body.get("orchestrationId"), str):
            case.body["orchestrationId"] = known["orchestrations"][0]


def about(body: dict[str, Any], number: int, versions: list[str]) -> None:
    if isinstance(body.get("agentSlug"), str):
        body["agentSlug"] = "caller" if body.get("mode") == "tool" else "writer"
    for name in ("versionId", "sourceVersionId", "planVersionId"):
        if isinstance(body.get(name), str):
            body[name] = versions[number % len(versions)]
    if isinstance(body.get("versionIds"), list) and len(body["versionIds"]) == 2:
        body["versionIds"] = versions[:2]


def of_tools(body: dict[str, Any], number: int, executions: list[str]) -> None:
    if isinstance(body.get("executionId"), str):
        body["executionId"] = executions[number % len(executions)]
    if isinstance(body.get("toolName"), str):
        body["toolName"] = ("echo", "refuse", "nothing")[number % 3]


@schemathesis.hook
def after_call(context: schemathesis.HookContext, case: schemathesis.Case, response: schemathesis.Response) -> None:
    with Path(os.environ[REACHED]).open("a") as reached:
        reached.write(f"{case.operation.definition.raw['operationId']} {response.status_code}\n")

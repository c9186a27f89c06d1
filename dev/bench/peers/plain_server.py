"""Minimal server of one action (002) for comparison: a Starlette handler that decodes the request and answers with the
same JSON, encoded each time. No principal, no conversation, no store, no record."""

import argparse

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from parley.app import tune_interpreter

ID = "0199f9c4-2b7e-7cc5-9d0e-3f5a0f6f8a01"
AT = "2025-10-20T10:20:30.123Z"
CONTENT = "# Tides\n\n" + "They come and go. " * 56


def version(content: str) -> dict[str, object]:
    return {
        "id": ID, "versionNumber": 2, "content": content, "format": "markdown", "createdByType": "manual_edit",
        "isCurrent": True, "createdAt": AT, "metadata": {"editedFromVersionId": ID, "editedAt": AT},
    }  # fmt: skip


def result(asked: dict[str, str]) -> dict[str, object]:
    if asked["action"] == "edit":
        return {"version": version(asked["editedContent"])}
    plan = {
        "id": ID, "conversationId": ID, "title": "Tides", "currentVersionId": ID, "createdAt": AT, "updatedAt": AT,
    }  # fmt: skip
    return {"plan": plan, "currentVersion": version(CONTENT)}


async def task(request: Request) -> JSONResponse:
    return JSONResponse(
        {
            "taskId": ID, "conversationId": request.path_params["conversation"], "status": "completed",
            "startedAt": AT, "result": result(await request.json()), "completedAt": AT,
            "metadata": {"executionTimeMs": 1},
        }
    )  # fmt: skip


async def begin(request: Request) -> JSONResponse:
    return JSONResponse({"conversationId": ID})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    port: int = parser.parse_args().port
    tune_interpreter()
    routes = [
        Route("/api/agent2agent/conversations", begin, methods=["POST"]),
        Route("/api/agent2agent/conversations/{conversation}/tasks", task, methods=["POST"]),
    ]
    uvicorn.run(
        Starlette(routes=routes), host="127.0.0.1", port=port, loop="uvloop", http="httptools", ws="none",
        lifespan="off", log_level="warning", access_log=False, server_header=False, proxy_headers=False,
        timeout_graceful_shutdown=1,
    )  # fmt: skip


if __name__ == "__main__":
    main()

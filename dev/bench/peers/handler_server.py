"""Minimal A2A server for comparison: a Starlette handler that decodes the request and answers with JSON like ours,
encoded each time. No principal, no task, no store."""

import argparse
import uuid
from collections.abc import AsyncGenerator
from typing import Any

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from parley.app import tune_interpreter

AT = "2025-10-20T10:20:30.123Z"
encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder().decode


def status(state: str) -> dict[str, str]:
    return {"state": state, "timestamp": AT}


def task(id: str, conversation: str, message: dict[str, Any], state: str, *made: dict[str, Any]) -> dict[str, Any]:
    history = [{**message, "taskId": id, "contextId": conversation}]
    task = {"id": id, "contextId": conversation, "status": status(state), "history": history}
    return {"task": {**task, "artifacts": made} if made else task}


def artifact(id: str) -> dict[str, Any]:
    return {"artifactId": f"{id}.text", "parts": [{"text": "hello"}]}


def answer(asked: dict[str, Any], result: dict[str, Any]) -> bytes:
    return encode({"jsonrpc": "2.0", "id": asked["id"], "result": result})


async def serve(request: Request) -> Response:
    asked = decode(await request.body())
    message, id, conversation = asked["params"]["message"], str(uuid.uuid4()), str(uuid.uuid4())
    if asked["method"] == "SendStreamingMessage":
        return StreamingResponse(frames(asked, message, id, conversation), media_type="text/event-stream")
    body = answer(asked, task(id, conversation, message, "TASK_STATE_COMPLETED", artifact(id)))
    return Response(body, media_type="application/json")


async def frames(asked: dict[str, Any], message: dict[str, Any], id: str, conversation: str) -> AsyncGenerator[bytes]:
    of = {"taskId": id, "contextId": conversation}
    results = (
        task(id, conversation, message, "TASK_STATE_SUBMITTED"),
        {"statusUpdate": {**of, "status": status("TASK_STATE_WORKING")}},
        {"artifactUpdate": {**of, "artifact": artifact(id), "lastChunk": True}},
        {"statusUpdate": {**of, "status": status("TASK_STATE_COMPLETED")}},
    )
    for number, result in enumerate(results, start=1):
        yield b"id: %d\ndata: %b\n\n" % (number, answer(asked, result))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    port: int = parser.parse_args().port
    tune_interpreter()
    uvicorn.run(
        Starlette(routes=[Route("/", serve, methods=["POST"])]), host="127.0.0.1", port=port, loop="uvloop",
        http="httptools", ws="none", lifespan="off", log_level="warning", access_log=False, server_header=False,
        proxy_headers=False, timeout_graceful_shutdown=1,
    )  # fmt: skip


if __name__ == "__main__":
    main()

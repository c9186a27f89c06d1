"""Minimal request server for comparison: uvicorn as in Parley; reads and decodes the body, and answers with as many
bytes as discovery does. No token is checked, nothing is looked up, nothing is signed."""

import argparse
from typing import Any

import msgspec
import uvicorn

from parley.app import tune_interpreter
from parley.http.requests import answer, read_body

FOUND = {
    "id": "0199f9c4-2b7e-7cc5-9d0e-3f5a0f6f8a01", "url": "http://127.0.0.1:9001", "name": "Node 1", "token": "x" * 480,
    "token_expires_at": "2025-10-20T10:20:30.123Z",
}  # fmt: skip


async def bare(scope: Any, receive: Any, send: Any) -> None:
    if scope["method"] == "POST":
        msgspec.json.decode(await read_body(receive), type=dict[str, Any])
        return await answer(send, 200, {"status": "ok"})
    return await answer(send, 200, FOUND)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    port: int = parser.parse_args().port
    tune_interpreter()
    uvicorn.run(
        bare, host="127.0.0.1", port=port, loop="uvloop", http="httptools", ws="none", lifespan="off",
        log_level="warning", access_log=False, server_header=False, proxy_headers=False, timeout_graceful_shutdown=1,
    )  # fmt: skip


if __name__ == "__main__":
    main()

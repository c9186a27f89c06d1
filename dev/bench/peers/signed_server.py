"""Minimal server of signed requests for comparison: uvicorn as Parley runs it; checks the signature, reads and decodes
the body. No nonce is stored, no run is looked up, nothing is written."""

import argparse
from typing import Any

import msgspec
import uvicorn

from parley.app import DEVELOPMENT_KEYS, tune_interpreter
from parley.http.requests import header, read_body
from parley.security.signatures import KEY_ID, SIGNATURE, Signatures

ACCEPTED = (
    b'{"runId":"0199f9c42b7e7cc59d0e3f5a0f6f8a01","frameId":"0199f9c42b7e7cc59d0e3f5a0f6f8a01-1000","status":"accepted",'
    b'"idempotentReplay":false}'
)
HEADERS = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(ACCEPTED))]


class NoNonces:
    async def claim(self, nonce: str, expires_at: int) -> bool:
        return True


class Signed:
    def __init__(self) -> None:
        self._signatures = Signatures(DEVELOPMENT_KEYS, NoNonces())

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        status = 202
        if scope["method"] == "POST":
            self._signatures.check(header(scope, SIGNATURE), header(scope, KEY_ID))
            msgspec.json.decode(await read_body(receive), type=dict[str, Any])
        else:
            status = 404
        await send({"type": "http.response.start", "status": status, "headers": HEADERS})
        await send({"type": "http.response.body", "body": ACCEPTED})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    port: int = parser.parse_args().port
    tune_interpreter()
    uvicorn.run(
        Signed(), host="127.0.0.1", port=port, loop="uvloop", http="httptools", ws="none", lifespan="off",
        log_level="warning", access_log=False, server_header=False, proxy_headers=False, timeout_graceful_shutdown=1,
    )  # fmt: skip


if __name__ == "__main__":
    main()

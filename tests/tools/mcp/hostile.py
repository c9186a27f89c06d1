"""A server of tools over stdio, in plain Python, that does what it is told to: also what no server should.

    python hostile.py [never|newer|chatty]

Every start is noted as a line in the file that STARTS names, and every call as a line in CALLS.
"""

import json
import os
import signal
import sys
import time
from typing import Any

MODE = sys.argv[1] if len(sys.argv) > 1 else ""
TOOLS = [
    "echo", "hang", "stuck", "flood", "die", "large", "wrong", "shape", "refuse", "grow", "steps", "tell", "burst",
    "meta",
]  # fmt: skip
READS = ["echo", "slow"]


def note(variable: str, text: str) -> None:
    if path := os.environ.get(variable):
        with open(path, "a") as file:
            file.write(f"{text}\n")


def say(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def answer(id_: Any, value: Any, *, failed: bool = False) -> None:
    text = value if isinstance(value, str) else json.dumps(value)
    say(id=id_, result={"content": [{"type": "text", "text": text}], "isError": failed})


def tools() -> list[dict[str, Any]]:
    schema = {"type": "object"}
    return [
        {"name": name, "description": f"Does {name}.", "inputSchema": schema,
         "annotations": {"readOnlyHint": name in READS}}
        for name in TOOLS
    ]  # fmt: skip


def call(id_: Any, name: str, given: dict[str, Any], meta: dict[str, Any]) -> None:
    note("CALLS", f"{name} {json.dumps(given)}")
    match name:
        case "echo":
            answer(id_, given)
        case "hang":
            return
        case "stuck":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(3600)
        case "flood":
            while True:
                say(method="notifications/message", params={"level": "info", "data": "x" * 100})
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "large":
            answer(id_, "x" * given.get("bytes", 50_000_000))
        case "wrong":
            sys.stdout.write('{"jsonrpc": "2.0", "id": nonsense}\n')
            sys.stdout.flush()
        case "shape":
            say(id=id_, result={"content": "this is no list"})
        case "refuse":
            answer(id_, f"I will not: {given.get('why', '')}", failed=True)
        case "grow":
            TOOLS.append("grown")
            say(method="notifications/tools/list_changed")
            answer(id_, "ok")
        case "steps":
            for step in (1, 2):
                params = {
                    "progressToken": meta.get("progressToken"),
                    "progress": step,
                    "total": 2,
                    "message": f"s{step}",
                }
                say(method="notifications/progress", params=params)
            answer(id_, "done")
        case "tell":
            answer(id_, {"said": os.environ.get(given["variable"], ""), "near": f"<{os.environ.get('SECRET', '')}>"})
        case "meta":
            answer(id_, meta)
        case "burst":
            for _ in range(1000):
                say(method="notifications/message", params={"level": "info", "data": "x"})
            answer(id_, "ok")
        case _:
            say(id=id_, error={"code": -32602, "message": f"Unknown tool: {name}"})


def main() -> None:
    note("STARTS", str(os.getpid()))
    if MODE == "chatty":
        print("Hello, I am a server that talks too much.", flush=True)
    for line in sys.stdin:
        message = json.loads(line)
        if MODE == "never" or "id" not in message or "method" not in message:
            continue
        id_, method, params = message["id"], message["method"], message.get("params") or {}
        if method == "initialize":
            info = {"name": "hostile", "version": "1"}
            capabilities = {"tools": {"listChanged": True}}
            version = params["protocolVersion"]
            say(id=id_, result={"protocolVersion": version, "capabilities": capabilities, "serverInfo": info})
        elif method == "tools/list":
            say(id=id_, result={"tools": tools()})
        elif method == "tools/call":
            call(id_, params["name"], params.get("arguments") or {}, params.get("_meta") or {})
        else:
            say(id=id_, error={"code": -32601, "message": "Method not found"})


if __name__ == "__main__":
    main()

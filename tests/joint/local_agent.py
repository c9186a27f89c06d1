"""A local agent as somebody else would write it: a process of its own that speaks bare HTTP, and nothing of ours.

It answers by the text of the task, also as no adapter should, and writes down what it was sent, byte by byte, and when
the one who asked hung up. `python local_agent.py RECORD` prints its address.
"""

import asyncio
import base64
import json
import sys
import time
from pathlib import Path
from typing import Any

FILE = {
    "artifact_type": "report", "filename": "reports/result.md", "title": "Result Report", "summary": "short",
    "keywords": ["one", "two"], "mime_type": "text/markdown", "content_text": "# Report content",
}  # fmt: skip
OTHER = {"filename": "data.csv", "mime_type": "text/csv", "content_text": "a,b\n1,2\n"}
REFUSED = {"filename": "odd.bin", "mime_type": "no media type", "content_text": "x"}
"""One that the runtime passes on and the platform will not keep."""

ANSWERS: dict[str, Any] = {
    "envelope": {"success": True, "output": {"text": "result"}},
    "direct": {"text": "result"},
    "failure": {"success": False, "error": "failure reason"},
    "array": [{"text": "result"}],
    "one file": {"success": True, "output": {"text": "see the file", "artifacts": [FILE]}},
    "many files": {"success": True, "output": {"text": "see the files", "artifacts": [FILE, OTHER]}},
    "alias": {"success": True, "output": {"text": "see the file", "artifact_writes": [FILE]}},
    "refused file": {"success": True, "output": {"text": "see the files", "artifacts": [FILE, REFUSED, OTHER]}},
    "ask": {"success": True, "output": {"state": "input-required", "text": "Which colour?"}},
}
LINES = [{"progress": {"text": "reading", "percent": 10}}, {"progress": {"text": "writing"}}, {"text": "read"}]


class LocalAgent:
    def __init__(self, record: Path) -> None:
        self._record = record.open("a", buffering=1)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raw = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in raw.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        raw += (body := await reader.readexactly(int(length.partition(b":")[2])))
        task = json.loads(body)
        self._note("asked", task["task_run_id"], raw=base64.b64encode(raw).decode())
        status, media, answer = await self._answer(task, reader)
        head = f"HTTP/1.1 {status} X\r\nContent-Type: {media}\r\nContent-Length: {len(answer)}\r\n\r\n"
        writer.write(head.encode() + answer)
        writer.close()

    async def _answer(self, task: dict[str, Any], reader: asyncio.StreamReader) -> tuple[int, str, bytes]:
        text, _, after_s = task["input"]["text"].partition(" after ")
        await asyncio.sleep(float(after_s or 0))
        match text:
            case "hang":
                await reader.read()
                self._note("hung up", task["task_run_id"])
                return 200, "text/plain", b""
            case "500":
                return 500, "application/json", b'{"text": "result"}'
            case "plain":
                return 200, "text/plain", b"result"
            case "progress":
                return 200, "application/x-ndjson", b"".join(json.dumps(line).encode() + b"\n" for line in LINES)
            case _:
                said = ANSWERS.get(text, {"text": f"It is {text}."})
                return 200, "application/json", json.dumps(said).encode()

    def _note(self, what: str, run: str, **more: str) -> None:
        self._record.write(json.dumps({"what": what, "run": run, "at": time.monotonic(), **more}) + "\n")


async def main(record: Path) -> None:
    server = await asyncio.start_server(LocalAgent(record).serve, "127.0.0.1", 0)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/run-task", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))

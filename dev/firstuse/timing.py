"""Time from `make run` to an answer, once everything is installed."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from dev.firstuse.following import Program

URL = "http://127.0.0.1:8200/agents/echo"
LIMIT_S = 5.0
_PATIENCE_S = 60.0


def first_answer_s(place: Path, env: Mapping[str, str]) -> float:
    program = Program("make run", place, env)
    try:
        while time.monotonic() - program.began < _PATIENCE_S:
            if _answered():
                return time.monotonic() - program.began
            time.sleep(0.02)
        raise TimeoutError(f"There was no answer in {_PATIENCE_S:g} s.")
    finally:
        program.stop()


def _answered() -> bool:
    message = {"messageId": "first", "role": "ROLE_USER", "parts": [{"text": "hello"}]}
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    headers = {"Content-Type": "application/json", "A2A-Version": "1.0"}
    try:
        with urllib.request.urlopen(
            urllib.request.Request(URL, json.dumps(body).encode(), headers), timeout=10
        ) as reply:
            task = json.load(reply)["result"]["task"]
    except (urllib.error.URLError, ConnectionError):
        return False
    return task["status"]["state"] == "TASK_STATE_COMPLETED"

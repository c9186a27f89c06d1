"""An organisation's server as a process of its own, with the built-in kernel or with an Agent-Zero beside it."""

import json
import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from parley.drivers.org.driver import sample_folder
from parley.testing.processes import ServerProcess
from tests.a2a_server.wire import Wire

DRILL: dict[str, Any] = {
    "name": "Evacuation Drill",
    "domains": ["file_ops"],
    "triggers": ["evacuation drill"],
    "graph": {
        "nodes": {
            "start": {"type": "start"},
            "begin": {
                "type": "task", "name": "Begin the report",
                "command": ["{python}", "{organisation}/tools/begin_report.py", "{work}"],
            },
            "stop": {
                "type": "escalate", "name": "Stop", "reason": "The ground is not safe", "pace_level": "emergency"
            },
            "done": {"type": "exit"},
        },
        "edges": [
            {"from": "start", "to": "begin", "condition": "always"},
            {"from": "begin", "to": "stop", "condition": "on_success"},
            {"from": "stop", "to": "done", "condition": "always"},
        ],
    },
}  # fmt: skip
BEGIN_REPORT = "import sys; open(sys.argv[1] + '/report.md', 'w').write('# Half a report\\n'); print('begun')"
WATCH: dict[str, Any] = {
    "name": "Night Watch",
    "domains": ["file_ops"],
    "triggers": ["night watch"],
    "graph": {
        "nodes": {
            "start": {"type": "start"},
            "watch": {
                "type": "task", "name": "Watch", "command": ["{python}", "{organisation}/tools/watch.py", "{work}"],
            },
            "done": {"type": "exit", "name": "The night is over"},
        },
        "edges": [
            {"from": "start", "to": "watch", "condition": "always"},
            {"from": "watch", "to": "done", "condition": "on_success"},
        ],
    },
}  # fmt: skip
WATCH_CODE = """
import os, pathlib, sys, time
here = pathlib.Path(sys.argv[1])
(here / "begun.part").write_text(str(os.getpid()))
(here / "begun.part").rename(here / "begun")
while not (here / "dawn").exists():
    time.sleep(0.01)
print("All quiet.")
"""


def sample(place: Path, *, extended: bool = True) -> Path:
    """A copy of the sample organisation; with a workflow that ends in an emergency and one that takes its time."""
    folder = place / "organizations"
    if not folder.exists():
        shutil.copytree(sample_folder(), folder)
        if extended:
            _extend(folder)
    return folder


def _extend(folder: Path) -> None:
    (folder / "workflows").mkdir()
    (folder / "workflows" / "evacuation_drill.json").write_text(json.dumps(DRILL))
    (folder / "workflows" / "night_watch.json").write_text(json.dumps(WATCH))
    (folder / "tools" / "begin_report.py").write_text(BEGIN_REPORT)
    (folder / "tools" / "watch.py").write_text(WATCH_CODE)


def write_file(place: Path, **fields: Any) -> Path:
    file = place / "a2a_config.json"
    said = {"host": "127.0.0.1", "port": 0, "authentication": {"scheme": "none"}, **fields}
    file.write_text(json.dumps({"a2a_server": said}))
    return file


def strays(place: Path) -> list[Path]:
    """Files that a shell would have left behind."""
    return list(place.rglob("oops"))


async def start(config: Path, **env: str) -> ServerProcess:
    return await ServerProcess.launch(["a2a_server.run", "--config", str(config)], env=env)


@asynccontextmanager
async def running(config: Path, **env: str) -> AsyncGenerator[tuple[ServerProcess, Wire], None]:
    server = await start(config, **env)
    try:
        async with Wire(server.url) as wire:
            yield server, wire
    finally:
        await server.stop()

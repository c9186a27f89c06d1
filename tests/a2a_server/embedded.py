"""The server with the built-in kernel."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from parley.testing.processes import ServerProcess, until
from tests.a2a_server.houses import running, sample, write_file
from tests.a2a_server.wire import Json, Wire


class Embedded:
    why = "The ground is not safe"

    def __init__(self, place: Path, folder: Path, server: ServerProcess, wire: Wire) -> None:
        self.folder = folder
        self.server = server
        self.wire = wire
        self.shared = place / "shared"
        self._tasks = place / "a2a_data" / "org" / "tasks"

    @staticmethod
    @asynccontextmanager
    async def open(place: Path, *, extended: bool = True, **env: Any) -> AsyncGenerator["Embedded", None]:
        (place / "shared").mkdir(exist_ok=True)
        folder = sample(place, extended=extended)
        config = write_file(
            place, org_dir=str(folder), agent_connection={"method": "embedded"}, roots=[str(place / "shared")]
        )
        async with running(config, **env) as (server, wire):
            yield Embedded(place, folder, server, wire)

    def put(self, name: str, content: str) -> None:
        (self.shared / name).write_text(content)

    def work(self, task: str) -> Path:
        return self._tasks / task

    async def begun(self, task: str) -> None:
        await until((self.work(task) / "begun").exists)

    async def dawn(self, task: str) -> None:
        (self.work(task) / "dawn").touch()

    async def at_rest(self, task: str) -> None:
        """Its program was ended with it: what it would have waited for changes nothing."""

    def reports(self) -> dict[str, Json]:
        return {path.name: json.loads(path.read_text()) for path in (self.folder / "reports").glob("*_latest.json")}

    def role(self, id_: str) -> Json:
        return json.loads((self.folder / "roles" / f"{id_}.json").read_text())

    def plans(self) -> dict[str, Json]:
        return json.loads((self.folder / "workflows.json").read_text())["plans"]

"""`parley org serve`, and contract 001's `python -m a2a_server.run`."""

from pathlib import Path
from typing import Any

from parley.cli.server import serve
from parley.compat.organisation import driver_of, settings_of
from parley.compat.orgfile import OrgFile, read_orgfile
from parley.definitions.reading import Sources
from parley.definitions.watching import Definitions
from parley.telemetry import tell


def serve_organisation(config: Path | None, **given: Any) -> None:
    """As a file says; without one, the sample organisation, for this machine only."""
    file, unknown = read_orgfile(config) if config is not None else (OrgFile(), list[str]())
    folder = config.absolute().parent if config is not None else Path.cwd()
    settings = settings_of(file, folder, **given)
    if not file.enabled:
        print(f"{config} says that this server is not enabled.")
        return

    def read() -> Definitions:
        if unknown:
            tell("config.unknown", file=str(config), fields=unknown, warning="These fields mean nothing here.")
        return Definitions(Sources(), [driver_of(file, folder, settings)])

    serve(settings, read)

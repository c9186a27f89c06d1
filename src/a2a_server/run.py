"""Command line: `python -m a2a_server.run --config FILE`."""

import argparse
import sys
from pathlib import Path

from a2a_server.server import serve_organisation
from parley.cli.options import ERROR, USAGE
from parley.errors import ConfigurationError, ParleyError

__all__ = ["main"]

DEFAULT = Path("/a0/usr/organizations/a2a_config.json")


def main(arguments: list[str] | None = None) -> int:
    """Serve an organisation until it is stopped; return the exit status."""
    asked = _parser().parse_args(arguments)
    try:
        serve_organisation(asked.config, host=asked.host, port=asked.port, data_dir=asked.data_dir)
    except ParleyError as error:
        print(f"a2a_server: {error.message} [{error.code}]", file=sys.stderr)
        return USAGE if isinstance(error, ConfigurationError) else ERROR
    except KeyboardInterrupt:
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("a2a_server", description="Serve an organisation as one A2A agent.")
    parser.add_argument(
        "--config", type=Path, default=DEFAULT, help=f"configuration file of the organisation (default: {DEFAULT})"
    )
    parser.add_argument("--host", help="address to listen on; overrides the file")
    parser.add_argument("--port", type=int, help="port to listen on; overrides the file; 0 picks a free port")
    parser.add_argument("--data-dir", type=Path, help="directory that stores the tasks; overrides the file")
    return parser


if __name__ == "__main__":
    sys.exit(main())

"""`python -m a2a_server.run --config FILE`."""

import argparse
import sys
from pathlib import Path

from a2a_server.server import serve_organisation
from parley.cli.exits import ERROR, USAGE
from parley.errors import ConfigurationError, ParleyError

DEFAULT = Path("/a0/usr/organizations/a2a_config.json")


def main(arguments: list[str] | None = None) -> int:
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
    parser.add_argument("--config", type=Path, default=DEFAULT, help=f"its configuration file; {DEFAULT} if left out")
    parser.add_argument("--host", help="address to listen on, whatever the file says")
    parser.add_argument("--port", type=int, help="port to listen on, whatever the file says; 0 takes a free one")
    parser.add_argument("--data-dir", type=Path, help="where tasks are kept, whatever the file says")
    return parser


if __name__ == "__main__":
    sys.exit(main())

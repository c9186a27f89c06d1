"""Run MCP's conformance kit against a server with the conformance agent: `python -m dev.conformance.mcp`.

The kit calls tools, prompts and resources of its own reference server by name. A server whose tools are agents has none
of them, so only scenarios about the protocol itself can pass; the counts are printed."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from dev.conformance.kits import BUILD, serving
from sdk.node import Node, candidates
from sdk.package import packages

HOME = BUILD / "mcp-conformance"
KIT = "@modelcontextprotocol/conformance"
VERSION = "0.1.16"
SINCE = 22
_RESULT = re.compile(r"^[✓✗] ([\w-]+): (\d+) passed, (\d+) failed", re.MULTILINE)


def results() -> Iterator[tuple[str, int, int]]:
    """Yield the checks of each scenario that passed and failed."""
    HOME.mkdir(parents=True, exist_ok=True)
    (HOME / "package.json").write_text(f'{{"private": true, "dependencies": {{"{KIT}": "{VERSION}"}}}}')
    packages(HOME)
    with serving(()) as url:
        for name, passed, failed in _RESULT.findall(_printed(_node(), f"{url}/mcp")):
            yield name, int(passed), int(failed)


def _node() -> Node:
    """The kit needs a newer Node.js than everything else here."""
    found = next((one for one in candidates() if one.version >= SINCE), None)
    return found or sys.exit(f"The kit needs Node.js {SINCE} or newer.")


def _printed(node: Node, url: str) -> str:
    program = HOME / "node_modules" / Path(KIT) / "dist" / "index.js"
    command = [str(node.program), str(program), "server", "--url", url]
    return subprocess.run(command, cwd=HOME, capture_output=True, text=True, timeout=300, check=False).stdout


def main() -> None:
    rows = sorted(results())
    for name, _, failed in rows:
        print(f"{'failed' if failed else 'passed':7} {name}")
    print(f"{sum(row[1] for row in rows)} checks passed, {sum(row[2] for row in rows)} failed")


if __name__ == "__main__":
    main()

"""Run a conformance kit against our conformance agent: `python -m dev.conformance DIR`.

The files in DIR tell which kit it is. Each configuration gets its own server; the results are written to
`build/conformance.json`, and to `docs/conformance.md` with the reason of each miss.
"""

import sys
from pathlib import Path

from rich.console import Console

from dev.conformance import kits, report

console = Console(stderr=True, highlight=False)


def main(directory: Path) -> int:
    kit = kits.found_at(directory.resolve())
    rows: list[report.Row] = []
    for configuration in kit.configurations:
        with console.status(f"{kit.name}: {configuration.name}"):
            rows += kit.run(configuration)
        for row in rows:
            if row.configuration == configuration.name:
                console.print(report.line(row))
    report.write(kit.name, rows)
    unexplained = [miss for row in rows for miss in row.misses if report.reason(row, miss) is None]
    for miss in unexplained:
        console.print(f"[red]not explained[/red] {miss}")
    return 1 if unexplained else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("Give the folder of the kit: make conformance KIT=DIR")
    sys.exit(main(Path(sys.argv[1])))

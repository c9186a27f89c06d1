"""Run the cases against a server: `python -m dev.conformance.a2a11 URL`, with the URL of an agent."""

import asyncio
import sys

from dev.conformance.a2a11.runner import cases, run
from dev.conformance.a2a11.wires import wires_of


async def main(url: str) -> int:
    """Print a line for each case and binding. Return 1 if a case that must pass does not."""
    failed = 0
    wires = await wires_of(url)
    if not wires:
        sys.exit(f"The card of {url} offers no interface for A2A 1.1.")
    for wire in wires:
        for case in cases():
            wrong = await run(case, wire)
            failed += bool(wrong) and case.level == "must"
            print(f"{'failed' if wrong else 'passed'} {wire.name:<9} {case.level:<6} {case.id} {case.title}")
            for one in wrong:
                print(f"       {one}")
        await wire.close()
    return 1 if failed else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("Give the URL of an agent.")
    sys.exit(asyncio.run(main(sys.argv[1])))

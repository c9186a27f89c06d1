"""`python -m sdk`: write the types anew and build the package."""

import asyncio
import sys

from sdk.node import CommandFailed, NoNode
from sdk.package import compiled
from sdk.types import FILE, current, types_of


def main() -> int:
    FILE.write_text(types_of(asyncio.run(current())))
    try:
        compiled()
    except (CommandFailed, NoNode) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

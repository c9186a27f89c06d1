"""`python -m sdk`: write the types anew and build the package."""

import sys

from sdk.node import CommandFailed, NoNode
from sdk.package import compiled


def main() -> int:
    try:
        compiled()
    except (CommandFailed, NoNode) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

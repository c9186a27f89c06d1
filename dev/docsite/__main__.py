"""`make docs`: write the reference, build the site into build/site, and refuse what is wrong with it."""

import sys
from pathlib import Path

from dev.docsite.building import built
from dev.docsite.checking import faults
from dev.docsite.reference import write

ROOT = Path(__file__).parents[2]


def main() -> int:
    write()
    site = built(ROOT)
    found = faults(site)
    for fault in found:
        print(fault, file=sys.stderr)
    print(f"{site}: {len(list(site.rglob('*.html')))} pages, {len(found)} errors")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

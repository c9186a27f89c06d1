"""python -m dev.audit PIP-AUDIT: exit 1 if there are findings, or if the audit itself failed."""

import sys
import sysconfig
from pathlib import Path

from dev.audit import licences, vulnerabilities
from dev.audit.words import installed


def main(program: Path, place: Path) -> int:
    packages = sorted(installed(place), key=str)
    lines = vulnerabilities.shown(vulnerabilities.audited(program, place, packages), packages)
    lines += map(str, licences.judged(packages, licences.rules()))
    for line in lines:
        print(line)
    known = f"{len(lines)} to look at." if lines else "nothing is known against them, and their licences are allowed."
    print(f"{len(packages)} packages: {known}")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sysconfig.get_path("purelib"))))

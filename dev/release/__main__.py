"""`make release`: build the commit that is checked out, and write everything that is published into dist/."""

import hashlib
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterable
from pathlib import Path

from dev.audit import licences
from dev.audit.words import OURS, Package, installed, plain
from dev.release.bill import bill_of, document, written
from dev.release.building import ROOT, NotReproducible, built_twice, changed, committed_at
from dev.release.terms import texts


def main(dist: Path) -> int:
    if differing := changed():
        print("Commit these files first: a release holds exactly one commit.", *differing, sep="\n", file=sys.stderr)
        return 1
    place = Path(sysconfig.get_path("purelib"))
    packages = {one.name: one for one in installed(place) if one.name not in OURS}
    if problems := [*_unpinned(packages.values()), *map(str, licences.judged(packages.values(), licences.rules()))]:
        print(*problems, sep="\n", file=sys.stderr)
        return 1
    shutil.rmtree(dist, ignore_errors=True)
    dist.mkdir(parents=True)
    try:
        with tempfile.TemporaryDirectory(prefix="release-") as folder:
            for file in built_twice(Path(folder)):
                shutil.copy(file, dist)
    except NotReproducible as error:
        print(error, file=sys.stderr)
        return 1
    describe(dist, packages, place)
    for file in sorted(dist.iterdir()):
        print(f"{file.stat().st_size:>10,}  {file.name}")
    return 0


def _unpinned(packages: Iterable[Package]) -> list[str]:
    """Packages that are installed here in another version than the one the tests ran with."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = {plain(name): version for name, _, version in (line.partition("==") for line in lines)}
    return [
        f"{one} is installed, and constraints.txt has {pinned[one.name]}."
        for one in packages
        if pinned.get(one.name, one.version) != one.version
    ]


def describe(dist: Path, packages: dict[str, Package], place: Path) -> None:
    """Write a bill of materials for each wheel, the licences of everything, and the checksums."""
    rules, at, everything = licences.rules(), committed_at(), dict[str, Package]()
    for wheel in sorted(dist.glob("*.whl")):
        bill = bill_of(wheel, packages)
        name = "-".join(wheel.name.split("-")[:2])
        (dist / f"{name}.cdx.json").write_text(written(document(bill, rules, at)), "utf-8")
        everything |= {one.name: one for one in bill.packages}
    shutil.copy(ROOT / "LICENSE", dist)
    named = sorted(everything.values(), key=str)
    (dist / "THIRD-PARTY-LICENSES.txt").write_text(texts(named, rules, place), "utf-8")
    sums = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in sorted(dist.iterdir())]
    (dist / "SHA256SUMS").write_text("".join(sums))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))

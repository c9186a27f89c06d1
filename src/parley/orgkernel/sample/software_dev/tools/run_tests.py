"""Runs the tests of a folder."""

import io
import sys
import unittest
from pathlib import Path


def main(folder: Path) -> int:
    sys.path.insert(0, str(folder))
    said = io.StringIO()
    found = unittest.defaultTestLoader.discover(str(folder), "test_*.py", str(folder))
    result = unittest.TextTestRunner(said).run(found)
    good = result.wasSuccessful() and result.testsRun > 0
    print(f"{result.testsRun} test(s) {'passed' if good else 'did not pass'}.")
    if not good:
        print(said.getvalue(), file=sys.stderr)
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))

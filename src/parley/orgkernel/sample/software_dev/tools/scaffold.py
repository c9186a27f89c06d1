"""Creates a module that states its purpose, and a test that runs it. The purpose is read from standard input."""

import re
import sys
from pathlib import Path

MODULE = '''"""{purpose}"""


def main() -> str:
    return {greeting!r}


if __name__ == "__main__":
    print(main())
'''
TEST = """import unittest

import {name}


class Test(unittest.TestCase):
    def test_it_answers(self) -> None:
        self.assertTrue({name}.main())


if __name__ == "__main__":
    unittest.main()
"""


def main(name: str, folder: Path, purpose: str) -> int:
    if name == "task" and re.search(r"hello,? world", purpose, re.IGNORECASE):
        name = "hello_world"
    plain = re.sub(r"\W", "_", name.removesuffix(".py"))
    name = plain if plain.isidentifier() else f"module_{plain}"
    words = " ".join(re.sub(r"[^\w ,.-]", " ", purpose).split())[:100] or "A module."
    greeting = "Hello, world!" if name == "hello_world" else f"This is {name}."
    (folder / f"{name}.py").write_text(MODULE.format(purpose=words, greeting=greeting))
    (folder / f"test_{name}.py").write_text(TEST.format(name=name))
    print(f"{name}.py and test_{name}.py")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], Path(sys.argv[2]), sys.stdin.read(4000)))

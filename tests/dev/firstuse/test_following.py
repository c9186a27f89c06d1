"""Following a README that holds, and ones that do not."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from dev.firstuse.comparing import Difference
from dev.firstuse.following import Follower
from dev.firstuse.places import ROOT, apart, environment, ports_are_free
from dev.firstuse.readme import read

EXAMPLES = ["compat", "edge", "finance", "mcp", "team"]
GOOD = """
# 1. A path

```console
$ bash -c 'echo on the way; echo "listens as 01a1e737-a1f1-7001-93fc-d9bf793f0fb1"; exec sleep 600'
…
listens as 01a1e737-a1f1-7001-93fc-d9bf793f0fb1
…
$ export WORD=there
```

```text
# place/file.txt
content
```

```console
$ cat place/file.txt; echo $WORD; echo err >&2
# place/file.txt
content
there
err
```
"""


def follow(text: str, place: Path) -> None:
    follower = Follower(place, environment(place / "home"))
    try:
        follower.follow(read(text))
    finally:
        follower.stop()


def test_a_readme_that_holds_is_followed_to_its_end(tmp_path: Path) -> None:
    follow(GOOD, tmp_path)
    assert (tmp_path / "place" / "file.txt").exists()


@pytest.mark.parametrize(
    ("planted", "found"),
    [
        (GOOD.replace("there\nerr", "here\nerr"), "but this is what happens"),
        (GOOD.replace("\nerr\n", "\n"), "but this is what happens"),
        (GOOD.replace("exec sleep 600'", "exit 3'"), "ended with 3"),
    ],
    ids=["another word", "a line less", "a server that falls"],
)
def test_a_difference_that_is_planted_is_found(tmp_path: Path, planted: str, found: str) -> None:
    assert planted != GOOD
    with pytest.raises(Difference, match=found):
        follow(planted, tmp_path)


def test_a_server_that_does_not_say_what_is_shown_is_found(tmp_path: Path) -> None:
    with pytest.raises(Difference, match="does not say"):
        follow(GOOD.replace('"listens as', '"listened as').replace("exec sleep 600", "exit 0"), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("page", ["README.md", *(f"examples/{name}/README.md" for name in EXAMPLES)])
def test_a_page_does_what_it_shows(page: str) -> None:
    """With this environment and the files as they are now; `make firstuse` takes nothing for granted."""
    if not (ROOT / ".git").exists() or (apart() is None and not ports_are_free()):
        pytest.skip("needs the repository, and ports that nobody uses")
    command = [sys.executable, "-m", "dev.firstuse", "--here", page]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "do what it shows" in result.stdout


def test_every_example_has_a_page_that_is_followed_or_names_its_test() -> None:
    for folder in (one for one in (ROOT / "examples").iterdir() if one.is_dir() and one.name != "__pycache__"):
        page = (folder / "README.md").read_text()
        assert f"({folder.name}/README.md)" in (ROOT / "examples" / "README.md").read_text()
        if folder.name not in EXAMPLES:
            named = re.search(r"`(tests/\S+\.py)`", page)
            assert named, folder.name
            assert (ROOT / named[1]).is_file()

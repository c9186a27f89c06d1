"""`python -m dev.firstuse`: in a fresh clone with a fresh environment; `--here`: as things are, in this environment."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from dev.firstuse.comparing import Difference
from dev.firstuse.following import Follower
from dev.firstuse.places import ROOT, apart, cloned, copied, environment, ports_are_free, raise_loopback
from dev.firstuse.readme import Typed, read
from dev.firstuse.timing import LIMIT_S, first_answer_s

PAGE = "README.md"
_INSIDE = "FIRSTUSE_PLACE"


def main(arguments: list[str]) -> int:
    """Follow a page; the README by default."""
    here = "--here" in arguments
    page = next((one for one in arguments if not one.startswith("--")), PAGE)
    if _INSIDE in os.environ:
        raise_loopback()
        return _followed(Path(os.environ[_INSIDE]), page, here=here)
    with tempfile.TemporaryDirectory(prefix="firstuse-", ignore_cleanup_errors=True) as folder:
        place = Path(folder) / "parley"
        place = copied(place) if here else cloned(place)
        if ports_are_free() and not here:
            return _followed(place, page, here=here)
        return _followed_apart(place, page, here=here)


def _followed_apart(place: Path, page: str, *, here: bool) -> int:
    """Others use the ports that the README names, or may want to: so elsewhere. There is no way out from there, so what
    has to be fetched is fetched before."""
    way = apart()
    if way is None:
        if here and ports_are_free():
            return _followed(place, page, here=here)
        print("The ports of the README are in use, and a separate network cannot be created here.", file=sys.stderr)
        return 2
    if not here:
        subprocess.run(
            ["make", "--silent", ".venv/.installed"], cwd=place, env=environment(place.parent / "home"), check=True
        )
    env = {**os.environ, _INSIDE: str(place)}
    return subprocess.run(
        [*way, sys.executable, "-m", "dev.firstuse", page, *(["--here"] * here)], cwd=ROOT, env=env
    ).returncode


def _followed(place: Path, page: str, *, here: bool) -> int:
    steps = read((place / page).read_text())
    env = environment(place.parent / "home")
    follower = Follower(place, env)
    try:
        follower.follow(steps)
        follower.stop()
        took = first_answer_s(place, env) if page == PAGE else None
    except Difference as error:
        print(f"{page} and the program differ.\n  {error}", file=sys.stderr)
        return 1
    finally:
        follower.stop()
    typed = [step for step in steps if isinstance(step, Typed)]
    print(f"{len(typed)} commands of {page} do what it shows.")
    return _judged(took, here=here) if took is not None else 0


def _judged(took: float, *, here: bool) -> int:
    """Report the time. With `--here`, where others may use the machine, a slow start is not a failure."""
    print(f"From `make run` to the first answer, after installation: {took:.2f} s, at most {LIMIT_S:g} s.")
    return int(took > LIMIT_S and not here)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

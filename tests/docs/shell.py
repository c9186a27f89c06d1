"""A terminal for a page: a folder of its own, ports of its own, and servers that end with it."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from select import select
from types import TracebackType

from tests.docs.matching import spoken

TIMEOUT_S = 60.0
_PORT = re.compile(r"(?<![\w.-])(8[23]\d\d|18\d{3}|5000|54321|9[01]\d\d|6379)(?!\w)")
_NOTICE = re.compile(r"^/bin/bash: line \d+:\s+\d+ (?:Killed|Terminated)\b.*\n?", re.MULTILINE)
"""Notices that a shell that is not interactive prints by itself."""
_END = "__end_of_command__"
_ROOT = Path(__file__).parents[2]
_WORDS = f"""
ready() {{
  for _ in $(seq 300); do curl -sf -o /dev/null "$1" && return; sleep 0.1; done
  echo "$1 is not there"; return 1
}}
call() {{ printf '%s=%s\\n' "$1" "$2" >> .words; }}
place() {{
  PYTHONPATH={_ROOT} python -m tests.docs.places "$@" > ".place-$1" 2>&1 &
  for _ in $(seq 600); do
    grep -q '^ready$' ".place-$1" && {{ grep = ".place-$1" >> .words || true; return; }}
    sleep 0.1
  done
  cat ".place-$1"; return 1
}}
"""
"""Commands for preparations: `ready URL` waits for a server, `call WORD VALUE` sets the value of a word of the page,
`place NAME PORT` starts a service that the reader has elsewhere (places.py)."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Shell:
    """Runs commands one after another in one bash, in the page's folder."""

    def __init__(self, folder: Path, **env: str) -> None:
        self.folder = folder
        self.known: dict[str, str] = {}
        self._ports: dict[str, str] = {}
        self._servers = 0
        self._bash = subprocess.Popen(
            ["/bin/bash", "--norc", "--noprofile"], cwd=folder, env=self._environment(env), start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self._left = b""
        self.run(_WORDS)

    def _environment(self, env: dict[str, str]) -> dict[str, str]:
        port = self.port("8200")
        ours = {
            "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin", "HOME": str(self.folder),
            "LANG": "C.UTF-8", "TERM": "dumb", "NO_COLOR": "1", "COLUMNS": "120", "PYTHONUNBUFFERED": "1",
            "PYTHONWARNINGS": "ignore", "PYTHONDONTWRITEBYTECODE": "1", "TZ": "UTC",
            "PARLEY_PORT": port, "PARLEY_GRPC_PORT": "-1", "PARLEY_URL": f"http://127.0.0.1:{port}",
            "A2A_HOME": str(self.folder / ".a2a"),
        }  # fmt: skip
        kept = {name: os.environ[name] for name in ("XDG_RUNTIME_DIR", "SSL_CERT_FILE") if name in os.environ}
        return {**kept, **ours, **env}

    def port(self, shown: str) -> str:
        """The port that stands for one of the page's."""
        if shown not in self._ports:
            self._ports[shown] = str(free_port())
        return self._ports[shown]

    def here(self, text: str) -> str:
        """A text of the page, with the ports and ids of this run."""
        return _PORT.sub(lambda found: self.port(found[1]), spoken(self._worded(text), self.known))

    def _worded(self, text: str) -> str:
        """Words in capitals that stand for something the reader knows, as a preparation named them (`call`)."""
        words = self.folder / ".words"
        for line in words.read_text().splitlines() if words.exists() else ():
            name, _, value = line.partition("=")
            text = re.sub(rf"(?<![\w$]){re.escape(name)}(?![\w=])", lambda _, value=value: value, text)
        return text

    def there(self, text: str) -> str:
        """The output with the page's ports and folder; the usual server's address may be left out on the page."""
        for shown, actual in self._ports.items():
            text = re.sub(rf"(?<!\w){actual}(?!\w)", shown, text)
        return text.replace(str(self.folder), "~").replace(" --url http://127.0.0.1:8200", "")

    def run(self, command: str) -> tuple[int, str]:
        """The exit code, and everything that it wrote."""
        assert self._bash.stdin is not None
        self._bash.stdin.write(f"{{ {command}\n}} < /dev/null; printf '\\n{_END} %d\\n' $?\n".encode())
        self._bash.stdin.flush()
        end = re.compile(rb"\n" + _END.encode() + rb" (\d+)\n")
        deadline = time.monotonic() + TIMEOUT_S
        while (found := end.search(self._left)) is None:
            self._left += self._more(deadline, command)
        said, self._left = self._left[: found.start()], self._left[found.end() :]
        return int(found[1]), self.there(_NOTICE.sub("", said.decode(errors="replace")))

    def _more(self, deadline: float, command: str) -> bytes:
        assert self._bash.stdout is not None
        descriptor = self._bash.stdout.fileno()
        if not select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise TimeoutError(f"{command}\n{self.there(self._left.decode(errors='replace'))}")
        return os.read(descriptor, 65536) or self._over(command)

    def _over(self, command: str) -> bytes:
        raise RuntimeError(f"the shell ended at {command}\n{self._left.decode(errors='replace')}")

    def serve(self, command: str, until: str) -> None:
        """Start something that goes on, in the same shell, and wait until it has said so."""
        log = self.folder / f".server-{self._servers}.log"
        self._servers += 1
        self.run(f"{{ {command}\n}} > {log} 2>&1 &")
        deadline = time.monotonic() + TIMEOUT_S
        while not (log.exists() and until in log.read_text(errors="replace")):
            if time.monotonic() > deadline:
                raise AssertionError(f"{command} did not say {until!r}:\n{log.read_text(errors='replace')}")
            time.sleep(0.05)

    def logs(self) -> str:
        files = sorted(self.folder.glob(".server-*.log"))
        return "\n".join(f"{file.name}:\n{file.read_text(errors='replace')[-3000:]}" for file in files)

    def __enter__(self) -> "Shell":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Whatever was started here ends: first as an operator would, then as it must."""
        group = self._bash.pid
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGTERM)
        deadline = time.monotonic() + 10
        while self._lives() and time.monotonic() < deadline:
            time.sleep(0.05)
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
        self._bash.wait()
        for stream in (self._bash.stdin, self._bash.stdout):
            if stream is not None:
                stream.close()

    def _lives(self) -> bool:
        """True if any process of the group runs: background processes outlive their shell."""
        self._bash.poll()
        try:
            os.killpg(self._bash.pid, 0)
        except ProcessLookupError:
            return False
        return True

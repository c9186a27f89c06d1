"""Cost of a hop: a send to a local agent, and to the same agent through one and two servers that only forward."""

import statistics
import sys
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

from dev.bench import peers
from dev.bench.data import scratch
from dev.bench.rows import Case

HERE = Path(__file__).parent
SENDS = 150
WARMUP = 20
BODY = (
    '{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"%d","role":"ROLE_USER",'
    '"parts":[{"text":"hello"}]}}}'
)


def cases() -> list[Case]:
    return [
        Case("hops.1", "ms", lambda: one_send_ms(1), "without a hop", lambda: one_send_ms(0), note=per_hop(1)),
        Case("hops.2", "ms", lambda: one_send_ms(2), "with one hop", lambda: one_send_ms(1), note=per_hop(2)),
    ]


def per_hop(hops: int) -> Callable[[float], str]:
    return lambda value: f"p50 of one client through {hops} remote agent{'s' * (hops > 1)}"


def one_send_ms(hops: int) -> float:
    """The middle one of many sends, one after another."""
    with chain(hops) as url:
        times = [sent(url, number) for number in range(WARMUP + SENDS)]
    return statistics.median(times[WARMUP:]) * 1000


@contextmanager
def chain(hops: int) -> Generator[str, None, None]:
    """The address of the front; each server is a process of its own, durable on SQLite."""
    with ExitStack() as stack:
        address = ""
        for number in range(hops + 1):
            folder = Path(stack.enter_context(scratch()))
            agent = folder / "echo.yaml"
            if number == 0:
                agent = HERE / "echo_agent.py"
            else:
                agent.write_text(f"driver: remote\nremote:\n  url: {address}\n")
            parley = Path(sys.executable).with_name("parley")
            url = stack.enter_context(
                peers.start(parley, "serve", str(agent), "--data-dir", str(folder / "data"), "--grpc-port", "-1")
            )
            address = f"{url}agents/echo"
        yield address


def sent(url: str, number: int) -> float:
    request = Request(url, (BODY % number).encode(), {"Content-Type": "application/json", "A2A-Version": "1.0"})
    begin = time.perf_counter()
    with urlopen(request) as reply:
        body = reply.read()
    took = time.perf_counter() - begin
    if b"TASK_STATE_COMPLETED" not in body:
        raise RuntimeError(f"the send did not complete: {body[:500]!r}")
    return took
